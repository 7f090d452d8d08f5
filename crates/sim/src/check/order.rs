//! The order of calls: no better call is passed over in its lane, among tenants, or across lanes
//! (P1 to P4).

use std::collections::BTreeMap;
use std::sync::Arc;

use paceline_core::{CallId, JobId, Priority, Reservation, Time};

use super::Checker;
use super::jobs::{CallModel, State};
use super::lanes::LaneModel;
use super::pool::Need;

/// A waiting call as the order sees it.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) id: CallId,
    pub(super) rank: Priority,
    pub(super) joined_at: Time,
    pub(super) priority: Priority,
    pub(super) cost: u32,
    tenant: Option<Arc<str>>,
}

/// Sorts higher ranks first, then older calls.
pub(super) type Key = (Priority, Time, JobId, u16);

impl Waiting {
    pub(super) fn key(&self) -> Key {
        (self.rank, self.joined_at, self.id.job, self.id.index)
    }
}

/// A call that started in this turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    id: CallId,
    need: Need,
    /// The oldest call of its queue.
    front: Key,
}

/// A lane, a priority and a tenant that take a turn.
type Turn = (Arc<str>, Priority, Option<Arc<str>>);

/// The turns of tenants since the engine started, counted in starts.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: u64,
    last: BTreeMap<Turn, u64>,
    /// Waiting calls, with their priority and the number of starts when they were first seen.
    seen: BTreeMap<CallId, (Priority, u64)>,
}

impl Turns {
    fn last(&self, lane: &Arc<str>, at: Priority, tenant: Option<&Arc<str>>) -> Option<u64> {
        self.last.get(&(lane.clone(), at, tenant.cloned())).copied()
    }

    fn serve(&mut self, lane: &Arc<str>, at: Priority, tenant: Option<Arc<str>>) {
        self.count += 1;
        self.last.insert((lane.clone(), at, tenant), self.count);
    }

    pub(super) fn observe<'a>(&mut self, waiting: impl Iterator<Item = &'a Waiting>) {
        let before = std::mem::take(&mut self.seen);
        self.seen = waiting
            .map(|call| {
                let seen = before.get(&call.id).filter(|(at, _)| *at == call.priority);
                (call.id, seen.copied().unwrap_or((call.priority, self.count)))
            })
            .collect();
    }
}

impl Checker {
    pub(super) fn waiting(&self) -> BTreeMap<Arc<str>, Vec<Waiting>> {
        let mut lanes: BTreeMap<Arc<str>, Vec<Waiting>> = BTreeMap::new();
        for (lane, waiting) in self.all_waiting() {
            match lanes.get_mut(lane) {
                Some(calls) => calls.push(waiting),
                None => drop(lanes.insert(lane.clone(), vec![waiting])),
            }
        }
        lanes
    }

    fn waiting_on(&self, name: &Arc<str>) -> Vec<Waiting> {
        let here = self.all_waiting().filter(|(lane, _)| *lane == name);
        here.map(|(_, waiting)| waiting).collect()
    }

    fn all_waiting(&self) -> impl Iterator<Item = (&Arc<str>, Waiting)> {
        let age_after = self.setup.settings.age_after.0;
        let jobs = self.jobs.iter().filter(|(_, job)| !job.parked);
        jobs.flat_map(move |(&job, model)| {
            let calls = (0..).zip(&model.calls).filter(|(_, call)| call.state == State::Waiting);
            calls.map(move |(index, call)| {
                let steps = self.now.time.since(call.joined_at).0 / age_after;
                let waiting = Waiting {
                    id: CallId { job, index },
                    rank: model.priority.risen(steps),
                    joined_at: call.joined_at,
                    priority: model.priority,
                    cost: model.spec.cost.get(),
                    tenant: model.spec.tenant.clone(),
                };
                (&call.lane, waiting)
            })
        })
    }

    /// Returns `true` if the model knows when the calls of this lane go: the lane is not
    /// restricted, and no call costs more than 1. A head that waits for a larger cost holds up its
    /// lane and its group.
    fn is_plain(&self, name: &Arc<str>) -> bool {
        self.is_plain_beside(name, &self.costly())
    }

    pub(super) fn is_plain_beside(&self, name: &Arc<str>, costly: &[Arc<str>]) -> bool {
        let lane = &self.lanes[name];
        let group = lane.limits().group.as_ref();
        let concerns = |other: &Arc<str>| {
            other == name
                || group.is_some()
                    && self.lanes.get(other).and_then(|lane| lane.limits().group.as_ref()) == group
        };
        lane.plain(self.now.time) && !costly.iter().any(concerns)
    }

    /// The lanes of calls that cost more than 1.
    pub(super) fn costly(&self) -> Vec<Arc<str>> {
        let jobs = self.jobs.values().filter(|job| job.spec.cost.get() > 1);
        let calls = jobs.flat_map(|job| &job.calls).filter(|call| call.state != State::Settled);
        calls.map(|call| call.lane.clone()).collect()
    }

    pub(super) fn lane_has_room(&self, lane: &LaneModel) -> bool {
        let probes = if lane.rung > 0 { lane.open_verdicts() } else { 0 };
        let room = lane.held() + probes < lane.width();
        !lane.paused && room && self.group_has_room(lane.limits())
    }

    /// P1: no better call of the lane that could go is passed over. A queue ranks as its oldest
    /// call.
    pub(super) fn check_turn_order(&mut self, name: &Arc<str>, reservation: &Reservation) {
        let waiting = self.waiting_on(name);
        let own = waiting.iter().find(|call| call.id == reservation.call);
        let oldest = |priority| {
            let queue = waiting.iter().filter(move |call| call.priority == priority);
            queue.min_by_key(|call| call.key())
        };
        let front = self.front(name, reservation.call);
        let need = self.need(&self.lanes[name], reservation.call);
        self.started.push(Started { id: reservation.call, need, front });
        if let Some(own) = own {
            self.check_tenants(name, own, &waiting);
        }
        if let Some(job) = self.jobs.get(&reservation.call.job) {
            self.turns.serve(name, job.priority, job.spec.tenant.clone());
        }
        if let Some(own) = own.filter(|_| self.is_plain(name)) {
            // The last slots are reserved for calls submitted as interactive (P3).
            let kept =
                |need| own.priority == Priority::Interactive && self.kept_for_interactive(need);
            let better = Priority::ALL.into_iter().filter_map(oldest);
            let mut better = better.filter(|call| call.key() < front);
            let lane = &self.lanes[name];
            // Calls behind one that lacks a worker wait with it.
            let barred = self.behind_interactive(name).any(|id| kept(self.need(lane, id)));
            let passed = better.find(|call| {
                !(barred && call.priority != Priority::Interactive)
                    && lane.opening(call.priority, call.rank) <= self.now.time
            });
            if let Some(passed) = passed {
                let words = format!(
                    "{name}: job {} ({} as {}) went before job {} ({} as {})",
                    own.id.job, own.priority, own.rank, passed.id.job, passed.priority, passed.rank
                );
                let rule = if passed.rank < passed.priority { "P2" } else { "P1" };
                self.broken(rule, words);
            }
        }
    }

    /// Calls that wait on a lane, or may, and that may not take a slot kept for interactive calls.
    fn behind_interactive(&self, lane: &Arc<str>) -> impl Iterator<Item = CallId> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|(_, job)| job.priority != Priority::Interactive && !job.parked);
        let calls = jobs.flat_map(|(&job, model)| {
            let calls = (0..).zip(&model.calls);
            calls.map(move |(index, call)| (CallId { job, index }, call))
        });
        let waits = |call: &CallModel| matches!(call.state, State::Waiting | State::Shared);
        calls.filter(move |(_, c)| waits(c) && c.lane == *lane).map(|(id, _)| id)
    }

    /// The key of the oldest call in the queue of a call. It may be a shared call of another
    /// tenant.
    fn front(&self, lane: &Arc<str>, own: CallId) -> Key {
        let Some(job) = self.jobs.get(&own.job) else {
            return (Priority::Background, self.now.time, own.job, own.index);
        };
        let others = self.jobs.iter().filter(|(_, other)| other.priority == job.priority);
        let calls = others.flat_map(|(&id, other)| {
            let calls = (0..).zip(&other.calls);
            calls.map(move |(index, call)| (other, call, CallId { job: id, index }))
        });
        let queue = calls.filter(|(other, call, id)| {
            let stands = match call.state {
                State::Waiting => true,
                State::Shared => other.spec.tenant != job.spec.tenant,
                _ => false,
            };
            *id == own || (stands && call.lane == *lane)
        });
        let keys = queue.map(|(other, call, id)| {
            (self.rank_of(id, other.priority), call.joined_at, id.job, id.index)
        });
        keys.min().expect("the queue holds the call itself")
    }

    /// P4: within a priority of a lane, the tenants whose oldest call has the best rank take turns.
    /// Of the calls of one tenant the oldest goes.
    fn check_tenants(&mut self, name: &Arc<str>, own: &Waiting, waiting: &[Waiting]) {
        let queue = || waiting.iter().filter(|call| call.priority == own.priority);
        let older = queue().find(|call| call.tenant == own.tenant && call.key() < own.key());
        let risen = queue().find(|call| call.rank < own.rank);
        let last = |tenant: &Option<Arc<str>>| self.turns.last(name, own.priority, tenant.as_ref());
        // A tenant that waited here at the last turn of this tenant, and had no turn since, goes
        // first.
        let before = last(&own.tenant).and_then(|own_turn| {
            queue().find(|call| {
                let stood = self.turns.seen.get(&call.id);
                let stood =
                    stood.is_some_and(|(of, since)| *of == call.priority && *since < own_turn);
                let unserved = last(&call.tenant).is_none_or(|turn| turn < own_turn);
                call.tenant != own.tenant && call.rank == own.rank && stood && unserved
            })
        });
        let id = own.id.job;
        if let Some(older) = older {
            self.broken("P1", format!("{name}: job {id} went before job {}", older.id.job));
        } else if let Some(risen) = risen {
            let words = format!("{name}: job {id} went before job {}, which rose", risen.id.job);
            self.broken("P2", words);
        } else if let Some(before) = before {
            let words = format!("{name}: job {id} took the turn of job {}", before.id.job);
            self.broken("P4", words);
        }
    }

    /// Calls that share a request. Each of them may hold up its lane for lack of a worker.
    pub(super) fn shared_calls(&self) -> Vec<(&Arc<str>, CallId)> {
        let mut shared = Vec::new();
        for (&job, model) in self.jobs.iter().filter(|(_, model)| model.spec.cache_key.is_some()) {
            let calls = (0..).zip(&model.calls).filter(|(_, call)| call.state == State::Shared);
            shared.extend(calls.map(|(index, call)| (&call.lane, CallId { job, index })));
        }
        shared
    }

    /// P1: across lanes that compete for workers, higher ranks go first, then older calls.
    pub(super) fn check_across_lanes(&mut self, lacking: &[(Arc<str>, Waiting, Need)]) {
        if self.setup.settings.across_lanes == paceline_core::AcrossLanes::Turns {
            return;
        }
        for Started { id, need, front } in self.started.clone() {
            let Some(job) = self.jobs.get(&id.job) else { continue };
            if job.priority == Priority::Interactive {
                continue;
            }
            // A stage that began in this turn may have joined after the worker was assigned.
            let new = |better: &Waiting| {
                let call = &self.jobs[&better.id.job].calls[usize::from(better.id.index)];
                call.stage > 0 && better.joined_at == self.now.time
            };
            // Before an interactive call took the first worker of the lane, the call behind it
            // needed that one.
            let other = |(name, _, of): &&(Arc<str>, Waiting, Need)| {
                *of == Need::Slot && self.opened_by_interactive(name)
            };
            let lacking = lacking.iter().filter(|found| !other(found));
            let mut lacking = lacking.filter(|(_, better, of)| *of == need && !new(better));
            if let Some((name, better, _)) = lacking.find(|(_, better, _)| better.key() < front) {
                let words = format!(
                    "job {} on {name} ({} as {}) lost its worker to job {} ({} as {})",
                    better.id.job, better.priority, better.rank, id.job, job.priority, front.0
                );
                return self.broken("P1", words);
            }
        }
    }

    /// Returns `true` if the first call that a lane runs is interactive and started in this turn.
    fn opened_by_interactive(&self, lane: &Arc<str>) -> bool {
        self.started.iter().filter(|started| started.need == Need::First).any(|started| {
            let job = self.jobs.get(&started.id.job);
            let job = job.filter(|job| job.priority == Priority::Interactive);
            let call = job.and_then(|job| job.calls.get(usize::from(started.id.index)));
            call.is_some_and(|call| call.lane == *lane)
        })
    }
}
