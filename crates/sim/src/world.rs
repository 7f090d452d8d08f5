//! The world: one virtual clock, one engine over one store, and everything that happens to them.
//!
//! It drives the real turn. The commit lies between a turn and its effects: until it is over,
//! nothing is started, answered or published, and a crash in between loses the effects and keeps
//! the writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use paceline::turn::{Done, Input, LaneAct, Machine, Reading, Reply};
use paceline_core::{
    Admission, AttemptId, Event, JobId, Mutant, Report, Setup, Span, Submission, SubmitError, Time,
};
use paceline_store::Memory;

use crate::agenda::{Act, Agenda, Next};
use crate::check::{Answered, Checker, TurnInput};
use crate::clock::Clock;
use crate::counts::Counts;
use crate::disk::{Disk, Fault, FaultyStore, TapHandle};
use crate::rng::Rng;
use crate::trace::{Keep, Trace};
use crate::upstream::{Behaviour, Response, StrictUpstream};
use crate::wire::Request;

/// Finished jobs are kept for longer than any world lasts, so that the checkers can read them.
const KEEP_FINISHED: Span = Span::days(3_000);
/// This many turns at one moment are an endless loop.
const MOST_TURNS_AT_ONCE: u32 = 2_000;

/// Whom to answer: submissions by their labels.
pub(crate) type Labels = Vec<u64>;

/// The timing of the workers and the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    /// No random delays: for scenarios.
    pub(crate) steady: bool,
    pub(crate) commit_time: Span,
    /// The percentage of requests with a stall between start and send.
    pub(crate) stalls: u64,
    /// The least number of events that the engine keeps.
    pub(crate) keeps_events: u64,
}

/// A world with one engine in it.
#[derive(Debug)]
pub struct World {
    pub(crate) clock: Clock,
    pub(crate) setup: Setup,
    pub(crate) rng: Rng,
    pub(crate) conditions: Conditions,
    pub(crate) trace: Trace,
    pub(crate) checker: Checker,
    pub(crate) counts: Counts,
    pub(crate) behaviours: BTreeMap<Arc<str>, Behaviour>,
    pub(crate) scripts: BTreeMap<(u64, Option<Arc<str>>), VecDeque<Response>>,
    pub(crate) latency: Span,
    pub(crate) strict: BTreeMap<Arc<str>, StrictUpstream>,
    /// The reports of a scenario.
    pub(crate) reports: BTreeMap<JobId, Arc<Report>>,
    /// The partial reports of callers whose deadline passed before the end.
    pub(crate) partials: Vec<Arc<Report>>,
    pub(crate) labels: BTreeMap<JobId, u64>,
    pub(crate) by_label: BTreeMap<u64, JobId>,
    pub(crate) next_label: u64,
    pub(crate) wire: BTreeMap<AttemptId, Request>,
    pub(crate) inbox: Vec<Input<Labels>>,

    pub(crate) tap: TapHandle,
    disk: Disk,
    machine: Option<Machine<FaultyStore>>,
    agenda: Agenda,
    /// A turn whose commit is still on its way.
    committing: Option<Done<Labels>>,
    wake_at: Option<Time>,
    /// If set, the machine reboots at the next reservation that is not synced, and is down this
    /// long.
    reboot_at_promise: Option<Span>,
    turns_at_once: u32,
    /// The engine takes turns without end: the world stops here.
    looping: bool,
    /// The engine was started at least once.
    pub(crate) begun: bool,
    /// The number of jobs that a scenario has submitted.
    pub(crate) submitted: u64,
}

impl World {
    pub(crate) fn with(setup: Setup, disk: Option<Disk>, seed: u64) -> World {
        World {
            clock: Clock::new(),
            checker: Checker::new(&setup),
            setup,
            rng: Rng::new(seed),
            conditions: Conditions::default(),
            trace: Trace::default(),
            counts: Counts::default(),
            behaviours: BTreeMap::new(),
            scripts: BTreeMap::new(),
            latency: Span::secs(1),
            strict: BTreeMap::new(),
            reports: BTreeMap::new(),
            partials: Vec::new(),
            labels: BTreeMap::new(),
            by_label: BTreeMap::new(),
            next_label: 1,
            wire: BTreeMap::new(),
            inbox: Vec::new(),
            disk: disk.unwrap_or_else(|| Disk::Memory(Memory::default())),
            tap: TapHandle::default(),
            machine: None,
            agenda: Agenda::default(),
            committing: None,
            wake_at: None,
            reboot_at_promise: None,
            turns_at_once: 0,
            looping: false,
            begun: false,
            submitted: 0,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.truth
    }

    pub(crate) fn at(&mut self, at: Time, next: Next) {
        self.agenda.plan(at.max(self.now()), next);
    }

    pub(crate) fn after(&mut self, span: Span, next: Next) {
        self.at(self.now() + span, next);
    }

    pub(crate) fn act_at(&mut self, at: Time, act: Act) {
        self.at(at, Next::Act(Box::new(act)));
    }

    /// Starts the engine on the present store.
    pub(crate) fn open(&mut self) {
        let store = self.tap.open(&self.disk);
        let clock = &self.clock;
        let mut engine_time = self.now();
        let opened = Machine::open(self.setup.clone(), store, KEEP_FINISHED, |last| {
            engine_time = clock.engine_time(last);
            Reading {
                now: paceline_core::Now { time: engine_time, ..clock.reading().now },
                ..clock.reading()
            }
        });
        let (machine, reading) = opened.expect("the simulated disk can be read");
        if engine_time != self.now() {
            let words = format!(
                "engine time continues {} us off the true time",
                engine_time.0.abs_diff(self.now().0)
            );
            self.checker.violation("W5", self.clock.truth, words);
        }
        self.machine = Some(machine.keeping_events(self.conditions.keeps_events));
        self.wake_at = Some(self.now());
        self.checker.opened(&self.setup, reading.now);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    /// Runs the world up to `end`.
    pub(crate) fn run_until(&mut self, end: Time) {
        while !self.looping {
            let next = self.agenda.first_at();
            if next.is_some_and(|at| at <= self.now()) {
                if let Some(next) = self.agenda.take() {
                    self.handle(next);
                }
                continue;
            }
            let idle = self.machine.is_some() && self.committing.is_none();
            if idle && (!self.inbox.is_empty() || self.wake_at.is_some_and(|at| at <= self.now())) {
                self.turn();
                continue;
            }
            let wake = self.wake_at.filter(|_| idle);
            let Some(to) = [next, wake].into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.clock.truth = to;
            self.turns_at_once = 0;
        }
        self.clock.truth = self.now().max(end);
    }

    fn handle(&mut self, next: Next) {
        match next {
            Next::Send(attempt) => self.send(attempt),
            Next::TellStart(attempt) => self.tell_start(attempt),
            Next::Answer(attempt) => self.answer_comes(attempt),
            Next::Settle(attempt) => self.settle(attempt),
            Next::Timeout(attempt) => self.time_out(attempt),
            Next::End(attempt) => self.end(attempt),
            Next::TellEnd(attempt) => self.inbox.push(Input::Ended(attempt)),
            Next::Effects => self.effects(),
            Next::Open => self.open(),
            Next::Act(act) => self.act(*act),
        }
    }

    fn act(&mut self, act: Act) {
        let to_the_engine = matches!(
            act,
            Act::Submit(_) | Act::RunService(_) | Act::Cancel(_) | Act::CancelSome | Act::Lane(..)
        );
        if !self.is_up() && matches!(act, Act::Lane(..)) {
            return;
        }
        if !self.is_up() && (to_the_engine || matches!(act, Act::Restart(_) | Act::Heal)) {
            // The process is down: the caller or operator tries again.
            return self.after_act(Span::millis(100), act);
        }
        self.counts.act(&act);
        match act {
            Act::Submit(jobs) => self.take_in(jobs),
            Act::RunService(name) => self.inbox.push(Input::RunService(name, Reply::none())),
            Act::Cancel(job) => self.inbox.push(Input::Cancel(job, Reply::none())),
            Act::CancelSome => {
                let roll = self.rng.next();
                if let Some(job) = self.checker.some_unfinished(roll) {
                    self.inbox.push(Input::Cancel(job, Reply::none()));
                }
            }
            Act::Lane(lane, act) => self.inbox.push(Input::Lane(lane, act, Reply::none())),
            Act::Stop(grace) => {
                if let Some(machine) = &mut self.machine {
                    machine.halt();
                    self.checker.halts();
                    self.trace.note(self.clock.truth, format_args!("stop"));
                    self.after_act(grace, Act::Crash(Span::millis(100)));
                }
            }
            Act::Crash(down) => self.crash(down),
            Act::Reboot(down) => {
                if !self.clock.stepped {
                    self.crash(down);
                    self.clock.reboot();
                    self.forget_promises();
                }
            }
            Act::RebootAtPromise(down) => self.reboot_at_promise = Some(down),
            Act::Restart(setup) => {
                self.crash(Span::millis(200));
                self.setup = *setup;
            }
            // No process sees a step now, and after a reboot the engine could not detect it.
            Act::StepWall(_) if !self.is_up() || self.clock.rebooted => {}
            Act::StepWall(by) => {
                self.trace.note(self.clock.truth, format_args!("wall clock steps by {by} us"));
                self.clock.step_wall(by);
            }
            Act::Behaviour(lane, behaviour) => {
                self.behaviours.insert(lane, behaviour);
            }
            Act::CommitTime(span) => self.conditions.commit_time = span,
            Act::FailCommit(fault) => self.tap.with(|tap| tap.fault = Some(fault)),
            Act::Heal => self.heal(),
        }
    }

    fn after_act(&mut self, span: Span, act: Act) {
        self.act_at(self.now() + span, act);
    }

    fn take_in(&mut self, jobs: Vec<Submission>) {
        let labels = (self.next_label..).take(jobs.len()).collect();
        self.next_label += jobs.len() as u64;
        self.inbox.push(Input::Submit(jobs, labels));
    }

    /// The process dies. Requests on the wire stay seen by their upstreams, memory is lost.
    pub(crate) fn crash(&mut self, down: Span) {
        self.trace.note(self.clock.truth, format_args!("crash"));
        self.counts.crashes += u64::from(self.machine.is_some());
        let was_up = self.machine.take().is_some();
        self.agenda.end_life();
        self.committing = None;
        self.inbox.clear();
        let (checker, now) = (&mut self.checker, self.clock.truth);
        self.wire.retain(|&attempt, request| {
            let goes_on = request.outlives(checker.goes_on(attempt));
            if !goes_on && request.sent_at.is_some() {
                checker.left_the_wire(attempt, now);
            }
            goes_on
        });
        self.wake_at = None;
        if was_up {
            self.after(down, Next::Open);
        }
    }

    /// Commits that were not synced may be lost. In a scenario all of them are.
    fn forget_promises(&mut self) {
        let (steady, rng) = (self.conditions.steady, &mut self.rng);
        let survive = |most| if steady { 0 } else { rng.range(0, most) };
        let gone = self.tap.with(|tap| tap.power_cut(survive));
        self.counts.forgotten += gone.len() as u64;
        self.checker.never_promised(&gone);
    }

    fn heal(&mut self) {
        self.conditions.commit_time = Span::ZERO;
        self.conditions.stalls = 0;
        self.reboot_at_promise = None;
        self.tap.with(|tap| tap.fault = None);
        for behaviour in self.behaviours.values_mut() {
            *behaviour = Behaviour::healthy();
        }
        let hanging: Vec<AttemptId> =
            self.wire.iter().filter(|(_, r)| r.sent_at.is_some()).map(|(id, _)| *id).collect();
        for attempt in hanging {
            self.after(Span::secs(1), Next::Answer(attempt));
        }
        // Rosters would schedule work for ever.
        self.setup.rosters.clear();
        self.checker.no_more_rosters();
        let services = self.setup.services.clone();
        self.inbox.push(Input::SetServices(services, Vec::new(), Reply::none()));
        for lane in self.checker.lane_names() {
            for act in [LaneAct::Resume, LaneAct::Reset] {
                self.inbox.push(Input::Lane(lane.clone(), act, Reply::none()));
            }
        }
    }

    fn turn(&mut self) {
        let reading = self.clock.reading();
        let inputs = std::mem::take(&mut self.inbox);
        if inputs.is_empty() {
            self.watch_for_loops();
        }
        let seen: Vec<TurnInput> = inputs.iter().filter_map(TurnInput::of).collect();
        let machine = self.machine.as_mut().expect("only a running engine takes turns");
        let done = machine.turn(inputs, reading).and_then(|mut done| {
            machine.forget(reading.now, || true)?;
            done.wake_at = done.wake_at.into_iter().chain([machine.forgets_at()]).min();
            Ok(done)
        });
        let (writes, failed, synced) = self.tap.with(|tap| {
            (std::mem::take(&mut tap.committed), tap.failed.take(), tap.unsynced.is_empty())
        });
        self.counts.turns += 1;
        if !synced && let Some(down) = self.reboot_at_promise.take() {
            let soon = Span(self.rng.range(0, 3_000));
            self.after_act(soon, Act::Reboot(down));
        }
        if !writes.is_empty() && synced {
            (self.clock.stepped, self.clock.rebooted) = (false, false);
        }
        if failed != Some(Fault::Lost) {
            let done = done.as_ref().ok();
            let answered = done.map(answered);
            let wake_at = done.and_then(|done| done.wake_at);
            self.checker.turn(reading.now, &seen, &writes, answered.as_ref(), wake_at);
        }
        let Ok(done) = done else {
            self.start_too_early();
            let down = Span(self.rng.range(1_000, 2_000_000));
            return self.crash(down);
        };
        self.wake_at = done.wake_at;
        let most = self.conditions.commit_time.0;
        self.committing = Some(done);
        if most == 0 || writes.is_empty() {
            self.effects();
        } else {
            let least = if self.conditions.steady { most } else { 0 };
            let takes = Span(self.rng.range(least, most));
            self.checker.busy_until(self.clock.truth + takes);
            self.after(takes, Next::Effects);
        }
    }

    /// The commit failed: sends the requests of workers that did not wait for it. Only a mutant has
    /// any.
    fn start_too_early(&mut self) {
        let lost = self.tap.with(|tap| std::mem::take(&mut tap.lost));
        if Mutant::ReservationNotAwaited.on() {
            for reservation in lost {
                let now = self.clock.truth;
                self.checker.arrives(reservation.attempt, now, now);
            }
        }
    }

    fn watch_for_loops(&mut self) {
        self.turns_at_once += 1;
        if self.turns_at_once == MOST_TURNS_AT_ONCE {
            self.looping = true;
            self.checker.violation(
                "W5",
                self.clock.truth,
                "the engine takes turns without end".into(),
            );
        }
    }

    /// The commit is over: its effects may happen now, and not before.
    fn effects(&mut self) {
        let done = self.committing.take().expect("effects follow a commit");
        for event in &done.events {
            self.counts.event(event);
            if let (Event::Finished(report), Keep::Lines) = (event, self.trace.keep) {
                self.reports.insert(report.job, report.clone());
            }
            self.trace.event(self.clock.truth, event);
        }
        for partial in &done.partials {
            self.trace.note(self.clock.truth, format_args!("partial #{}", partial.job));
            if self.trace.keep == Keep::Lines {
                self.partials.push(partial.clone());
            }
        }
        for (labels, admissions) in done.admissions {
            self.admitted(&labels, admissions);
        }
        for attempt in done.aborts {
            self.abort(attempt);
        }
        for (start, payload) in done.starts {
            self.checker.carries(start.call, &payload, self.clock.truth);
            self.dispatch(start);
        }
    }

    fn admitted(&mut self, labels: &[u64], admissions: Vec<Result<Admission, SubmitError>>) {
        for (&label, admission) in labels.iter().zip(admissions) {
            let at = self.clock.truth;
            match admission {
                Ok(admission) => {
                    self.checker.answered(&admission, at);
                    self.counts.admission(&admission);
                    if let Admission::Accepted(job) = admission {
                        self.labels.insert(job, label);
                    }
                    if let Some(job) = admission.job() {
                        self.by_label.insert(label, job);
                    }
                    self.trace.admission(at, label, &admission);
                }
                Err(error) => {
                    self.counts.rejected += 1;
                    self.trace.note(at, format_args!("submit {label}: {error}"));
                }
            }
        }
    }

    /// Returns `true` if the engine runs and has nothing left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.core().is_idle())
            && self.inbox.is_empty()
            && self.committing.is_none()
            && self.wire.is_empty()
    }

    pub(crate) fn machine(&self) -> Option<&Machine<FaultyStore>> {
        self.machine.as_ref()
    }

    /// Returns the store, at the end of the world.
    pub(crate) fn close(&mut self) -> Option<FaultyStore> {
        self.machine.take().map(Machine::into_store)
    }
}

/// What a turn told its callers.
fn answered(done: &Done<Labels>) -> Answered {
    let answers = done.admissions.iter().map(|(_, admissions)| admissions.clone());
    let partials = done.partials.iter().map(|partial| partial.job).collect();
    Answered { answers: answers.collect(), partials }
}
