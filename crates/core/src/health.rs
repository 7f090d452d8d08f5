//! How a lane answers to being throttled, to failure and to success (L6, L7).

use crate::job::AttemptId;
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::time::{Span, Time};

/// How long a lane rests on each rung.
pub const LADDER: [Span; 9] = [
    Span::mins(1),
    Span::mins(5),
    Span::mins(15),
    Span::mins(30),
    Span::hours(1),
    Span::hours(3),
    Span::hours(6),
    Span::hours(12),
    Span::hours(24),
];
/// The gap of a throttled lane that has none of its own.
const FIRST_GAP: Span = Span::secs(1);
/// The gap is doubled so often at most: 16-fold.
const MOST_SLOWED: u8 = 4;
/// Successes in a row that take one step back towards the configured limits.
const STEP_BACK_AFTER: u32 = 5;

/// What a lane has learned the hard way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) cooldown_until: Time,
    pub(crate) failures: u32,
    pub(crate) rung: u8,
    /// Attempts up to this one were on the wire when the lane was last slowed or closed: what they
    /// bring is no news.
    pub(crate) judged: AttemptId,
    pub(crate) slowed: u8,
    pub(crate) narrowed: Option<u32>,
    /// Successes since the last step back; not worth remembering through a restart.
    pub(crate) streak: u32,
}

impl Health {
    /// Closes the lane until `until`: a cooldown only ever extends (L6).
    pub(crate) fn cool(&mut self, until: Time) {
        if Mutant::CooldownShortened.on() {
            self.cooldown_until = until;
        }
        self.cooldown_until = self.cooldown_until.max(until);
    }

    /// Throttled without a date: slower and narrower (L7). `newest` is the last attempt reserved.
    pub(crate) fn throttled(&mut self, attempt: AttemptId, newest: AttemptId, limits: &Limits) {
        self.streak = 0;
        if attempt <= self.judged {
            return;
        }
        self.judged = newest;
        let most = MOST_SLOWED + u8::from(limits.every.is_none());
        self.slowed = (self.slowed + 1).min(most);
        let wide = self.narrowed.unwrap_or(limits.in_flight.get());
        self.narrowed = Some((wide / 2).max(1));
    }

    /// Failed: after `fail_after` in a row the lane climbs a rung (L7).
    pub(crate) fn failed(
        &mut self,
        attempt: AttemptId,
        newest: AttemptId,
        limits: &Limits,
        now: Time,
    ) {
        self.streak = 0;
        if attempt <= self.judged {
            return;
        }
        self.failures += 1;
        if self.rung > 0 || self.failures >= limits.fail_after.get() {
            self.cool(now + LADDER[usize::from(self.rung).min(LADDER.len() - 1)]);
            self.rung = (self.rung + 1).min(LADDER.len() as u8);
            self.judged = newest;
        }
    }

    /// Answered: the ladder is cleared, and step by step the limits are what they were (L7).
    pub(crate) fn succeeded(&mut self, limits: &Limits) {
        (self.failures, self.rung) = (0, 0);
        if self.slowed == 0 && self.narrowed.is_none() {
            return;
        }
        self.streak += 1;
        if self.streak >= STEP_BACK_AFTER {
            self.streak = 0;
            self.slowed = self.slowed.saturating_sub(1);
            let wider = self.narrowed.map(|narrow| narrow + 1);
            self.narrowed = wider.filter(|wide| *wide < limits.in_flight.get());
        }
    }

    /// The gap before priorities bend it.
    pub(crate) fn every(&self, limits: &Limits) -> Span {
        match (limits.every, self.slowed) {
            (None, 0) => Span::ZERO,
            (None, slowed) => FIRST_GAP.times(1 << (slowed - 1)),
            (Some(every), slowed) => every.times(1 << slowed),
        }
    }

    /// Whether one call at a time goes out, to see how the service is.
    pub(crate) fn probing(&self) -> bool {
        self.rung > 0 && !Mutant::ProbeByAll.on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    fn failing(times: u64) -> Health {
        let mut health = Health::default();
        for n in 1..=times {
            health.failed(AttemptId(n), AttemptId(n), &Limits::default(), NOW);
        }
        health
    }

    #[test]
    fn l6_a_cooldown_only_ever_extends() {
        let mut health = Health::default();
        health.cool(NOW + Span::secs(8));
        health.cool(NOW + Span::secs(3));
        assert_eq!(health.cooldown_until, NOW + Span::secs(8));
    }

    #[test]
    fn l7_five_failures_in_a_row_climb_one_rung_and_each_failed_probe_another() {
        assert_eq!(failing(4).cooldown_until, Time::ZERO);
        assert_eq!(failing(5).cooldown_until, NOW + Span::mins(1));
        assert_eq!(failing(6).cooldown_until, NOW + Span::mins(5));
        assert_eq!(failing(100).cooldown_until, NOW + Span::hours(24));
        assert!(failing(5).probing());
    }

    #[test]
    fn l7_success_clears_the_ladder() {
        let mut health = failing(4);
        health.succeeded(&Limits::default());
        health.failed(AttemptId(9), AttemptId(9), &Limits::default(), NOW);
        assert_eq!((health.failures, health.rung), (1, 0));
    }

    #[test]
    fn l7_attempts_that_were_on_the_wire_at_the_climb_do_not_climb_again() {
        let mut health = Health::default();
        for n in 1..=12 {
            health.failed(AttemptId(n), AttemptId(12), &Limits::default(), NOW);
        }
        assert_eq!(health.rung, 1);
    }

    #[test]
    fn l7_throttling_doubles_the_gap_and_halves_the_width_once_per_burst() {
        let sixteen = std::num::NonZeroU32::new(16).expect("above zero");
        let limits = Limits { in_flight: sixteen, ..Limits::default() };
        let mut health = Health::default();
        for n in 1..=16 {
            health.throttled(AttemptId(n), AttemptId(16), &limits);
        }
        assert_eq!((health.every(&limits), health.narrowed), (Span::secs(1), Some(8)));
        for n in 17..=40 {
            health.throttled(AttemptId(n), AttemptId(n), &limits);
        }
        assert_eq!((health.every(&limits), health.narrowed), (Span::secs(16), Some(1)));
        let paced = Limits { every: Some(Span::secs(3)), ..limits };
        health.slowed = 4;
        assert_eq!(health.every(&paced), Span::secs(48));
    }

    #[test]
    fn l7_success_steps_back_to_the_configured_limits() {
        let four = std::num::NonZeroU32::new(4).expect("above zero");
        let limits = Limits { in_flight: four, ..Limits::default() };
        let mut health = Health { slowed: 2, narrowed: Some(1), ..Health::default() };
        for _ in 0..5 {
            health.succeeded(&limits);
        }
        assert_eq!((health.slowed, health.narrowed), (1, Some(2)));
        for _ in 0..10 {
            health.succeeded(&limits);
        }
        assert_eq!((health.slowed, health.narrowed), (0, None));
    }
}
