//! The settings of the whole engine, all with defaults.

use std::num::NonZeroU32;

use crate::limits::Portion;
use crate::time::Span;

/// How lanes that compete for workers are ordered within one rank (P1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcrossLanes {
    /// The oldest call first.
    #[default]
    Oldest,
    /// The lane that started longest ago first.
    Turns,
}

/// The elastic pool (Q3, P3, P5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Slots that are always there, beyond the first running call of each lane.
    pub base: NonZeroU32,
    /// Slots at most.
    pub max: NonZeroU32,
    /// Lanes at most that run anything at once.
    pub max_lanes: NonZeroU32,
    /// Running calls at most in all, first ones and others; no bound of its own by default.
    pub max_running: NonZeroU32,
    /// Slots, and lanes, that only interactive calls may take.
    pub interactive_reserve: u32,
    /// The part of `max` that one lane may hold.
    pub lane_share: Portion,
    /// One worker more or less per this; zero means at once.
    pub step: Span,
    /// How full the queue is when the pool grows.
    pub grow_at: Portion,
    /// How full the queue is when the pool shrinks.
    pub shrink_at: Portion,
}

/// What the rules are told once, at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The pool of workers.
    pub pool: PoolSettings,
    /// Waiting calls at most in all (Q1); a tenth of them is kept for interactive work.
    pub max_waiting: NonZeroU32,
    /// Waiting calls at most on one lane that does not say it itself (Q1); `max_waiting` lowers it.
    pub lane_waiting: NonZeroU32,
    /// Lanes at most, those that templates make included (L10).
    pub max_lanes: NonZeroU32,
    /// Attempts at most that their service has answered and that are not over yet; those beyond
    /// keep their slots to the end (L5).
    pub max_answered: u32,
    /// The order between lanes (P1).
    pub across_lanes: AcrossLanes,
    /// A waiting call ranks one priority higher after each of these (P2).
    pub age_after: Span,
    /// A reservation is good for so long (L4). Each that comes too late doubles it for its lane, at
    /// most [`MOST_LATE`] times, so that a slow disk costs time and not everything.
    pub send_within: Span,
    /// Work due by the clock is promised so long before, so that its commit does not make it
    /// late (W5).
    pub lead: Span,
    /// How long found answers are cached (C2).
    pub found_for: Span,
    /// How long empty answers are cached (C2).
    pub empty_for: Span,
    /// The largest payload or value, in bytes.
    pub max_payload: usize,
    /// Seeds the tables' hash, so that nobody outside can aim at it.
    pub hash_seed: u64,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            base: NonZeroU32::new(10).expect("above zero"),
            max: NonZeroU32::new(20).expect("above zero"),
            max_lanes: NonZeroU32::new(1_000).expect("above zero"),
            max_running: NonZeroU32::MAX,
            interactive_reserve: 1,
            lane_share: Portion::thousandths(500),
            step: Span::secs(1),
            grow_at: Portion::thousandths(600),
            shrink_at: Portion::thousandths(400),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pool: PoolSettings::default(),
            max_waiting: NonZeroU32::new(200_000).expect("above zero"),
            lane_waiting: NonZeroU32::new(10_000).expect("above zero"),
            max_lanes: NonZeroU32::new(10_000).expect("above zero"),
            max_answered: 1_024,
            across_lanes: AcrossLanes::Oldest,
            age_after: Span::mins(5),
            send_within: Span::millis(50),
            lead: Span::millis(10),
            found_for: Span::days(7),
            empty_for: Span::days(1),
            max_payload: 1 << 20,
            hash_seed: 0,
        }
    }
}

/// Settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Fewer workers at most than always.
    #[error("`workers.max = {max}` is below `workers.base = {base}`")]
    MaxBelowBase {
        /// Always there.
        base: u32,
        /// At most.
        max: u32,
    },
    /// More workers than make sense in one process.
    #[error("`workers.max = {0}` is more than 100000")]
    TooManyWorkers(u32),
    /// Nothing but interactive calls could ever run.
    #[error(
        "`workers.interactive_reserve = {reserve}` leaves none of `{of} = {max}` for other work"
    )]
    ReserveTakesAll {
        /// Kept for interactive calls.
        reserve: u32,
        /// The setting of which that much is kept.
        of: &'static str,
        /// Its value.
        max: u32,
    },
    /// The pool would grow and shrink at once.
    #[error("`workers.shrink_at` must be below `workers.grow_at`")]
    ShrinkAboveGrow,
    /// Slots would be held for nothing.
    #[error("`lead = {0}` is more than a second: work due later would hold its slot for so long")]
    LongLead(Span),
    /// A zero where work could never be done or would rise at once.
    #[error("`{0}` must be above zero")]
    Zero(&'static str),
}

/// How often `send_within` is doubled at most.
pub const MOST_LATE: u8 = 5;

impl Settings {
    /// How long a reservation is good for on a lane where this was doubled so often (L4).
    pub fn send_within(&self, late: u8) -> Span {
        self.send_within.times(1 << late)
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), SettingsError> {
        let pool = &self.pool;
        let (base, max) = (pool.base.get(), pool.max.get());
        if max < base {
            return Err(SettingsError::MaxBelowBase { base, max });
        }
        if max > 100_000 {
            return Err(SettingsError::TooManyWorkers(max));
        }
        for (of, max) in [
            ("workers.max", max),
            ("workers.max_lanes", pool.max_lanes.get()),
            ("max_running", pool.max_running.get()),
        ] {
            let reserve = pool.interactive_reserve;
            if reserve >= max {
                return Err(SettingsError::ReserveTakesAll { reserve, of, max });
            }
        }
        if pool.shrink_at >= pool.grow_at {
            return Err(SettingsError::ShrinkAboveGrow);
        }
        if self.lead > Span::secs(1) {
            return Err(SettingsError::LongLead(self.lead));
        }
        for (name, zero) in [
            ("workers.lane_share", pool.lane_share == Portion::ZERO),
            ("age_after", self.age_after == Span::ZERO),
            ("send_within", self.send_within == Span::ZERO),
            ("max_payload", self.max_payload == 0),
        ] {
            if zero {
                return Err(SettingsError::Zero(name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: fn(&mut Settings), expected: &str) {
        let mut settings = Settings::default();
        change(&mut settings);
        assert_eq!(settings.check().expect_err("contradiction").to_string(), expected);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(Settings::default().check(), Ok(()));
        check(|s| s.pool.max = NonZeroU32::MIN, "`workers.max = 1` is below `workers.base = 10`");
        check(
            |s| s.pool.interactive_reserve = 20,
            "`workers.interactive_reserve = 20` leaves none of `workers.max = 20` for other work",
        );
        check(
            |s| s.pool.max_lanes = NonZeroU32::MIN,
            "`workers.interactive_reserve = 1` leaves none of `workers.max_lanes = 1` for other work",
        );
        check(
            |s| s.lead = Span::secs(2),
            "`lead = 2s` is more than a second: work due later would hold its slot for so long",
        );
        check(|s| s.pool.lane_share = Portion::ZERO, "`workers.lane_share` must be above zero");
        check(
            |s| s.pool.shrink_at = Portion::ONE,
            "`workers.shrink_at` must be below `workers.grow_at`",
        );
    }
}
