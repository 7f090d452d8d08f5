//! Scenarios: worlds without chance, whose trace is compared line by line.

use std::collections::VecDeque;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use paceline::turn::LaneAct;
use paceline_core::{
    Due, GroupLimits, JobId, JobSpec, KindTerms, Limits, OnCrash, OnDuplicate, Priority, Report,
    RosterStatus, RosterTerms, SERVICE_KIND, ServiceTerms, Settings, Setup, Span, Submission, Time,
    Until, When,
};

use crate::agenda::Act;
use crate::disk::Fault;
use crate::trace::Keep;
use crate::upstream::{Response, StrictUpstream};
use crate::vocabulary::span;
use crate::world::{Conditions, World};

/// Begins a job with the number by which the scenario refers to it.
pub fn job(label: u64) -> JobBuilder {
    let spec = JobSpec::new("fetch", &[]);
    JobBuilder { label, job: Submission::new(spec, label.to_string().into_bytes().into()) }
}

/// A job to submit.
#[derive(Clone, Debug)]
pub struct JobBuilder {
    label: u64,
    job: Submission,
}

impl JobBuilder {
    fn with(mut self, change: impl FnOnce(&mut Submission)) -> JobBuilder {
        change(&mut self.job);
        self
    }

    /// Adds a lane to the last stage.
    #[must_use]
    pub fn on(self, lane: &str) -> JobBuilder {
        self.with(|job| job.spec.stages.last_mut().expect("there is a stage").push(lane.into()))
    }

    /// Adds a stage with this lane.
    #[must_use]
    pub fn then(self, lane: &str) -> JobBuilder {
        self.with(|job| job.spec.stages.push(vec![lane.into()]))
    }

    /// Sets the priority.
    #[must_use]
    pub fn as_(self, priority: Priority) -> JobBuilder {
        self.with(|job| job.priority = Some(priority))
    }

    /// Sets the kind.
    #[must_use]
    pub fn kind(self, kind: &str) -> JobBuilder {
        self.with(|job| job.spec.kind = kind.into())
    }

    /// Sets the tenant.
    #[must_use]
    pub fn tenant(self, tenant: &str) -> JobBuilder {
        self.with(|job| job.spec.tenant = Some(tenant.into()))
    }

    /// Sets the key (D1).
    #[must_use]
    pub fn key(self, key: &str) -> JobBuilder {
        self.with(|job| job.spec.key = Some(key.as_bytes().into()))
    }

    /// Sets the schedule key (D2).
    #[must_use]
    pub fn schedule_key(self, key: &str) -> JobBuilder {
        self.with(|job| job.spec.schedule_key = Some(key.as_bytes().into()))
    }

    /// Sets the cache key (C1).
    #[must_use]
    pub fn cache_key(self, key: &str) -> JobBuilder {
        self.with(|job| job.spec.cache_key = Some(key.as_bytes().into()))
    }

    /// Sets what a second job with the same key does.
    #[must_use]
    pub fn on_duplicate(self, what: OnDuplicate) -> JobBuilder {
        self.with(|job| job.spec.on_duplicate = what)
    }

    /// Ends the job at its first conclusive outcome (J2).
    #[must_use]
    pub fn first_answer(self) -> JobBuilder {
        self.with(|job| job.spec.until = Until::Conclusive)
    }

    /// Makes the job due after this delay.
    #[must_use]
    pub fn due(self, after: &str) -> JobBuilder {
        self.with(|job| job.due = Due::In(span(after)))
    }

    /// Makes the job due at a date, this long after the start of the world.
    #[must_use]
    pub fn date(self, after: &str) -> JobBuilder {
        self.with(|job| job.due = Due::At(crate::clock::WORLD_START + span(after)))
    }

    /// Sets the deadline.
    #[must_use]
    pub fn deadline(self, within: &str) -> JobBuilder {
        self.with(|job| job.deadline = Some(span(within)))
    }

    /// Sets the longest wait for a closed lane (W1).
    #[must_use]
    pub fn max_wait(self, most: &str) -> JobBuilder {
        self.with(|job| job.spec.max_wait = Some(span(most)))
    }

    /// Sets the longest time until the start (W1).
    #[must_use]
    pub fn start_within(self, most: &str) -> JobBuilder {
        self.with(|job| job.spec.start_within = Some(span(most)))
    }

    /// Refuses the job at once if it could not start in that time.
    #[must_use]
    pub fn in_time(self) -> JobBuilder {
        self.with(|job| job.in_time = true)
    }

    /// Sets the number of attempts.
    #[must_use]
    pub fn attempts(self, attempts: u16) -> JobBuilder {
        let attempts = NonZeroU16::new(attempts).expect("above zero");
        self.with(|job| job.spec.retry.attempts = attempts)
    }

    /// Sets the cost.
    #[must_use]
    pub fn cost(self, cost: u32) -> JobBuilder {
        self.with(|job| job.spec.cost = NonZeroU32::new(cost).expect("above zero"))
    }

    /// Marks the calls with these numbers as not applicable (J6).
    #[must_use]
    pub fn not_applicable(self, calls: &[u16]) -> JobBuilder {
        self.with(|job| job.spec.not_applicable = calls.to_vec())
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl World {
    /// Creates a world without chance: one kind `fetch`, upstreams that respond after a second, and
    /// workers and a disk that take no time.
    pub fn new() -> World {
        let kinds = vec![KindTerms::new("fetch", OnCrash::Repeat)];
        let mut world = World::with(Setup { kinds, ..Setup::default() }, None, 1);
        world.conditions = Conditions { steady: true, ..Conditions::default() };
        world.trace.keep = Keep::Lines;
        world
    }

    /// Adds a lane, or a template if the name ends in `*`.
    #[must_use]
    pub fn lane(mut self, name: &str, limits: Limits) -> World {
        self.setup.lanes.push((name.into(), limits));
        self
    }

    /// Adds a group.
    #[must_use]
    pub fn group(mut self, name: &str, limits: GroupLimits) -> World {
        self.setup.groups.push((name.into(), limits));
        self
    }

    /// Adds a kind.
    #[must_use]
    pub fn kind(mut self, name: &str, on_crash: OnCrash) -> World {
        self.setup.kinds.push(KindTerms::new(name, on_crash));
        self
    }

    /// Makes calls of this kind occupy only the slot of their lane, and no worker.
    #[must_use]
    pub fn keeping_no_worker(mut self, name: &str) -> World {
        let kinds = self.setup.kinds.iter_mut().filter(|kind| *kind.name == *name);
        kinds.for_each(|kind| kind.keeps_worker = false);
        self
    }

    /// Adds a service, on a lane of its own.
    #[must_use]
    pub fn service(mut self, name: &str, when: When) -> World {
        if self.setup.services.is_empty() {
            self = self.kind(SERVICE_KIND, OnCrash::Repeat).lane("service:*", Limits::default());
        }
        self.setup.services.push(ServiceTerms {
            name: name.into(),
            when,
            lane: format!("service:{name}").into(),
            attempts: NonZeroU16::MIN,
            payload: name.as_bytes().into(),
        });
        self
    }

    /// Moves a service to this lane.
    #[must_use]
    pub fn service_on(mut self, service: &str, lane: &str) -> World {
        let terms = self.setup.services.iter_mut().find(|terms| *terms.name == *service);
        terms.expect("the service is there").lane = lane.into();
        self
    }

    /// Adds a roster.
    #[must_use]
    pub fn roster(mut self, name: &str, check: &str, services: &[&str]) -> World {
        let services = services.iter().map(|&service| service.into()).collect();
        let (name, check) = (name.into(), span(check));
        self.setup.rosters.push(RosterTerms { name, check, services });
        self
    }

    /// Changes the settings.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> World {
        change(&mut self.setup.settings);
        self
    }

    /// Sets the latency of all upstreams.
    #[must_use]
    pub fn latency(mut self, span: &str) -> World {
        self.latency = span.parse().expect("a span");
        self
    }

    /// Adds an upstream that enforces this rate, and throttles the rest without `Retry-After`.
    #[must_use]
    pub fn strict(mut self, lane: &str, rate: &str) -> World {
        let rate = rate.parse().expect("a rate");
        self.strict.insert(lane.into(), StrictUpstream { rate, accepted: VecDeque::new() });
        self
    }

    /// Sets the duration of each commit.
    #[must_use]
    pub fn commits_take(mut self, span: &str) -> World {
        self.conditions.commit_time = span.parse().expect("a span");
        self
    }

    fn up(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.open();
        }
    }

    /// A caller submits a job now. It is admitted when time goes on, together with all other
    /// inputs.
    pub fn submit(&mut self, job: JobBuilder) {
        self.up();
        self.submitted += 1;
        assert_eq!(job.label, self.submitted, "scenarios number their jobs in order");
        self.act_at(self.now(), Act::Submit(vec![job.job]));
    }

    /// A caller submits many jobs as one batch.
    pub fn submit_all(&mut self, submitted: Vec<JobBuilder>) {
        self.up();
        self.submitted += submitted.len() as u64;
        let jobs = submitted.into_iter().map(|job| job.job).collect();
        self.act_at(self.now(), Act::Submit(jobs));
        self.settle_now();
    }

    fn settle_now(&mut self) {
        self.run_until(self.now());
    }

    /// Sets the next response to this job, on any lane.
    pub fn answer(&mut self, label: u64, response: Response) {
        self.scripts.entry((label, None)).or_default().push_back(response);
    }

    /// Sets the next response to this job from the upstream of this lane.
    pub fn answer_on(&mut self, label: u64, lane: &str, response: Response) {
        self.scripts.entry((label, Some(lane.into()))).or_default().push_back(response);
    }

    /// Sets the result of the next run of a service.
    pub fn run_comes_to(&mut self, service: &str, response: Response) {
        self.answer_on(0, &format!("service:{service}"), response);
    }

    /// An operator runs a service by hand.
    pub fn run_service(&mut self, name: &str) {
        self.up();
        self.act_at(self.now(), Act::RunService(name.into()));
        self.settle_now();
    }

    /// The state of each roster: the service that runs, those that are left, and the results.
    pub fn rosters(&self) -> Vec<String> {
        let now = self.clock.reading().now;
        let statuses = self.machine().expect("the engine runs").core().roster_statuses(now);
        let told = |status: RosterStatus| {
            let record = status.record;
            let current = record.current.map_or("nothing".into(), |(service, _)| service);
            let left: Vec<&str> = record.remaining.iter().map(|service| &**service).collect();
            let results = record.results.iter().map(|(service, result)| {
                format!("{service} {}", format!("{:?}", result.state).to_lowercase())
            });
            let results: Vec<String> = results.collect();
            let (left, results) = (left.join(", "), results.join(", "));
            format!("{}: runs {current}, left [{left}], results [{results}]", record.name)
        };
        statuses.into_iter().map(told).collect()
    }

    /// A caller cancels a job.
    pub fn cancel(&mut self, label: u64) {
        self.settle_now();
        let job = self.by_label[&label];
        self.act_at(self.now(), Act::Cancel(job));
        self.settle_now();
    }

    /// An operator acts on a lane.
    pub fn tell_lane(&mut self, lane: &str, act: LaneAct) {
        self.up();
        self.act_at(self.now(), Act::Lane(lane.into(), act));
        self.settle_now();
    }

    /// The process shuts down with this grace, and restarts at once.
    pub fn stop_for(&mut self, grace: &str) {
        self.settle_now();
        self.act_at(self.now(), Act::Stop(span(grace)));
        self.settle_now();
    }

    /// The process dies and restarts this much later.
    pub fn crash_for(&mut self, down: &str) {
        self.settle_now();
        self.crash(span(down));
    }

    /// The machine loses power and restarts this much later. Commits that were not synced are lost.
    pub fn power_cut_for(&mut self, down: &str) {
        self.settle_now();
        self.act_at(self.now(), Act::Reboot(span(down)));
    }

    /// The number of commits that are not synced.
    pub fn unsynced(&self) -> usize {
        self.tap.with(|tap| tap.unsynced.len())
    }

    /// The next commit reports a failure although everything was written (B4).
    pub fn fail_commit(&mut self) {
        self.settle_now();
        self.act_at(self.now(), Act::FailCommit(Fault::Written));
    }

    /// The process dies and restarts with another configuration.
    pub fn restart_with(&mut self, change: impl FnOnce(&mut Setup)) {
        self.crash(Span::ZERO);
        change(&mut self.setup);
    }

    /// Steps the wall clock.
    pub fn step_wall(&mut self, by: &str) {
        let (back, by) = by.strip_prefix('-').map_or((false, by), |by| (true, by));
        let micros = span(by).0.cast_signed();
        self.act_at(self.now(), Act::StepWall(if back { -micros } else { micros }));
        self.settle_now();
    }

    /// Lets this much time pass and returns the trace so far. Panics if a rule was broken.
    pub fn run_for(&mut self, text: &str) -> String {
        self.up();
        self.run_until(self.now() + span(text));
        let broken = self.checker.violations.iter().map(ToString::to_string);
        let broken: Vec<String> = broken.collect();
        assert!(broken.is_empty(), "{}\n{}", broken.join("\n"), self.trace.lines());
        self.trace.lines().to_string()
    }

    /// Why the calls of a job wait (W3): lane, reason, until when, and how many calls are ahead.
    pub fn why(&self, label: u64) -> Vec<String> {
        let now = self.clock.reading().now;
        let core = self.machine().expect("the engine runs").core();
        let whys = core.why_job(self.by_label[&label], now).unwrap_or_default();
        let until = |at: Option<Time>| at.map_or("-".into(), crate::clock::seconds);
        whys.into_iter()
            .map(|(_, why)| {
                let also = why.also.iter().map(|reason| format!(", also {}", reason.name()));
                let (lane, reason, ahead) = (why.lane, why.reason.name(), why.ahead);
                let also: String = also.collect();
                format!("{lane}: {reason} until {}, {ahead} ahead{also}", until(why.until))
            })
            .collect()
    }

    /// Returns `true` if the engine has nothing left to do (B3).
    pub fn idle(&self) -> bool {
        self.is_idle()
    }

    /// The names of all lanes (L10).
    pub fn lane_list(&self) -> Vec<Arc<str>> {
        let core = self.machine().expect("the engine runs").core();
        let now = self.clock.reading().now;
        core.lane_statuses(now).into_iter().map(|lane| lane.name).collect()
    }

    /// The report of a finished job.
    pub fn report(&self, label: u64) -> Arc<Report> {
        self.reports[&self.by_label[&label]].clone()
    }

    /// The partial reports of callers whose deadline passed before the end, in order.
    pub fn partials(&self) -> &[Arc<Report>] {
        &self.partials
    }

    /// The id that the engine gave a job.
    pub fn job_id(&self, label: u64) -> JobId {
        self.by_label[&label]
    }
}
