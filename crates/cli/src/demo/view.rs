//! The content of the redrawn block: a line per upstream, and a summary.

use paceline_mock::Summary;

use super::paint::{Ink, Line};
use super::score::status;
use super::upstreams::PROFILES;
use super::words::LaneState;

/// Characters of a lane's gauge, and of the progress bar.
const GAUGE: usize = 10;
const BAR: usize = 24;

/// The naive client's progress, by the logs of the upstreams.
pub(super) fn naive(seen: &[Summary]) -> Vec<Line> {
    let heads = format!(
        "{:9}{:15}{:>8}{:>8}{:>6}{:>9}",
        "upstream", "allows", "calls", "429s", "bans", "answers"
    );
    let mut lines = vec![Line::default(), Line::new(Ink::Faint, heads)];
    for (profile, seen) in PROFILES.iter().zip(seen) {
        let refused = status(seen, 429);
        let line = Line::new(Ink::Strong, format!("{:9}", profile.name))
            .then(Ink::Faint, format!("{:15}", profile.allows))
            .then(Ink::Plain, format!("{:8}", seen.calls))
            .then(worry(refused), format!("{refused:8}"))
            .then(worry(seen.bans), format!("{:6}", seen.bans))
            .then(Ink::Plain, format!("{:9}", status(seen, 200)));
        lines.push(line);
    }
    let (calls, refused) = totals(seen);
    let all = format!("naive client: {calls} calls, {refused} refused");
    lines.extend([Line::default(), Line::new(Ink::Plain, all)]);
    lines
}

/// The progress of Paceline, by its own reports and by the logs of the upstreams.
pub(super) struct Progress<'a> {
    /// The lanes; `None` while no worker process runs.
    pub(super) lanes: Option<&'a [LaneState]>,
    pub(super) finished: usize,
    pub(super) jobs: usize,
    pub(super) seen: &'a [Summary],
}

/// Paceline's progress.
pub(super) fn paced(progress: &Progress) -> Vec<Line> {
    let heads = format!(
        "{:9}{:14}{:18}{:>5}{:>8}  {:12}{}",
        "lane", "allows", "window", "runs", "waiting", "next call", "why"
    );
    let mut lines = vec![Line::default(), Line::new(Ink::Faint, heads)];
    for profile in PROFILES {
        let name = Line::new(Ink::Strong, format!("{:9}", profile.name))
            .then(Ink::Faint, format!("{:14}", profile.allows));
        let state = progress.lanes.map(|lanes| lanes.iter().find(|lane| lane.name == profile.name));
        lines.push(match state {
            Some(Some(state)) => lane(state).after(name),
            Some(None) => name,
            None => name.then(Ink::Bad, "no process"),
        });
    }
    let Progress { finished, jobs, seen, .. } = progress;
    let (calls, refused) = totals(seen);
    let all = Line::new(Ink::Good, bar(*finished as u64, *jobs as u64, BAR))
        .then(Ink::Plain, format!(" {finished} of {jobs} jobs, {calls} calls, "))
        .then(worry(refused), format!("{refused} refused"));
    lines.extend([Line::default(), all]);
    lines
}

fn lane(state: &LaneState) -> Line {
    let gauge = match state.used {
        Some((used, max)) => {
            let ink = if used >= u64::from(max) { Ink::Warm } else { Ink::Good };
            let counts = format!("{:6}", format!(" {used}/{max}"));
            Line::new(ink, bar(used, u64::from(max), GAUGE)).then(Ink::Plain, counts)
        }
        None => Line::new(Ink::Faint, format!("{:18}", "none")),
    };
    let (ink, next) = next(state);
    Line::default()
        .then(Ink::Plain, format!("{:5}{:8}  ", state.in_flight, state.waiting))
        .then(ink, format!("{next:12}"))
        .then(Ink::Plain, why(state))
        .after(gauge)
}

/// The time until its next call may start.
fn next(state: &LaneState) -> (Ink, String) {
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    match (state.cooling_ms, state.waiting, state.opens_ms) {
        (Some(ms), ..) => (Ink::Bad, format!("cools {:.0}s", seconds(ms))),
        (None, 0, _) => (Ink::Faint, "-".to_string()),
        (None, _, 0) => (Ink::Good, "open".to_string()),
        // Rounded up, so that the lane is open at the time shown.
        (None, _, ms) => (Ink::Warm, format!("in {:.1}s", seconds(ms.next_multiple_of(100)))),
    }
}

/// The reason why its first call waits, in words that fit.
fn why(state: &LaneState) -> &str {
    match state.why.as_deref() {
        None if state.cooling_ms.is_some() => "it failed",
        None => "",
        Some("window") => "window full",
        Some("busy") => "one running",
        Some("not_before") => "not yet due",
        Some(reason) => reason,
    }
}

/// `[######....]`
fn bar(part: u64, whole: u64, letters: usize) -> String {
    let full = (part.min(whole) * letters as u64).checked_div(whole).unwrap_or(0) as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(letters - full))
}

fn totals(seen: &[Summary]) -> (u64, u64) {
    let each = seen.iter().map(|summary| (summary.calls, status(summary, 429)));
    each.fold((0, 0), |(calls, refused), one| (calls + one.0, refused + one.1))
}

fn worry(count: u64) -> Ink {
    if count > 0 { Ink::Bad } else { Ink::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::paint::Colours;

    #[test]
    fn a_bar_is_full_only_when_all_of_it_is() {
        assert_eq!(bar(0, 20, 10), "[..........]");
        assert_eq!(bar(12, 20, 10), "[######....]");
        assert_eq!(bar(19, 20, 10), "[#########.]");
        assert_eq!(bar(20, 20, 10), "[##########]");
        assert_eq!(bar(21, 20, 10), "[##########]");
        assert_eq!(bar(0, 0, 10), "[..........]");
    }

    #[track_caller]
    fn check(state: &LaneState, expected: &str) {
        assert_eq!(lane(state).painted(80, Colours::Hidden), expected);
    }

    #[test]
    fn a_lane_says_when_it_opens_and_why_its_first_call_waits() {
        let idle = LaneState { used: Some((12, 20)), ..LaneState::default() };
        check(&idle, "[######....] 12/20    0       0  -");
        let full = LaneState {
            used: Some((20, 20)),
            waiting: 22,
            opens_ms: 3_110,
            why: Some("window".to_string()),
            ..idle
        };
        check(&full, "[##########] 20/20    0      22  in 3.2s     window full");
        let busy = LaneState {
            used: None,
            in_flight: 1,
            waiting: 1,
            why: Some("busy".to_string()),
            ..LaneState::default()
        };
        check(&busy, "none                  1       1  open        one running");
        let cooling = LaneState { cooling_ms: Some(58_400), ..LaneState::default() };
        check(&cooling, "none                  0       0  cools 58s   it failed");
    }

    #[test]
    fn the_block_fits_eighty_columns() {
        let full = |name: &str| LaneState {
            name: name.to_string(),
            waiting: 999,
            used: Some((20, 20)),
            opens_ms: 59_900,
            why: Some("window".to_string()),
            ..LaneState::default()
        };
        let lanes = PROFILES.map(|profile| full(profile.name));
        let progress = Progress { lanes: Some(&lanes), finished: 336, jobs: 336, seen: &[] };
        for line in paced(&progress).iter().chain(&naive(&[])) {
            assert!(line.painted(usize::MAX, Colours::Hidden).chars().count() <= 80, "{line:?}");
        }
    }
}
