//! The clocks of the simulated machine.

use paceline::turn::{Reading, continued};
use paceline_core::{Now, Stamp, Time};

/// The start of every world on both clocks, far enough from zero for steps backwards.
pub(crate) const WORLD_START: Time = Time(1_000_000_000_000);

/// True time, and the clocks of the machine, which may differ from it.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// True time, which is never stepped. Engine time must always equal it.
    pub(crate) truth: Time,
    wall_offset: i64,
    boot: u64,
    booted_at: Time,
    /// The wall clock was stepped since the last commit: a reboot now would leave the engine
    /// without a clock that it can trust.
    pub(crate) stepped: bool,
    /// The machine was rebooted since the last commit: a step now would do the same.
    pub(crate) rebooted: bool,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let booted_at = Time(WORLD_START.0 / 2);
        Clock {
            truth: WORLD_START,
            wall_offset: 0,
            boot: 1,
            booted_at,
            stepped: false,
            rebooted: false,
        }
    }

    pub(crate) fn reading(&self) -> Reading {
        let wall = Time(self.truth.0.saturating_add_signed(self.wall_offset));
        let now = Now { time: self.truth, wall };
        Reading { now, boot: self.boot, since_boot: self.truth.since(self.booted_at).0 }
    }

    pub(crate) fn step_wall(&mut self, by: i64) {
        self.wall_offset += by;
        self.stepped = true;
    }

    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
        self.rebooted = true;
        self.booted_at = self.truth;
    }

    /// The engine time at which a process continues with a store that has this stamp.
    pub(crate) fn engine_time(&self, last: Option<&Stamp>) -> Time {
        // A store without a stamp starts at the wall clock, which is the true time then.
        if last.is_none() {
            return self.truth;
        }
        let Reading { now, boot, since_boot } = self.reading();
        continued(last, now.wall, boot, since_boot)
    }
}

/// A moment as traces print it: seconds since the start of the world.
pub(crate) fn seconds(at: Time) -> String {
    let micros = at.since(WORLD_START).0;
    format!("{}.{:03}", micros / 1_000_000, micros % 1_000_000 / 1_000)
}
