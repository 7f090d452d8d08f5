//! Stories: worlds without chance, told line by line.

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
use crate::service::{Reaction, Strict};
use crate::trace::Keep;
use crate::vocabulary::span;
use crate::world::{Manners, World};

/// A job under the number by which the story calls it.
pub fn job(label: u64) -> Wish {
    let spec = JobSpec::new("fetch", &[]);
    Wish { label, job: Submission::new(spec, label.to_string().into_bytes().into()) }
}

/// A job on its way in.
#[derive(Clone, Debug)]
pub struct Wish {
    label: u64,
    job: Submission,
}

impl Wish {
    fn with(mut self, change: impl FnOnce(&mut Submission)) -> Wish {
        change(&mut self.job);
        self
    }

    /// One lane more in its last stage.
    #[must_use]
    pub fn on(self, lane: &str) -> Wish {
        self.with(|job| job.spec.stages.last_mut().expect("there is a stage").push(lane.into()))
    }

    /// A further stage with this lane.
    #[must_use]
    pub fn then(self, lane: &str) -> Wish {
        self.with(|job| job.spec.stages.push(vec![lane.into()]))
    }

    /// With this priority.
    #[must_use]
    pub fn as_(self, priority: Priority) -> Wish {
        self.with(|job| job.priority = Some(priority))
    }

    /// Of this kind.
    #[must_use]
    pub fn kind(self, kind: &str) -> Wish {
        self.with(|job| job.spec.kind = kind.into())
    }

    /// For this tenant.
    #[must_use]
    pub fn tenant(self, tenant: &str) -> Wish {
        self.with(|job| job.spec.tenant = Some(tenant.into()))
    }

    /// With this key (D1).
    #[must_use]
    pub fn key(self, key: &str) -> Wish {
        self.with(|job| job.spec.key = Some(key.as_bytes().into()))
    }

    /// With this schedule key (D2).
    #[must_use]
    pub fn schedule_key(self, key: &str) -> Wish {
        self.with(|job| job.spec.schedule_key = Some(key.as_bytes().into()))
    }

    /// With this cache key (C1).
    #[must_use]
    pub fn cache_key(self, key: &str) -> Wish {
        self.with(|job| job.spec.cache_key = Some(key.as_bytes().into()))
    }

    /// What a second job with the same key does.
    #[must_use]
    pub fn on_duplicate(self, what: OnDuplicate) -> Wish {
        self.with(|job| job.spec.on_duplicate = what)
    }

    /// Ends at the first conclusive answer (J2).
    #[must_use]
    pub fn first_answer(self) -> Wish {
        self.with(|job| job.spec.until = Until::Conclusive)
    }

    /// Due so much later.
    #[must_use]
    pub fn due(self, after: &str) -> Wish {
        self.with(|job| job.due = Due::In(span(after)))
    }

    /// Due at a date, so long after the world began.
    #[must_use]
    pub fn date(self, after: &str) -> Wish {
        self.with(|job| job.due = Due::At(crate::clock::DAWN + span(after)))
    }

    /// With so much time in all.
    #[must_use]
    pub fn deadline(self, within: &str) -> Wish {
        self.with(|job| job.deadline = Some(span(within)))
    }

    /// Waits so long for a closed lane (W1).
    #[must_use]
    pub fn max_wait(self, most: &str) -> Wish {
        self.with(|job| job.spec.max_wait = Some(span(most)))
    }

    /// Starts within so long, or not at all (W1).
    #[must_use]
    pub fn start_within(self, most: &str) -> Wish {
        self.with(|job| job.spec.start_within = Some(span(most)))
    }

    /// Refused at once if it would not start within that.
    #[must_use]
    pub fn in_time(self) -> Wish {
        self.with(|job| job.in_time = true)
    }

    /// With so many attempts in all.
    #[must_use]
    pub fn attempts(self, attempts: u16) -> Wish {
        let attempts = NonZeroU16::new(attempts).expect("above zero");
        self.with(|job| job.spec.retry.attempts = attempts)
    }

    /// At this cost.
    #[must_use]
    pub fn cost(self, cost: u32) -> Wish {
        self.with(|job| job.spec.cost = NonZeroU32::new(cost).expect("above zero"))
    }

    /// Its calls with these numbers do not apply (J6).
    #[must_use]
    pub fn not_applicable(self, calls: &[u16]) -> Wish {
        self.with(|job| job.spec.not_applicable = calls.to_vec())
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl World {
    /// A world without chance: one kind `fetch`, services that answer after a second, workers and
    /// a disk that take no time.
    pub fn new() -> World {
        let kinds = vec![KindTerms::new("fetch", OnCrash::Repeat)];
        let mut world = World::with(Setup { kinds, ..Setup::default() }, None, 1);
        world.manners = Manners { steady: true, ..Manners::default() };
        world.trace.keep = Keep::Lines;
        world
    }

    /// With this lane, or template if the name ends in `*`.
    #[must_use]
    pub fn lane(mut self, name: &str, limits: Limits) -> World {
        self.setup.lanes.push((name.into(), limits));
        self
    }

    /// With this group.
    #[must_use]
    pub fn group(mut self, name: &str, limits: GroupLimits) -> World {
        self.setup.groups.push((name.into(), limits));
        self
    }

    /// With this kind of work too.
    #[must_use]
    pub fn kind(mut self, name: &str, on_crash: OnCrash) -> World {
        self.setup.kinds.push(KindTerms::new(name, on_crash));
        self
    }

    /// Calls of this kind keep only the slot of their lane, and no worker.
    #[must_use]
    pub fn keeping_no_worker(mut self, name: &str) -> World {
        let kinds = self.setup.kinds.iter_mut().filter(|kind| *kind.name == *name);
        kinds.for_each(|kind| kind.keeps_worker = false);
        self
    }

    /// With this service, which has a lane of its own.
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

    /// Lets this lane pace a service.
    #[must_use]
    pub fn service_on(mut self, service: &str, lane: &str) -> World {
        let terms = self.setup.services.iter_mut().find(|terms| *terms.name == *service);
        terms.expect("the service is there").lane = lane.into();
        self
    }

    /// With this roster.
    #[must_use]
    pub fn roster(mut self, name: &str, check: &str, services: &[&str]) -> World {
        let services = services.iter().map(|&service| service.into()).collect();
        let (name, check) = (name.into(), span(check));
        self.setup.rosters.push(RosterTerms { name, check, services });
        self
    }

    /// With other settings.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> World {
        change(&mut self.setup.settings);
        self
    }

    /// With services that take so long.
    #[must_use]
    pub fn latency(mut self, span: &str) -> World {
        self.latency = span.parse().expect("a span");
        self
    }

    /// With an upstream that takes no more than this, and throttles the rest without a date.
    #[must_use]
    pub fn strict(mut self, lane: &str, rate: &str) -> World {
        let rate = rate.parse().expect("a rate");
        self.strict.insert(lane.into(), Strict { rate, taken: VecDeque::new() });
        self
    }

    /// With commits that take so long.
    #[must_use]
    pub fn commits_take(mut self, span: &str) -> World {
        self.manners.commit_time = span.parse().expect("a span");
        self
    }

    fn up(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.open();
        }
    }

    /// Somebody submits a job, now: it is taken in when time goes on, with all that came with it.
    pub fn submit(&mut self, wish: Wish) {
        self.up();
        self.wishes += 1;
        assert_eq!(wish.label, self.wishes, "stories number their jobs in order");
        self.act_at(self.now(), Act::Submit(vec![wish.job]));
    }

    /// Somebody submits many jobs in one go.
    pub fn submit_all(&mut self, wishes: Vec<Wish>) {
        self.up();
        self.wishes += wishes.len() as u64;
        let jobs = wishes.into_iter().map(|wish| wish.job).collect();
        self.act_at(self.now(), Act::Submit(jobs));
        self.settle_now();
    }

    fn settle_now(&mut self) {
        self.run_until(self.now());
    }

    /// The service's next answer to this job, on whatever lane.
    pub fn answer(&mut self, label: u64, reaction: Reaction) {
        self.scripts.entry((label, None)).or_default().push_back(reaction);
    }

    /// This service's next answer to this job.
    pub fn answer_on(&mut self, label: u64, lane: &str, reaction: Reaction) {
        self.scripts.entry((label, Some(lane.into()))).or_default().push_back(reaction);
    }

    /// What a service comes to, the next time it runs.
    pub fn run_comes_to(&mut self, service: &str, reaction: Reaction) {
        self.answer_on(0, &format!("service:{service}"), reaction);
    }

    /// Somebody runs a service by hand.
    pub fn run_service(&mut self, name: &str) {
        self.up();
        self.act_at(self.now(), Act::RunService(name.into()));
        self.settle_now();
    }

    /// Where rosters stand: what runs, what is left, what came of the rest.
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

    /// Somebody cancels a job.
    pub fn cancel(&mut self, label: u64) {
        self.settle_now();
        let job = self.by_label[&label];
        self.act_at(self.now(), Act::Cancel(job));
        self.settle_now();
    }

    /// Somebody does something to a lane.
    pub fn tell_lane(&mut self, lane: &str, act: LaneAct) {
        self.up();
        self.act_at(self.now(), Act::Lane(lane.into(), act));
        self.settle_now();
    }

    /// The process is stopped, has so long to finish what runs, and comes back at once.
    pub fn stop_for(&mut self, grace: &str) {
        self.settle_now();
        self.act_at(self.now(), Act::Stop(span(grace)));
        self.settle_now();
    }

    /// The process dies and comes back so much later.
    pub fn crash_for(&mut self, down: &str) {
        self.settle_now();
        self.crash(span(down));
    }

    /// The whole machine stops and comes back so much later; what was not synced is gone.
    pub fn power_cut_for(&mut self, down: &str) {
        self.settle_now();
        self.act_at(self.now(), Act::Reboot(span(down)));
    }

    /// Commits that a power cut would take away.
    pub fn unsynced(&self) -> usize {
        self.tap.with(|tap| tap.unsynced.len())
    }

    /// The next commit fails, though everything was written: nobody knows (B4).
    pub fn fail_commit(&mut self) {
        self.settle_now();
        self.act_at(self.now(), Act::FailCommit(Fault::Written));
    }

    /// The process dies and comes back with another configuration.
    pub fn restart_with(&mut self, change: impl FnOnce(&mut Setup)) {
        self.crash(Span::ZERO);
        change(&mut self.setup);
    }

    /// The wall clock is stepped.
    pub fn step_wall(&mut self, by: &str) {
        let (back, by) = by.strip_prefix('-').map_or((false, by), |by| (true, by));
        let micros = span(by).0.cast_signed();
        self.act_at(self.now(), Act::StepWall(if back { -micros } else { micros }));
        self.settle_now();
    }

    /// Lets so much time pass and tells everything that happened so far. No rule may be broken.
    pub fn run_for(&mut self, text: &str) -> String {
        self.up();
        self.run_until(self.now() + span(text));
        let broken = self.book.violations.iter().map(ToString::to_string);
        let broken: Vec<String> = broken.collect();
        assert!(broken.is_empty(), "{}\n{}", broken.join("\n"), self.trace.lines());
        self.trace.lines().to_string()
    }

    /// Why a job's calls wait, in the words of W3: lane, reason, until when, how many ahead.
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

    /// Whether nothing is left to do (B3).
    pub fn idle(&self) -> bool {
        self.is_idle()
    }

    /// Lanes that exist, by name (L10).
    pub fn lane_list(&self) -> Vec<Arc<str>> {
        let core = self.machine().expect("the engine runs").core();
        let now = self.clock.reading().now;
        core.lane_statuses(now).into_iter().map(|lane| lane.name).collect()
    }

    /// The report of a finished job.
    pub fn report(&self, label: u64) -> Arc<Report> {
        self.reports[&self.by_label[&label]].clone()
    }

    /// What callers got whose deadline passed before the end, in order.
    pub fn partials(&self) -> &[Arc<Report>] {
        &self.partials
    }

    /// The number that the engine gave a job.
    pub fn job_id(&self, label: u64) -> JobId {
        self.by_label[&label]
    }
}
