//! The checkers: an independent record of every reservation and of every request at its upstream.
//!
//! Reservations come from the durable writes, facts from the wire. Each violation names the rule
//! that is broken. The rules are implemented here a second time, from their text, as simply as
//! possible.

mod admitted;
mod answers;
mod dropped;
mod groups;
mod jobs;
mod lanes;
mod order;
mod outcomes;
mod payloads;
mod pool;
mod reopened;
mod reports;
mod services;
mod shared;
mod slots;
mod slowed;
mod wake;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use paceline::turn::{Input, LaneAct};
use paceline_core::{
    Admission, AttemptId, AttemptResult, Blob, JobId, LaneId, Now, Numbered, Priority, Setup, Span,
    Submission, Time, Write,
};

pub(crate) use admitted::Answered;
use jobs::JobModel;
use lanes::{GroupModel, LaneModel};
use services::Runs;

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The code of the rule, such as `L3`.
    pub rule: &'static str,
    /// The moment, in engine time.
    pub at: Time,
    /// A description.
    pub words: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.rule, crate::clock::seconds(self.at), self.words)
    }
}

/// An input of a turn, as far as the checkers need it.
#[derive(Clone, Debug)]
pub(crate) enum TurnInput {
    Started(AttemptId, Time),
    Answered(AttemptId),
    Told(AttemptId, AttemptResult, u64),
    Ended(AttemptId),
    Submit(Vec<Submission>),
    Cancel(JobId),
    Lane(Arc<str>, LaneAct),
    Run(Arc<str>),
}

impl TurnInput {
    pub(crate) fn of<T>(input: &Input<T>) -> Option<TurnInput> {
        Some(match input {
            Input::Started(attempt, at) => TurnInput::Started(*attempt, *at),
            Input::Answered(attempt) => TurnInput::Answered(*attempt),
            Input::Told(attempt, told, roll) => TurnInput::Told(*attempt, told.clone(), *roll),
            Input::Ended(attempt) => TurnInput::Ended(*attempt),
            Input::Cancel(job, _) => TurnInput::Cancel(*job),
            Input::Lane(lane, act, _) => TurnInput::Lane(lane.clone(), act.clone()),
            Input::RunService(name, _) => TurnInput::Run(name.clone()),
            Input::Submit(jobs, _) => TurnInput::Submit(jobs.clone()),
            Input::SubmitOnce(..)
            | Input::Retry(..)
            | Input::ResetService(..)
            | Input::SetServices(..)
            | Input::Keep(..) => return None,
        })
    }
}

/// The most violations that one world records.
const MOST_VIOLATIONS: usize = 20;
/// An open lane is used within this time.
const PROMPT: Span = Span::millis(1);

/// The record of all reservations, jobs and requests.
#[derive(Debug)]
pub(crate) struct Checker {
    setup: Setup,
    pub(crate) violations: Vec<Violation>,
    lanes: BTreeMap<Arc<str>, LaneModel>,
    lane_ids: BTreeMap<LaneId, Arc<str>>,
    groups: BTreeMap<String, GroupModel>,
    jobs: BTreeMap<JobId, JobModel>,
    /// Unfinished jobs by key.
    keys: BTreeMap<Blob, JobId>,
    finished: BTreeSet<JobId>,
    /// The newest finished job by key.
    finished_keys: BTreeMap<Blob, JobId>,
    answered: BTreeSet<JobId>,
    /// The lane of each attempt.
    attempts: BTreeMap<AttemptId, Arc<str>>,
    newest: AttemptId,
    answers: BTreeMap<(Arc<str>, Blob), answers::Cached>,
    /// Calls that share their requests, by lane and cache key.
    same: BTreeMap<(Arc<str>, Blob), shared::SharedRequest>,
    /// Jobs that were parked because a lane was not configured.
    was_parked: BTreeSet<JobId>,
    opened_at: Time,
    /// Attempts that were reported as answered and have not ended.
    answered_early: u32,
    now: Now,
    /// The next turn must come by then.
    must_wake: Option<Time>,
    busy_until: Time,
    /// The calls that started in this turn, with the worker that each needed.
    started: Vec<order::Started>,
    turns: order::Turns,
    cancelled: Vec<JobId>,
    may_have_waited: admitted::Candidates,
    runs: Runs,
    last_event: u64,
    halted: bool,
}

impl Checker {
    pub(crate) fn new(setup: &Setup) -> Checker {
        Checker {
            setup: setup.clone(),
            violations: Vec::new(),
            lanes: BTreeMap::new(),
            lane_ids: BTreeMap::new(),
            groups: BTreeMap::new(),
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            finished: BTreeSet::new(),
            finished_keys: BTreeMap::new(),
            answered: BTreeSet::new(),
            attempts: BTreeMap::new(),
            newest: AttemptId(0),
            answers: BTreeMap::new(),
            same: BTreeMap::new(),
            was_parked: BTreeSet::new(),
            opened_at: Time::ZERO,
            answered_early: 0,
            now: Now::default(),
            must_wake: None,
            busy_until: Time::ZERO,
            started: Vec::new(),
            turns: order::Turns::default(),
            cancelled: Vec::new(),
            may_have_waited: admitted::Candidates::default(),
            runs: Runs::default(),
            last_event: 0,
            halted: false,
        }
    }

    pub(crate) fn violation(&mut self, rule: &'static str, at: Time, words: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation { rule, at, words });
        }
    }

    fn broken(&mut self, rule: &'static str, words: String) {
        self.violation(rule, self.now.time, words);
    }

    /// The engine has opened the store.
    pub(crate) fn opened(&mut self, setup: &Setup, now: Now) {
        self.now = now;
        self.setup = setup.clone();
        self.halted = false;
        self.must_wake = Some(now.time);
        self.busy_until = now.time;
        let open = self.lanes.values().flat_map(|lane| lane.attempts.iter().filter(|t| !t.ended));
        let open = open.map(|attempt| attempt.id).filter(|attempt| self.goes_on(*attempt));
        let goes_on: Vec<AttemptId> = open.collect();
        for lane in self.lanes.values_mut() {
            lane.process_died(&goes_on, now.time);
        }
        self.answered_early = 0;
        self.turns = order::Turns::default();
        self.configure_all(now.time);
        self.jobs_reopened();
        self.opened_at = now.time;
        self.sharers_reopened(&goes_on);
        self.park_jobs_without_lanes();
        self.runs_reopened(now.time);
    }

    /// A commit lasts until then; the next turn cannot begin earlier.
    pub(crate) fn busy_until(&mut self, until: Time) {
        self.busy_until = until;
    }

    /// Checks one turn whose writes are durable.
    pub(crate) fn turn(
        &mut self,
        now: Now,
        inputs: &[TurnInput],
        writes: &[Write],
        answered: Option<&Answered>,
        wake_at: Option<Time>,
    ) {
        if let Some(must) = self.must_wake {
            let must = must.max(self.busy_until) + PROMPT;
            if now.time > must {
                let late = now.time.since(must) + PROMPT;
                self.broken("W5", format!("a turn came {late} too late"));
            }
        }
        self.now = now;
        self.lanes.values_mut().for_each(LaneModel::has_started);
        self.started.clear();
        self.cancelled.clear();
        self.runs.asked.clear();
        // Only submissions ask for room.
        if inputs.iter().any(|input| matches!(input, TurnInput::Submit(_))) {
            self.count_candidates(inputs);
        }
        self.come_due();
        for input in inputs {
            if !matches!(input, TurnInput::Lane(lane, act) if ignored(lane, act, writes)) {
                self.take_input(input);
            }
        }
        // A retry may be due at once.
        self.come_due();
        for write in writes {
            self.digest(write);
        }
        self.check_answers(inputs, answered);
        // An engine that shuts down starts nothing.
        if self.halted {
            self.must_wake = None;
        } else {
            self.check_end_of_turn(wake_at);
            self.check_rosters();
        }
    }

    /// The engine began its shutdown.
    pub(crate) fn halts(&mut self) {
        self.halted = true;
        self.must_wake = None;
    }

    fn take_input(&mut self, input: &TurnInput) {
        match input {
            TurnInput::Started(attempt, at) => self.start_known(*attempt, *at),
            TurnInput::Answered(attempt) => self.slot_freed_early(*attempt),
            TurnInput::Told(attempt, told, roll) => {
                self.apply_to_cache(*attempt, told);
                self.apply_to_sharers(*attempt, told, *roll);
                self.apply_to_lane(*attempt, told);
                self.apply_to_call(*attempt, told, *roll);
            }
            TurnInput::Ended(attempt) => self.slot_freed(*attempt),
            TurnInput::Submit(_) => {}
            TurnInput::Cancel(job) => self.cancelled.push(*job),
            TurnInput::Lane(lane, act) => self.lane_act(lane, act),
            TurnInput::Run(service) => self.runs.asked.push(service.clone()),
        }
    }

    fn digest(&mut self, write: &Write) {
        match write {
            Write::Job(record, payload) => {
                self.run_accepted(record, payload);
                self.job_accepted(record, payload);
            }
            Write::Terms(job, terms) => self.terms_changed(*job, terms),
            Write::Call(record) => self.call_moved_on(record),
            Write::Reserve(reservation) => {
                self.run_reserved(reservation.attempt, reservation.call.job);
                self.reserved(reservation);
            }
            Write::HandOver(_, attempt, call) => self.handed_over(*attempt, *call),
            Write::Started(_, attempt, at) => self.start_durable(*attempt, *at),
            Write::Lane(record) => {
                self.lane_ids.insert(record.id, record.name.clone());
            }
            Write::Finish(report) => {
                self.run_finished(report);
                self.job_finished(report);
            }
            Write::Answer(answer) => self.check_kept(answer),
            Write::DropLane(id) => self.dropped(*id),
            Write::Ended(_, attempt, at) => self.end_durable(*attempt, Some(*at)),
            Write::Release(_, attempt) => self.end_durable(*attempt, None),
            Write::Forget(lane, below) => self.check_forgotten(*lane, *below),
            Write::Payload(job, payload) => self.payload_written(*job, payload),
            Write::FinishedKey(..) | Write::Service(_) | Write::Roster(_) | Write::Note(..) => {}
            Write::Events(events) => self.events_kept(events),
        }
    }

    /// Event numbers are consecutive, also across restarts.
    fn events_kept(&mut self, events: &[Numbered]) {
        for event in events {
            let expected = self.last_event + 1;
            if event.id != expected {
                self.broken("B1", format!("event {} follows, expected was {expected}", event.id));
            }
            self.last_event = event.id;
        }
    }

    /// A caller got the answer to its submission.
    pub(crate) fn answered(&mut self, admission: &Admission, at: Time) {
        let Some(job) = admission.job() else { return };
        self.answered.insert(job);
        if !self.jobs.contains_key(&job) && !self.finished.contains(&job) {
            self.violation("B1", at, format!("job {job} was answered and is not durable"));
        }
    }

    pub(crate) fn some_unfinished(&self, roll: u64) -> Option<JobId> {
        let n = self.jobs.len();
        (n > 0).then(|| *self.jobs.keys().nth((roll % n as u64) as usize).expect("counted"))
    }

    pub(crate) fn lane_names(&self) -> Vec<Arc<str>> {
        self.lanes.keys().filter(|name| !name.ends_with('*')).cloned().collect()
    }

    pub(crate) fn priority_of(&self, attempt: AttemptId) -> Priority {
        let lane = self.attempts.get(&attempt).and_then(|lane| self.lanes.get(lane));
        let found = lane.and_then(|lane| lane.find(attempt));
        found.map_or(Priority::Background, |found| found.priority)
    }

    /// The world ends: a job that is left is lost or stuck.
    pub(crate) fn world_ends(&mut self, at: Time) {
        let stuck: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in stuck {
            self.violation("B1", at, format!("job {job} never ended"));
        }
    }

    pub(crate) fn finished_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.finished.iter().copied()
    }

    pub(crate) fn finished_keys(&self) -> (Vec<Blob>, Vec<JobId>) {
        self.finished_keys.iter().map(|(key, job)| (key.clone(), *job)).unzip()
    }

    pub(crate) fn answered_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.answered.iter().copied()
    }
}

/// Returns `true` if the lane did not exist to be paused, resumed or reset: the engine always
/// writes such an act.
fn ignored(lane: &Arc<str>, act: &LaneAct, writes: &[Write]) -> bool {
    let written = |write: &Write| matches!(write, Write::Lane(record) if record.name == *lane);
    !matches!(act, LaneAct::Change(_)) && !writes.iter().any(written)
}
