//! Submit and admit: a submission is checked, joined to the same work or refused, or becomes a job
//! (Q1, D1, D2).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call::{Call, LeastBudget, State, Step};
use crate::callers::Callers;
use crate::calls::Calls;
use crate::core::{Core, Job, Moment, RareOptions};
use crate::due::Due;
use crate::job::{
    Admission, Blob, JobId, JobSpec, LONGEST_KEY, MOST_CALLS, OnDuplicate, Submission, SubmitError,
    Terms,
};
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::name::check_name;
use crate::plan::{Event, Plan};
use crate::priority::Priority;
use crate::record::{JobRecord, Write};
use crate::time::{LONGEST_SPAN, Now, Span, Time};

/// Stands for a lane that does not exist yet.
pub(crate) const NO_LANE: u32 = u32::MAX;

/// The origin of a job. It decides whether the job needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller: the job needs room in the queue (Q1).
    Caller,
    /// A service that is due: its run always enters (Q2).
    Service,
}

impl Core {
    /// Accepts a job, joins it to the same work, or refuses it. Nothing is promised before the
    /// plan's writes are committed.
    pub fn submit(
        &mut self,
        submission: Submission,
        now: Now,
        plan: &mut Plan,
    ) -> Result<Admission, SubmitError> {
        self.submit_as(Origin::Caller, submission, now, plan)
    }

    pub(crate) fn submit_as(
        &mut self,
        origin: Origin,
        submission: Submission,
        now: Now,
        plan: &mut Plan,
    ) -> Result<Admission, SubmitError> {
        let kind = self.check(&submission)?;
        let lanes = self.check_lanes(&submission.spec, submission.priority.unwrap_or_default())?;
        if let Some(first) = self.same_work(&submission, now) {
            return self.duplicate(first, submission, now, plan);
        }
        let due = submission.due.later(now);
        let late = self.too_late(&submission, now).map(|at| too_late(&submission, at, now));
        // A job that can never be in time is told so even where there is no room: waiting would not
        // help.
        if let Some(never @ Admission::TooLate { retry_at: None, .. }) = late {
            return Ok(never);
        }
        let bound = origin == Origin::Caller && due.is_none() && !Mutant::NoBound.on();
        if bound && let Some(refused) = self.refusal(&submission, kind, &lanes, now)? {
            return Ok(refused);
        }
        if let Some(late) = late {
            return Ok(late);
        }
        let lanes = self.make_lanes(&submission.spec, lanes, now.time, plan)?;
        let terms = Terms {
            priority: submission.priority,
            due,
            callers: Callers::one(deadline(&submission, now)),
        };
        let id = JobId(self.next.job);
        self.next.job += 1;
        let record =
            JobRecord { id, submitted_at: now.time, terms, spec: Arc::new(submission.spec) };
        let job = self.add_job(&record, kind, &lanes);
        plan.writes.push(Write::Job(record, submission.payload));
        plan.events.push(Event::Accepted(id));
        self.admit(job, now, plan);
        Ok(Admission::Accepted(id))
    }

    /// Starts the first stage of a new job, or puts the job aside until it is due.
    fn admit(&mut self, job: u32, now: Now, plan: &mut Plan) {
        self.watch_deadline(job);
        if self.jobs[job].due().is_some() {
            self.delay(job);
        } else {
            self.begin_stage(job, now, plan);
        }
    }

    /// Puts a job aside until it is due.
    pub(crate) fn delay(&mut self, job: u32) {
        let due = self.jobs[job].due().expect("only work due later is put aside");
        self.due.insert(due, job);
        let stage = self.jobs[job].stage;
        for at in 0..self.jobs[job].calls.len() {
            let call = self.jobs[job].calls[at];
            if self.calls[call].stage == stage && !self.calls[call].is_settled() {
                self.step(call, Step::Delay);
            }
        }
        if let Some(key) = self.jobs[job].schedule_key().cloned() {
            self.schedule_keys.insert(0, &key, job);
        }
    }

    /// Takes a job from the jobs that are due later, and frees its schedule key (D2).
    pub(crate) fn leave_due(&mut self, job: u32) {
        if let Some(due) = self.jobs[job].due()
            && self.due.remove(due, job)
            && let Some(key) = self.jobs[job].schedule_key().cloned()
        {
            self.schedule_keys.remove(0, &key, job);
        }
    }

    /// Refuses a submission that can never be accepted. Returns its kind.
    fn check(&self, submission: &Submission) -> Result<u32, SubmitError> {
        let spec = &submission.spec;
        let Some(kind) = self.kind_named(&spec.kind) else {
            check_name("kind", &spec.kind)?;
            return Err(SubmitError::UnknownKind(spec.kind.clone()));
        };
        if let Some(tenant) = &spec.tenant {
            check_name("tenant", tenant)?;
        }
        if spec.stages.is_empty() || spec.stages.iter().any(Vec::is_empty) {
            return Err(SubmitError::NoLanes);
        }
        let calls = spec.stages.iter().map(Vec::len).sum::<usize>();
        if calls > MOST_CALLS || spec.stages.len() > MOST_CALLS {
            return Err(SubmitError::TooManyCalls(calls.max(spec.stages.len())));
        }
        let (size, max) = (submission.payload.len(), self.settings.max_payload);
        if size > max {
            return Err(SubmitError::PayloadTooLarge { size, max });
        }
        for (what, key) in [
            ("key", &spec.key),
            ("schedule key", &spec.schedule_key),
            ("cache key", &spec.cache_key),
        ] {
            match key.as_ref().map(|key| key.len()) {
                Some(0) => return Err(SubmitError::EmptyKey(what)),
                Some(size) if size > LONGEST_KEY => {
                    return Err(SubmitError::KeyTooLong { what, size });
                }
                _ => {}
            }
        }
        for (what, span) in [
            ("max_wait", spec.max_wait),
            ("start_within", spec.start_within),
            ("deadline", submission.deadline),
            ("backoff", Some(spec.retry.backoff.max(spec.retry.backoff_max))),
            ("delay", if let Due::In(span) = submission.due { Some(span) } else { None }),
        ] {
            if span.is_some_and(|span| span > LONGEST_SPAN) {
                return Err(SubmitError::TooLong(what));
            }
        }
        Ok(kind)
    }

    /// The lanes of all calls; [`NO_LANE`] where a template has yet to make one.
    fn check_lanes(&self, spec: &JobSpec, priority: Priority) -> Result<Vec<u32>, SubmitError> {
        let mut lanes = Vec::with_capacity(spec.stages.iter().map(Vec::len).sum());
        for stage in &spec.stages {
            for (place, name) in stage.iter().enumerate() {
                // Comparing a few lanes is faster than sorting them, and their number is bounded.
                if stage[..place].contains(name) {
                    return Err(SubmitError::LaneTwice(name.clone()));
                }
                let known = self.lane_names.get(name).copied();
                let cost = spec.cost.get();
                if let Some(lane) = known {
                    self.check_cost(name, &self.lanes[lane].limits, priority, cost)?;
                } else {
                    check_name("lane", name)?;
                    let limits = self.template_for(name);
                    let limits = limits.ok_or_else(|| SubmitError::UnknownLane(name.clone()))?;
                    self.check_cost(name, &limits, priority, cost)?;
                }
                lanes.push(known.unwrap_or(NO_LANE));
            }
        }
        Ok(lanes)
    }

    /// Returns an error for a cost that no window of the lane or its group could ever admit (L3):
    /// at the head of a queue it would block the lane for ever.
    pub(crate) fn check_cost(
        &self,
        lane: &Arc<str>,
        limits: &Limits,
        priority: Priority,
        cost: u32,
    ) -> Result<(), SubmitError> {
        let group = limits.group.as_deref().and_then(|name| self.group_named(name));
        let group = group.map(|group| &self.groups[group].limits.windows);
        let of_group = group.into_iter().flatten().find(|w| cost > w.rate.max.get());
        let mut of_lane = limits.windows.iter();
        let of_lane = of_lane.find(|window| u64::from(cost) > window.allowed(priority));
        match of_lane.or(of_group) {
            None => Ok(()),
            Some(window) => Err(SubmitError::CostTooHigh {
                cost,
                limit: window.rate,
                lane: lane.clone(),
                allowed: window.allowed(priority),
            }),
        }
    }

    pub(crate) fn kind_named(&self, name: &str) -> Option<u32> {
        self.kind_names.get(name).copied()
    }

    /// Holds the lanes of all calls, and makes those that a template covers. All or none.
    fn make_lanes(
        &mut self,
        spec: &JobSpec,
        mut lanes: Vec<u32>,
        now: Time,
        plan: &mut Plan,
    ) -> Result<Vec<u32>, SubmitError> {
        let held = |lane: &&mut u32| **lane != NO_LANE;
        lanes.iter_mut().filter(held).for_each(|lane| self.lanes[*lane].users += 1);
        for (place, name) in spec.stages.iter().flatten().enumerate() {
            if lanes[place] != NO_LANE {
                continue;
            }
            match self.lane_for(name, now, plan) {
                Ok(lane) => {
                    self.lanes[lane].users += 1;
                    lanes[place] = lane;
                }
                Err(error) => {
                    for lane in lanes.into_iter().filter(|lane| *lane != NO_LANE) {
                        self.release_lane(lane, now);
                    }
                    return Err(error);
                }
            }
        }
        Ok(lanes)
    }

    /// Makes the job and its calls in memory; `lanes` has one number per call.
    pub(crate) fn add_job(&mut self, record: &JobRecord, kind: u32, lanes: &[u32]) -> u32 {
        let (spec, terms) = (&record.spec, &record.terms);
        let tenant = spec.tenant.as_ref().map_or(0, |name| self.hold_tenant(name));
        let rare = RareOptions {
            schedule_key: spec.schedule_key.clone(),
            cache_key: spec.cache_key.clone(),
            due: terms.due,
            start_within: spec.start_within.unwrap_or(crate::call::ANY_WAIT),
            retry: spec.retry,
            not_applicable: spec.not_applicable.clone().into(),
        };
        let job = self.jobs.insert(Job {
            id: record.id,
            kind,
            tenant,
            priority: terms.priority.unwrap_or_default(),
            named: terms.priority.is_some(),
            until: spec.until,
            callers: terms.callers.clone(),
            cost: spec.cost,
            key: spec.key.clone(),
            submitted_at: record.submitted_at,
            max_wait: spec.max_wait,
            rare: (rare != RareOptions::default()).then(|| Box::new(rare)),
            stage: 0,
            stage_left: 0,
            left: lanes.len() as u16,
            cancelled: false,
            closing: false,
            calls: Calls::default(),
        });
        let stages = spec.stages.iter().enumerate();
        let stages = stages.flat_map(|(stage, lanes)| lanes.iter().map(move |_| stage as u16));
        for (index, (stage, &lane)) in stages.zip(lanes).enumerate() {
            let call = self.calls.insert(Call::new(job, lane, index as u16, stage));
            self.jobs[job].calls.push(call);
        }
        self.unsettled += lanes.len();
        if let Some(key) = &spec.key {
            self.keys.insert(0, key, job);
        }
        self.job_ids.insert(record.id, job);
        job
    }

    fn hold_tenant(&mut self, name: &Arc<str>) -> u32 {
        if let Some((number, users)) = self.tenants.get_mut(name) {
            *users += 1;
            return *number;
        }
        // Zero is the tenant of all jobs that name none.
        let number = self.tenant_names.insert(name.clone()) + 1;
        self.tenants.insert(name.clone(), (number, 1));
        number
    }

    pub(crate) fn release_tenant(&mut self, number: u32) {
        if number == 0 {
            return;
        }
        let name = self.tenant_names[number - 1].clone();
        let (_, users) = self.tenants.get_mut(&name).expect("a held tenant has users");
        *users -= 1;
        if *users == 0 {
            self.tenants.remove(&name);
            self.tenant_names.remove(number - 1);
        }
    }

    /// An unfinished job with the same key, or one not yet due with the same schedule key.
    fn same_work(&self, submission: &Submission, now: Now) -> Option<u32> {
        let find = |table: &crate::keys::Table, key: &Blob, of: fn(&Job) -> Option<&Blob>| {
            table.find(0, key, |job| of(&self.jobs[job]) == Some(key))
        };
        let spec = &submission.spec;
        let by_key =
            spec.key.as_ref().and_then(|key| find(&self.keys, key, |job| job.key.as_ref()));
        let later = submission.due.later(now).is_some();
        by_key.or_else(|| {
            let key = spec.schedule_key.as_ref().filter(|_| later)?;
            find(&self.schedule_keys, key, Job::schedule_key)
        })
    }

    fn duplicate(
        &mut self,
        first: u32,
        submission: Submission,
        now: Now,
        plan: &mut Plan,
    ) -> Result<Admission, SubmitError> {
        let id = self.jobs[first].id;
        Ok(match submission.spec.on_duplicate {
            OnDuplicate::Join => {
                self.join(first, &submission, now, plan);
                Admission::Joined(id)
            }
            OnDuplicate::Replace if self.still_waits(first) => {
                // Work due later was accepted without room. It needs room now (Q1).
                if self.waits_to_be_due(first)
                    && submission.due.later(now).is_none()
                    && let Some(refused) = self.refusal_to_begin(first, now)?
                {
                    return Ok(refused);
                }
                self.replace(first, submission, now, plan);
                Admission::Replaced(id)
            }
            OnDuplicate::Refuse | OnDuplicate::Replace => Admission::Duplicate(id),
        })
    }

    fn waits_to_be_due(&self, job: u32) -> bool {
        self.jobs[job].due().is_some_and(|due| self.due.contains(due, job))
    }

    /// Adds a caller to a job: the higher priority counts, and each caller keeps its own deadline
    /// (D1).
    fn join(&mut self, job: u32, submission: &Submission, now: Now, plan: &mut Plan) {
        self.unwatch_deadline(job);
        self.jobs[job].callers.join(deadline(submission, now));
        self.watch_deadline(job);
        let priority = submission.priority.unwrap_or_default();
        if priority < self.jobs[job].priority {
            self.raise(job, priority);
        }
        self.write_terms(job, plan);
    }

    /// Arranges that the job is looked at when the next deadline of its callers passes.
    pub(crate) fn watch_deadline(&mut self, job: u32) {
        let next = self.jobs[job].callers.first();
        if next != Time::NEVER {
            self.moments.insert((next, Moment::Deadline(job)));
        }
    }

    pub(crate) fn unwatch_deadline(&mut self, job: u32) {
        let next = self.jobs[job].callers.first();
        self.moments.remove(&(next, Moment::Deadline(job)));
    }

    /// Returns `true` if no attempt was made for any call of the job.
    fn still_waits(&self, job: u32) -> bool {
        self.jobs[job].calls.iter().map(|&call| &self.calls[call]).all(|call| {
            !matches!(call.state, State::Running | State::Settled | State::Joined)
                && call.requests() == 0
        }) && self.jobs[job].calls.iter().all(|call| !self.followers.contains_key(call))
    }

    fn replace(&mut self, job: u32, submission: Submission, now: Now, plan: &mut Plan) {
        let (due, deadline) = (submission.due.later(now), deadline(&submission, now));
        if !Mutant::ReplacedPayloadLost.on() {
            plan.writes.push(Write::Payload(self.jobs[job].id, submission.payload));
        }
        let waited_to_be_due = self.waits_to_be_due(job);
        self.leave_due(job);
        self.jobs[job].set_due(due);
        self.unwatch_deadline(job);
        self.jobs[job].callers.take_over(deadline);
        self.watch_deadline(job);
        // The first stage may end the job at once, so its terms are written before it begins.
        self.write_terms(job, plan);
        if self.jobs[job].calls.iter().any(|&call| self.calls[call].state == State::Parked) {
            return;
        }
        if due.is_some() {
            for at in 0..self.jobs[job].calls.len() {
                self.put_back(self.jobs[job].calls[at], plan);
            }
            self.delay(job);
        } else if waited_to_be_due {
            self.begin_stage(job, now, plan);
        }
    }

    /// Undoes the beginning of a call, which then waits to be due.
    fn put_back(&mut self, call: u32, plan: &mut Plan) {
        if self.calls[call].state == State::Queued {
            self.unqueue(call);
            self.forget_same(call);
        }
        let (job, lane) = (self.calls[call].job, self.calls[call].lane);
        self.lanes[lane].rss.retain(|(_, other)| *other != call);
        let place = std::mem::take(&mut self.calls[call].place);
        let within = self.jobs[job].start_within();
        self.moments.remove(&(place.joined_at + within, Moment::StartWithin(call)));
        if place.joined_at > Time::ZERO && self.begins_late(call) {
            self.write_call(call, plan);
        }
    }

    pub(crate) fn write_terms(&self, job: u32, plan: &mut Plan) {
        let job = &self.jobs[job];
        let terms = Terms {
            priority: job.named.then_some(job.priority),
            due: job.due(),
            callers: job.callers.clone(),
        };
        plan.writes.push(Write::Terms(job.id, terms));
    }

    /// Moves the waiting calls of a job to a higher priority, at their places.
    fn raise(&mut self, job: u32, priority: Priority) {
        let calls: Vec<u32> = self.jobs[job].calls.to_vec();
        let queued = |core: &Core, call: u32| core.calls[call].state == State::Queued;
        for &call in &calls {
            if queued(self, call) {
                self.unqueue(call);
            }
        }
        (self.jobs[job].priority, self.jobs[job].named) = (priority, true);
        // The budgets under which the leaders in other jobs are held now.
        let mut shared: BTreeMap<u32, LeastBudget> = BTreeMap::new();
        for &call in &calls {
            let Call { state, leader, .. } = self.calls[call];
            if state == State::Joined && !calls.contains(&leader) {
                shared.entry(leader).or_insert_with(|| self.held_least(leader));
            }
            // Default budgets go by priority (W1). No call waits less because another caller
            // joined, nor one that is on the wire and may come back.
            self.calls[call].max_wait = self.calls[call].max_wait.max(self.max_wait(call));
        }
        for &call in &calls {
            if queued(self, call) {
                self.line_up(call);
            }
        }
        for (leader, before) in shared {
            self.share_budgets(leader, before);
        }
        for call in calls {
            self.overtake(call);
        }
    }
}

/// The refusal of a job that would start at `at`.
fn too_late(submission: &Submission, at: Time, now: Now) -> Admission {
    let known = Some(at).filter(|at| *at != Time::NEVER);
    let budget = submission.spec.start_within.unwrap_or(Span::ZERO);
    Admission::TooLate {
        wait: known.map(|at| at.since(now.time)),
        retry_at: known.map(|at| now.wall_time(at - budget)),
    }
}

/// The moment of a caller's deadline; [`Time::NEVER`] without one.
fn deadline(submission: &Submission, now: Now) -> Time {
    submission.deadline.map_or(Time::NEVER, |span| now.time + span)
}
