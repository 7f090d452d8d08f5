//! The rate limiter of a mock upstream: pure, with the moment as an argument.

use std::collections::VecDeque;

use paceline_core::{Span, Time};

use crate::behaviour::Behaviour;

/// The most arrivals that one window keeps. A window with a larger `max` counts up to this.
const MOST_REMEMBERED: usize = 1_000_000;

/// The response that a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// 200 after the latency.
    Succeed,
    /// 500 after the latency.
    Fail,
    /// 429 at once, with this `Retry-After`.
    Refuse(Option<Span>),
    /// No response.
    Hang,
    /// 413 at once. It counts towards no limit.
    TooLarge,
}

impl Decision {
    /// The HTTP status; `None` without a response.
    pub(crate) fn status(self) -> Option<u16> {
        match self {
            Decision::Succeed => Some(200),
            Decision::Fail => Some(500),
            Decision::Refuse(_) => Some(429),
            Decision::Hang => None,
            Decision::TooLarge => Some(413),
        }
    }
}

/// The limiter's counts. Only accepted requests count, so a refused client is accepted later.
#[derive(Debug)]
pub(crate) struct Gate {
    behaviour: Behaviour,
    accepted: u64,
    last_at: Option<Time>,
    /// The arrivals that still count, one list for each window.
    windows: Vec<VecDeque<Time>>,
    refusing_until: Time,
    bans: u64,
}

impl Gate {
    pub(crate) fn new(behaviour: Behaviour) -> Gate {
        let windows = behaviour.limits.iter().map(|_| VecDeque::new()).collect();
        let refusing_until = Time::ZERO;
        Gate { behaviour, accepted: 0, last_at: None, windows, refusing_until, bans: 0 }
    }

    pub(crate) fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// How often a limit was exceeded and a ban began.
    pub(crate) fn bans(&self) -> u64 {
        self.bans
    }

    /// Decides about a request that arrives `now` while `others` are open.
    pub(crate) fn arrive(&mut self, now: Time, others: usize) -> Decision {
        if now < self.refusing_until {
            return Decision::Refuse(Some(self.refusing_until.since(now)));
        }
        if !self.allows(now, others) {
            if let Some(wait) = self.behaviour.retry_after {
                self.refusing_until = now + wait;
                self.bans += 1;
            }
            return Decision::Refuse(self.behaviour.retry_after);
        }
        self.count(now);
        if self.behaviour.hang.takes(self.accepted) {
            Decision::Hang
        } else if self.behaviour.fail.takes(self.accepted) {
            Decision::Fail
        } else {
            Decision::Succeed
        }
    }

    fn allows(&self, now: Time, others: usize) -> bool {
        let behaviour = &self.behaviour;
        let apart = |earlier: Time, span| now.since(earlier) + behaviour.tolerance >= span;
        let gap = match (behaviour.every, self.last_at) {
            (Some(every), Some(last_at)) => apart(last_at, every),
            _ => true,
        };
        let windows = behaviour.limits.iter().zip(&self.windows).all(|(rate, arrivals)| {
            let full = arrivals.len() >= (rate.max.get() as usize).min(MOST_REMEMBERED);
            !full || arrivals.front().is_none_or(|&first| apart(first, rate.per))
        });
        let room = behaviour.in_flight.is_none_or(|most| others < most.get() as usize);
        gap && windows && room
    }

    fn count(&mut self, now: Time) {
        self.accepted += 1;
        self.last_at = Some(now);
        for (rate, arrivals) in self.behaviour.limits.iter().zip(&mut self.windows) {
            while arrivals.len() >= (rate.max.get() as usize).min(MOST_REMEMBERED) {
                arrivals.pop_front();
            }
            arrivals.push_back(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Arrival, violations};
    use crate::ratio::Ratio;
    use proptest::prelude::*;

    fn statuses(behaviour: Behaviour, millis: &[u64]) -> Vec<Option<u16>> {
        let mut gate = Gate::new(behaviour);
        millis.iter().map(|ms| gate.arrive(Time(ms * 1_000), 0).status()).collect()
    }

    #[test]
    fn requests_beyond_a_window_are_refused_until_it_slides() {
        let limits = vec!["2/s".parse().expect("a rate")];
        let got =
            statuses(Behaviour { limits, ..Behaviour::default() }, &[0, 10, 20, 999, 1_000, 1_005]);
        assert_eq!(got, [Some(200), Some(200), Some(429), Some(429), Some(200), Some(429)]);
    }

    #[test]
    fn a_refusal_with_retry_after_refuses_until_then() {
        let behaviour = Behaviour {
            every: Some(Span::millis(100)),
            retry_after: Some(Span::secs(2)),
            ..Behaviour::default()
        };
        let mut gate = Gate::new(behaviour);
        assert_eq!(gate.arrive(Time(0), 0), Decision::Succeed);
        assert_eq!(gate.arrive(Time(50_000), 0), Decision::Refuse(Some(Span::secs(2))));
        assert_eq!(gate.arrive(Time(1_050_000), 0), Decision::Refuse(Some(Span::secs(1))));
        assert_eq!(gate.arrive(Time(2_050_000), 0), Decision::Succeed);
        // A request during a ban does not begin another ban.
        assert_eq!(gate.bans(), 1);
        assert_eq!(gate.arrive(Time(2_060_000), 0), Decision::Refuse(Some(Span::secs(2))));
        assert_eq!(gate.bans(), 2);
    }

    #[test]
    fn too_many_open_requests_are_refused() {
        let in_flight = std::num::NonZeroU32::new(2);
        let mut gate = Gate::new(Behaviour { in_flight, ..Behaviour::default() });
        assert_eq!(gate.arrive(Time(0), 1), Decision::Succeed);
        assert_eq!(gate.arrive(Time(1), 2), Decision::Refuse(None));
    }

    #[test]
    fn one_in_three_fails() {
        let got =
            statuses(Behaviour { fail: Ratio::one_in(3), ..Behaviour::default() }, &[0, 1, 2, 3]);
        assert_eq!(got, [Some(200), Some(200), Some(500), Some(200)]);
    }

    proptest! {
        #[test]
        fn accepted_requests_keep_to_the_limits(
            steps in prop::collection::vec(0..400_000u64, 0..80), max in 1..4u32, tolerance in 0..2_000u64,
        ) {
            let limits = vec![format!("{max}/s").parse().expect("a rate")];
            let every = Some(Span::millis(100));
            let tolerance = Span(tolerance);
            let behaviour = Behaviour { every, limits, tolerance, ..Behaviour::default() };
            let mut gate = Gate::new(behaviour.clone());
            let mut now = Time(0);
            let mut accepted = Vec::new();
            for step in steps {
                now = now + Span(step);
                if gate.arrive(now, 0) == Decision::Succeed {
                    accepted.push(Arrival { at: now, ended_at: Some(now) });
                }
            }
            for limit in behaviour.all_limits() {
                prop_assert_eq!(violations(&accepted, limit, tolerance), []);
            }
        }
    }
}
