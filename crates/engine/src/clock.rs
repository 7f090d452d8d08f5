//! The one clock: only this file reads it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use paceline_core::{Now, Span, Stamp, Time};

use crate::turn::{Reading, continued};

/// Engine time, anchored once when the store is opened.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    anchor: Time,
    boot: u64,
}

impl Clock {
    /// Goes on where the store's last commit left off.
    pub(crate) fn start(last: Option<&Stamp>) -> Clock {
        let boot = boot_id();
        let anchor = continued(last, wall(), boot, since_boot());
        #[expect(clippy::disallowed_methods, reason = "this is the one clock")]
        let started = Instant::now();
        Clock { started, anchor, boot }
    }

    // The wall clock may be stepped by hand or by NTP. Limits must not notice: they run on the
    // monotonic clock, anchored once, so a step can neither open a window early nor freeze a lane.
    pub(crate) fn time(&self) -> Time {
        self.anchor + Span::from(self.started.elapsed())
    }

    /// What all clocks show.
    pub(crate) fn reading(&self) -> Reading {
        let now = Now { time: self.time(), wall: wall() };
        Reading { now, boot: self.boot, since_boot: since_boot() }
    }
}

/// Microseconds of the wall clock.
pub(crate) fn wall() -> Time {
    #[expect(clippy::disallowed_methods, reason = "this is the one clock")]
    let now = SystemTime::now();
    wall_moment(now)
}

/// A moment of the wall clock; before 1970 is 1970.
pub(crate) fn wall_moment(at: SystemTime) -> Time {
    Time::ZERO + Span::from(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A moment of the wall clock, for programs.
pub(crate) fn system_time(wall: Time) -> SystemTime {
    UNIX_EPOCH + std::time::Duration::from(wall.since(Time::ZERO))
}

/// Microseconds that the machine has been up, time asleep included.
fn since_boot() -> u64 {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (at.tv_sec.unsigned_abs(), at.tv_nsec.unsigned_abs());
    seconds * 1_000_000 + nanos / 1_000
}

/// A number for this boot of the machine; a random one where the system has none, which is like
/// a reboot.
fn boot_id() -> u64 {
    use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) => {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        }
        Err(_) => RandomState::new().build_hasher().finish(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(time: u64, wall: u64, boot: u64, since_boot: u64) -> Stamp {
        let (time, wall) = (Time(time), Time(wall));
        Stamp { time, wall, boot, since_boot, ..Stamp::default() }
    }

    #[test]
    fn w5_a_step_of_the_wall_clock_between_two_runs_changes_nothing() {
        let last = stamp(1_000, 1_000, 7, 50);
        assert_eq!(continued(Some(&last), Time(999_999), 7, 80), Time(1_030));
        assert_eq!(continued(Some(&last), Time(3), 7, 80), Time(1_030));
    }

    #[test]
    fn w5_after_a_reboot_the_wall_clock_counts_but_never_backwards() {
        let last = stamp(1_000, 5_000, 7, 50);
        assert_eq!(continued(Some(&last), Time(5_400), 8, 1), Time(1_400));
        assert_eq!(continued(Some(&last), Time(4_000), 8, 1), Time(1_000));
        assert_eq!(continued(None, Time(5_400), 8, 1), Time(5_400));
    }

    #[test]
    fn engine_time_runs_forward() {
        let clock = Clock::start(Some(&stamp(1_000, 0, 0, 0)));
        let first = clock.time();
        assert!(clock.reading().now.time >= first);
    }
}
