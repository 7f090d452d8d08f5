//! Lanes and groups as a program describes them.

use std::num::NonZeroU32;

use paceline_core::{
    GapFrom, GroupLimits, Limits, LimitsError, NameError, Portion, Priority, RateError, SpanError,
    Window, check_name,
};

use crate::span::{IntoRate, IntoSpan};

/// A description that cannot be meant, with the lane or group it is about.
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

/// One outside service and its limits. A name that ends in `*` is a template: `host:*`.
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

    /// A lane with limits from elsewhere, such as a configuration file.
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

    /// The gap between calls (L1).
    #[must_use]
    pub fn every(self, gap: impl IntoSpan) -> Lane {
        self.change(gap.into_span(), |limits, gap| limits.every = Some(gap))
    }

    /// By priority, interactive first: the part of the gap that its calls need, from 0 to 1. Without
    /// it the gap holds for every priority. Windows, cooldowns, groups and limits that the upstream
    /// announced are never shortened.
    #[must_use]
    pub fn gap_share(self, shares: [f64; 4]) -> Lane {
        let [Some(a), Some(b), Some(c), Some(d)] = shares.map(Portion::from_f64) else {
            return self.change(Err::<(), _>(Problem::GapShare), |_, ()| {});
        };
        self.change(Ok::<_, Problem>([a, b, c, d]), |limits, shares| limits.gap_share = shares)
    }

    /// Measures the gap from the finish of a call, not from its start (L2).
    #[must_use]
    pub fn gap_from_finish(mut self) -> Lane {
        self.limits.gap_from = GapFrom::Finish;
        self
    }

    /// So many calls per window; may be said several times (L3).
    #[must_use]
    pub fn limit(self, rate: impl IntoRate) -> Lane {
        self.change(rate.into_rate(), |limits, rate| limits.windows.push(Window::new(rate)))
    }

    /// Of the last limit, the part that only this priority and higher ones may spend (L11).
    #[must_use]
    pub fn keep(mut self, priority: Priority, part: f64) -> Lane {
        match (Portion::from_f64(part), self.limits.windows.last_mut()) {
            (Some(part), Some(window)) => window.keep[priority.index()] = part,
            (None, _) => self.problem = self.problem.or(Some(Problem::Keep)),
            (_, None) => self.problem = self.problem.or(Some(Problem::KeepWithoutLimit)),
        }
        self
    }

    /// Calls at once (L1).
    #[must_use]
    pub fn in_flight(mut self, calls: u32) -> Lane {
        match NonZeroU32::new(calls) {
            Some(calls) => self.limits.in_flight = calls,
            None => self.problem = self.problem.or(Some(Problem::InFlight)),
        }
        self
    }

    /// How much longer one call may be on its way to the service than another: gaps and windows are
    /// longer by this, so that they hold where calls arrive and not only where they start (L4).
    /// Without it: 2 ms, or a 500th of the shortest window or gap if that is less.
    #[must_use]
    pub fn slack(self, slack: impl IntoSpan) -> Lane {
        self.change(slack.into_span(), |limits, slack| limits.slack = Some(slack))
    }

    /// Calls that may wait on this lane; a submission beyond it is refused, and a tenth is kept for
    /// interactive work. Without it: [`Settings::lane_waiting`](crate::Settings::lane_waiting).
    #[must_use]
    pub fn max_waiting(mut self, calls: u32) -> Lane {
        match std::num::NonZeroU32::new(calls) {
            Some(calls) => self.limits.max_waiting = Some(calls),
            None => self.problem = self.problem.or(Some(Problem::MaxWaiting)),
        }
        self
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn timeout(self, timeout: impl IntoSpan) -> Lane {
        self.change(timeout.into_span(), |limits, timeout| limits.timeout = Some(timeout))
    }

    /// The group whose limits hold too (L9).
    #[must_use]
    pub fn group(mut self, name: &str) -> Lane {
        self.limits.group = Some(name.to_string());
        self
    }

    /// Its name and limits, if they can be meant.
    pub fn build(self) -> Result<(String, Limits), LaneError> {
        let problem = self.problem.or_else(|| self.limits.check().err().map(Problem::from));
        match problem {
            Some(problem) => Err(LaneError { name: self.name, problem }),
            None => Ok((self.name, self.limits)),
        }
    }
}

/// Limits that several lanes share (L9).
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

    /// A group with limits from elsewhere.
    pub fn with_limits(name: &str, limits: GroupLimits) -> Group {
        let problem = check_name("group", name).err().map(Problem::from);
        Group { name: name.to_string(), limits, problem }
    }

    /// The gap between calls of any of its lanes.
    #[must_use]
    pub fn every(mut self, gap: impl IntoSpan) -> Group {
        match gap.into_span() {
            Ok(gap) => self.limits.every = Some(gap),
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }

    /// So many calls per window over all its lanes.
    #[must_use]
    pub fn limit(mut self, rate: impl IntoRate) -> Group {
        match rate.into_rate() {
            Ok(rate) => self.limits.windows.push(Window::new(rate)),
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }

    /// Its name and limits, if they can be meant.
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
