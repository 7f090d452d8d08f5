//! The settings of the whole engine, all with defaults.

use std::num::NonZeroU32;

use crate::limits::Portion;
use crate::time::Span;

/// The order, within one rank, of lanes that compete for slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcrossLanes {
    /// The oldest call first.
    #[default]
    Oldest,
    /// The lane that started longest ago first.
    Turns,
}

/// The elastic pool of slots. The first running call of each lane needs none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Slots that are always there.
    pub base: NonZeroU32,
    /// The most slots that the pool grows to.
    pub max: NonZeroU32,
    /// The most lanes that run anything at once.
    pub max_lanes: NonZeroU32,
    /// The most running calls in all, those without a slot included. No bound by default.
    pub max_running: NonZeroU32,
    /// Slots, and lanes, that only interactive calls may take.
    pub interactive_reserve: u32,
    /// The part of `max` that one lane may hold.
    pub lane_share: Portion,
    /// The pool grows or shrinks by one slot per `step`; zero means at once.
    pub step: Span,
    /// The pool grows while the queue is this full.
    pub grow_at: Portion,
    /// The pool shrinks while the queue is less full than this.
    pub shrink_at: Portion,
}

/// The settings of the core, fixed from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The pool of slots.
    pub pool: PoolSettings,
    /// The most calls that may wait in all. A tenth is kept for interactive work.
    pub max_waiting: NonZeroU32,
    /// The most calls that may wait on a lane without a bound of its own; never above
    /// `max_waiting`.
    pub lane_waiting: NonZeroU32,
    /// The most lanes, those that templates make included.
    pub max_lanes: NonZeroU32,
    /// The most attempts that their upstreams have answered and that are not over yet. Those beyond
    /// keep their slots to the end.
    pub max_answered: u32,
    /// The order between lanes.
    pub across_lanes: AcrossLanes,
    /// A waiting call ranks one priority higher after each of these spans.
    pub age_after: Span,
    /// How long a reserved attempt may take to be sent. One that is later is not sent, and doubles
    /// this for its lane, at most [`MOST_LATE`] times: a disk that is always slower delays calls
    /// and does not stop them.
    pub send_within: Span,
    /// Work due at a moment is reserved this much ahead, so that its commit does not make it late.
    pub lead: Span,
    /// How long answers that found something are cached.
    pub found_for: Span,
    /// How long empty answers are cached.
    pub empty_for: Span,
    /// The largest payload or value, in bytes.
    pub max_payload: usize,
    /// Seeds the hash of the tables, so that callers cannot choose keys that collide.
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
    /// The pool's maximum is below its base.
    #[error("`workers.max = {max}` is below `workers.base = {base}`")]
    MaxBelowBase {
        /// The base.
        base: u32,
        /// The maximum.
        max: u32,
    },
    /// More slots than make sense in one process.
    #[error("`workers.max = {0}` is more than 100000")]
    TooManyWorkers(u32),
    /// The interactive reserve leaves nothing for other calls.
    #[error(
        "`workers.interactive_reserve = {reserve}` leaves none of `{of} = {max}` for other work"
    )]
    ReserveTakesAll {
        /// The reserve.
        reserve: u32,
        /// The setting that it is a part of.
        of: &'static str,
        /// Its value.
        max: u32,
    },
    /// The pool would grow and shrink at once.
    #[error("`workers.shrink_at` must be below `workers.grow_at`")]
    ShrinkAboveGrow,
    /// A lead that would hold slots for too long.
    #[error("`lead = {0}` is more than a second: work due later would hold its slot that long")]
    LongLead(Span),
    /// A zero where no work could be done, or where calls would rise at once.
    #[error("`{0}` must be above zero")]
    Zero(&'static str),
}

/// The most times that `send_within` is doubled.
pub const MOST_LATE: u8 = 5;

impl Settings {
    /// How long an attempt may take to be sent, on a lane where this was doubled `late` times.
    pub fn send_within(&self, late: u8) -> Span {
        self.send_within.times(1 << late)
    }

    /// Returns an error for settings that contradict each other.
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
            "`lead = 2s` is more than a second: work due later would hold its slot that long",
        );
        check(|s| s.pool.lane_share = Portion::ZERO, "`workers.lane_share` must be above zero");
        check(
            |s| s.pool.shrink_at = Portion::ONE,
            "`workers.shrink_at` must be below `workers.grow_at`",
        );
    }
}
