//! The turn: inputs go in, the rules decide, one commit makes the decision durable, and only then
//! is anything started, answered or told. The simulator runs this same function.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use paceline_core::{
    Admission, AttemptId, AttemptResult, Blob, CachedAnswer, Cancelled, Core, Event, Happened,
    JobId, Limits, Lookup, Now, Numbered, Outcome, Plan, Report, Restore, RosterTerms, RunError,
    ServiceTerms, Setup, Span, Stamp, Start, Submission, SubmitError, Time, UnknownLane,
    UnknownService, Write,
};
use paceline_store::{Store, StoreError};
use tokio::sync::oneshot;

use crate::error::RetryError;
use crate::once::Once;
use crate::payloads::Payloads;

/// The time until finished work is forgotten next: an eighth of the time that it is kept, within
/// these bounds, so that a file holds little more than it has to.
const FORGET_EVERY: (Span, Span) = (Span::secs(1), Span::mins(10));
/// The time until the next step while there is more to forget.
const FORGET_AGAIN: Span = Span::millis(1);
/// How often the store is asked, while commits are made, whether its file is still in place: writes
/// to a deleted file are acknowledged for no longer than this.
const CHECK_EVERY: Span = Span::secs(1);

/// Something that happened. `T` is the caller of a submission.
#[derive(Debug)]
pub enum Input<T> {
    /// Jobs to take in; each is answered for itself.
    Submit(Vec<Submission>, T),
    /// Jobs to take in, whose admissions are remembered under a name.
    SubmitOnce(Vec<Submission>, Once, T),
    /// A finished job is retried on the lanes that gave no answer.
    Retry(JobId, Reply<Result<Admission, RetryError>>),
    /// A caller withdraws from a job.
    Cancel(JobId, Reply<Cancelled>),
    /// A lane is paused, resumed, reset or given other limits.
    Lane(Arc<str>, LaneAct, Reply<Result<(), UnknownLane>>),
    /// A service is run by hand, whatever its timing.
    RunService(Arc<str>, Reply<Result<Admission, RunError>>),
    /// A service is marked as never run.
    ResetService(Arc<str>, Reply<Result<(), UnknownService>>),
    /// All services and rosters are replaced.
    SetServices(Vec<ServiceTerms>, Vec<RosterTerms>, Reply<()>),
    /// A note is kept under a name, or removed.
    Keep(Arc<str>, Option<Blob>, Reply<()>),
    /// An attempt was sent at this moment.
    Started(AttemptId, Time),
    /// The upstream has answered an attempt in full; its verdict is still to come.
    Answered(AttemptId),
    /// The verdict of an attempt; the number is for the jitter of its retry.
    Told(AttemptId, AttemptResult, u64),
    /// An attempt has ended.
    Ended(AttemptId),
}

/// The admissions of submitted jobs, one by one.
pub type Admissions = Vec<Result<Admission, SubmitError>>;

/// The caller of an input. It is answered once the turn is durable.
#[derive(Debug)]
pub struct Reply<R>(Option<oneshot::Sender<R>>);

impl<R: Send + 'static> Reply<R> {
    /// For inputs without a caller that waits.
    pub fn none() -> Reply<R> {
        Reply(None)
    }

    /// A caller, and where it gets its answer.
    pub(crate) fn channel() -> (Reply<R>, oneshot::Receiver<R>) {
        let (to, answer) = oneshot::channel();
        (Reply(Some(to)), answer)
    }

    /// Answers at once: for answers that promise nothing.
    pub(crate) fn give(self, answer: R) {
        if let Some(to) = self.0 {
            // A caller that went away needs no answer.
            let _ = to.send(answer);
        }
    }

    fn hold_back(self, answer: R, held: &mut Vec<Held>) {
        if self.0.is_some() {
            held.push(Held(Box::new(|| self.give(answer))));
        }
    }
}

/// An answer that is held back until its turn is durable.
pub struct Held(Box<dyn FnOnce() + Send>);

impl Held {
    /// Gives the answer to its caller.
    pub fn give(self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

/// An operation on a lane.
#[derive(Clone, Debug)]
pub enum LaneAct {
    /// No new call starts.
    Pause,
    /// Calls start again.
    Resume,
    /// Cooldown, ladder and slow-downs are lifted.
    Reset,
    /// The lane has new limits from now on.
    Change(Box<Limits>),
    /// The lane is added, or has new limits from now on.
    Set(Box<Limits>),
}

/// The effects of a turn, to be carried out once it is durable.
#[derive(Debug)]
pub struct Done<T> {
    /// Attempts to make, each with its payload.
    pub starts: Vec<(Start, Blob)>,
    /// Attempts to abort.
    pub aborts: Vec<AttemptId>,
    /// Answers to submissions, with one admission per job.
    pub admissions: Vec<(T, Admissions)>,
    /// Answers to all other inputs.
    pub replies: Vec<Held>,
    /// Events to publish.
    pub events: Vec<Event>,
    /// Reports for callers whose deadline has passed while their job goes on for others.
    pub partials: Vec<Arc<Report>>,
    /// The events as they are kept, if they are.
    pub kept: Vec<Numbered>,
    /// When the next turn is due, even without an input.
    pub wake_at: Option<Time>,
}

/// A reading of all clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Engine time and wall clock.
    pub now: Now,
    /// The boot of the machine.
    pub boot: u64,
    /// Microseconds since this boot.
    pub since_boot: u64,
}

/// The rules and the store. They meet once per turn.
#[derive(Debug)]
pub struct Machine<S> {
    pub(crate) core: Core,
    pub(crate) store: S,
    payloads: Payloads,
    /// The plan of taking up the store, to be made durable in the first turn.
    left_over: Option<Plan>,
    keep_finished: Span,
    forget_at: Time,
    check_at: Time,
    commits: u64,
    /// Events that are kept at least; none if zero.
    keep_events: u64,
    /// Events below this number were forgotten.
    forgot_below: u64,
}

/// The engine time at which a store goes on: its last commit, plus the time since then by the boot
/// clock, or after a reboot by the wall clock, but never backwards.
pub fn continued(last: Option<&Stamp>, wall: Time, boot: u64, since_boot: u64) -> Time {
    match last {
        None => wall,
        Some(last) if last.boot == boot => {
            last.time + Span(since_boot.saturating_sub(last.since_boot))
        }
        Some(last) => last.time + wall.since(last.wall),
    }
}

impl<S: Store> Machine<S> {
    /// Takes up the work in the store. `read` reads the clocks, given the last stamp of the store.
    pub fn open(
        setup: Setup,
        mut store: S,
        keep_finished: Span,
        read: impl FnOnce(Option<&Stamp>) -> Reading,
    ) -> Result<(Machine<S>, Reading), StoreError> {
        let mut restore = Restore::new(Core::new(setup));
        let last = store.load(&mut |record| restore.take(record))?;
        let reading = read(last.as_ref());
        let next = last.map(|stamp| stamp.next).unwrap_or_default();
        let (core, plan) = restore.finish(next, reading.now);
        let machine = Machine {
            core,
            store,
            payloads: Payloads::default(),
            left_over: Some(plan),
            keep_finished,
            forget_at: reading.now.time,
            check_at: reading.now.time + CHECK_EVERY,
            commits: 0,
            keep_events: 0,
            forgot_below: 0,
        };
        Ok((machine, reading))
    }

    /// Keeps at least this many of the last events for subscribers that come back.
    #[must_use]
    pub fn keeping_events(mut self, events: u64) -> Machine<S> {
        self.keep_events = events;
        self
    }

    /// Removes these notes in the first commit, before any call starts.
    #[must_use]
    pub fn forgetting(mut self, notes: Vec<Arc<str>>) -> Machine<S> {
        let forget = notes.into_iter().map(|note| Write::Note(note, None));
        self.left_over.get_or_insert_default().writes.extend(forget);
        self
    }

    /// One turn. After an error the machine must not be used again: a failed commit means
    /// unknown, never "not written".
    pub fn turn<T>(
        &mut self,
        inputs: impl IntoIterator<Item = Input<T>>,
        reading: Reading,
    ) -> Result<Done<T>, StoreError> {
        let now = reading.now;
        let mut plan = self.left_over.take().unwrap_or_default();
        let (mut admissions, mut replies) = (Vec::new(), Vec::new());
        self.core.catch_up(now, &mut plan);
        for input in inputs {
            if let Some(answer) = self.take(input, now, &mut plan, &mut replies)? {
                admissions.push(answer);
            }
        }
        self.decide(now, &mut plan)?;
        let kept = self.number(&mut plan, now);
        self.commit(reading, &plan)?;
        let starts = self.with_payloads(plan.starts)?;
        for event in &plan.events {
            if let Event::Finished(report) = event {
                self.payloads.forget(report.job);
            }
        }
        self.forget_events()?;
        let wake_at = self.core.wake_at(now);
        let Plan { aborts, events, partials, .. } = plan;
        Ok(Done { starts, aborts, admissions, replies, events, partials, kept, wake_at })
    }

    /// Starts no call from now on; running ones may still end.
    pub fn halt(&mut self) {
        self.core.halt();
    }

    /// The rules, to look at.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The number of commits so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// The store, at the end.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Hands an input to the rules. Returns the admissions if it is a submission; other answers are
    /// held back in `replies`.
    fn take<T>(
        &mut self,
        input: Input<T>,
        now: Now,
        plan: &mut Plan,
        replies: &mut Vec<Held>,
    ) -> Result<Option<(T, Admissions)>, StoreError> {
        match input {
            Input::Submit(jobs, to) => {
                let admissions = jobs.into_iter().map(|job| self.submit(job, now, plan));
                return Ok(Some((to, admissions.collect())));
            }
            Input::SubmitOnce(jobs, once, to) => {
                let admissions = jobs.into_iter().map(|job| self.submit(job, now, plan));
                let admissions: Vec<_> = admissions.collect();
                plan.writes.extend(once.write(&admissions, now.time));
                return Ok(Some((to, admissions)));
            }
            Input::Retry(job, to) => to.hold_back(self.retry(job, now, plan)?, replies),
            Input::Cancel(job, to) => to.hold_back(self.cancel(job, now, plan)?, replies),
            Input::Lane(lane, act, to) => {
                let done = match act {
                    LaneAct::Pause => self.core.pause(&lane, now, plan),
                    LaneAct::Resume => self.core.resume(&lane, plan),
                    LaneAct::Reset => self.core.reset(&lane, plan),
                    LaneAct::Change(limits) => self.core.change_limits(&lane, *limits, now, plan),
                    LaneAct::Set(limits) => self.core.set_lane(&lane, *limits, now, plan),
                };
                to.hold_back(done, replies);
            }
            Input::RunService(name, to) => {
                to.hold_back(self.core.run_service(&name, now, plan), replies);
            }
            Input::ResetService(name, to) => {
                to.hold_back(self.core.reset_service(&name, plan), replies);
            }
            Input::SetServices(services, rosters, to) => {
                self.core.configure_services(&services, &rosters);
                to.hold_back((), replies);
            }
            Input::Keep(name, note, to) => {
                plan.writes.push(Write::Note(name, note));
                to.hold_back((), replies);
            }
            Input::Started(attempt, at) => self.core.started(attempt, at),
            Input::Answered(attempt) => self.core.answered(attempt, now),
            Input::Told(attempt, told, roll) => self.core.report(attempt, told, now, roll, plan),
            Input::Ended(attempt) => self.core.ended(attempt, now, plan),
        }
        Ok(None)
    }

    fn submit(
        &mut self,
        job: Submission,
        now: Now,
        plan: &mut Plan,
    ) -> Result<Admission, SubmitError> {
        let payload = job.payload.clone();
        let admission = self.core.submit(job, now, plan)?;
        match admission {
            Admission::Accepted(job) => self.payloads.keep(job, payload),
            Admission::Replaced(job) => self.payloads.replace(job, payload),
            _ => {}
        }
        Ok(admission)
    }

    /// The rules know only unfinished jobs; the store tells a finished job from one that never was.
    fn cancel(&mut self, id: JobId, now: Now, plan: &mut Plan) -> Result<Cancelled, StoreError> {
        let cancelled = self.core.cancel(id, now, plan);
        if cancelled == Cancelled::Unknown && self.store.job(id)?.is_some() {
            return Ok(Cancelled::Finished);
        }
        Ok(cancelled)
    }

    /// A new job of the same kind and payload, for the lanes that gave no answer.
    fn retry(
        &mut self,
        id: JobId,
        now: Now,
        plan: &mut Plan,
    ) -> Result<Result<Admission, RetryError>, StoreError> {
        let Some(stored) = self.store.job(id)? else { return Ok(Err(RetryError::Unknown(id))) };
        let Some(report) = stored.report else { return Ok(Err(RetryError::Unfinished(id))) };
        let mut spec = (*stored.record.spec).clone();
        let answered = answered_lanes(&report);
        for stage in &mut spec.stages {
            stage.retain(|lane| !answered.contains(lane));
        }
        spec.stages.retain(|stage| !stage.is_empty());
        spec.not_applicable.clear();
        if spec.stages.is_empty() {
            return Ok(Err(RetryError::Complete(id)));
        }
        let payload = self.store.payload(id)?.unwrap_or_default();
        let priority = stored.record.terms.priority;
        let job = Submission { priority, ..Submission::new(spec, payload) };
        Ok(self.submit(job, now, plan).map_err(RetryError::from))
    }

    /// Lets the rules decide. Their lookups in the cache are answered within the turn (C1).
    fn decide(&mut self, now: Now, plan: &mut Plan) -> Result<(), StoreError> {
        loop {
            while !plan.lookups.is_empty() {
                let asked = std::mem::take(&mut plan.lookups);
                let lookups: Vec<Lookup> = asked.iter().map(|asked| asked.lookup.clone()).collect();
                let mut answers = self.store.answers(&lookups, now.time)?;
                fill_in(&mut answers, &lookups, &plan.writes);
                self.core.looked_up(asked, answers, now, plan);
            }
            self.core.decide(now, plan);
            if plan.lookups.is_empty() {
                return Ok(());
            }
        }
    }

    /// Numbers the events of the turn. They are written with the changes that they tell of, so that no
    /// two events ever have the same number.
    fn number(&mut self, plan: &mut Plan, now: Now) -> Vec<Numbered> {
        if self.keep_events == 0 || plan.events.is_empty() {
            return Vec::new();
        }
        let first = self.core.number_events(plan.events.len());
        let what = plan.events.iter().map(|event| Happened::of(event, now));
        let kept = (first..).zip(what).map(|(id, what)| Numbered { id, at: now.wall, what });
        let kept: Vec<Numbered> = kept.collect();
        plan.writes.push(Write::Events(kept.clone()));
        kept
    }

    /// Forgets old events, many at a time.
    fn forget_events(&mut self) -> Result<(), StoreError> {
        let below = self.core.counters().event.saturating_sub(self.keep_events);
        if self.keep_events > 0 && below >= self.forgot_below + self.keep_events.div_ceil(4) {
            self.store.forget_events(below)?;
            self.forgot_below = below;
        }
        Ok(())
    }

    fn commit(&mut self, reading: Reading, plan: &Plan) -> Result<(), StoreError> {
        if plan.writes.is_empty() {
            return Ok(());
        }
        let stamp = Stamp {
            time: reading.now.time,
            wall: reading.now.wall,
            boot: reading.boot,
            since_boot: reading.since_boot,
            next: self.core.counters(),
        };
        self.commits += 1;
        self.check(reading.now)?;
        if plan.is_passing() {
            self.store.commit_soon(&stamp, &plan.writes)
        } else {
            self.store.commit(&stamp, &plan.writes)
        }
    }

    fn with_payloads(&mut self, starts: Vec<Start>) -> Result<Vec<(Start, Blob)>, StoreError> {
        let mut ready = Vec::with_capacity(starts.len());
        for mut start in starts {
            let job = start.call.job;
            let payload = match start.payload.take().or_else(|| self.payloads.get(job)) {
                Some(payload) => payload,
                None => self.store.payload(job)?.unwrap_or_default(),
            };
            ready.push((start, payload));
        }
        Ok(ready)
    }

    /// Asks the store, before it is written to, whether its file is still in place (B4).
    fn check(&mut self, now: Now) -> Result<(), StoreError> {
        if self.check_at <= now.time {
            self.store.check()?;
            self.check_at = now.time + CHECK_EVERY;
        }
        Ok(())
    }

    /// When finished work is forgotten next.
    pub fn forgets_at(&self) -> Time {
        self.forget_at
    }

    /// Forgets finished work in small steps when that is due: at least one, and more until the time is
    /// up.
    pub fn forget(
        &mut self,
        now: Now,
        mut time_is_up: impl FnMut() -> bool,
    ) -> Result<(), StoreError> {
        if now.time < self.forget_at {
            return Ok(());
        }
        self.check(now)?;
        loop {
            if self.store.prune(now.time - self.keep_finished, now.time)? == 0 {
                let (least, most) = FORGET_EVERY;
                self.forget_at = now.time + Span(self.keep_finished.0 / 8).clamp(least, most);
                return Ok(());
            }
            if time_is_up() {
                self.forget_at = now.time + FORGET_AGAIN;
                return Ok(());
            }
        }
    }
}

/// The lanes that gave an answer, themselves or through a lane to which they had moved the call (J7).
fn answered_lanes(report: &Report) -> BTreeSet<Arc<str>> {
    let mut answered = BTreeSet::new();
    // A call stands before the one that it moved to, so from the end that one is seen first.
    for call in report.calls.iter().rev() {
        let there = matches!(&call.outcome, Outcome::Moved { to } if answered.contains(to));
        if there || call.outcome.is_answer() {
            answered.insert(call.lane.clone());
        }
    }
    answered
}

/// Adds the answers of this turn, which are not in the store yet.
fn fill_in(answers: &mut [Option<CachedAnswer>], lookups: &[Lookup], writes: &[Write]) {
    let fresh = writes.iter().filter_map(|write| match write {
        Write::Answer(answer) => Some(((&*answer.lane, &*answer.key), answer)),
        _ => None,
    });
    let fresh: BTreeMap<_, _> = fresh.collect();
    if fresh.is_empty() {
        return;
    }
    for (answer, lookup) in answers.iter_mut().zip(lookups) {
        if let Some(newer) = fresh.get(&(&*lookup.lane, &*lookup.key)) {
            *answer = Some((*newer).clone());
        }
    }
}
