//! After each turn: nothing open is left unused, nobody is passed over, nothing is overdue.

use std::collections::BTreeMap;
use std::sync::Arc;

use paceline_core::{CallId, JobId, Outcome, Priority, Reservation, Skip, Span, Time, Until};

use super::Book;
use super::jobs::{CallBook, JobBook, State, comes_at};
use super::lanes::LaneBook;
use super::pool::Need;

/// A moment by which a turn is needed, for whom, and why.
type Must = (Time, JobId, &'static str);

/// A waiting call as the order sees it.
#[derive(Clone, Debug)]
struct Waiting {
    id: CallId,
    rank: Priority,
    joined_at: Time,
    priority: Priority,
    cost: u32,
    tenant: Option<Arc<str>>,
}

/// Higher first, then older.
type Key = (Priority, Time, JobId, u16);

impl Waiting {
    fn key(&self) -> Key {
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

/// A lane, a priority and a tenant.
type Turn = (Arc<str>, Priority, Option<Arc<str>>);

/// Tenants' turns since the engine started, counted in starts.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: u64,
    last: BTreeMap<Turn, u64>,
    /// Calls seen waiting at the end of every turn since then, and at which priority.
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

    fn look<'a>(&mut self, waiting: impl Iterator<Item = &'a Waiting>) {
        let before = std::mem::take(&mut self.seen);
        self.seen = waiting
            .map(|call| {
                let known = before.get(&call.id).filter(|(at, _)| *at == call.priority);
                (call.id, known.copied().unwrap_or((call.priority, self.count)))
            })
            .collect();
    }
}

impl Book {
    fn waiting(&self) -> BTreeMap<Arc<str>, Vec<Waiting>> {
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
        jobs.flat_map(move |(&job, book)| {
            let calls = (0..).zip(&book.calls).filter(|(_, call)| call.state == State::Waiting);
            calls.map(move |(index, call)| {
                let steps = self.now.time.since(call.joined_at).0 / age_after;
                let waiting = Waiting {
                    id: CallId { job, index },
                    rank: book.priority.risen(steps),
                    joined_at: call.joined_at,
                    priority: book.priority,
                    cost: book.spec.cost.get(),
                    tenant: book.spec.tenant.clone(),
                };
                (&call.lane, waiting)
            })
        })
    }

    /// Whether the plain model says when this lane's calls go: cost 1, not bent. A head that waits
    /// for a larger cost holds up its lane, and its group.
    fn is_plain(&self, name: &Arc<str>) -> bool {
        self.is_plain_beside(name, &self.costly())
    }

    fn is_plain_beside(&self, name: &Arc<str>, costly: &[Arc<str>]) -> bool {
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
    fn costly(&self) -> Vec<Arc<str>> {
        let jobs = self.jobs.values().filter(|job| job.spec.cost.get() > 1);
        let calls = jobs.flat_map(|job| &job.calls).filter(|call| call.state != State::Settled);
        calls.map(|call| call.lane.clone()).collect()
    }

    fn lane_has_room(&self, lane: &LaneBook) -> bool {
        let probes = if lane.rung > 0 { lane.open_verdicts() } else { 0 };
        let room = lane.held() + probes < lane.width();
        !lane.paused && room && self.group_has_room(lane.limits())
    }

    /// P1: in a lane nobody better who could go is passed over; a queue ranks as its oldest call.
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
            // The last slots are for calls submitted as interactive (P3).
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

    /// Calls that wait on a lane, or may, and that no slot is kept for.
    fn behind_interactive(&self, lane: &Arc<str>) -> impl Iterator<Item = CallId> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|(_, job)| job.priority != Priority::Interactive && !job.parked);
        let calls = jobs.flat_map(|(&job, book)| {
            let calls = (0..).zip(&book.calls);
            calls.map(move |(index, call)| (CallId { job, index }, call))
        });
        let waits = |call: &CallBook| matches!(call.state, State::Waiting | State::Shared);
        calls.filter(move |(_, c)| waits(c) && c.lane == *lane).map(|(id, _)| id)
    }

    /// Where the queue of a call stands: a shared call of another tenant may be its oldest.
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
        keys.min().expect("its own is there")
    }

    /// P4: within a priority of a lane tenants take turns, among those whose oldest call has the
    /// best rank; of one tenant's calls the oldest goes.
    fn check_tenants(&mut self, name: &Arc<str>, own: &Waiting, waiting: &[Waiting]) {
        let queue = || waiting.iter().filter(|call| call.priority == own.priority);
        let older = queue().find(|call| call.tenant == own.tenant && call.key() < own.key());
        let risen = queue().find(|call| call.rank < own.rank);
        let last = |tenant: &Option<Arc<str>>| self.turns.last(name, own.priority, tenant.as_ref());
        // Who stood here when this tenant had its last turn, and had none since, goes first.
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

    /// Everything that must be true when a turn is over.
    pub(super) fn look_around(&mut self, wake_at: Option<Time>) {
        self.check_jobs();
        let waiting = self.waiting();
        self.turns.look(waiting.values().flatten());
        self.check_budgets(&waiting);
        self.look_at_sharers();
        let mut must: Vec<Must> = self.moments();
        let (mut passed, mut lacking) = (Vec::new(), Vec::new());
        let (costly, shared) = (self.costly(), self.shared_calls());
        for (name, calls) in &waiting {
            let Some(lane) = self.lanes.get(name) else { continue };
            if !self.is_plain_beside(name, &costly) || !self.lane_has_room(lane) {
                continue;
            }
            let group = self.group_opening(lane.limits(), 1);
            let open = |call: &&Waiting| lane.opening(call.priority, call.rank).max(group);
            let is_open = |call: &&Waiting| open(call) <= self.now.time;
            let free = |id: CallId| self.worker_is_free(self.need(lane, id), lane);
            // Calls behind one that lacks a worker wait with it, and where a shared call stands is
            // not modelled.
            let lacks = |(lane, id): &(&Arc<str>, CallId)| *lane == name && !free(*id);
            let held_up = !calls.iter().all(|call| free(call.id)) || shared.iter().any(lacks);
            // Calls behind the first that may go wait for it.
            if let Some(call) = calls.iter().filter(is_open).min_by_key(|call| call.key()) {
                let need = self.need(lane, call.id);
                let found = (name.clone(), call.clone(), need);
                if !held_up {
                    passed.push(found);
                } else if !free(call.id) && !self.has_its_share(need, lane) {
                    lacking.push(found);
                }
            }
            let share = lane.limits().gap_share;
            let rises = share.iter().any(|part| *part != share[0]);
            for call in calls.iter().filter(|call| !held_up && !is_open(call)) {
                let mut at = open(&call);
                if rises {
                    at = at.min(self.opening_when_risen(lane, call, group));
                }
                must.push((at, call.id.job, "its lane opens"));
            }
        }
        if let Some((name, call, need)) = passed.first() {
            let rule = if *need == Need::Slot { "L4" } else { "P5" };
            let words = format!("{name} is open, job {} waits and workers are free", call.id.job);
            self.broken(rule, words);
        }
        self.check_across_lanes(&lacking);
        let first = must.into_iter().min();
        self.must_wake = first.map(|(at, _, _)| at);
        self.check_wake(first, wake_at);
        let now = self.now.time;
        self.lanes.values_mut().for_each(|lane| lane.trim(Span::hours(3), now));
    }

    /// Calls that share their fate, and so may hold up their lane for lack of a worker.
    fn shared_calls(&self) -> Vec<(&Arc<str>, CallId)> {
        let mut shared = Vec::new();
        for (&job, book) in self.jobs.iter().filter(|(_, book)| book.spec.cache_key.is_some()) {
            let calls = (0..).zip(&book.calls).filter(|(_, call)| call.state == State::Shared);
            shared.extend(calls.map(|(index, call)| (&call.lane, CallId { job, index })));
        }
        shared
    }

    fn check_wake(&mut self, must: Option<Must>, wake_at: Option<Time>) {
        if let (Some((must, job, why)), Some(wake)) = (must, wake_at)
            && wake > must + super::PROMPT
        {
            let late = wake.since(must);
            self.broken("W5", format!("job {job}: {why}, and the engine wakes {late} too late"));
            self.must_wake = None;
        }
    }

    /// A call that ages needs a smaller gap: it may go before its present opening.
    fn opening_when_risen(&self, lane: &LaneBook, call: &Waiting, group: Time) -> Time {
        let age_after = self.setup.settings.age_after;
        let steps = self.now.time.since(call.joined_at).0 / age_after.0;
        let rise = |n: u64| {
            let at = call.joined_at + age_after.times(n);
            at.max(lane.opening(call.priority, call.priority.risen(n))).max(group)
        };
        (steps + 1..=steps + 3).map(rise).min().unwrap_or(Time::NEVER)
    }

    /// P1: across lanes that compete for workers, higher first, then older first.
    fn check_across_lanes(&mut self, lacking: &[(Arc<str>, Waiting, Need)]) {
        if self.setup.settings.across_lanes == paceline_core::AcrossLanes::Turns {
            return;
        }
        for Started { id, need, front } in self.started.clone() {
            let Some(job) = self.jobs.get(&id.job) else { continue };
            if job.priority == Priority::Interactive {
                continue;
            }
            // A stage that began in this turn may have come after the worker was promised.
            let new = |better: &Waiting| {
                let call = &self.jobs[&better.id.job].calls[usize::from(better.id.index)];
                call.stage > 0 && better.joined_at == self.now.time
            };
            // One behind an interactive call needed its lane's first worker before that one took it.
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

    /// Whether an interactive call was the first that a lane runs, and started in this turn.
    fn opened_by_interactive(&self, lane: &Arc<str>) -> bool {
        self.started.iter().filter(|started| started.need == Need::First).any(|started| {
            let job = self.jobs.get(&started.id.job);
            let job = job.filter(|job| job.priority == Priority::Interactive);
            let call = job.and_then(|job| job.calls.get(usize::from(started.id.index)));
            call.is_some_and(|call| call.lane == *lane)
        })
    }

    /// The moments at which something must happen, whatever the lanes do.
    fn moments(&self) -> Vec<Must> {
        let mut moments = Vec::new();
        for (&id, job) in self.jobs.iter().filter(|(_, job)| !job.parked) {
            let first = job.callers.iter().min().filter(|at| **at != Time::NEVER);
            moments.extend(first.map(|at| (*at, id, "a deadline comes")));
            if job.delayed {
                let due = job.due.map(|due| comes_at(due, self.now));
                let lead = self.setup.settings.lead;
                moments.extend(due.map(|at| (at - lead, id, "it comes due")));
            }
            for (place, call) in job.calls.iter().enumerate() {
                if let State::Backoff(until) = call.state {
                    moments.push((until, id, "its retry comes"));
                }
                if call.state == State::Waiting {
                    let until = self.pause_ends_patience(id, place);
                    moments.extend(until.map(|at| (at, id, "it waits for no resume")));
                }
                if call.state == State::Waiting && call.tries == 0 {
                    let latest = job.spec.start_within.map(|within| call.joined_at + within);
                    moments.extend(latest.map(|at| (at, id, "it must have started")));
                }
            }
        }
        moments
    }

    fn check_jobs(&mut self) {
        let now = self.now.time;
        let mut broken: Vec<(&'static str, String)> = Vec::new();
        for (id, job) in &self.jobs {
            if job.spec.until == Until::Conclusive && job.conclusive() {
                broken.push(("J2", format!("job {id} has its answer and did not report")));
            }
            if !job.calls.is_empty() && job.calls.iter().all(|call| call.state == State::Settled) {
                broken
                    .push(("J1", format!("every call of job {id} has settled, without a report")));
            }
            let (mut open, mut staged) = (u16::MAX, u16::MAX);
            for (index, call) in job.calls.iter().enumerate() {
                match call.state {
                    State::Settled => {}
                    State::Staged => staged = staged.min(call.stage),
                    _ => open = open.min(call.stage),
                }
                let told = |attempt| {
                    let lane = self.lanes.get(&call.lane);
                    lane.and_then(|lane| lane.find(attempt)).is_some_and(|known| known.told)
                };
                if matches!(call.state, State::Running(attempt) if told(attempt)) {
                    broken.push(("J1", format!("a call of job {id} was told and did not settle")));
                }
                if call.through && call.state != State::Settled && !job.parked {
                    broken.push(("R1", format!("a call of job {id} is through and goes on")));
                }
                let waits = call.state == State::Waiting;
                let until = waits.then(|| self.pause_ends_patience(*id, index)).flatten();
                if until.is_some_and(|until| until <= now) && !job.parked {
                    broken.push(("W1", format!("job {id} waits for a lane to be resumed")));
                }
                // One whose due moment was replaced while it was parked is not asked again.
                let asked = !job.parked && !self.was_parked.contains(id);
                if waits && asked && job.spec.not_applicable.contains(&(index as u16)) {
                    broken.push(("J6", format!("a call of job {id} waits, and does not apply")));
                }
                let within = job.spec.start_within.filter(|_| waits && call.tries == 0);
                if within.is_some_and(|within| call.joined_at + within <= now) && !job.parked {
                    broken.push(("W1", format!("job {id} waits longer than its start_within")));
                }
            }
            if staged <= open && staged < u16::MAX && !job.parked {
                broken.push(("J3", format!("job {id} does not begin its stage {staged}")));
            }
        }
        for job in &self.cancelled {
            // Detached callers leave the job as it is.
            if self.jobs.contains_key(job) && !self.has_other_callers(*job) {
                broken.push(("W4", format!("job {job} was cancelled and goes on")));
            }
        }
        self.check_rss(&mut broken);
        for (rule, words) in broken {
            self.broken(rule, words);
        }
    }

    /// D3: one unfinished rss call per lane and kind.
    fn check_rss(&self, broken: &mut Vec<(&'static str, String)>) {
        let mut seen: BTreeMap<(Arc<str>, Arc<str>), JobId> = BTreeMap::new();
        for (&id, job) in &self.jobs {
            // One that others joined at a higher priority is no longer rss.
            let rss = [job.submitted_as, job.priority] == [Priority::Rss; 2];
            // One that is back from where there was no lane may find another in its place.
            if !rss || job.parked || self.was_parked.contains(&id) {
                continue;
            }
            for call in &job.calls {
                if matches!(call.state, State::Waiting | State::Running(_) | State::Backoff(_)) {
                    let key = (call.lane.clone(), job.spec.kind.clone());
                    if let Some(other) = seen.insert(key, id) {
                        let words =
                            format!("jobs {other} and {id} both read the feed of {}", call.lane);
                        broken.push(("D3", words));
                    }
                }
            }
        }
    }

    /// W1: nobody waits for a lane that opens later than its budget allows.
    fn check_budgets(&mut self, waiting: &BTreeMap<Arc<str>, Vec<Waiting>>) {
        let mut broken = Vec::new();
        for (name, calls) in waiting {
            let Some(lane) = self.lanes.get(name).filter(|lane| lane.plain(self.now.time)) else {
                continue;
            };
            for call in calls {
                let book = &self.jobs[&call.id.job].calls[usize::from(call.id.index)];
                if book.max_wait.is_none() {
                    continue;
                }
                let opens = lane.opening_for(call.priority, call.priority, call.cost);
                let opens = opens.max(self.group_opening(lane.limits(), call.cost));
                let wait = opens.since(self.now.time);
                if book.max_wait.is_some_and(|budget| wait > budget) {
                    broken.push(format!("{name}: job {} would have to wait {wait}", call.id.job));
                }
            }
        }
        for words in broken {
            self.broken("W1", words);
        }
    }

    /// An outcome that the engine chose itself must be true.
    pub(super) fn check_outcome(
        &mut self,
        id: JobId,
        place: usize,
        call: &CallBook,
        outcome: &Outcome,
    ) {
        let now = self.now.time;
        let job = &self.jobs[&id];
        let wrong: Option<(&'static str, String)> = match outcome {
            Outcome::Skipped(Skip::MaxWait { wait, max_wait, priority }) => {
                let budget = self.budget(id, place);
                // It may have joined before the limits changed in the same turn, and had its budget
                // by the old ones.
                let sooner = self.lanes[&call.lane].rules.changed_at == now
                    && (call.joined_at == now || Some(*wait) > budget);
                let honest = wait > max_wait
                    && self.longest_wait(job, call).is_none_or(|longest| *wait <= longest)
                    && *priority == job.priority
                    && (call.max_wait == Some(*max_wait)
                        || budget == Some(*max_wait)
                        || call.state == State::Staged
                        || sooner);
                (!honest).then(|| {
                    (
                        "W1",
                        format!(
                            "job {id} skipped for {wait} over {max_wait}, not {:?}",
                            call.max_wait
                        ),
                    )
                })
            }
            Outcome::Skipped(Skip::StartWithin { start_within }) => {
                let early = call.joined_at + *start_within > now;
                early.then(|| ("W1", format!("job {id} skipped before its start_within")))
            }
            Outcome::Skipped(Skip::Paused { max_wait, priority }) => {
                let lane = &self.lanes[&call.lane];
                let since = if call.joined_at < lane.paused_at { *max_wait } else { Span::ZERO };
                let honest = (lane.paused || lane.resumed_at == now)
                    && lane.paused_at + since <= now
                    && job.spec.max_wait == Some(*max_wait)
                    && *priority == job.priority;
                (!honest).then(|| ("W1", format!("job {id} skipped for a pause that is none")))
            }
            Outcome::Skipped(Skip::Deadline) => {
                let early = job.callers.iter().any(|deadline| *deadline > now);
                early.then(|| ("W2", format!("job {id} has no deadline that passed")))
            }
            Outcome::Skipped(Skip::NotApplicable) => {
                let applies = !job.spec.not_applicable.contains(&(place as u16));
                applies.then(|| ("J6", format!("call {place} of job {id} does apply")))
            }
            Outcome::Cancelled => (!self.cancelled.contains(&id))
                .then(|| ("W4", format!("nobody cancelled job {id}"))),
            Outcome::Duplicate { of } => {
                let other = self.jobs.get(of).filter(|other| other.spec.kind == job.spec.kind);
                // Where the other one moved to may be written after this.
                let there = |c: &CallBook| {
                    let to = |o: &Outcome| matches!(o, Outcome::Moved { to } if *to == call.lane);
                    c.lane == call.lane || c.outcome.as_ref().is_some_and(to)
                };
                let same = other.is_some_and(|other| other.calls.iter().any(there));
                let gone = self.finished.contains(of);
                let itself = *of == id && job.calls.len() < 2;
                ((!same && !gone) || itself)
                    .then(|| ("D3", format!("job {id} is no duplicate of job {of}")))
            }
            _ => None,
        };
        if let Some((rule, words)) = wrong {
            self.broken(rule, words);
        }
    }

    /// The wait that a call has for its lane and group to open, where the plain model says when that
    /// is. What this turn heard may have opened them sooner since the call was skipped.
    fn longest_wait(&self, job: &JobBook, call: &CallBook) -> Option<Span> {
        let now = self.now.time;
        let lane = self.lanes.get(&call.lane).filter(|lane| lane.plain(now))?;
        let eased = match lane.limits().group {
            Some(_) => self.lanes.values().any(|lane| lane.eased_at == now),
            None => lane.eased_at == now,
        };
        if eased || call.state == State::Shared || job.spec.cache_key.is_some() {
            return None;
        }
        let cost = job.spec.cost.get();
        let opens = lane.opening_for(job.priority, job.priority, cost);
        Some(opens.max(self.group_opening(lane.limits(), cost)).since(now))
    }

    fn has_other_callers(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.detached_at == self.now.time)
    }
}
