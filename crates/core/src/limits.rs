//! The limits of a lane or a group, as configured (L1, L2, L7, L9, L11).

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::name::{NameError, check_name};
use crate::priority::Priority;
use crate::rate::Rate;
use crate::time::{LONGEST_SPAN, Span};

/// The most windows that one lane or group may have.
pub const MOST_WINDOWS: usize = 8;
/// The most calls in flight that one lane may allow.
pub const MOST_IN_FLIGHT: u32 = 100_000;
/// The longest slack of a lane.
pub const MOST_SLACK: Span = Span::secs(1);
/// The default slack: the jitter of a short network path, and the part of the shortest window or
/// gap that it may cost at most.
const USUAL_SLACK: Span = Span::millis(2);
const USUAL_SLACK_PART: u64 = 500;

/// A part of a whole, in thousandths, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Portion(u16);

impl Portion {
    /// Nothing.
    pub const ZERO: Portion = Portion(0);
    /// Everything.
    pub const ONE: Portion = Portion(1_000);

    /// `n` thousandths; more than 1000 is everything.
    pub const fn thousandths(n: u16) -> Portion {
        Portion(if n > 1_000 { 1_000 } else { n })
    }

    /// The nearest portion; `None` for a number outside 0 to 1.
    pub fn from_f64(number: f64) -> Option<Portion> {
        (0.0..=1.0).contains(&number).then(|| Portion((number * 1_000.0).round() as u16))
    }

    /// As a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }

    /// This part of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        match whole.checked_mul(u64::from(self.0)) {
            Some(product) => product / 1_000,
            None => (u128::from(whole) * u128::from(self.0) / 1_000) as u64,
        }
    }

    /// This part of `whole`, rounded up.
    pub fn of_at_least(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.0)).div_ceil(1_000) as u64
    }
}

/// A sliding window. No interval of length `rate.per`, wherever it begins, holds the starts of more
/// than `rate.max` attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The number of attempts, and the length of the window.
    pub rate: Rate,
    /// By priority, the part that is kept for it and for higher priorities.
    pub keep: [Portion; 4],
    /// Spread calls evenly: adds a gap of `per / max`.
    pub spread: bool,
}

impl Window {
    /// A window that keeps nothing and does not spread.
    pub fn new(rate: Rate) -> Window {
        Window { rate, keep: [Portion::ZERO; 4], spread: false }
    }

    /// The part of the window that calls submitted with `priority` may fill.
    pub fn allowed(&self, priority: Priority) -> u64 {
        let max = u64::from(self.rate.max.get());
        let kept: u64 = self.keep[..priority.index()].iter().map(|k| k.of_at_least(max)).sum();
        max.saturating_sub(kept)
    }

    /// The gap that spreading adds.
    pub fn spread_gap(&self) -> Span {
        let max = u64::from(self.rate.max.get());
        if self.spread { Span(self.rate.per.0.div_ceil(max)) } else { Span::ZERO }
    }
}

/// The moment that a gap is measured from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GapFrom {
    /// From start to start.
    #[default]
    Start,
    /// From finish to start.
    Finish,
}

/// The limits of one lane. How they act together: `docs/limits.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The gap between calls; `None` for no gap.
    pub every: Option<Span>,
    /// The moment that the gap is measured from.
    pub gap_from: GapFrom,
    /// By priority, the part of the gap that a call needs. All of it by default: a lane has to ask
    /// for shorter gaps.
    pub gap_share: [Portion; 4],
    /// Windows, all of which hold.
    pub windows: Vec<Window>,
    /// Calls in flight.
    pub in_flight: NonZeroU32,
    /// Network jitter to allow for. The upstream sees arrivals and not starts, so gaps and windows
    /// count each start this much later, and hold where requests arrive. `None`: a 500th of the
    /// shortest window or gap, at most 2 ms.
    pub slack: Option<Span>,
    /// How long one attempt may take; `None` for no bound.
    pub timeout: Option<Span>,
    /// The group whose limits hold as well.
    pub group: Option<String>,
    /// Failures in a row after which the lane closes for a while.
    pub fail_after: NonZeroU32,
    /// Calls that may wait on the lane; `None` for [`lane_waiting`](crate::Settings::lane_waiting).
    pub max_waiting: Option<NonZeroU32>,
}

/// Shares of the gap for an upstream that tolerates urgent calls closer together: interactive 0.1,
/// rss 0.5, completion 0.7, background 1.0. A lane has to ask for them.
pub const GAP_SHARE: [Portion; 4] = [Portion(100), Portion(500), Portion(700), Portion(1_000)];

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            every: None,
            gap_from: GapFrom::Start,
            gap_share: [Portion::ONE; 4],
            windows: Vec::new(),
            in_flight: NonZeroU32::MIN,
            slack: None,
            timeout: None,
            group: None,
            fail_after: NonZeroU32::new(5).expect("5 is above zero"),
            max_waiting: None,
        }
    }
}

impl Limits {
    /// The configured gap for a call of rank `rank`. Spread windows and announcements may lengthen
    /// it.
    pub fn gap(&self, rank: Priority) -> Span {
        self.every.map_or(Span::ZERO, |every| Span(self.gap_share[rank.index()].of(every.0)))
    }

    /// The gap that spreading its windows adds, at any priority.
    pub fn spread_gap(&self) -> Span {
        self.windows.iter().map(Window::spread_gap).max().unwrap_or(Span::ZERO)
    }

    /// How much later than its start a call may arrive, and so counts. The default is the jitter of
    /// a short path, and never more than a small part of any window or gap that it lengthens, those
    /// of the group included.
    pub fn slack(&self, group: Option<&GroupLimits>) -> Span {
        let usual = || {
            let windows = group.map_or(&[][..], |group| &group.windows);
            let windows = self.windows.iter().chain(windows).map(|window| window.rate.per);
            let spread = self.spread_gap();
            let gaps = Priority::ALL.map(|priority| self.gap(priority).max(spread)).into_iter();
            let gaps = gaps.chain(group.map(GroupLimits::gap));
            let spans = windows.chain(gaps).filter(|span| *span > Span::ZERO);
            let shortest = spans.min().unwrap_or(Span::ZERO);
            Span(shortest.0 / USUAL_SLACK_PART).min(USUAL_SLACK)
        };
        self.slack.unwrap_or_else(usual)
    }

    /// Returns an error for limits that contradict each other or could never be met.
    pub fn check(&self) -> Result<(), LimitsError> {
        if let Some(group) = &self.group {
            check_name("group", group)?;
        }
        if self.every.is_some_and(|every| every > LONGEST_SPAN) {
            return Err(LimitsError::TooLong("every"));
        }
        if self.timeout.is_some_and(|timeout| timeout == Span::ZERO) {
            return Err(LimitsError::Zero("timeout"));
        }
        if self.timeout.is_some_and(|timeout| timeout > LONGEST_SPAN) {
            return Err(LimitsError::TooLong("timeout"));
        }
        if self.in_flight.get() > MOST_IN_FLIGHT {
            return Err(LimitsError::InFlight(self.in_flight.get()));
        }
        if let Some(slack) = self.slack.filter(|slack| *slack > MOST_SLACK) {
            return Err(LimitsError::Slack(slack));
        }
        check_windows(&self.windows)
    }
}

/// Limits that lanes share. They hold for every priority alike, without shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// The gap between calls of any of its lanes.
    pub every: Option<Span>,
    /// Windows over all its lanes.
    pub windows: Vec<Window>,
    /// Calls in flight over all its lanes.
    pub in_flight: Option<NonZeroU32>,
}

impl GroupLimits {
    /// The gap between calls of any of its lanes, spreading included.
    pub fn gap(&self) -> Span {
        let spread = self.windows.iter().map(Window::spread_gap).max().unwrap_or(Span::ZERO);
        self.every.unwrap_or(Span::ZERO).max(spread)
    }

    /// Returns an error for limits that contradict each other or could never be met.
    pub fn check(&self) -> Result<(), LimitsError> {
        if self.every.is_some_and(|every| every > LONGEST_SPAN) {
            return Err(LimitsError::TooLong("every"));
        }
        if self.windows.iter().any(|w| w.keep != [Portion::ZERO; 4]) {
            return Err(LimitsError::KeepInGroup);
        }
        check_windows(&self.windows)
    }
}

/// Limits that contradict each other or could never be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// A group name that is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A span beyond ten years.
    #[error("`{0}` is longer than ten years")]
    TooLong(&'static str),
    /// A timeout of zero.
    #[error("`{0}` is zero: no call could finish in it")]
    Zero(&'static str),
    /// More calls in flight than [`MOST_IN_FLIGHT`].
    #[error("`in_flight = {0}` is more than {MOST_IN_FLIGHT}")]
    InFlight(u32),
    /// More slack than [`MOST_SLACK`].
    #[error("`slack = {0}` is more than {MOST_SLACK}")]
    Slack(Span),
    /// More windows than [`MOST_WINDOWS`].
    #[error("{0} limits are too many: a lane or group has at most {MOST_WINDOWS}")]
    Windows(usize),
    /// Two windows of the same length: one of them could never matter.
    #[error("two limits per `{0}`: keep the stricter one")]
    SameWindow(Span),
    /// A window whose kept shares leave nothing for background work.
    #[error("the limit `{0}` keeps everything for higher priorities: background could never run")]
    KeepsAll(Rate),
    /// Kept shares in a group.
    #[error("`keep` belongs to a lane's limit, not to a group's")]
    KeepInGroup,
}

fn check_windows(windows: &[Window]) -> Result<(), LimitsError> {
    if windows.len() > MOST_WINDOWS {
        return Err(LimitsError::Windows(windows.len()));
    }
    for (place, window) in windows.iter().enumerate() {
        if windows[..place].iter().any(|other| other.rate.per == window.rate.per) {
            return Err(LimitsError::SameWindow(window.rate.per));
        }
        if window.allowed(Priority::Background) == 0 {
            return Err(LimitsError::KeepsAll(window.rate));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(rate: &str) -> Window {
        Window::new(rate.parse().expect(rate))
    }

    #[test]
    fn l2_a_gap_holds_for_every_priority_and_shrinks_where_the_lane_asks_for_it() {
        let mut limits = Limits { every: Some(Span::secs(60)), ..Limits::default() };
        let gaps = |limits: &Limits| Priority::ALL.map(|priority| limits.gap(priority));
        assert_eq!(gaps(&limits), [Span::secs(60); 4]);
        limits.gap_share = GAP_SHARE;
        let gaps = gaps(&limits);
        assert_eq!(gaps, [Span::secs(6), Span::secs(30), Span::secs(42), Span::secs(60)]);
    }

    #[test]
    fn l11_a_kept_share_is_for_its_priority_and_higher_ones() {
        let mut kept = window("10/h");
        kept.keep[0] = Portion::thousandths(200);
        kept.keep[1] = Portion::thousandths(50);
        assert_eq!(Priority::ALL.map(|priority| kept.allowed(priority)), [10, 8, 7, 7]);
    }

    #[test]
    fn l11_spreading_adds_an_even_gap() {
        let spread = Window { spread: true, ..window("3/10s") };
        assert_eq!(spread.spread_gap(), Span(3_333_334));
    }

    #[test]
    fn l4_the_default_slack_is_that_of_a_short_path_and_a_small_part_of_any_limit() {
        let lane = |every: Option<Span>, rates: &[&str]| {
            let windows = rates.iter().map(|rate| window(rate)).collect();
            Limits { every, windows, ..Limits::default() }
        };
        assert_eq!(lane(None, &[]).slack(None), Span::ZERO);
        assert_eq!(lane(None, &["50/s", "1000/d"]).slack(None), Span::millis(2));
        let mut every = lane(Some(Span::secs(1)), &[]);
        assert_eq!(every.slack(None), Span::millis(2));
        every.gap_share = GAP_SHARE;
        assert_eq!(every.slack(None), Span(200), "interactive calls may be 100 ms apart");
        let mut spread = lane(None, &["1000/s"]);
        spread.windows[0].spread = true;
        assert_eq!(spread.slack(None), Span(2), "calls are 1 ms apart");
        let group = GroupLimits { windows: vec![window("3/s")], ..GroupLimits::default() };
        assert_eq!(lane(None, &[]).slack(Some(&group)), Span::millis(2));
        let group = GroupLimits { every: Some(Span::millis(10)), ..group };
        assert_eq!(lane(None, &["1000/h"]).slack(Some(&group)), Span(20));
        let said =
            Limits { slack: Some(Span::ZERO), every: Some(Span::secs(1)), ..Limits::default() };
        assert_eq!(said.slack(Some(&group)), Span::ZERO);
    }

    #[track_caller]
    fn check(limits: &Limits, expected: &str) {
        assert_eq!(limits.check().expect_err("absurd").to_string(), expected);
    }

    #[test]
    fn absurd_limits_are_refused() {
        let absurd = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits
        };
        check(&absurd(|l| l.every = Some(Span::days(4_000))), "`every` is longer than ten years");
        check(
            &absurd(|l| l.timeout = Some(Span::ZERO)),
            "`timeout` is zero: no call could finish in it",
        );
        check(
            &absurd(|l| l.windows = vec![window("1/s"), window("2/1000ms")]),
            "two limits per `1s`: keep the stricter one",
        );
        check(
            &absurd(|l| {
                l.windows = vec![window("1/s")];
                l.windows[0].keep[0] = Portion::ONE;
            }),
            "the limit `1/s` keeps everything for higher priorities: background could never run",
        );
        check(
            &absurd(|l| l.in_flight = NonZeroU32::MAX),
            "`in_flight = 4294967295` is more than 100000",
        );
        check(&absurd(|l| l.slack = Some(Span::secs(2))), "`slack = 2s` is more than 1s");
    }
}
