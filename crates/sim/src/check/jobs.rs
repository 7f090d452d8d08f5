//! The model of jobs and calls: states from durable writes, each outcome checked once.

use std::sync::Arc;

use paceline_core::{
    AttemptId, AttemptResult, Blob, CallId, CallRecord, Callers, DueAt, JobId, JobRecord, JobSpec,
    Now, Outcome, Priority, Reservation, Span, Terms, Time, Verdict, backoff,
};

use super::Checker;
use super::lanes::LaneModel;
use super::payloads::Move;
use super::reports::brought;
use super::shared::{MOST_AGAIN, retry_wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Staged,
    Due,
    Waiting,
    Backoff(Time),
    Running(AttemptId),
    /// Shares a request with other calls by its cache key. Its place in the queue is not modelled.
    Shared,
    /// Its lane is not configured.
    Parked,
    Settled,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a call")]
pub(super) struct CallModel {
    pub(super) lane: Arc<str>,
    pub(super) stage: u16,
    pub(super) state: State,
    pub(super) joined_at: Time,
    /// The store has the moment when it joined.
    pub(super) place_durable: bool,
    /// The store has a record of the call.
    pub(super) recorded: bool,
    /// Its budget when it joined the queue (W1).
    pub(super) max_wait: Option<Span>,
    pub(super) failures: u16,
    pub(super) refused: bool,
    /// Requests that were not processed (L7).
    pub(super) unprocessed: u16,
    /// How often it was throttled (L6), and how often the process died during its attempt (B2).
    pub(super) throttles: u16,
    pub(super) crashes: u16,
    /// Requests that were made for it, as far as the engine can know (J1).
    pub(super) made: u32,
    /// When the last verdict was reported.
    pub(super) told_at: Time,
    /// When the process opened that followed the last crash during its attempt.
    pub(super) survived_at: Time,
    /// The payload that a move gave it (J7).
    pub(super) payload: Option<Blob>,
    /// It has no attempts left and must settle in this turn.
    pub(super) through: bool,
    /// The outcome of its last attempt, if that settles it.
    pub(super) brought: Option<Outcome>,
    /// The model does not know which attempts of other calls count for it.
    pub(super) unsure: bool,
    /// Its state before it settled or was parked.
    pub(super) was: State,
    pub(super) attempts: u32,
    pub(super) outcome: Option<Outcome>,
}

/// The due moment that a caller of this turn asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    AtOnce,
    At(DueAt),
}

impl Wanted {
    pub(super) fn of(due: Option<DueAt>) -> Wanted {
        due.map_or(Wanted::AtOnce, Wanted::At)
    }
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a job")]
pub(super) struct JobModel {
    pub(super) spec: Arc<JobSpec>,
    pub(super) priority: Priority,
    /// The priority of the first submission (D3).
    pub(super) submitted_as: Priority,
    pub(super) named: bool,
    pub(super) due: Option<DueAt>,
    /// The due moment that a caller asked for in this turn.
    pub(super) wanted_due: Wanted,
    pub(super) submitted_at: Time,
    pub(super) delayed: bool,
    pub(super) parked: bool,
    /// The deadline of each caller, by the submissions; `Time::NEVER` without one (D1).
    pub(super) callers: Vec<Time>,
    /// The deadlines of the callers, by the store.
    pub(super) recorded: Callers,
    /// Its due moment was replaced, so it joins the queue without a submission (D1).
    pub(super) replaced: bool,
    /// When a caller last left it while others stayed.
    pub(super) detached_at: Time,
    /// The payload by the store, and by a submission of this turn.
    pub(super) payload: Blob,
    pub(super) wanted_payload: Option<Blob>,
    /// The moves of this turn, with the payload of each (J7).
    pub(super) moves: Vec<Move>,
    pub(super) calls: Vec<CallModel>,
}

impl JobModel {
    pub(super) fn conclusive(&self) -> bool {
        self.calls.iter().any(|c| c.outcome.as_ref().is_some_and(Outcome::is_conclusive))
    }
}

impl Checker {
    pub(super) fn job_accepted(&mut self, record: &JobRecord, payload: &Blob) {
        let spec = record.spec.clone();
        let id = record.id;
        self.check_keys(id, &spec, record.terms.due);
        let stages = spec.stages.iter().enumerate();
        let calls = stages.flat_map(|(stage, lanes)| lanes.iter().map(move |lane| (stage, lane)));
        let calls = calls.map(|(stage, lane)| new_call(lane, stage as u16)).collect();
        for lane in spec.stages.iter().flatten() {
            self.lane(lane);
        }
        let priority = record.terms.priority.unwrap_or_default();
        let later = self.is_later(record.terms.due);
        let job = JobModel {
            spec,
            priority,
            submitted_as: priority,
            named: record.terms.priority.is_some(),
            due: record.terms.due,
            wanted_due: Wanted::Nothing,
            submitted_at: record.submitted_at,
            delayed: later,
            parked: false,
            callers: Vec::new(),
            recorded: record.terms.callers.clone(),
            replaced: false,
            detached_at: Time::ZERO,
            payload: payload.clone(),
            wanted_payload: None,
            moves: Vec::new(),
            calls,
        };
        if self.finished.contains(&id) || self.jobs.insert(id, job).is_some() {
            self.broken("B1", format!("job {id} was accepted twice"));
        }
        if later {
            self.delay(id);
        } else {
            self.count_begun(id);
            self.begin(id, self.begins_at(record.terms.due));
        }
    }

    /// Returns `true` if work waits until it is due. Work due within `lead` begins at once (W5).
    pub(super) fn is_later(&self, due: Option<DueAt>) -> bool {
        let lead = self.setup.settings.lead;
        due.is_some_and(|due| match due {
            DueAt::Wall(wall) => wall > self.now.wall + lead,
            DueAt::Engine(time) => time > self.now.time + lead,
        })
    }

    /// The moment that orders a job which begins now in its queues.
    fn begins_at(&self, due: Option<DueAt>) -> Time {
        due.map_or(self.now.time, |due| comes_at(due, self.now).max(self.now.time))
    }

    fn check_keys(&mut self, id: JobId, spec: &JobSpec, due: Option<DueAt>) {
        let now = self.now;
        let same = |a: &Option<Blob>, b: &Option<Blob>| a.is_some() && a == b;
        let twin = spec.key.clone().and_then(|key| self.keys.insert(key, id));
        if let Some(other) = twin {
            let words = format!("job {id} has the key of job {other}, which is not finished");
            self.broken("D1", words);
        }
        let later = due.is_some_and(|due| comes_at(due, now) > now.time);
        if spec.schedule_key.is_none() || !later {
            return;
        }
        // A parked job holds no schedule key.
        let mut waiting = self.jobs.iter().filter(|(_, job)| job.delayed && !job.parked);
        let twin = waiting.find(|(_, job)| same(&job.spec.schedule_key, &spec.schedule_key));
        if let Some((other, _)) = twin {
            let words = format!("job {id} has the schedule key of job {other}, which is not due");
            self.broken("D2", words);
        }
    }

    pub(super) fn delay(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.delayed = true;
        for call in &mut job.calls {
            if !matches!(call.state, State::Settled) {
                call.state = State::Due;
            }
        }
    }

    /// The first stage that has calls left joins its queues.
    pub(super) fn begin(&mut self, id: JobId, joined_at: Time) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.delayed = false;
        let open = job.calls.iter().filter(|call| call.state != State::Settled);
        let Some(stage) = open.map(|call| call.stage).min() else { return };
        let shared = job.spec.cache_key.is_some();
        for place in 0..job.calls.len() {
            let job = self.jobs.get_mut(&id).expect("found above");
            let call = &mut job.calls[place];
            if call.state == State::Due {
                call.state = State::Staged;
            }
            if call.stage == stage && call.state == State::Staged {
                call.state = if shared { State::Shared } else { State::Waiting };
                call.joined_at = joined_at;
                let budget = self.budget(id, place);
                self.jobs.get_mut(&id).expect("found above").calls[place].max_wait = budget;
            }
        }
    }

    /// How long a call waits for a closed lane (W1).
    pub(super) fn budget(&self, id: JobId, place: usize) -> Option<Span> {
        let job = &self.jobs[&id];
        if job.spec.max_wait.is_some() {
            return job.spec.max_wait;
        }
        let default = match job.priority {
            Priority::Rss => Span::secs(15),
            Priority::Background => Span::secs(60),
            Priority::Interactive | Priority::Completion => return None,
        };
        let lane = self.lanes.get(&job.calls[place].lane)?;
        let gap = LaneModel::gap(lane.limits(), job.priority)
            + self.setup.settings.send_within(paceline_core::MOST_LATE)
            + self.slack(lane.limits());
        job.named.then(|| default.max(gap))
    }

    /// Default budgets grow with the gap of their lane.
    pub(super) fn stretch_budgets(&mut self, lane: &str) {
        let calls = self.jobs.iter().flat_map(|(&id, job)| {
            let here = (0..).zip(&job.calls).filter(|(_, call)| *call.lane == *lane);
            here.map(move |(place, _)| (id, place))
        });
        let calls: Vec<(JobId, usize)> = calls.collect();
        for (id, place) in calls {
            let budget = self.budget(id, place);
            let call = &mut self.jobs.get_mut(&id).expect("listed above").calls[place];
            call.max_wait = call.max_wait.zip(budget).map(|(old, new)| old.max(new));
        }
    }

    pub(super) fn terms_changed(&mut self, id: JobId, terms: &Terms) {
        let time = self.now.time;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if terms.callers.count() < job.recorded.count() {
            job.detached_at = time;
        }
        job.recorded = terms.callers.clone();
        let raised = terms.priority.unwrap_or_default() != job.priority;
        job.priority = terms.priority.unwrap_or_default();
        job.named = terms.priority.is_some();
        let moved = job.due != terms.due;
        job.replaced |= moved;
        job.due = terms.due;
        let later = self.is_later(terms.due);
        if raised {
            for place in 0..self.jobs[&id].calls.len() {
                let budget = self.budget(id, place);
                let call = &mut self.jobs.get_mut(&id).expect("found above").calls[place];
                // A call does not wait less because another caller joined.
                call.max_wait = call.max_wait.zip(budget).map(|(old, new)| old.max(new));
            }
        }
        let delayed = self.jobs[&id].delayed;
        if moved && later {
            self.delay(id);
        } else if delayed && !later {
            self.count_begun(id);
            self.begin(id, self.begins_at(terms.due));
        }
    }

    /// Delayed jobs and retries whose moment has come.
    pub(super) fn come_due(&mut self) {
        let now = self.now.time;
        let due = self.jobs.iter().filter(|(_, job)| job.delayed && !self.is_later(job.due));
        let due: Vec<(JobId, Option<DueAt>)> = due.map(|(id, job)| (*id, job.due)).collect();
        for (id, due) in due {
            self.begin(id, self.begins_at(due));
        }
        let mut back = Vec::new();
        for (&id, job) in &mut self.jobs {
            for (place, call) in job.calls.iter_mut().enumerate() {
                if matches!(call.state, State::Backoff(until) if until <= now) {
                    call.state = State::Waiting;
                    back.push((id, place));
                }
            }
        }
        for (id, place) in back {
            let budget = self.budget(id, place);
            self.jobs.get_mut(&id).expect("seen above").calls[place].max_wait = budget;
        }
    }

    pub(super) fn rank_of(&self, id: CallId, priority: Priority) -> Priority {
        let Some(job) = self.jobs.get(&id.job) else { return priority };
        let call = job.calls.get(usize::from(id.index));
        let since = call.map_or(job.submitted_at, |call| call.joined_at.min(self.now.time));
        let since = if since == Time::ZERO { job.submitted_at } else { since };
        priority.risen(self.now.time.since(since).0 / self.setup.settings.age_after.0)
    }

    pub(super) fn call_reserved(&mut self, reservation: &Reservation) {
        let CallId { job: id, index } = reservation.call;
        let Some(job) = self.jobs.get_mut(&id) else {
            return self.broken("B1", format!("job {id} is finished and runs again"));
        };
        let key = job.spec.cache_key.clone();
        let Some(call) = job.calls.get_mut(usize::from(index)) else {
            return self.broken("B1", format!("job {id} has no call {index}"));
        };
        call.attempts += 1;
        let (state, lane) = (call.state, call.lane.clone());
        let (failures, refused, most) =
            (call.failures, call.refused, job.spec.retry.attempts.get());
        if state != State::Shared {
            call.state = State::Running(reservation.attempt);
        }
        match state {
            State::Waiting | State::Shared => {}
            State::Due => self.broken("W5", format!("job {id} was started before it was due")),
            State::Backoff(_) => self.broken("R1", format!("job {id} was retried too soon")),
            State::Settled => self.broken("B1", format!("a settled call of job {id} runs again")),
            State::Running(_) => {
                self.broken("J1", format!("a call of job {id} runs twice at once"));
            }
            State::Staged => self.broken("J3", format!("job {id} runs a stage not reached")),
            State::Parked => {
                self.broken("B1", format!("job {id} runs on a lane that is not configured"));
            }
        }
        if let Some(key) = key.clone().filter(|_| state == State::Shared) {
            self.sharer_reserved(&lane, key, reservation.attempt);
        }
        if failures >= most || refused {
            self.broken("R1", format!("job {id} is tried again after {failures} failures"));
        }
        if let Some(key) = key
            && self.is_answered(&lane, &key)
            && self.started_by_cache_check(id, index)
        {
            let joined = crate::clock::seconds(self.jobs[&id].calls[usize::from(index)].joined_at);
            self.broken(
                "C1",
                format!("job {id} calls {lane}, queued since {joined}, in spite of a cache hit"),
            );
        }
    }

    pub(super) fn call_never_reserved(&mut self, reservation: &Reservation) {
        let CallId { job, index } = reservation.call;
        let job = self.jobs.get_mut(&job).expect("its end would have been synced");
        let call = &mut job.calls[usize::from(index)];
        call.attempts -= 1;
        if call.state == State::Running(reservation.attempt) {
            call.state = State::Waiting;
        }
    }

    fn started_by_cache_check(&self, id: JobId, index: u16) -> bool {
        self.jobs[&id].calls[usize::from(index)].outcome.is_none()
    }

    /// Applies the verdict that the worker of a call reported.
    pub(super) fn apply_to_call(&mut self, attempt: AttemptId, told: &AttemptResult, roll: u64) {
        let now = self.now.time;
        let Some(lane) = self.attempts.get(&attempt).and_then(|lane| self.lanes.get(lane)) else {
            return;
        };
        let Some(call_id) = lane.find(attempt).map(|found| found.call) else { return };
        let Some(job) = self.jobs.get_mut(&call_id.job) else { return };
        let retry = job.spec.retry;
        let Some(call) = job.calls.get_mut(usize::from(call_id.index)) else { return };
        if call.state != State::Running(attempt) {
            return;
        }
        call.made += u32::from(told.verdict != Verdict::Unused);
        call.told_at = now;
        match &told.verdict {
            Verdict::Unused => call.state = State::Waiting,
            Verdict::Throttled { again: true, .. } if call.throttles < MOST_AGAIN => {
                call.throttles += 1;
                call.state = State::Waiting;
            }
            Verdict::NotProcessed if call.unprocessed < 20 => {
                call.unprocessed += 1;
                call.state = State::Waiting;
            }
            Verdict::NotProcessed => {
                call.failures += 1;
                if call.failures < retry.attempts.get() {
                    call.state = State::Backoff(now + backoff(&retry, call.failures, roll));
                }
            }
            Verdict::Failed { failure, retry_after, .. } => {
                call.failures += 1;
                call.refused = !failure.retryable;
                if failure.retryable && call.failures < retry.attempts.get() {
                    let wait = backoff(&retry, call.failures, roll);
                    call.state = State::Backoff(now + retry_wait(*retry_after, wait));
                }
            }
            _ => {}
        }
        let settles = call.state == State::Running(attempt);
        call.brought = if settles { brought(&told.verdict) } else { None };
        if settles {
            job.moves.extend(Move::told(&told.verdict, call.payload.as_ref(), now));
        }
    }

    pub(super) fn call_moved_on(&mut self, record: &CallRecord) {
        let id = record.job;
        if !self.jobs.contains_key(&id) {
            return self
                .broken("B1", format!("a call of job {id}, which is finished, was written"));
        }
        let job = self.jobs.get_mut(&id).expect("checked above");
        let place = usize::from(record.index);
        if place == job.calls.len()
            && let Some(added) = &record.added
        {
            job.calls.push(new_call(&added.lane, added.stage));
            self.move_goes_on(id, place, added);
            self.lane(&added.lane);
            self.count_added(id, &added.lane);
        }
        if let Some(settled) = &record.settled {
            return self.settled(id, place, &settled.outcome, settled.cached);
        }
        let shared = self.jobs[&id].spec.cache_key.is_some();
        let budget = self.budget(id, place);
        let call = &mut self.jobs.get_mut(&id).expect("checked above").calls[place];
        call.place_durable = record.joined_at.is_some();
        call.recorded =
            call.place_durable || record.attempts + record.throttles + record.crashes > 0;
        if call.state == State::Staged && call.place_durable {
            call.state = if shared { State::Shared } else { State::Waiting };
            call.joined_at = record.joined_at.unwrap_or(call.joined_at);
            call.max_wait = budget;
            let stage = call.stage;
            self.check_stage_begins(id, stage);
        }
    }
}

/// The due moment in engine time, by the present clocks.
pub(super) fn comes_at(due: DueAt, now: Now) -> Time {
    match due {
        DueAt::Wall(wall) => now.engine_time(wall),
        DueAt::Engine(time) => time,
    }
}

pub(super) fn new_call(lane: &Arc<str>, stage: u16) -> CallModel {
    CallModel {
        lane: lane.clone(),
        stage,
        state: State::Staged,
        joined_at: Time::ZERO,
        place_durable: false,
        recorded: false,
        max_wait: None,
        failures: 0,
        refused: false,
        unprocessed: 0,
        throttles: 0,
        crashes: 0,
        made: 0,
        told_at: Time::ZERO,
        survived_at: Time::ZERO,
        through: false,
        payload: None,
        brought: None,
        unsure: false,
        was: State::Staged,
        attempts: 0,
        outcome: None,
    }
}
