//! The descriptions of lanes and groups.

use std::num::NonZeroU32;

use paceline_core::{
    GapFrom, GroupLimits, Limits, LimitsError, NameError, Portion, Priority, RateError, SpanError,
    Window, check_name,
};

use crate::span::{IntoRate, IntoSpan};

/// The description of a lane or group is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lane or group `{name}`: {problem}")]
pub struct LaneError {
    name: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Span(#[from] SpanError),
    #[error(transparent)]
    Rate(#[from] RateError),
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error("`max_waiting` is zero: nothing could wait")]
    MaxWaiting,
    #[error("`in_flight` is zero: nothing could run")]
    InFlight,
    #[error("`keep` needs a limit before it")]
    KeepWithoutLimit,
    #[error("`keep` is a part from 0 to 1")]
    Keep,
    #[error("`gap_share` is four parts from 0 to 1, interactive first")]
    GapShare,
}

/// The description of one upstream and its limits.
///
/// A lane limits nothing that it does not name, except that it takes one call at a time. A name that
/// ends in `*` is a template: `host:*` makes a lane for each name that begins with `host:`.
///
/// Mistakes in it, such as a span that is none, are errors of the start.
///
/// ```
/// use paceline::{Lane, Priority};
///
/// let lane = Lane::new("crossref")
///     .every("1s")
///     .limit("1000/h")
///     .keep(Priority::Interactive, 0.2)
///     .in_flight(2)
///     .timeout("30s");
/// # drop(lane);
/// ```
#[derive(Clone, Debug)]
pub struct Lane {
    name: String,
    limits: Limits,
    problem: Option<Problem>,
}

impl Lane {
    /// A lane without limits that takes one call at a time.
    pub fn new(name: &str) -> Lane {
        Lane::with_limits(name, Limits::default())
    }

    /// A lane with limits that were made elsewhere, such as by a configuration file.
    pub fn with_limits(name: &str, limits: Limits) -> Lane {
        let problem = check_name("lane", name).err().map(Problem::from);
        Lane { name: name.to_string(), limits, problem }
    }

    fn change<T, E>(mut self, value: Result<T, E>, change: impl FnOnce(&mut Limits, T)) -> Lane
    where
        Problem: From<E>,
    {
        match value {
            Ok(value) => change(&mut self.limits, value),
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }

    /// Sets the gap from the start of one call to the start of the next.
    #[must_use]
    pub fn every(self, gap: impl IntoSpan) -> Lane {
        self.change(gap.into_span(), |limits, gap| limits.every = Some(gap))
    }

    /// Sets the part of the gap that calls of each priority need, from 0 to 1, interactive first. By
    /// default the gap holds for every priority. Windows, cooldowns, groups and limits that the
    /// upstream announced are never shortened.
    #[must_use]
    pub fn gap_share(self, shares: [f64; 4]) -> Lane {
        let [Some(a), Some(b), Some(c), Some(d)] = shares.map(Portion::from_f64) else {
            return self.change(Err::<(), _>(Problem::GapShare), |_, ()| {});
        };
        self.change(Ok::<_, Problem>([a, b, c, d]), |limits, shares| limits.gap_share = shares)
    }

    /// Measures the gap from the finish of a call, not from its start.
    #[must_use]
    pub fn gap_from_finish(mut self) -> Lane {
        self.limits.gap_from = GapFrom::Finish;
        self
    }

    /// Adds a window: at most this many calls in any span of its length, however placed. A lane may
    /// have several.
    #[must_use]
    pub fn limit(self, rate: impl IntoRate) -> Lane {
        self.change(rate.into_rate(), |limits, rate| limits.windows.push(Window::new(rate)))
    }

    /// Keeps a part of the last limit for calls of this priority and of higher ones.
    #[must_use]
    pub fn keep(mut self, priority: Priority, part: f64) -> Lane {
        match (Portion::from_f64(part), self.limits.windows.last_mut()) {
            (Some(part), Some(window)) => window.keep[priority.index()] = part,
            (None, _) => self.problem = self.problem.or(Some(Problem::Keep)),
            (_, None) => self.problem = self.problem.or(Some(Problem::KeepWithoutLimit)),
        }
        self
    }

    /// Sets how many calls may be under way at once; 1 by default.
    #[must_use]
    pub fn in_flight(mut self, calls: u32) -> Lane {
        match NonZeroU32::new(calls) {
            Some(calls) => self.limits.in_flight = calls,
            None => self.problem = self.problem.or(Some(Problem::InFlight)),
        }
        self
    }

    /// Sets the network jitter to allow for. It is added to every gap and window, so that limits hold
    /// where requests arrive; by default 2 ms, or a 500th of the shortest window or gap if that is
    /// less.
    #[must_use]
    pub fn slack(self, slack: impl IntoSpan) -> Lane {
        self.change(slack.into_span(), |limits, slack| limits.slack = Some(slack))
    }

    /// Sets how many calls may wait on this lane; further ones are refused. The last tenth is for
    /// interactive work. By default [`Settings::lane_waiting`](crate::Settings::lane_waiting).
    #[must_use]
    pub fn max_waiting(mut self, calls: u32) -> Lane {
        match std::num::NonZeroU32::new(calls) {
            Some(calls) => self.limits.max_waiting = Some(calls),
            None => self.problem = self.problem.or(Some(Problem::MaxWaiting)),
        }
        self
    }

    /// Sets how long one attempt may take; 60 s by default.
    #[must_use]
    pub fn timeout(self, timeout: impl IntoSpan) -> Lane {
        self.change(timeout.into_span(), |limits, timeout| limits.timeout = Some(timeout))
    }

    /// Puts the lane into a group, whose limits hold too.
    #[must_use]
    pub fn group(mut self, name: &str) -> Lane {
        self.limits.group = Some(name.to_string());
        self
    }

    /// The name and the limits, if the description is valid.
    pub fn build(self) -> Result<(String, Limits), LaneError> {
        let problem = self.problem.or_else(|| self.limits.check().err().map(Problem::from));
        match problem {
            Some(problem) => Err(LaneError { name: self.name, problem }),
            None => Ok((self.name, self.limits)),
        }
    }
}

/// The description of limits that several lanes share. A call needs its lane and its group open.
#[derive(Clone, Debug)]
pub struct Group {
    name: String,
    limits: GroupLimits,
    problem: Option<Problem>,
}

impl Group {
    /// A group without limits.
    pub fn new(name: &str) -> Group {
        Group::with_limits(name, GroupLimits::default())
    }

    /// A group with limits that were made elsewhere.
    pub fn with_limits(name: &str, limits: GroupLimits) -> Group {
        let problem = check_name("group", name).err().map(Problem::from);
        Group { name: name.to_string(), limits, problem }
    }

    /// Sets the gap between calls of any of its lanes.
    #[must_use]
    pub fn every(mut self, gap: impl IntoSpan) -> Group {
        match gap.into_span() {
            Ok(gap) => self.limits.every = Some(gap),
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }

    /// Adds a window over the calls of all its lanes.
    #[must_use]
    pub fn limit(mut self, rate: impl IntoRate) -> Group {
        match rate.into_rate() {
            Ok(rate) => self.limits.windows.push(Window::new(rate)),
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }

    /// The name and the limits, if the description is valid.
    pub fn build(self) -> Result<(String, GroupLimits), LaneError> {
        let problem = self.problem.or_else(|| self.limits.check().err().map(Problem::from));
        match problem {
            Some(problem) => Err(LaneError { name: self.name, problem }),
            None => Ok((self.name, self.limits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lane: Lane, expected: &str) {
        assert_eq!(lane.build().expect_err("a mistake").to_string(), expected);
    }

    #[test]
    fn mistakes_are_named() {
        check(
            Lane::new("a").every("soon"),
            "lane or group `a`: `soon` is not a span of time: write it like `250ms`, `90s` or `1h30m`",
        );
        check(
            Lane::new("a").in_flight(0),
            "lane or group `a`: `in_flight` is zero: nothing could run",
        );
        check(
            Lane::new("a").limit("0/s"),
            "lane or group `a`: `0/s` allows nothing: both numbers of a rate must be above zero",
        );
        check(
            Lane::new("a").keep(Priority::Rss, 0.5),
            "lane or group `a`: `keep` needs a limit before it",
        );
        check(
            Lane::new("a\n"),
            "lane or group `a\n`: the lane name `a\\n` has control characters or white space at its ends",
        );
    }
}
