//! Lanes, templates and groups, and the check of their limits.

use std::collections::BTreeSet;

use paceline_core::{
    GapFrom, GroupLimits, Limits, LimitsError, MOST_IN_FLIGHT, Portion, Priority, Rate, Window,
    check_name,
};
use toml::Spanned;
use toml::de::DeValue;

use super::document::{Notes, Section, element, shown};
use super::headers::read_headers;
use super::keys::LIMIT_KEYS;
use super::nearest::nearest;
use super::settings::{MOST, SPAN, above_zero, count};
use super::{Config, LaneConfig};

const RATES: &str = "an array of rates like [\"50/s\", \"1000/h\"]";
const NO_GAP: &str = "leave it out for no gap";

/// Reads `[groups.NAME]`.
pub(super) fn read_groups(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(groups) = root.section("groups", notes) else { return };
    for (name, at, _) in groups.entries() {
        if let Err(error) = check_name("group", name) {
            notes.note(at, error.to_string());
        } else if name.contains('*') {
            let what =
                format!("the group name `{}` has a `*`: only lanes have templates", shown(name));
            notes.note(at, what);
        }
        if let Some(group) = groups.section(name, notes) {
            let limits = read_group(&group, notes);
            config.groups.push((name.to_string(), limits));
        }
    }
}

/// Reads `[lanes.NAME]`. Groups have been read.
pub(super) fn read_lanes(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(lanes) = root.section("lanes", notes) else { return };
    let groups: BTreeSet<&str> = config.groups.iter().map(|(name, _)| name.as_str()).collect();
    for (name, at, _) in lanes.entries() {
        if notes.full() {
            return;
        }
        check_lane_name(name, at, notes);
        if let Some(lane) = lanes.section(name, notes) {
            let lane = read_lane(name, &lane, &groups, notes);
            config.lanes.push(lane);
        }
    }
    let most = config.settings.max_lanes.get() as usize;
    let mut real = lanes.entries().into_iter().filter(|(name, _, _)| !name.ends_with('*'));
    if let Some((name, at, _)) = real.nth(most) {
        let what = format!("the lane `{}` exceeds `queue.max_lanes = {most}`", shown(name));
        notes.note(at, what);
    }
}

fn check_lane_name(name: &str, at: usize, notes: &mut Notes<'_>) {
    if let Err(error) = check_name("lane", name) {
        notes.note(at, error.to_string());
    } else if name.trim_end_matches('*').contains('*') || name.ends_with("**") {
        let what = format!("the lane name `{}`: a template has one `*`, at its end", shown(name));
        notes.note(at, what);
    }
}

fn read_group(section: &Section<'_>, notes: &mut Notes<'_>) -> GroupLimits {
    let before = notes.count();
    section.check_keys("groups", notes);
    let windows = read_windows(section, notes);
    let limits = GroupLimits {
        every: above_zero(section, "every", NO_GAP, notes),
        windows: windows.iter().map(|(_, window)| window.clone()).collect(),
        in_flight: count(section, "in_flight", MOST_IN_FLIGHT, notes),
    };
    if notes.count() == before
        && let Err(error) = limits.check()
    {
        note_limits(&error, section, &windows, notes);
    }
    limits
}

fn read_lane(
    name: &str,
    section: &Section<'_>,
    groups: &BTreeSet<&str>,
    notes: &mut Notes<'_>,
) -> LaneConfig {
    let before = notes.count();
    section.check_keys("lanes", notes);
    let windows = read_windows(section, notes);
    let normal = Limits::default();
    let gaps = [("start", GapFrom::Start), ("finish", GapFrom::Finish)];
    let limits = Limits {
        every: above_zero(section, "every", NO_GAP, notes),
        gap_from: section.choice("gap_from", gaps, notes).unwrap_or_default(),
        gap_share: read_shares(section, "gap_share", normal.gap_share, notes),
        windows: windows.iter().map(|(_, window)| window.clone()).collect(),
        in_flight: count(section, "in_flight", MOST_IN_FLIGHT, notes).unwrap_or(normal.in_flight),
        slack: section.parsed("slack", SPAN, notes),
        timeout: above_zero(section, "timeout", "no call could finish in it", notes),
        group: read_group_name(section, groups, notes),
        fail_after: count(section, "fail_after", MOST_IN_FLIGHT, notes)
            .unwrap_or(normal.fail_after),
        max_waiting: count(section, "max_waiting", MOST, notes),
    };
    let url = read_url(section, notes);
    if notes.count() == before
        && let Err(error) = limits.check()
    {
        note_limits(&error, section, &windows, notes);
    }
    let headers = read_headers(section, notes);
    let private = section.flag("private", notes).unwrap_or(false);
    LaneConfig { name: name.to_string(), url, headers, private, limits }
}

fn read_group_name(
    section: &Section<'_>,
    groups: &BTreeSet<&str>,
    notes: &mut Notes<'_>,
) -> Option<String> {
    let name = section.text("group", "the name of a group", notes)?;
    if !groups.contains(name) {
        let hint = match nearest(name, groups.iter().copied()) {
            Some(meant) => format!("did you mean `{}`?", shown(meant)),
            None => "add it as `[groups.NAME]`".to_string(),
        };
        let what =
            format!("`{}`: no group named `{}`: {hint}", section.path_of("group"), shown(name));
        notes.note(section.place("group"), what);
    }
    Some(name.to_string())
}

/// Reads `url`. It may hold a password, so no mistake repeats it.
fn read_url(section: &Section<'_>, notes: &mut Notes<'_>) -> Option<String> {
    const WHAT: &str = "a URL that starts with `https://` or `http://`";
    let url = section.text("url", WHAT, notes)?;
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let plain = !url.chars().any(|c| c.is_whitespace() || c.is_control());
    if !plain || host.is_none_or(|host| host.is_empty() || host.ends_with('@')) {
        let what = format!("`{}` must be {WHAT} and name a host", section.path_of("url"));
        notes.note(section.place("url"), what);
    }
    Some(url.to_string())
}

/// A table from priorities to portions; a priority that is not in it stays `normal`.
fn read_shares(
    section: &Section<'_>,
    key: &str,
    normal: [Portion; 4],
    notes: &mut Notes<'_>,
) -> [Portion; 4] {
    let Some(table) = section.section(key, notes) else { return normal };
    table.check_names(&Priority::ALL.map(Priority::name), notes);
    let mut shares = normal;
    for priority in Priority::ALL {
        if let Some(portion) = table.portion(priority.name(), notes) {
            shares[priority.index()] = portion;
        }
    }
    shares
}

/// The windows of `limits`, each with its place.
fn read_windows(section: &Section<'_>, notes: &mut Notes<'_>) -> Vec<(usize, Window)> {
    let Some(array) = section.array("limits", RATES, notes) else { return Vec::new() };
    let path = section.path_of("limits");
    let read = |value: &Spanned<DeValue<'_>>| {
        let at = value.span().start;
        let window = match value.get_ref() {
            DeValue::String(text) => {
                let note = |error| notes.note(at, format!("`{path}`: {error}"));
                text.parse().map(Window::new).map_err(note).ok()
            }
            DeValue::Table(table) => read_window(at, &element(&path, table), notes),
            _ => {
                notes.note(at, format!("`{path}` must be {RATES}: this is not a rate"));
                None
            }
        };
        window.map(|window| (at, window))
    };
    array.iter().filter_map(read).collect()
}

fn read_window(at: usize, table: &Section<'_>, notes: &mut Notes<'_>) -> Option<Window> {
    table.check_names(&LIMIT_KEYS, notes);
    if table.value("limit").is_none() {
        notes.note(
            at,
            format!("`{}`: this limit lacks its rate, as in `limit = \"50/s\"`", table.path()),
        );
    }
    let keep = read_shares(table, "keep", [Portion::ZERO; 4], notes);
    if keep[Priority::Background.index()] != Portion::ZERO {
        let what = format!(
            "`{}.keep.background`: background is the lowest priority, so there is nothing to reserve it from",
            table.path()
        );
        notes.note(table.place("keep"), what);
    }
    let spread = table.flag("spread", notes).unwrap_or_default();
    let rate: Rate = table.parsed("limit", "a rate like \"50/s\"", notes)?;
    Some(Window { rate, keep, spread })
}

fn note_limits(
    error: &LimitsError,
    section: &Section<'_>,
    windows: &[(usize, Window)],
    notes: &mut Notes<'_>,
) {
    let last = |wanted: &dyn Fn(&Window) -> bool| {
        let found = windows.iter().rev().find(|(_, window)| wanted(window));
        found.map_or(section.place("limits"), |&(at, _)| at)
    };
    let at = match error {
        LimitsError::Name(_) => section.place("group"),
        LimitsError::TooLong(key) | LimitsError::Zero(key) => section.place(key),
        LimitsError::InFlight(_) => section.place("in_flight"),
        LimitsError::Slack(_) => section.place("slack"),
        LimitsError::Windows(_) => section.place("limits"),
        LimitsError::SameWindow(per) => last(&|window| window.rate.per == *per),
        LimitsError::KeepsAll(rate) => last(&|window| window.rate == *rate),
        LimitsError::KeepInGroup => last(&|window| window.keep != [Portion::ZERO; 4]),
    };
    notes.note(at, format!("`{}`: {error}", section.path()));
}
