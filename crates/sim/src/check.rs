//! The checkers: an independent book of what was promised and what the services saw.
//!
//! Promises come from the durable writes, facts from the wire. Each violation names the rule that
//! it breaks. The rules are written down here a second time, from their text, in the plainest way.

mod admitted;
mod answers;
mod dropped;
mod groups;
mod jobs;
mod lanes;
mod order;
mod payloads;
mod pool;
mod reopened;
mod reports;
mod services;
mod shared;
mod slots;
mod slowed;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use paceline::turn::{Input, LaneAct};
use paceline_core::{
    Admission, AttemptId, AttemptResult, Blob, JobId, LaneId, Now, Numbered, Priority, Setup, Span,
    Submission, Time, Write,
};

pub(crate) use admitted::Answered;
use jobs::JobBook;
use lanes::{GroupBook, LaneBook};
use services::Runs;

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Its name.
    pub rule: &'static str,
    /// When, in engine time.
    pub at: Time,
    /// What was seen.
    pub words: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.rule, crate::clock::seconds(self.at), self.words)
    }
}

/// What a turn was told, as far as the book needs it.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Started(AttemptId, Time),
    Answered(AttemptId),
    Told(AttemptId, AttemptResult, u64),
    Ended(AttemptId),
    Submit(Vec<Submission>),
    Cancel(JobId),
    Lane(Arc<str>, LaneAct),
    Run(Arc<str>),
}

impl Heard {
    pub(crate) fn of<T>(input: &Input<T>) -> Option<Heard> {
        Some(match input {
            Input::Started(attempt, at) => Heard::Started(*attempt, *at),
            Input::Answered(attempt) => Heard::Answered(*attempt),
            Input::Told(attempt, told, roll) => Heard::Told(*attempt, told.clone(), *roll),
            Input::Ended(attempt) => Heard::Ended(*attempt),
            Input::Cancel(job, _) => Heard::Cancel(*job),
            Input::Lane(lane, act, _) => Heard::Lane(lane.clone(), act.clone()),
            Input::RunService(name, _) => Heard::Run(name.clone()),
            Input::Submit(jobs, _) => Heard::Submit(jobs.clone()),
            Input::SubmitOnce(..)
            | Input::Retry(..)
            | Input::Ask(..)
            | Input::ResetService(..)
            | Input::SetServices(..)
            | Input::Keep(..) => return None,
        })
    }
}

/// Violations beyond this say nothing new.
const MOST_VIOLATIONS: usize = 20;
/// An opening is used within this.
const PROMPT: Span = Span::millis(1);

/// Everything promised and everything seen.
#[derive(Debug)]
pub(crate) struct Book {
    setup: Setup,
    pub(crate) violations: Vec<Violation>,
    lanes: BTreeMap<Arc<str>, LaneBook>,
    lane_ids: BTreeMap<LaneId, Arc<str>>,
    groups: BTreeMap<String, GroupBook>,
    jobs: BTreeMap<JobId, JobBook>,
    /// Unfinished jobs by key.
    keys: BTreeMap<Blob, JobId>,
    finished: BTreeSet<JobId>,
    /// The newest finished job by key.
    finished_keys: BTreeMap<Blob, JobId>,
    answered: BTreeSet<JobId>,
    /// Which lane an attempt is on.
    tries: BTreeMap<AttemptId, Arc<str>>,
    newest: AttemptId,
    answers: BTreeMap<(Arc<str>, Blob), answers::Kept>,
    /// Calls that share their requests, by lane and cache key.
    same: BTreeMap<(Arc<str>, Blob), shared::Same>,
    /// Jobs that a lane which was gone has held up.
    was_parked: BTreeSet<JobId>,
    opened_at: Time,
    /// Attempts that were answered and are not over.
    answered_early: u32,
    now: Now,
    /// The next turn must come by then.
    must_wake: Option<Time>,
    busy_until: Time,
    /// What started in this turn, and what it needed for that.
    started: Vec<order::Started>,
    turns: order::Turns,
    cancelled: Vec<JobId>,
    may_have_waited: admitted::Candidates,
    runs: Runs,
    last_event: u64,
    halted: bool,
}

impl Book {
    pub(crate) fn new(setup: &Setup) -> Book {
        Book {
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
            tries: BTreeMap::new(),
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

    /// The engine has taken up the store.
    pub(crate) fn opened(&mut self, setup: &Setup, now: Now) {
        self.now = now;
        self.setup = setup.clone();
        self.halted = false;
        self.must_wake = Some(now.time);
        self.busy_until = now.time;
        let open = self.lanes.values().flat_map(|lane| lane.tries.iter().filter(|t| !t.ended));
        let open = open.map(|known| known.id).filter(|attempt| self.goes_on(*attempt));
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
        self.park_strangers();
        self.runs_reopened(now.time);
    }

    /// The commit lasts until then, and no turn can begin before.
    pub(crate) fn busy_until(&mut self, until: Time) {
        self.busy_until = until;
    }

    /// One turn whose writes are durable.
    pub(crate) fn turn(
        &mut self,
        now: Now,
        heard: &[Heard],
        writes: &[Write],
        answered: Option<&Answered>,
        wake_at: Option<Time>,
    ) {
        if let Some(must) = self.must_wake {
            let must = must.max(self.busy_until) + PROMPT;
            if now.time > must {
                let late = now.time.since(must) + PROMPT;
                self.broken("W5", format!("a turn was needed {late} earlier"));
            }
        }
        self.now = now;
        self.lanes.values_mut().for_each(LaneBook::has_started);
        self.started.clear();
        self.cancelled.clear();
        self.runs.asked.clear();
        // Only submissions ask for room.
        if heard.iter().any(|heard| matches!(heard, Heard::Submit(_))) {
            self.count_candidates(heard);
        }
        self.come_due();
        for heard in heard {
            if !matches!(heard, Heard::Lane(lane, act) if ignored(lane, act, writes)) {
                self.hear(heard);
            }
        }
        // A retry may be wanted at once.
        self.come_due();
        for write in writes {
            self.digest(write);
        }
        self.check_answers(heard, answered);
        // Who is on the way out starts nothing, and that is right.
        if self.halted {
            self.must_wake = None;
        } else {
            self.look_around(wake_at);
            self.check_rosters();
        }
    }

    /// The engine was told to stop.
    pub(crate) fn halts(&mut self) {
        self.halted = true;
        self.must_wake = None;
    }

    fn hear(&mut self, heard: &Heard) {
        match heard {
            Heard::Started(attempt, at) => self.start_known(*attempt, *at),
            Heard::Answered(attempt) => self.slot_freed_early(*attempt),
            Heard::Told(attempt, told, roll) => {
                self.answer_heard(*attempt, told);
                self.sharers_hear(*attempt, told, *roll);
                self.lane_hears(*attempt, told);
                self.call_hears(*attempt, told, *roll);
            }
            Heard::Ended(attempt) => self.slot_freed(*attempt),
            Heard::Submit(_) => {}
            Heard::Cancel(job) => self.cancelled.push(*job),
            Heard::Lane(lane, act) => self.lane_act(lane, act),
            Heard::Run(service) => self.runs.asked.push(service.clone()),
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

    /// Numbers of events follow one another, whatever happens to the process.
    fn events_kept(&mut self, events: &[Numbered]) {
        for event in events {
            let expected = self.last_event + 1;
            if event.id != expected {
                self.broken("B1", format!("event {} comes where {expected} should", event.id));
            }
            self.last_event = event.id;
        }
    }

    /// A caller was told what became of its submission.
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
        let lane = self.tries.get(&attempt).and_then(|lane| self.lanes.get(lane));
        let known = lane.and_then(|lane| lane.find(attempt));
        known.map_or(Priority::Background, |known| known.priority)
    }

    /// Everything has ended: what is left is lost or stuck.
    pub(crate) fn world_ends(&mut self, at: Time) {
        let stuck: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in stuck {
            self.violation("B1", at, format!("job {job} never came to an end"));
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

/// Whether the lane was not there to be stopped, let go on or forgiven: that is always written.
fn ignored(lane: &Arc<str>, act: &LaneAct, writes: &[Write]) -> bool {
    let written = |write: &Write| matches!(write, Write::Lane(record) if record.name == *lane);
    !matches!(act, LaneAct::Change(_)) && !writes.iter().any(written)
}
