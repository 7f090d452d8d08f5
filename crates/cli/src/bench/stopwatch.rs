//! Wall and processor time of a piece of work.

use std::time::{Duration, Instant};

/// Started now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

/// The reading of a stopwatch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lap {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { wall: now(), cpu: cpu() }
    }

    pub(crate) fn lap(&self) -> Lap {
        Lap { wall: self.wall.elapsed(), cpu: cpu().saturating_sub(self.cpu) }
    }
}

/// The moment by the clock that only goes forward.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    Instant::now()
}

/// Processor time of all threads of this process so far.
fn cpu() -> Duration {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}
