//! Restore: the way back from a store's records, after a stop and after a crash alike (B1, B2).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call::{Call, State, Step};
use crate::core::{Core, Moment, OnCrash};
use crate::job::{CallId, JobId, LaneId};
use crate::mutant::Mutant;
use crate::outcome::{Failure, Outcome};
use crate::plan::{CallLookup, Plan};
use crate::record::{
    CallRecord, Counters, JobRecord, LaneRecord, Lookup, Membership, Record, Reservation, Write,
};
use crate::time::{Now, Span, Time};

/// A call during which the process dies more often than this has failed (B2): it may be what kills
/// the process.
const MOST_CRASHES: u16 = 20;

/// A core that is being restored. Records go in one by one, and [`Restore::finish`] returns it
/// whole.
#[derive(Debug)]
pub struct Restore {
    core: Core,
    plan: Plan,
    lanes: BTreeMap<LaneId, u32>,
    /// Groups that count the attempts of lanes which are configured no more.
    unconfigured: BTreeMap<LaneId, Vec<Membership>>,
    crashed: Vec<Reservation>,
    /// Lanes whose windows are not those that the store knows.
    changed: Vec<u32>,
    max_lanes: std::num::NonZeroU32,
}

impl Restore {
    /// Starts from the configuration.
    pub fn new(mut core: Core) -> Restore {
        // The bound is for new lanes. During the restore it would drop lanes whose history is yet
        // to come.
        let max_lanes = core.settings.max_lanes;
        core.settings.max_lanes = std::num::NonZeroU32::MAX;
        Restore {
            core,
            plan: Plan::default(),
            lanes: BTreeMap::new(),
            unconfigured: BTreeMap::new(),
            crashed: Vec::new(),
            changed: Vec::new(),
            max_lanes,
        }
    }

    /// Takes in one record. Lanes come first, then jobs, calls, reservations, services, rosters.
    pub fn take(&mut self, record: Record) {
        match record {
            Record::Lane(record) => self.lane(&record),
            Record::Job(record) => self.job(&record),
            Record::Call(record) => self.call(record),
            Record::Reservation(reservation) => self.reservation(reservation),
            Record::Service(record) => self.core.rosters.remember_service(record),
            Record::Roster(record) => self.core.rosters.remember_roster(record),
        }
    }

    fn lane(&mut self, record: &LaneRecord) {
        let core = &mut self.core;
        let Ok(number) = core.lane_for(&record.name, Time::ZERO, &mut self.plan) else {
            // Configured no more: it stays in the store, in case it is configured again, and its
            // groups count its attempts.
            core.unconfigured.insert(record.name.clone(), record.id);
            self.unconfigured.insert(record.id, record.groups.clone().unwrap_or_default());
            return;
        };
        core.lanes[number].remember(record);
        let now = core.lanes[number].limits.windows.iter().map(|window| window.rate);
        if now.ne(record.windows.iter().map(|(rate, _)| *rate)) {
            self.changed.push(number);
        }
        self.lanes.insert(record.id, number);
        core.touch_lane(number);
    }

    fn job(&mut self, record: &JobRecord) {
        let core = &mut self.core;
        let kind = core.kind_named(&record.spec.kind);
        let mut parked = kind.is_none();
        let mut lanes = Vec::with_capacity(1);
        for name in record.spec.stages.iter().flatten() {
            let lane = core.lane_for(name, Time::ZERO, &mut self.plan);
            // A lane that is gone: the job waits under that name until it is back.
            let lane = lane.unwrap_or_else(|_| {
                parked = true;
                core.stand_in_for(name)
            });
            core.lanes[lane].users += 1;
            lanes.push(lane);
        }
        let job = core.add_job(record, kind.unwrap_or(u32::MAX), &lanes);
        if parked {
            core.park(job);
        }
    }

    fn call(&mut self, record: CallRecord) {
        let core = &mut self.core;
        let Some(&job) = core.job_ids.get(&record.job) else { return };
        if usize::from(record.index) == core.jobs[job].calls.len() {
            let Some(added) = record.added.clone() else { return };
            let lane = core.lane_for(&added.lane, Time::ZERO, &mut self.plan);
            // A job is parked as a whole.
            let parks = |&call: &u32| core.calls[call].state == State::Parked;
            let parked = lane.is_err()
                || core.jobs[job].kind == u32::MAX
                || core.jobs[job].calls.iter().any(parks);
            let lane = lane.unwrap_or_else(|_| core.stand_in_for(&added.lane));
            core.lanes[lane].users += 1;
            let mut call = Call::new(job, lane, record.index, added.stage);
            call.hops = added.hops;
            let number = core.calls.insert(call);
            core.jobs[job].calls.push(number);
            core.jobs[job].left += 1;
            core.unsettled += 1;
            if parked {
                core.step(number, Step::Park);
                core.parked += 1;
            }
            core.added.insert(number, added);
        }
        let Some(&number) = core.jobs[job].calls.get(usize::from(record.index)) else { return };
        let call = &mut core.calls[number];
        call.place.joined_at = record.joined_at.unwrap_or(Time::ZERO);
        (call.attempts, call.throttles) = (record.attempts, record.throttles);
        (call.crashes, call.unprocessed) = (record.crashes, record.unprocessed);
        call.retry_at = record.retry_at.unwrap_or(Time::ZERO);
        if let Some(settled) = record.settled {
            if call.state == State::Parked {
                core.parked -= 1;
            }
            core.step(number, Step::Settle);
            let call = &mut core.calls[number];
            call.waited = crate::time::Span(settled.waited);
            call.ran = crate::time::Span(settled.ran);
            call.cached = settled.cached;
            call.outcome = Some(Box::new(settled.outcome));
            core.unsettled -= 1;
            core.jobs[job].left -= 1;
        }
    }

    /// Charges a reservation at the latest moment at which it could have arrived.
    fn reservation(&mut self, reservation: Reservation) {
        // A job that this process cannot run has begun all the same, and cannot be replaced (D1).
        if reservation.ended_at.is_none()
            && let Some(call) = self.core.call_numbered(reservation.call)
            && self.core.calls[call].state == State::Parked
        {
            self.core.calls[call].crashes += 1;
        }
        let Some(&number) = self.lanes.get(&reservation.lane) else {
            let groups = self.unconfigured.get(&reservation.lane);
            if let Some(groups) = groups.filter(|_| !Mutant::StrangersUncounted.on()) {
                self.core.charge_groups(groups, &reservation);
            }
            return;
        };
        let core = &mut self.core;
        let Reservation { attempt, at, cost, priority, ended_at, .. } = reservation;
        let lane = &mut core.lanes[number];
        let place = priority.index();
        lane.last_start[place] = lane.last_start[place].max(at);
        lane.finished(priority, attempt, ended_at.unwrap_or_default());
        if !Mutant::LedgerForgotten.on() {
            lane.ledger.charge(attempt, at, cost);
        }
        let groups = std::mem::take(&mut lane.memberships);
        core.charge_groups(&groups, &reservation);
        core.lanes[number].memberships = groups;
        if ended_at.is_none() {
            self.crashed.push(reservation);
        }
    }

    /// Puts all calls back to where they were, after the last record. Returns the core, and a plan
    /// with the writes that the restore itself needs.
    pub fn finish(mut self, next: Counters, now: Now) -> (Core, Plan) {
        self.core.settings.max_lanes = self.max_lanes;
        self.core.next.attempt = next.attempt.max(self.core.next.attempt);
        self.take_up(now);
        for &number in self.lanes.values() {
            if self.core.settle_membership(number) {
                self.changed.push(number);
            }
        }
        self.end_reservations(now.time);
        let core = &mut self.core;
        core.next = Counters {
            job: next.job.max(core.next.job),
            attempt: next.attempt.max(core.next.attempt),
            lane: next.lane.max(core.next.lane),
            event: next.event,
        };
        let jobs: Vec<(JobId, u32)> = core.jobs.iter().map(|(n, job)| (job.id, n)).collect();
        // For a call with several open attempts the process died once.
        let mut died: Vec<CallId> = self.crashed.iter().map(|it| it.call).collect();
        died.sort_unstable();
        died.dedup();
        if !Mutant::SharersUnscathed.on() {
            died.extend(core.sharers(&died));
        }
        for &call in &died {
            core.count_crash(call);
        }
        let mut late = Vec::new();
        for &(_, job) in &jobs {
            if core.resume_job(job, now, &mut self.plan) {
                late.push(job);
            }
        }
        for job in late {
            core.begin_late(job, now, &mut self.plan);
        }
        for call in died {
            core.crashed(call, now, &mut self.plan);
        }
        for &(id, job) in &jobs {
            if core.jobs.get(job).is_some_and(|it| it.id == id) && core.ends(job) {
                let gone = "the process that its caller waited in has ended";
                let failure = Failure::permanent("crash").because(gone);
                core.settle_rest(job, &Outcome::Failed(failure), now, &mut self.plan);
                core.finish(job, now, &mut self.plan);
            }
        }
        // Also on lanes that the store has no record of, because nothing ever started there.
        for lane in core.lanes.iter().map(|(number, _)| number).collect::<Vec<u32>>() {
            core.fail_impossible(lane, now, &mut self.plan);
        }
        // Calls that would not wait until their group opens are skipped in the first turn.
        for group in core.groups.iter().map(|(number, _)| number).collect::<Vec<u32>>() {
            core.touch_group(group);
        }
        // The process may have died between the last outcome of a stage and its consequences.
        // Nothing else would move that job.
        for (id, job) in jobs {
            let whole = core.jobs.get(job).is_some_and(|job| job.id == id && job.stage_left == 0);
            let due = |core: &Core| core.jobs[job].due();
            let waits = whole && due(core).is_some_and(|due| core.due.contains(due, job));
            if whole && !waits {
                core.stage_over(job, None, now, &mut self.plan);
            }
        }
        (self.core, self.plan)
    }

    /// Takes up the attempts that outlived their process. Those of calls that this process cannot
    /// run stay as they are, for a process that can.
    fn take_up(&mut self, now: Now) {
        // A call may have several open attempts. All but the newest had a result, so the newest is
        // the one that the call waits for.
        self.crashed.sort_by_key(|reservation| std::cmp::Reverse(reservation.attempt));
        for reservation in std::mem::take(&mut self.crashed) {
            let call = self.core.call_numbered(reservation.call);
            match call.map(|call| (call, self.core.calls[call].state)) {
                // A call that ends with its process needs no worker to end.
                Some((call, State::Parked)) if !self.core.ends(self.core.calls[call].job) => {
                    let lane = &mut self.core.lanes[self.lanes[&reservation.lane]];
                    lane.finished(reservation.priority, reservation.attempt, now.time);
                }
                Some((call, State::Staged)) if self.core.on_crash(call) == OnCrash::TakeUp => {
                    self.core.take_up(call, &reservation, now, &mut self.plan);
                }
                _ => self.crashed.push(reservation),
            }
        }
        self.crashed.reverse();
    }

    /// Ends the open reservations: the process that made them is gone, and its sockets with it.
    fn end_reservations(&mut self, now: Time) {
        for Reservation { lane, attempt, priority, .. } in &self.crashed {
            let number = self.lanes[lane];
            self.core.lanes[number].finished(*priority, *attempt, now);
            self.plan.writes.push(Write::Ended(*lane, *attempt, now));
        }
        for &number in self.lanes.values() {
            let since = &mut self.core.lanes[number].since;
            since.iter_mut().filter(|at| **at == Time::NEVER).for_each(|at| *at = now);
        }
        for &number in &self.changed {
            self.core.write_lane(number, &mut self.plan);
        }
    }
}

impl Core {
    /// Charges an attempt to the groups that counted it (L9).
    fn charge_groups(&mut self, groups: &[Membership], reservation: &Reservation) {
        let Reservation { attempt, at, cost, .. } = *reservation;
        for of in groups.iter().filter(|of| of.counts(attempt)) {
            let Some(group) = self.group_named(&of.group) else { continue };
            let group = &mut self.groups[group];
            group.last_start = group.last_start.max(at);
            if group.memory() > Span::ZERO {
                group.ledger.charge(attempt, at, cost);
            }
        }
    }

    /// A stand-in for a lane that is configured no more: nothing ever starts on it.
    fn stand_in_for(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&lane) = self.stand_ins.get(name) {
            return lane;
        }
        let limits = Arc::new(crate::limits::Limits::default());
        let mut lane = crate::lane::Lane::new(LaneId(0), name.clone(), limits, Time::ZERO);
        lane.paused = true;
        let number = self.lanes.insert(lane);
        self.stand_ins.insert(name.clone(), number);
        number
    }

    /// Parks a job that this process cannot run. It stays in the store as it is.
    fn park(&mut self, job: u32) {
        for at in 0..self.jobs[job].calls.len() {
            let call = self.jobs[job].calls[at];
            self.step(call, Step::Park);
            self.parked += 1;
        }
    }

    /// The unsettled calls of the job's first unfinished stage go back to where they were.
    /// Returns `true` for a job that came due in the meantime: those begin after all others.
    fn resume_job(&mut self, job: u32, now: Now, plan: &mut Plan) -> bool {
        let unsettled = |core: &Core, call: u32| !core.calls[call].is_settled();
        let calls = self.jobs[job].calls.clone();
        let open = calls.iter().copied().filter(|&call| unsettled(self, call));
        let stages = open.map(|call| self.calls[call].stage);
        let stage = stages.min().unwrap_or(self.jobs[job].stage);
        self.jobs[job].stage = stage;
        let stage_calls = calls.iter().copied().filter(|&call| self.calls[call].stage == stage);
        let stage_calls: Vec<u32> = stage_calls.filter(|&call| unsettled(self, call)).collect();
        self.jobs[job].stage_left = stage_calls.len() as u16;
        self.watch_deadline(job);
        if let Some(due) = self.jobs[job].due()
            && self.jobs[job].left > 0
            && self.untouched(job)
        {
            let came = due.within(Span::ZERO, now);
            if !came {
                self.jobs[job].stage_left = 0;
                self.delay(job);
            }
            return came;
        }
        for call in stage_calls {
            self.resume_call(call, now, plan);
        }
        false
    }

    /// Starts a job that came due while no process ran, at the place that it would have had.
    fn begin_late(&mut self, job: u32, now: Now, plan: &mut Plan) {
        for at in 0..self.jobs[job].calls.len() {
            let call = self.jobs[job].calls[at];
            if self.calls[call].stage == self.jobs[job].stage {
                self.calls[call].place.joined_at = self.place_in_time(job, now);
            }
        }
        self.begin_stage(job, now, plan);
    }

    /// The moment at which a call joined its queue, for a call without a record of its own.
    fn place_in_time(&self, job: u32, now: Now) -> Time {
        let joined = self.jobs[job].due().map_or(Time::ZERO, |due| due.engine(now));
        joined.max(self.jobs[job].submitted_at).min(now.time).max(Time(1))
    }

    /// Returns `true` if no call has joined a queue or is parked.
    fn untouched(&self, job: u32) -> bool {
        self.jobs[job].calls.iter().all(|&call| {
            self.calls[call].place.joined_at == Time::ZERO
                && self.calls[call].requests() == 0
                && self.calls[call].state == State::Staged
        })
    }

    fn resume_call(&mut self, call: u32, now: Now, plan: &mut Plan) {
        if self.calls[call].state == State::Parked {
            return;
        }
        let job = self.calls[call].job;
        if self.calls[call].place.joined_at == Time::ZERO {
            self.calls[call].place.joined_at = self.place_in_time(job, now);
        }
        self.hold_rss(call);
        if self.calls[call].state == State::Running {
            return self.share_running(call);
        }
        let waits_for_retry = self.calls[call].retry_at > now.time;
        if let Some(key) = self.jobs[job].cache_key().cloned() {
            let lane = self.calls[call].lane;
            if !waits_for_retry {
                // Its stage may have been about to start, so the cache is asked (C1).
                self.step(call, Step::Ask);
                let (job, lane) = (self.jobs[job].id, self.lanes[lane].name.clone());
                plan.lookups.push(CallLookup { job, call, lookup: Lookup { lane, key } });
                return;
            }
            if let Some(leader) = self.find_same(lane, &key) {
                self.follow(call, leader);
                return;
            }
            self.same_calls.insert(lane, &key, call);
        }
        if waits_for_retry {
            let until = self.calls[call].retry_at;
            self.step(call, Step::BackOff);
            self.moments.insert((until, Moment::Retry(call)));
        } else {
            self.rejoin(call);
        }
    }

    /// Lets calls with the same cache key share a request that was taken up (C2).
    fn share_running(&mut self, call: u32) {
        let Call { job, lane, .. } = self.calls[call];
        if let Some(key) = self.jobs[job].cache_key().cloned()
            && self.find_same(lane, &key).is_none()
        {
            self.same_calls.insert(lane, &key, call);
        }
    }

    /// Returns `true` if a job ends with the process that accepted it.
    fn ends(&self, job: u32) -> bool {
        let kind = self.kinds.get(self.jobs[job].kind as usize);
        let runs = |&call: &u32| self.calls[call].state == State::Running;
        kind.is_some_and(|kind| match kind.on_crash {
            OnCrash::Repeat | OnCrash::Fail => false,
            OnCrash::End => true,
            OnCrash::TakeUp => !self.jobs[job].calls.iter().any(runs),
        })
    }

    fn call_numbered(&self, id: CallId) -> Option<u32> {
        let &job = self.job_ids.get(&id.job)?;
        self.jobs[job].calls.get(usize::from(id.index)).copied()
    }

    /// The kind's choice for a call that this process can run.
    fn on_crash(&self, call: u32) -> OnCrash {
        self.kinds[self.jobs[self.calls[call].job].kind as usize].on_crash
    }

    /// The calls that shared the requests of these when the process died (C2).
    fn sharers(&self, of: &[CallId]) -> Vec<CallId> {
        let mut requests: BTreeMap<(u32, &[u8]), CallId> = BTreeMap::new();
        for &id in of {
            let Some(call) = self.call_numbered(id).map(|call| &self.calls[call]) else { continue };
            if let Some(key) = self.jobs[call.job].cache_key().filter(|_| !call.is_settled()) {
                requests.insert((call.lane, key), id);
            }
        }
        if requests.is_empty() {
            return Vec::new();
        }
        let jobs = self.jobs.iter().filter(|(job, state)| {
            // A job that came due after the crash had not begun.
            state.cache_key().is_some() && !(state.due().is_some() && self.untouched(*job))
        });
        let calls = jobs.flat_map(|(_, job)| {
            let open = |&&call: &&u32| !self.calls[call].is_settled();
            let stages = job.calls.iter().filter(open).map(|&call| self.calls[call].stage);
            let stage = stages.min();
            let present = move |&&call: &&u32| Some(self.calls[call].stage) == stage;
            job.calls.iter().filter(open).filter(present).copied()
        });
        let shared = calls.filter(|&call| {
            let Call { lane, job, state, .. } = self.calls[call];
            let key = self.jobs[job].cache_key().map(|key| (lane, &**key));
            let leader = key.and_then(|key| requests.get(&key));
            let follows = leader.is_some_and(|&leader| leader != self.call_id(call));
            follows && state == State::Staged
        });
        shared.map(|call| self.call_id(call)).collect()
    }

    /// Counts a crash during a call. It had begun, whatever the clocks say now.
    fn count_crash(&mut self, id: CallId) {
        let Some(call) = self.call_numbered(id) else { return };
        if !matches!(self.calls[call].state, State::Settled | State::Running | State::Parked) {
            self.calls[call].crashes += 1;
        }
    }

    /// Repeats or settles a call that the process left open when it died (B2).
    fn crashed(&mut self, id: CallId, now: Now, plan: &mut Plan) {
        let Some(call) = self.call_numbered(id) else { return };
        // A call that was taken up goes on, whatever the fate of its earlier attempts.
        if matches!(self.calls[call].state, State::Settled | State::Running | State::Parked) {
            return;
        }
        let too_often = self.calls[call].crashes > MOST_CRASHES && !Mutant::CrashesForEver.on();
        if self.on_crash(call) != OnCrash::Repeat || too_often {
            let failure = Failure::permanent("crash").because("the process died during the call");
            self.settle(call, Outcome::Failed(failure), now, plan);
        } else {
            self.write_call(call, plan);
        }
    }
}
