//! The sections that set up the engine: store, workers, queue, cache.

use std::num::NonZeroU32;
use std::path::PathBuf;

use paceline_core::{AcrossLanes, SettingsError, Span};

use super::Config;
use super::document::{Notes, Section};
use super::size::Size;

/// The largest count that a setting may have.
pub(crate) const MOST: u32 = 100_000_000;
/// The most slots.
const MOST_WORKERS: u32 = 100_000;
/// The most lanes.
const MOST_LANES: u32 = 1_000_000;
/// The largest payload that may be allowed.
const LARGEST_PAYLOAD: Size = Size(256 << 20);

pub(crate) const SPAN: &str = "a span of time like \"90s\"";
pub(crate) const SIZE: &str = "a size like \"10MiB\"";

/// Reads `[store]`.
pub(crate) fn read_store(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    if let Some(store) = root.section("store", notes) {
        store.check_keys("store", notes);
        if store.value("url").is_some() {
            let what =
                "`store.url`: PostgreSQL is not supported: use `path` for the embedded store";
            notes.note(store.place("url"), what);
        }
        if let Some(path) = store.text("path", "a file name", notes) {
            if path.is_empty() || path.contains('\0') {
                notes.note(store.place("path"), "`store.path` is not a file name");
            }
            config.store_path = PathBuf::from(path);
        }
        set(&mut config.keep_finished, store.parsed("keep_finished", SPAN, notes));
    }
}

/// Reads `[workers]`, `[queue]` and `[cache]`, and checks that they fit together.
pub(crate) fn read_settings(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let before = notes.count();
    read_workers(config, root, notes);
    read_queue(config, root, notes);
    read_cache(config, root, notes);
    if notes.count() > before {
        return;
    }
    if let Err(error) = config.settings.check() {
        notes.note(place_of(&error, root), error.to_string());
    }
}

fn read_workers(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(workers) = root.section("workers", notes) else { return };
    workers.check_keys("workers", notes);
    let pool = &mut config.settings.pool;
    set(&mut pool.base, count(&workers, "base", MOST_WORKERS, notes));
    set(&mut pool.max, count(&workers, "max", MOST_WORKERS, notes));
    set(&mut pool.max_lanes, count(&workers, "max_lanes", MOST_LANES, notes));
    let reserve = workers.whole("interactive_reserve", 0..=MOST_WORKERS, notes);
    set(&mut pool.interactive_reserve, reserve);
    set(&mut pool.lane_share, workers.portion("lane_share", notes));
    set(&mut pool.step, workers.parsed("step", SPAN, notes));
    set(&mut pool.grow_at, workers.portion("grow_at", notes));
    set(&mut pool.shrink_at, workers.portion("shrink_at", notes));
    let orders = [("oldest", AcrossLanes::Oldest), ("turns", AcrossLanes::Turns)];
    set(&mut config.settings.across_lanes, workers.choice("across_lanes", orders, notes));
}

fn read_queue(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(queue) = root.section("queue", notes) else { return };
    queue.check_keys("queue", notes);
    let settings = &mut config.settings;
    set(&mut settings.max_waiting, count(&queue, "max_waiting", MOST, notes));
    set(&mut settings.lane_waiting, count(&queue, "lane_waiting", MOST, notes));
    set(&mut settings.max_lanes, count(&queue, "max_lanes", MOST_LANES, notes));
    let age_after: Option<Span> = queue.parsed("age_after", SPAN, notes);
    if age_after == Some(Span::ZERO) {
        notes.note(queue.place("age_after"), "`queue.age_after` must be above zero");
    }
    set(&mut settings.age_after, age_after);
    let payload: Option<Size> = queue.parsed("max_payload", SIZE, notes);
    if payload.is_some_and(|size| size == Size(0) || size > LARGEST_PAYLOAD) {
        let what = format!("`queue.max_payload` must be above zero and at most {LARGEST_PAYLOAD}");
        notes.note(queue.place("max_payload"), what);
    }
    set(&mut settings.max_payload, payload.and_then(|size| usize::try_from(size.0).ok()));
}

fn read_cache(config: &mut Config, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(cache) = root.section("cache", notes) else { return };
    cache.check_keys("cache", notes);
    set(&mut config.settings.found_for, cache.parsed("found_for", SPAN, notes));
    set(&mut config.settings.empty_for, cache.parsed("empty_for", SPAN, notes));
    set(&mut config.cache_bytes, cache.parsed("memory", SIZE, notes).map(|Size(bytes)| bytes));
}

/// A number above zero.
pub(crate) fn count(
    section: &Section<'_>,
    key: &str,
    most: u32,
    notes: &mut Notes<'_>,
) -> Option<NonZeroU32> {
    section.whole(key, 1..=most, notes).and_then(NonZeroU32::new)
}

/// A span above zero; `hint` is the remedy in the message about zero.
pub(crate) fn above_zero(
    section: &Section<'_>,
    key: &str,
    hint: &str,
    notes: &mut Notes<'_>,
) -> Option<Span> {
    let span = section.parsed(key, SPAN, notes)?;
    if span == Span::ZERO {
        notes.note(section.place(key), format!("`{}` is zero: {hint}", section.path_of(key)));
        return None;
    }
    Some(span)
}

pub(crate) fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

/// The position of the key that most likely causes the error; a contradiction has two.
fn place_of(error: &SettingsError, root: &Section<'_>) -> usize {
    let keys: &[&str] = match error {
        SettingsError::MaxBelowBase { .. } => &["max", "base"],
        SettingsError::TooManyWorkers(_) => &["max"],
        SettingsError::ReserveTakesAll { of: "workers.max_lanes", .. } => {
            &["max_lanes", "interactive_reserve"]
        }
        SettingsError::ReserveTakesAll { .. } => &["interactive_reserve", "max"],
        SettingsError::ShrinkAboveGrow => &["shrink_at", "grow_at"],
        SettingsError::Zero(_) => &["lane_share"],
        // No key of the file sets it.
        SettingsError::LongLead(_) => &[],
    };
    let workers = root.value("workers").and_then(|value| value.get_ref().as_table());
    let found = workers.and_then(|workers| keys.iter().find_map(|key| workers.get(*key)));
    found.map_or(0, |value| value.span().start)
}
