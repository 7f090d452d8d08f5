//! Answers to callers: due moments, deadlines and room are computed from the submissions, and the
//! records of the engine must agree (B1, D1, W2, W5, Q1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use paceline_core::{
    Admission, AttemptId, Callers, Due, DueAt, JobId, JobSpec, Priority, SERVICE_KIND, Span,
    Submission, SubmitError, Time,
};

use super::jobs::{CallModel, JobModel, State, Wanted};
use super::{Checker, TurnInput};

/// Calls that may have taken room in a turn: in a queue, during a cache lookup, or sharing a
/// request.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    by_lane: BTreeMap<Arc<str>, usize>,
    /// Calls that occupy a worker. Other calls count for their lane alone.
    in_all: usize,
}

impl Candidates {
    fn add(&mut self, lane: &Arc<str>, keeps_worker: bool) {
        *self.by_lane.entry(lane.clone()).or_default() += 1;
        self.in_all += usize::from(keeps_worker);
    }
}

/// The answers to the submissions of one turn, list by list.
pub(crate) type Answers = Vec<Vec<Result<Admission, SubmitError>>>;

/// The answers of a turn. There are none if its commit failed.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) answers: Answers,
    /// Jobs with a partial report for a caller whose deadline passed.
    pub(crate) partials: Vec<JobId>,
}

impl Checker {
    /// Goes through the inputs of a turn a second time, in order, after its writes.
    pub(super) fn check_answers(&mut self, inputs: &[TurnInput], answered: Option<&Answered>) {
        let Some(answered) = answered else {
            // Callers may have joined without an answer: the durable records count.
            let books = self.jobs.values_mut();
            return books.for_each(|job| job.callers = expanded(&job.recorded));
        };
        let before = self.deadlines_pass();
        // The order of changed limits and submissions is not modelled.
        let steady = !inputs.iter().any(|input| matches!(input, TurnInput::Lane(..)));
        let mut fresh = Vec::new();
        let mut answers = answered.answers.iter();
        for input in inputs {
            match input {
                TurnInput::Submit(jobs) => {
                    let answers = answers.next().into_iter().flatten();
                    for (submission, answer) in jobs.iter().zip(answers) {
                        if steady {
                            self.check_room_for(submission, answer, &fresh);
                        }
                        if let Ok(admission) = answer {
                            self.check_admission(submission, admission);
                        }
                        if let Ok(Admission::Accepted(job)) = answer {
                            fresh.push(*job);
                        }
                    }
                }
                TurnInput::Cancel(job) => self.caller_leaves(*job),
                _ => {}
            }
        }
        let passed: BTreeSet<JobId> = before.into_iter().chain(self.deadlines_pass()).collect();
        self.check_partials(&passed, &answered.partials);
        self.check_callers();
    }

    /// W5, D1: the durable record equals the submission.
    fn check_admission(&mut self, submission: &Submission, admission: &Admission) {
        let now = self.now;
        let deadline = submission.deadline.map_or(Time::NEVER, |span| now.time + span);
        let due = match submission.due {
            Due::In(span) if span.0 > 0 => Some(DueAt::Engine(now.time + span)),
            Due::At(wall) if wall > now.wall => Some(DueAt::Wall(wall)),
            Due::Now | Due::In(_) | Due::At(_) => None,
        };
        let Some((id, job)) = admission.job().and_then(|id| Some((id, self.jobs.get_mut(&id)?)))
        else {
            return;
        };
        let mut wrong = Vec::new();
        let replaces = matches!(admission, Admission::Replaced(_));
        if !(replaces && job.callers.contains(&deadline)) {
            job.callers.push(deadline);
        }
        if matches!(admission, Admission::Accepted(_) | Admission::Replaced(_)) {
            job.wanted_due = Wanted::of(due);
            job.wanted_payload = Some(submission.payload.clone());
        }
        if matches!(admission, Admission::Accepted(_)) && *job.spec != submission.spec {
            wrong.push(("B1", format!("job {id} is not the job that was submitted")));
        }
        for (rule, words) in wrong {
            self.broken(rule, words);
        }
    }

    /// A cancel removes the caller that would wait longest. The last caller cancels the job.
    fn caller_leaves(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.callers.sort_unstable();
        if job.callers.len() > 1 {
            job.callers.pop();
        }
    }

    /// Removes callers whose deadline has passed. Returns the jobs that have other callers.
    fn deadlines_pass(&mut self) -> Vec<JobId> {
        let now = self.now.time;
        let mut passed = Vec::new();
        for (&id, job) in &mut self.jobs {
            let before = job.callers.len();
            job.callers.retain(|deadline| *deadline > now);
            if job.callers.len() < before && !job.callers.is_empty() {
                passed.push(id);
            }
        }
        passed
    }

    fn check_partials(&mut self, passed: &BTreeSet<JobId>, told: &[JobId]) {
        let told: BTreeSet<JobId> = told.iter().copied().collect();
        let found = |id: &&JobId| self.jobs.contains_key(id);
        let silent = passed.difference(&told).find(found).copied();
        let untimely = told.difference(passed).find(found).copied();
        if let Some(job) = silent {
            self.broken("D1", format!("a deadline of job {job} passed without a partial report"));
        }
        if let Some(job) = untimely {
            self.broken(
                "D1",
                format!("a caller of job {job} got a partial report before its deadline"),
            );
        }
    }

    /// D1: each caller keeps its own deadline, and the last one ends the job (W2).
    fn check_callers(&mut self) {
        let mut wrong = Vec::new();
        for (id, job) in &mut self.jobs {
            // An operator who runs a service by hand joins its run.
            if &*job.spec.kind == SERVICE_KIND {
                job.callers = expanded(&job.recorded);
                continue;
            }
            let wanted = std::mem::replace(&mut job.wanted_due, Wanted::Nothing);
            if wanted != Wanted::Nothing && wanted != Wanted::of(job.due) {
                let words = format!("job {id} is due at {:?}, expected was {wanted:?}", job.due);
                wrong.push(("W5", words));
            }
            if job.wanted_payload.take().is_some_and(|wanted| wanted != job.payload) {
                wrong.push(("D1", format!("job {id} is written with another payload")));
            }
            job.callers.sort_unstable();
            if job.callers.is_empty() {
                wrong.push(("W2", format!("job {id} goes on after its last deadline")));
            } else if job.callers != expanded(&job.recorded) {
                wrong.push((
                    "D1",
                    format!("job {id} has callers until {:?}, not {:?}", job.recorded, job.callers),
                ));
            }
        }
        for (rule, words) in wrong {
            self.broken(rule, words);
        }
    }

    /// Q1: a job is refused only if there is no room, and accepted only if there is room.
    fn check_room_for(
        &mut self,
        submission: &Submission,
        answer: &Result<Admission, SubmitError>,
        fresh: &[JobId],
    ) {
        let spec = &submission.spec;
        // A replacement begins at the priority of the job that it replaces.
        let is_urgent = |of: Priority| of == Priority::Interactive;
        let interactive = is_urgent(submission.priority.unwrap_or_default())
            && self.same_key(spec).is_none_or(|job| is_urgent(job.priority));
        let allowed = |bound: u32| bound - if interactive { 0 } else { bound / 10 };
        let in_all = allowed(self.setup.settings.max_waiting.get()) as usize;
        let first: Vec<_> = spec.stages.iter().take(1).flatten().zip(0u16..).collect();
        let applies = first.iter().filter(|(_, index)| !spec.not_applicable.contains(index));
        let lanes: Vec<_> = applies.map(|(lane, _)| (*lane).clone()).collect();
        let bound = |lane: &Arc<str>| {
            let own = self.lanes.get(lane).and_then(|lane| lane.limits().max_waiting);
            let own = own.unwrap_or(self.setup.settings.lane_waiting);
            allowed(own.min(self.setup.settings.max_waiting).get()) as usize
        };
        let terms = self.setup.kinds.iter().find(|terms| terms.name == spec.kind);
        let in_pool = terms.is_none_or(|terms| terms.keeps_worker);
        let words = match answer {
            Ok(Admission::Refused { lane: Some(lane), retry_at }) => {
                let most = self.may_have_waited.by_lane.get(lane).copied().unwrap_or(0);
                (most < bound(lane))
                    .then(|| format!("{lane} refuses a call behind {most} at most"))
                    .or_else(|| self.wrong_moment(lane, *retry_at))
            }
            Ok(Admission::Refused { lane: None, .. }) => {
                let most = self.may_have_waited.in_all;
                (!in_pool && spec.key.is_none()
                    || most + self.calls_to_begin(spec, lanes.len()) <= in_all)
                    .then(|| format!("a job is refused behind {most} calls at most"))
            }
            Err(SubmitError::NeverRoom { .. }) => (self.calls_to_begin(spec, lanes.len())
                <= in_all)
                .then(|| format!("{} calls are refused for ever", lanes.len())),
            Ok(Admission::Accepted(job)) if submission_is_new(submission, self.now.wall) => {
                let full = lanes.iter().find(|lane| self.waited(Some(lane), fresh) >= bound(lane));
                let over = in_pool && self.waited(None, fresh) + lanes.len() > in_all;
                full.map(|lane| format!("{lane} takes job {job} and is full"))
                    .or(over.then(|| format!("job {job} is taken and the queue is full")))
            }
            _ => None,
        };
        if let Some(words) = words {
            self.broken("Q1", words);
        }
    }

    /// The number of calls that begin with a job: its own, or those of the job that it replaces.
    fn calls_to_begin(&self, spec: &JobSpec, own: usize) -> usize {
        let open = self.same_key(spec).into_iter().flat_map(|job| &job.calls);
        own.max(open.filter(|call| call.state != State::Settled).count())
    }

    /// The unfinished job with the same key (D1).
    fn same_key(&self, spec: &JobSpec) -> Option<&JobModel> {
        self.jobs.get(self.keys.get(spec.key.as_ref()?)?)
    }

    /// The moment to retry is at least a second away. A paused lane has none.
    fn wrong_moment(&self, lane: &Arc<str>, retry_at: Option<Time>) -> Option<String> {
        let retry_at = retry_at?;
        let paused =
            self.lanes.get(lane).is_some_and(|it| it.paused && it.paused_at < self.now.time);
        let soon = retry_at < self.now.wall + Span::secs(1);
        (paused || soon).then(|| format!("{lane} refuses a call until {retry_at:?}"))
    }

    fn keeps_worker(&self, job: JobId) -> bool {
        self.workers_of(paceline_core::CallId { job, index: 0 }) == 1
    }

    /// Calls that certainly waited when this turn admitted a job: on one lane, or in all.
    fn waited(&self, lane: Option<&Arc<str>>, fresh: &[JobId]) -> usize {
        let now = self.now.time;
        let jobs = self.jobs.iter().filter(|(id, job)| {
            // The place of a job whose due moment was replaced in this turn is not modelled.
            let plain = !job.parked && !job.replaced && !fresh.contains(id);
            plain && (lane.is_some() || self.keeps_worker(**id))
        });
        let calls = jobs.flat_map(|(_, job)| &job.calls);
        let here = calls.filter(|call| lane.is_none_or(|lane| call.lane == *lane));
        let waited = here.filter(|call| {
            call.state == State::Waiting && call.attempts == 0 && call.joined_at < now
        });
        let fresh = self.fresh_on(lane, fresh).filter(|(id, call)| {
            let waits = matches!(call.state, State::Waiting | State::Shared);
            let counts = lane.is_some() || self.keeps_worker(*id);
            waits && counts && call.attempts == 0 && call.joined_at == now
        });
        waited.count() + fresh.count()
    }

    /// Calls of the first stage of jobs that this turn accepted.
    fn fresh_on<'a>(
        &'a self,
        lane: Option<&'a Arc<str>>,
        fresh: &'a [JobId],
    ) -> impl Iterator<Item = (JobId, &'a super::jobs::CallModel)> {
        let jobs = fresh.iter().filter_map(|id| Some((*id, self.jobs.get(id)?)));
        let jobs = jobs.filter(|(_, job)| !job.replaced && job.due.is_none());
        let calls = jobs.flat_map(|(id, job)| job.calls.iter().map(move |call| (id, call)));
        calls.filter(move |(_, call)| call.stage == 0 && lane.is_none_or(|lane| call.lane == *lane))
    }

    /// Counts the calls that may take room when a turn begins. Calls of this turn are added when
    /// they are written.
    pub(super) fn count_candidates(&mut self, inputs: &[TurnInput]) {
        let mut counts = Candidates::default();
        let aside = |job: &JobModel| job.parked || job.delayed && self.is_later(job.due);
        for (&id, job) in self.jobs.iter().filter(|(_, job)| !aside(job)) {
            let keeps_worker = self.keeps_worker(id);
            let moves = job.calls.iter().any(|call| self.may_settle(job, call, inputs));
            for call in &job.calls {
                let takes = match call.state {
                    State::Waiting | State::Shared | State::Due => true,
                    State::Staged => moves,
                    State::Running(attempt) => is_reported(attempt, inputs),
                    State::Backoff(until) => until <= self.now.time,
                    State::Parked | State::Settled => false,
                };
                if takes {
                    counts.add(&call.lane, keeps_worker);
                }
            }
        }
        self.may_have_waited = counts;
    }

    /// Returns `true` if a call may settle before a submission of this turn is admitted, so that
    /// the next stage of its job joins the queues.
    fn may_settle(&self, job: &JobModel, call: &CallModel, inputs: &[TurnInput]) -> bool {
        match call.state {
            State::Shared | State::Due => true,
            State::Waiting => job.spec.start_within.is_some(),
            State::Running(attempt) => is_reported(attempt, inputs),
            State::Backoff(until) => until <= self.now.time,
            State::Staged | State::Parked | State::Settled => false,
        }
    }

    /// Counts a delayed job that begins in this turn.
    pub(super) fn count_begun(&mut self, id: JobId) {
        let keeps_worker = self.keeps_worker(id);
        for call in self.jobs.get(&id).into_iter().flat_map(|job| &job.calls) {
            if call.state != State::Settled {
                self.may_have_waited.add(&call.lane, keeps_worker);
            }
        }
    }

    /// Counts a call that a move added.
    pub(super) fn count_added(&mut self, id: JobId, lane: &Arc<str>) {
        let keeps_worker = self.keeps_worker(id);
        self.may_have_waited.add(lane, keeps_worker);
    }
}

fn is_reported(attempt: AttemptId, inputs: &[TurnInput]) -> bool {
    inputs.iter().any(|input| matches!(input, TurnInput::Told(told, ..) if *told == attempt))
}

fn submission_is_new(submission: &Submission, wall: Time) -> bool {
    match submission.due {
        Due::Now => true,
        Due::In(span) => span.0 == 0,
        Due::At(at) => at <= wall,
    }
}

fn expanded(callers: &Callers) -> Vec<Time> {
    callers.deadlines().flat_map(|(at, count)| (0..count).map(move |_| at)).collect()
}
