//! Workers, modelled a second time: one for each lane that runs a call, and pool slots beyond (P3,
//! P5).

use std::sync::Arc;

use paceline_core::{CallId, Priority};

use super::Checker;
use super::lanes::{AttemptModel, LaneModel};

/// The worker that a call needs to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    First,
    Slot,
}

impl Checker {
    /// Workers that a call occupies, by its kind: one or none.
    pub(super) fn workers_of(&self, call: CallId) -> u32 {
        let kind = self.jobs.get(&call.job).map(|job| &job.spec.kind);
        let terms = self.setup.kinds.iter().find(|terms| Some(&terms.name) == kind);
        u32::from(terms.is_none_or(|terms| terms.keeps_worker))
    }

    pub(super) fn need(&self, lane: &LaneModel, call: CallId) -> Need {
        match self.workers_of(call) {
            0 => Need::Nothing,
            _ if lane.running == 0 => Need::First,
            _ => Need::Slot,
        }
    }

    fn slots(&self) -> u32 {
        self.lanes.values().map(LaneModel::slots).sum()
    }

    fn lanes_that_run(&self) -> u32 {
        self.lanes.values().filter(|lane| lane.running > 0).count() as u32
    }

    /// The number of further calls with this need that fit in a pool of `slots` slots.
    fn room(&self, need: Need, slots: u32) -> u32 {
        let pool = &self.setup.settings.pool;
        let running: u32 = self.lanes.values().map(|lane| lane.running).sum();
        let in_all = pool.max_running.get().saturating_sub(running);
        match need {
            Need::Nothing => u32::MAX,
            Need::First => pool.max_lanes.get().saturating_sub(self.lanes_that_run()).min(in_all),
            Need::Slot => slots.saturating_sub(self.slots()).min(in_all),
        }
    }

    /// Returns `true` if a call with this need finds a worker even in the smallest pool.
    pub(super) fn worker_is_free(&self, need: Need, lane: &LaneModel) -> bool {
        let pool = &self.setup.settings.pool;
        let room = self.room(need, pool.base.get()) > pool.interactive_reserve;
        room && !self.has_its_share(need, lane)
    }

    /// Returns `true` if the lane holds its full share of slots.
    pub(super) fn has_its_share(&self, need: Need, lane: &LaneModel) -> bool {
        need == Need::Slot && lane.slots() >= self.share()
    }

    /// The most slots that one lane may hold (P5).
    fn share(&self) -> u32 {
        let pool = &self.setup.settings.pool;
        pool.lane_share.of(u64::from(pool.max.get())).max(1) as u32
    }

    /// Returns `true` if only interactive calls are sure to find a worker for this need.
    pub(super) fn kept_for_interactive(&self, need: Need) -> bool {
        let pool = &self.setup.settings.pool;
        self.room(need, pool.base.get()) <= pool.interactive_reserve
    }

    /// P3, P5, Q3: checks the worker that a reservation takes.
    pub(super) fn check_workers(
        &self,
        name: &Arc<str>,
        attempt: &AttemptModel,
        broken: &mut Vec<(&'static str, String)>,
    ) {
        let pool = &self.setup.settings.pool;
        let lane = &self.lanes[name];
        let need = self.need(lane, attempt.call);
        let room = self.room(need, pool.max.get());
        if room == 0 {
            broken.push(("Q3", format!("{name}: a call more than there are workers, as {need:?}")));
        } else if attempt.priority != Priority::Interactive && room <= pool.interactive_reserve {
            broken.push((
                "P3",
                format!("{} took a slot kept for interactive calls", attempt.priority),
            ));
        }
        let share = self.share();
        if need == Need::Slot && lane.slots() + 1 > share {
            broken.push(("P5", format!("{name} holds more than its share of {share} slots")));
        }
    }
}
