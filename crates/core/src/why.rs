//! Why a call waits, until when, and behind how many (W3).

use serde::{Serialize, Serializer};

use crate::call::State;
use crate::core::Core;
use crate::job::CallId;
use crate::lane::{Cause, Demand, Lane};
use crate::pool::Need;
use crate::time::{Now, Time};

/// Calls ahead are counted exactly up to this number.
pub const MOST_AHEAD: usize = 1_000;

/// The reason why a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The gap between calls has not passed.
    Gap,
    /// A window is full.
    Window,
    /// The rest of a window is kept for higher priorities.
    Keep,
    /// A limit of the lane's group holds it.
    Group,
    /// The lane is in cooldown: its upstream said so, or failed.
    Cooldown,
    /// The backoff before its next attempt is not over.
    Backoff,
    /// After failures the lane sends one call at a time, and that one is out.
    Probe,
    /// As many calls as the lane allows are in flight.
    Busy,
    /// No slot of the pool is free, or no worker here runs its kind.
    Workers,
    /// Calls that rank higher go first.
    Priority,
    /// It is not due yet.
    NotBefore,
    /// An operator paused the lane.
    Paused,
    /// It shares the request of another job's call.
    Joined,
    /// An earlier stage of its job is under way.
    Stage,
    /// The queue is full.
    Room,
}

impl Reason {
    /// Its name in JSON and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Gap => "gap",
            Reason::Window => "window",
            Reason::Keep => "keep",
            Reason::Group => "group",
            Reason::Cooldown => "cooldown",
            Reason::Backoff => "backoff",
            Reason::Probe => "probe",
            Reason::Busy => "busy",
            Reason::Workers => "workers",
            Reason::Priority => "priority",
            Reason::NotBefore => "not_before",
            Reason::Paused => "paused",
            Reason::Joined => "joined",
            Reason::Stage => "stage",
            Reason::Room => "room",
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Reason {
        match cause {
            Cause::Gap | Cause::OwnGap => Reason::Gap,
            Cause::Window => Reason::Window,
            Cause::Keep => Reason::Keep,
            Cause::Cooldown => Reason::Cooldown,
            Cause::Group => Reason::Group,
        }
    }
}

/// Why one call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Its lane.
    pub lane: std::sync::Arc<str>,
    /// The first reason.
    pub reason: Reason,
    /// It waits at least until this moment, in engine time; `None` where that is not known.
    pub until: Option<Time>,
    /// Calls that go before it on its lane, up to [`MOST_AHEAD`].
    pub ahead: usize,
    /// Further reasons.
    pub also: Vec<Reason>,
}

impl Core {
    /// Why a call waits; `None` for one that runs or has settled.
    pub fn why(&self, id: CallId, now: Now) -> Option<Why> {
        let job = &self.jobs[*self.job_ids.get(&id.job)?];
        let &number = job.calls.get(usize::from(id.index))?;
        let call = &self.calls[number];
        let lane = &self.lanes[call.lane];
        let simple = |reason, until| {
            Some(Why { lane: lane.name.clone(), reason, until, ahead: 0, also: Vec::new() })
        };
        match call.state {
            State::Running | State::Settled => None,
            State::Staged | State::Asking => simple(Reason::Stage, None),
            State::Due => simple(Reason::NotBefore, job.due().map(|due| due.engine(now))),
            State::Backoff => simple(Reason::Backoff, Some(call.retry_at)),
            State::Joined => simple(Reason::Joined, None),
            State::Parked => simple(Reason::Workers, None),
            State::Queued => Some(self.why_queued(number, lane, now)),
        }
    }

    /// Why the waiting calls of a job wait, by call number.
    pub fn why_job(&self, job: crate::job::JobId, now: Now) -> Option<Vec<(u16, Why)>> {
        let calls = &self.jobs[*self.job_ids.get(&job)?].calls;
        let whys = (0..calls.len() as u16)
            .filter_map(|index| self.why(CallId { job, index }, now).map(|why| (index, why)));
        Some(whys.collect())
    }

    fn why_queued(&self, number: u32, lane: &Lane, now: Now) -> Why {
        let call = &self.calls[number];
        let job = &self.jobs[call.job];
        let (rank, _) = self.rank(job.priority, call.place.joined_at, now.time);
        let demand = Demand { priority: job.priority, rank, cost: job.cost.get() };
        let mut reasons: Vec<(Reason, Option<Time>)> = Vec::new();
        if lane.paused {
            reasons.push((Reason::Paused, None));
        }
        let group = self.group_opening(lane, job.cost.get());
        let opening = lane.opening(demand);
        let mut closed = [opening, group].map(|opening| (opening.at, Reason::from(opening.cause)));
        closed.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, reason) in closed {
            if at > now.time {
                reasons.push((reason, Some(at)));
            }
        }
        let ahead = self.ahead(number, lane, now);
        let group_full = lane.group.is_some_and(|group| self.groups[group].is_full());
        if lane.taken() >= lane.width() {
            let probing = lane.health.probing();
            reasons.push((if probing { Reason::Probe } else { Reason::Busy }, None));
        } else if group_full {
            reasons.push((Reason::Group, None));
        } else if (self.need(lane, number) == Need::Slot && lane.workers > self.pool.lane_cap())
            || (reasons.is_empty() && ahead == 0)
        {
            reasons.push((Reason::Workers, None));
        }
        if ahead > 0 {
            reasons.push((Reason::Priority, None));
        }
        let (reason, until) = reasons.remove(0);
        let also = reasons.into_iter().map(|(reason, _)| reason).collect();
        Why { lane: lane.name.clone(), reason, until, ahead, also }
    }

    /// The number of calls of the lane that go before this one, as ranks stand now.
    fn ahead(&self, number: u32, lane: &Lane, now: Now) -> usize {
        let call = &self.calls[number];
        let job = &self.jobs[call.job];
        let (own_rank, _) = self.rank(job.priority, call.place.joined_at, now.time);
        let mut ahead = 0;
        for priority in crate::priority::Priority::ALL {
            let queue = lane.queues.of(priority);
            ahead += if priority == job.priority {
                let risen = |place: crate::queue::QueuePlace| {
                    let (rank, _) = self.rank(priority, place.joined_at, now.time);
                    priority.index() - rank.index()
                };
                queue.ahead(job.tenant, call.place, risen, MOST_AHEAD)
            } else {
                let goes_first = |place: crate::queue::QueuePlace| {
                    let (rank, _) = self.rank(priority, place.joined_at, now.time);
                    (rank, place) < (own_rank, call.place)
                };
                queue.before(goes_first, MOST_AHEAD)
            };
        }
        ahead.min(MOST_AHEAD)
    }
}
