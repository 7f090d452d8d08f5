//! Room: the bounds on waiting calls, in all and on each lane (Q1), and how full they are (Q3).

use crate::call::{Call, State, Step};
use crate::core::{Core, Job};
use crate::group::Group;
use crate::job::{Admission, Submission, SubmitError};
use crate::lane::{Demand, Lane};
use crate::limits::Portion;
use crate::mutant::Mutant;
use crate::pool::Need;
use crate::priority::Priority;
use crate::settings::PoolSettings;
use crate::submit::NO_LANE;
use crate::time::{Now, Span, Time};

/// A refused caller is told to come again after this at the earliest: many of them come.
const AGAIN: Span = Span::secs(1);

/// The filling of a queue, by the marks at which the pool grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    /// Below `shrink_at`.
    Low,
    /// Between the marks.
    Middle,
    /// At `grow_at` or above.
    High,
}

/// A bound on waiting calls, and their number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    taken: u32,
    bound: u32,
    /// The numbers of calls from which on it is middle, and high.
    middle: u32,
    high: u32,
}

impl Default for Room {
    /// Without a bound, and so never full.
    fn default() -> Room {
        Room { taken: 0, bound: u32::MAX, middle: u32::MAX, high: u32::MAX }
    }
}

impl Room {
    pub(crate) fn new(bound: u32, pool: &PoolSettings) -> Room {
        let mark = |portion: Portion| {
            u32::try_from(portion.of_at_least(u64::from(bound))).unwrap_or(u32::MAX)
        };
        Room { taken: 0, bound, middle: mark(pool.shrink_at), high: mark(pool.grow_at) }
    }

    pub(crate) fn bound(&self) -> u32 {
        self.bound
    }

    pub(crate) fn fill(&self) -> Fill {
        if self.taken >= self.high {
            Fill::High
        } else if self.taken >= self.middle {
            Fill::Middle
        } else {
            Fill::Low
        }
    }

    /// The part that a priority may use: a tenth is kept for interactive work.
    fn allowed(&self, priority: Priority) -> u32 {
        let kept = if priority == Priority::Interactive { 0 } else { self.bound / 10 };
        self.bound - kept
    }

    fn fits(&self, calls: u32, priority: Priority) -> bool {
        self.taken.saturating_add(calls) <= self.allowed(priority)
    }
}

/// The numbers of lanes that are middle and high.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fills {
    middle: u32,
    high: u32,
}

impl Fills {
    fn of(&mut self, fill: Fill) -> Option<&mut u32> {
        match fill {
            Fill::Low => None,
            Fill::Middle => Some(&mut self.middle),
            Fill::High => Some(&mut self.high),
        }
    }

    fn change(&mut self, before: Fill, after: Fill) {
        self.of(before).into_iter().for_each(|lanes| *lanes -= 1);
        self.of(after).into_iter().for_each(|lanes| *lanes += 1);
    }

    fn fullest(self) -> Fill {
        match self {
            Fills { high: 1.., .. } => Fill::High,
            Fills { middle: 1.., .. } => Fill::Middle,
            Fills { .. } => Fill::Low,
        }
    }
}

impl State {
    /// Returns `true` if a call in this state takes room: it waits for its lane, or for the cache,
    /// or shares another's request.
    fn takes_room(self) -> bool {
        match self {
            State::Asking => !Mutant::AskingUncounted.on(),
            State::Queued | State::Joined => true,
            State::Backoff => Mutant::BackoffTakesRoom.on(),
            State::Staged | State::Due | State::Parked | State::Running | State::Settled => false,
        }
    }
}

impl Core {
    /// Takes a call a step further, and keeps the counts of waiting calls. This is the only place
    /// that changes them.
    pub(crate) fn step(&mut self, call: u32, step: Step) {
        let before = self.calls[call].state;
        self.calls[call].step(step);
        let after = self.calls[call].state;
        match (before.takes_room(), after.takes_room()) {
            (false, true) => self.count_room(call, 1, 0),
            (true, false) => self.count_room(call, 0, 1),
            _ => {}
        }
        if (before == State::Joined) != (after == State::Joined) {
            let joined = &mut self.lanes[self.calls[call].lane].joined;
            *joined = if after == State::Joined { *joined + 1 } else { *joined - 1 };
        }
    }

    /// Counts a call for its lane, and for the bound on all if its kind keeps a worker. Permits and
    /// relayed requests keep none, so a queue that is full of jobs refuses none of them.
    fn count_room(&mut self, call: u32, more: u32, fewer: u32) {
        let Call { lane, job, .. } = self.calls[call];
        let room = &mut self.lanes[lane].room;
        let before = room.fill();
        room.taken = room.taken + more - fewer;
        let after = room.fill();
        if before != after {
            self.fills.change(before, after);
        }
        if self.all_keep_workers || self.counts_in_all(self.jobs[job].kind) {
            self.room.taken = self.room.taken + more - fewer;
            let in_all = &mut self.lanes[lane].in_all;
            *in_all = *in_all + more - fewer;
        }
    }

    fn counts_in_all(&self, kind: u32) -> bool {
        let kind = self.kinds.get(kind as usize);
        let keeps_worker = kind.is_none_or(|kind| kind.keeps_worker);
        self.all_keep_workers || keeps_worker || Mutant::PermitsTakeRoom.on()
    }

    /// Sets the bound of a lane from its limits or the settings.
    pub(crate) fn bound_lane(&mut self, lane: u32) {
        let bound = self.lane_bound(&self.lanes[lane]);
        let before = self.lanes[lane].room;
        let room = Room { taken: before.taken, ..Room::new(bound, &self.settings.pool) };
        self.lanes[lane].room = room;
        self.fills.change(before.fill(), room.fill());
    }

    fn lane_bound(&self, lane: &Lane) -> u32 {
        let own = lane.limits.max_waiting.unwrap_or(self.settings.lane_waiting);
        own.min(self.settings.max_waiting).get()
    }

    /// Forgets how full a lane is that is dropped.
    pub(crate) fn unbound_lane(&mut self, lane: &Lane) {
        self.fills.change(lane.room.fill(), Fill::Low);
    }

    /// The filling of the queue: that of its fullest lane, or of all of it together (Q3).
    pub(crate) fn fill(&self) -> Fill {
        self.room.fill().max(self.fills.fullest())
    }

    /// The refusal of a new job for which there is no room now; `None` if there is room. A job for
    /// which there can never be room is an error.
    pub(crate) fn refusal(
        &mut self,
        submission: &Submission,
        kind: u32,
        lanes: &[u32],
        now: Now,
    ) -> Result<Option<Admission>, SubmitError> {
        let spec = &submission.spec;
        let first = lanes[..spec.stages[0].len()].iter().zip(0u16..);
        let applies = |index: u16| !spec.not_applicable.contains(&index);
        let lanes = first.filter(|(_, index)| applies(*index)).map(|(&lane, _)| lane);
        self.refusal_of(submission.priority.unwrap_or_default(), kind, lanes, now)
    }

    /// The refusal of work that waits to be due and is to begin now instead.
    pub(crate) fn refusal_to_begin(
        &mut self,
        job: u32,
        now: Now,
    ) -> Result<Option<Admission>, SubmitError> {
        let Job { kind, priority, stage, .. } = self.jobs[job];
        let calls = self.jobs[job].calls.iter().map(|&call| &self.calls[call]);
        let begin = calls.filter(|call| call.stage == stage && self.jobs[job].applies(call.index));
        let lanes: Vec<u32> = begin.map(|call| call.lane).collect();
        self.refusal_of(priority, kind, lanes.into_iter(), now)
    }

    /// The refusal of calls on these lanes.
    fn refusal_of(
        &mut self,
        priority: Priority,
        kind: u32,
        mut lanes: impl Iterator<Item = u32> + Clone,
        now: Now,
    ) -> Result<Option<Admission>, SubmitError> {
        let calls = u32::try_from(lanes.clone().count()).unwrap_or(u32::MAX);
        let in_all = self.counts_in_all(kind);
        let room = self.room.allowed(priority);
        if in_all && calls > room {
            return Err(SubmitError::NeverRoom { calls, room });
        }
        // A lane that does not exist yet is empty.
        let is_full = |lane: u32| lane != NO_LANE && !self.lanes[lane].room.fits(1, priority);
        let full = lanes.find(|&lane| is_full(lane));
        if let Some(lane) = full {
            let retry_at = self.lane_room_at(lane, now).map(|at| now.wall_time(at));
            let lane = Some(self.lanes[lane].name.clone());
            return Ok(Some(Admission::Refused { lane, retry_at }));
        }
        if in_all && !self.room.fits(calls, priority) {
            let retry_at = self.room_at(now).map(|at| now.wall_time(at));
            return Ok(Some(Admission::Refused { lane: None, retry_at }));
        }
        Ok(None)
    }

    /// The moment at which a call of this lane may leave its queue. It is unknown while the lane is
    /// paused or only running calls hold it: a moment that is a guess would bring all refused
    /// callers back for nothing.
    fn lane_room_at(&self, lane: u32, now: Now) -> Option<Time> {
        let lane = &self.lanes[lane];
        if lane.paused {
            return None;
        }
        let opening = |priority: Priority, cost: u32| {
            let demand = Demand { priority, rank: priority, cost };
            lane.opening(demand).latest(self.group_opening(lane, cost)).at
        };
        let heads = || Priority::ALL.into_iter().filter_map(|at| Some((at, lane.queues.head(at)?)));
        let opens = if heads().next().is_some() {
            let free = heads().filter_map(|(priority, head)| {
                let at = opening(priority, head.cost.get());
                let held =
                    self.slots_are_taken(lane) || self.lacks_worker(lane, priority, head.call);
                (at > now.time || !held).then_some(at)
            });
            free.min()
        } else {
            // Calls that wait for the cache, or share a request, stand in no queue. A request that
            // all of them share is on the wire, or is sent when its retry is due.
            let at = opening(Priority::Background, 1);
            let share = lane.room.taken == lane.joined;
            let runs = lane.in_flight + lane.unreported > 0;
            let held = if share { runs } else { self.slots_are_taken(lane) };
            (!held || !share && at > now.time).then_some(at)
        };
        opens.map(|at| at.max(now.time + AGAIN))
    }

    fn slots_are_taken(&self, lane: &Lane) -> bool {
        let group = lane.group.map(|group| &self.groups[group]);
        lane.taken() >= lane.width() || group.is_some_and(Group::is_full)
    }

    /// Returns `true` if a waiting call lacks a slot and so starts only when another call ends.
    fn lacks_worker(&self, lane: &Lane, priority: Priority, call: u32) -> bool {
        let need = self.need(lane, call);
        let has_its_share = need == Need::Slot && lane.workers > self.pool.lane_cap();
        has_its_share || !self.pool.will_admit(need, priority)
    }

    /// The moment at which a call of any lane may leave its queue. All lanes are looked at, once
    /// per turn however many jobs it refuses.
    fn room_at(&mut self, now: Now) -> Option<Time> {
        if let Some((_, found)) = self.found_room.filter(|(at, _)| *at == now.time) {
            return found;
        }
        let lanes = self.lanes.iter().filter(|(_, lane)| lane.in_all > 0);
        let found = lanes.filter_map(|(lane, _)| self.lane_room_at(lane, now)).min();
        self.found_room = Some((now.time, found));
        found
    }
}
