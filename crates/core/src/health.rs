//! A lane's reaction to throttling, failure and success (L6, L7).
//!
//! A throttle says that the lane is too fast, a failure that its upstream may be down. So a
//! throttle slows the lane down and narrows it, and only failures close it, for longer each time.
//! Success undoes both: the ladder at once, because the upstream is up, and the slowing step by
//! step, because the rate that it allows is not known.

use crate::job::AttemptId;
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::record::SlowRecord;
use crate::time::{Span, Time};

/// How long a lane stays closed on each rung of the ladder.
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
/// The gap of a throttled lane that has none of its own, where its rate is not known.
const FIRST_GAP: Span = Span::secs(1);
/// A gap of its own grows 16-fold at most.
const MOST_SLOWED: u64 = 16;
/// Successes in a row that take one step back towards the configured limits.
const STEP_BACK_AFTER: u32 = 5;
/// How long the gap at which the upstream last throttled is remembered. Afterwards the lane tries
/// it again: the upstream may allow more by then.
const REFUSED_FOR: Span = Span::mins(10);
/// Until then the lane's gap stays longer than that one by this part of it: at the gap itself the
/// lane would be throttled again each time that it had recovered.
const REFUSED_MARGIN: u64 = 16;
/// A `Retry-After` sooner than this on a failure does not replace the ladder.
pub(crate) const SOON: Span = Span::secs(1);
/// A gap, or a `Retry-After`, as short as this counts as none.
pub(crate) const NO_GAP: Span = Span::millis(10);
/// Fewer starts than this may have been one burst, which says nothing about a lane's rate...
const KNOWN_BY: u32 = 20;
/// ...unless the first of them is this many seconds old.
const KNOWN_AFTER: u64 = 5;
/// A lane's rate is the number of its starts in this many seconds.
pub(crate) const RATE_SECONDS: u64 = 10;

/// The cooldown of a lane, its ladder and its slowed gap. The fields that each look at a lane needs
/// come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Health {
    pub(crate) cooldown_until: Time,
    pub(crate) narrowed: Option<u32>,
    pub(crate) failures: u32,
    pub(crate) rung: u8,
    pub(crate) slow: SlowRecord,
    /// Attempts up to this one were on the wire when the lane was last slowed or closed: their
    /// results say nothing new.
    pub(crate) judged: AttemptId,
    /// Successes since the last step back; not worth remembering through a restart.
    pub(crate) streak: u32,
}

/// A lane's starts in the last seconds, by the second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    second: u64,
    /// These saturate: beyond 65,535 per second no gap could be told from none.
    starts: [u16; RATE_SECONDS as usize],
}

impl Recent {
    /// Counts a start.
    pub(crate) fn count(&mut self, at: Time) {
        let second = at.0 / 1_000_000;
        self.forget(second);
        if self.second < second + RATE_SECONDS {
            let starts = &mut self.starts[(second % RATE_SECONDS) as usize];
            *starts = starts.saturating_add(1);
        }
    }

    /// The gap between starts in the last ten seconds, if those tell the rate of the lane.
    pub(crate) fn gap(mut self, now: Time) -> Option<Span> {
        self.forget(now.0 / 1_000_000);
        // The last start may be assumed, and so a moment in the future: its second counts.
        let second = self.second;
        let starts: u32 = self.starts.iter().map(|starts| u32::from(*starts)).sum();
        let ago = |ago: &u64| self.starts[((second + RATE_SECONDS - ago) % RATE_SECONDS) as usize];
        let lasts = (KNOWN_AFTER..RATE_SECONDS).any(|before| ago(&before) > 0);
        let known = starts >= KNOWN_BY || lasts && starts > 1;
        known.then(|| Span(Span::secs(RATE_SECONDS).0 / u64::from(starts)))
    }

    fn forget(&mut self, second: u64) {
        if second <= self.second {
            return;
        }
        if second - self.second >= RATE_SECONDS {
            self.starts = [0; RATE_SECONDS as usize];
        } else {
            for gone in self.second + 1..=second {
                self.starts[(gone % RATE_SECONDS) as usize] = 0;
            }
        }
        self.second = second;
    }
}

impl Health {
    /// Closes the lane until `until`: a cooldown only ever extends (L6).
    pub(crate) fn cool(&mut self, until: Time) {
        if Mutant::CooldownShortened.on() {
            self.cooldown_until = until;
        }
        self.cooldown_until = self.cooldown_until.max(until);
    }

    /// The present gap of the lane, its own or that of its rate.
    fn present_gap(&self, limits: &Limits, by_rate: Option<Span>) -> Option<Span> {
        let gap = self.every(limits);
        if gap > Span::ZERO { Some(gap) } else { by_rate }
    }

    /// The gap of a lane after it was throttled without a date (L7).
    pub(crate) fn throttled_gap(&self, limits: &Limits, by_rate: Option<Span>) -> Span {
        let Some(present) = self.present_gap(limits, by_rate) else { return FIRST_GAP };
        let own = limits.every.unwrap_or(self.slow.ground.max(FIRST_GAP));
        present.times(2).min(own.times(MOST_SLOWED)).max(present)
    }

    /// Slows a lane down and narrows it, after it was throttled without a date (L7). `newest` is
    /// the last attempt reserved, `by_rate` the gap between the lane's recent starts, if that is
    /// known.
    pub(crate) fn throttled(
        &mut self,
        attempt: AttemptId,
        newest: AttemptId,
        limits: &Limits,
        by_rate: Option<Span>,
        now: Time,
    ) {
        self.streak = 0;
        if attempt <= self.judged {
            return;
        }
        self.judged = newest;
        let present = self.present_gap(limits, by_rate);
        let gap = self.throttled_gap(limits, by_rate);
        if self.slow.gap == Span::ZERO {
            self.slow.ground = limits.every.or(present).unwrap_or(NO_GAP);
        }
        self.slow.gap = gap;
        self.slow.refused = Some((present.unwrap_or(Span::ZERO), now));
        let wide = self.narrowed.unwrap_or(limits.in_flight.get());
        self.narrowed = Some((wide / 2).max(1));
    }

    /// Counts a failure: after `fail_after` in a row the lane climbs a rung (L7). Retries of one
    /// call count once; `again` says that this call has counted. Returns `true` if the failure said
    /// anything new.
    pub(crate) fn failed(
        &mut self,
        attempt: AttemptId,
        newest: AttemptId,
        again: bool,
        limits: &Limits,
        now: Time,
    ) -> bool {
        self.streak = 0;
        if attempt <= self.judged {
            return false;
        }
        self.failures += u32::from(!again);
        if self.rung > 0 || self.failures >= limits.fail_after.get() {
            self.cool(now + LADDER[usize::from(self.rung).min(LADDER.len() - 1)]);
            self.rung = (self.rung + 1).min(LADDER.len() as u8);
            self.judged = newest;
        }
        true
    }

    /// Clears the ladder: the upstream answered, with whatever response (L7).
    pub(crate) fn answered(&mut self) {
        (self.failures, self.rung) = (0, 0);
    }

    /// Clears the ladder, and takes the lane a step back towards its configured limits (L7).
    pub(crate) fn succeeded(&mut self, limits: &Limits, now: Time) {
        self.answered();
        if self.slow.gap == Span::ZERO && self.narrowed.is_none() {
            return;
        }
        self.streak += 1;
        if self.streak >= STEP_BACK_AFTER {
            self.streak = 0;
            self.shrink_gap(now);
            let wider = self.narrowed.map(|narrow| narrow + 1);
            self.narrowed = wider.filter(|wide| *wide < limits.in_flight.get());
        }
    }

    /// Takes a quarter off the gap, but not into the gap that was refused a short while ago.
    fn shrink_gap(&mut self, now: Time) {
        let SlowRecord { gap, ground, refused } = self.slow;
        let refused = refused.filter(|(_, at)| now < *at + REFUSED_FOR);
        let floor = refused.map_or(Span::ZERO, |(span, _)| span + Span(span.0 / REFUSED_MARGIN));
        let shorter = Span(gap.0 - gap.0 / 4).max(floor).min(gap);
        if shorter > ground {
            self.slow.gap = shorter;
        } else {
            self.slow = SlowRecord::default();
        }
    }

    /// The lane's own gap, before shares.
    pub(crate) fn every(&self, limits: &Limits) -> Span {
        limits.every.unwrap_or(Span::ZERO).max(self.slow.gap)
    }

    /// Returns `true` if one call at a time goes out as a probe.
    pub(crate) fn probing(&self) -> bool {
        self.rung > 0 && !Mutant::ProbeByAll.on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn l7_a_gap_that_is_back_at_its_former_length_is_forgotten() {
        let slow = SlowRecord { gap: Span::secs(4), ground: Span::secs(3), refused: None };
        let mut health = Health { slow, ..Health::default() };
        health.shrink_gap(NOW);
        assert_eq!(health.slow, SlowRecord::default());
        let ground = Span::millis(2_999);
        let mut health = Health { slow: SlowRecord { ground, ..slow }, ..Health::default() };
        health.shrink_gap(NOW);
        assert_eq!(health.slow.gap, Span::secs(3));
    }

    fn failing(times: u64) -> Health {
        let mut health = Health::default();
        for n in 1..=times {
            health.failed(AttemptId(n), AttemptId(n), false, &Limits::default(), NOW);
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
        health.succeeded(&Limits::default(), NOW);
        health.failed(AttemptId(9), AttemptId(9), false, &Limits::default(), NOW);
        assert_eq!((health.failures, health.rung), (1, 0));
    }

    #[test]
    fn l7_attempts_that_were_on_the_wire_at_the_climb_do_not_climb_again() {
        let mut health = Health::default();
        for n in 1..=12 {
            health.failed(AttemptId(n), AttemptId(12), false, &Limits::default(), NOW);
        }
        assert_eq!(health.rung, 1);
    }

    #[test]
    fn l7_retries_of_one_call_count_once() {
        let mut health = failing(4);
        health.failed(AttemptId(5), AttemptId(5), true, &Limits::default(), NOW);
        assert_eq!((health.failures, health.rung), (4, 0));
        health.failed(AttemptId(6), AttemptId(6), false, &Limits::default(), NOW);
        assert_eq!(health.rung, 1);
    }

    fn wide(in_flight: u32) -> Limits {
        let in_flight = std::num::NonZeroU32::new(in_flight).expect("above zero");
        Limits { in_flight, ..Limits::default() }
    }

    #[test]
    fn l7_throttling_doubles_the_gap_and_halves_the_width_once_per_burst() {
        let limits = wide(16);
        let mut health = Health::default();
        for n in 1..=16 {
            health.throttled(AttemptId(n), AttemptId(16), &limits, None, NOW);
        }
        assert_eq!((health.every(&limits), health.narrowed), (Span::secs(1), Some(8)));
        for n in 17..=40 {
            health.throttled(AttemptId(n), AttemptId(n), &limits, None, NOW);
        }
        assert_eq!((health.every(&limits), health.narrowed), (Span::secs(16), Some(1)));
    }

    #[test]
    fn l7_a_gap_of_its_own_grows_at_most_sixteen_fold() {
        let limits = Limits { every: Some(Span::secs(3)), ..Limits::default() };
        let mut health = Health::default();
        let gaps = [6, 12, 24, 48, 48].map(Span::secs);
        for (n, gap) in (1..).zip(gaps) {
            health.throttled(AttemptId(n), AttemptId(n), &limits, None, NOW);
            assert_eq!(health.every(&limits), gap);
        }
    }

    #[test]
    fn l7_a_throttled_lane_without_a_gap_starts_from_the_rate_it_had() {
        let limits = wide(4);
        let mut health = Health::default();
        health.throttled(AttemptId(1), AttemptId(1), &limits, Some(Span::millis(200)), NOW);
        assert_eq!(health.every(&limits), Span::millis(400));
        assert_eq!(health.slow.refused, Some((Span::millis(200), NOW)));
    }

    #[test]
    fn l7_success_steps_back_by_quarters_and_not_into_the_gap_that_was_refused() {
        let limits = wide(4);
        let mut health = Health::default();
        health.throttled(AttemptId(1), AttemptId(1), &limits, Some(Span::millis(200)), NOW);
        let step = |health: &mut Health, now: Time| {
            (0..5).for_each(|_| health.succeeded(&limits, now));
            health.every(&limits)
        };
        let gaps = [300_000, 225_000, 212_500, 212_500].map(Span);
        assert_eq!([NOW; 4].map(|now| step(&mut health, now)), gaps);
        assert_eq!(health.narrowed, None, "it was 2 of 4");
        let later = NOW + Span::mins(10);
        assert_eq!(step(&mut health, later), Span::ZERO, "below where it was");
        assert_eq!(health.slow, SlowRecord::default());
    }

    #[test]
    fn l7_the_rate_of_a_lane_is_that_of_ten_seconds() {
        let mut recent = Recent::default();
        for n in 0..40u64 {
            recent.count(NOW + Span::millis(500 * n));
        }
        assert_eq!(recent.gap(NOW + Span::secs(19)), Some(Span::millis(500)));
        assert_eq!(recent.gap(NOW + Span::secs(24)), Some(Span::secs(1)));
        assert_eq!(recent.gap(NOW + Span::secs(60)), None);
        recent.count(NOW);
        assert_eq!(recent.gap(NOW + Span::secs(19)), Some(Span::millis(500)), "too old to count");
    }

    #[test]
    fn l7_a_few_starts_tell_a_rate_if_they_were_no_burst() {
        let counted = |seconds: &[u64]| {
            let mut recent = Recent::default();
            for &at in seconds {
                recent.count(NOW + Span::secs(at));
            }
            recent.gap(NOW + Span::secs(9))
        };
        assert_eq!(counted(&[1, 5, 9]), Some(Span(3_333_333)));
        assert_eq!(counted(&[4, 9]), Some(Span::secs(5)));
        assert_eq!(counted(&[5, 8, 9]), None, "the first is too new");
        assert_eq!(counted(&[0]), None, "one start has no rate");
        assert_eq!(counted(&[9; 19]), None);
        assert_eq!(counted(&[9, 10]), None, "one is ahead");
        assert_eq!(counted(&[9; 20]), Some(Span::millis(500)));
    }
}
