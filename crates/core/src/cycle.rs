//! Cycles: a roster's due services, run one after another (S2, S3).
//!
//! A run is a job whose key is the service's, so no service runs twice at once, whichever rosters
//! and operators ask for it (D1). The result of a run, the memory of it and the next step of the
//! cycle are written in one turn: there is no moment at which a crash could repeat a finished run.

use std::sync::Arc;

use crate::call::State;
use crate::callers::Callers;
use crate::core::{Core, Job};
use crate::job::{Admission, JobId, Submission, SubmitError};
use crate::mutant::Mutant;
use crate::outcome::{JobState, Report};
use crate::plan::Plan;
use crate::priority::Priority;
use crate::record::Write;
use crate::rosters::{RUN_KEY, Roster, Service, run_key};
use crate::service::{
    RosterRecord, RosterTerms, ServiceRecord, ServiceResult, ServiceRun, ServiceTerms,
};
use crate::submit::Origin;
use crate::time::{Now, Time};

/// There is no service of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no service named `{0}`")]
pub struct UnknownService(pub Arc<str>);

/// A service that could not be run on request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// There is no such service.
    #[error(transparent)]
    Unknown(#[from] UnknownService),
    /// Its job can never be accepted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// The present state of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Its durable memory.
    pub record: ServiceRecord,
    /// Its configuration; `None` if it is configured no more.
    pub terms: Option<ServiceTerms>,
    /// The job that runs it now.
    pub running: Option<JobId>,
    /// When a roster will run it, by the wall clock; `None` if no roster does.
    pub next_at: Option<Time>,
}

/// The present state of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterStatus {
    /// Its durable memory.
    pub record: RosterRecord,
    /// Its configuration.
    pub terms: RosterTerms,
    /// Its next check, by the wall clock; `None` while a cycle is under way.
    pub check_at: Option<Time>,
}

impl Core {
    /// Replaces the configured services and rosters. Runs and cycles that are under way go on.
    pub fn configure_services(&mut self, services: &[ServiceTerms], rosters: &[RosterTerms]) {
        self.rosters.configure(services, rosters);
    }

    /// Takes cycles on, and looks at the rosters whose check has come (S2, S3).
    pub(crate) fn turn_rosters(&mut self, now: Now, plan: &mut Plan) {
        if self.halted {
            return;
        }
        if self.rosters.can_step() {
            self.introduce(now, plan);
        }
        while let Some(name) = self.rosters.steps.pop() {
            self.resume_roster(&name, now, plan);
        }
        while let Some(name) = self.rosters.come(now) {
            self.check_roster(&name, now, plan);
        }
    }

    /// Writes services that are new. The moment from which on their cron expressions count has to
    /// survive.
    fn introduce(&mut self, now: Now, plan: &mut Plan) {
        for service in self.rosters.services.values_mut() {
            if !service.stored && service.terms.is_some() {
                (service.record.since, service.stored) = (now, true);
                plan.writes.push(Write::Service(service.record.clone()));
            }
        }
    }

    /// Goes on with a cycle that is under way, else arms the next check.
    fn resume_roster(&mut self, name: &Arc<str>, now: Now, plan: &mut Plan) {
        let Some(roster) = self.rosters.lists.get(name).filter(|it| it.terms.is_some()) else {
            return;
        };
        let over_at = roster.record.over_at.unwrap_or_default();
        match roster.record.current.clone() {
            Some((service, job)) => self.resume_run(name, &service, job, now, plan),
            None if roster.record.begun_at.is_some() => self.advance(name, now, plan),
            None => self.rosters.arm(name, over_at, now),
        }
    }

    /// Waits for a run that goes on. A run that cannot go on must not hold up its roster.
    fn resume_run(
        &mut self,
        roster: &Arc<str>,
        service: &Arc<str>,
        id: JobId,
        now: Now,
        plan: &mut Plan,
    ) {
        match self.job_ids.get(&id) {
            Some(&job) if self.lives(job) => {}
            // This process cannot run it: it ends for all its callers, and the roster is looked at
            // again.
            Some(&job) => {
                self.unwatch_deadline(job);
                self.jobs[job].callers = Callers::one(Time::NEVER);
                self.cancel(id, now, plan);
            }
            None => {
                self.note(roster, service, ServiceResult::new(JobState::Cancelled, None));
                self.advance(roster, now, plan);
            }
        }
    }

    /// Returns `true` if an unfinished job can be run here.
    fn lives(&self, job: u32) -> bool {
        self.jobs[job].calls.iter().any(|&call| self.calls[call].state != State::Parked)
    }

    /// Returns `true` if a job runs a service.
    pub(crate) fn is_run(&self, job: &Job) -> bool {
        self.service_kind == Some(job.kind)
    }

    /// Makes a check: it begins a cycle over the services that are due, or arms the next check (S2,
    /// S3).
    fn check_roster(&mut self, name: &Arc<str>, now: Now, plan: &mut Plan) {
        self.rosters.disarm(name);
        let due = self.rosters.due(name, now);
        if due.is_empty() {
            if !Mutant::CheckLost.on() {
                self.rosters.arm(name, now, now);
            }
            return;
        }
        let roster = self.rosters.lists.get_mut(name).expect("it was armed");
        let record = &mut roster.record;
        (record.begun_at, record.remaining) = (Some(now.wall), due);
        record.results.clear();
        self.advance(name, now, plan);
    }

    /// Begins the next service of the cycle that is still due, or ends the cycle.
    fn advance(&mut self, name: &Arc<str>, now: Now, plan: &mut Plan) {
        let mut current = None;
        while current.is_none()
            && let Some(service) = self.rosters.next_of(name)
        {
            match self.begin_run(name, &service, now, plan) {
                RunStart::Runs(job) => current = Some((service, job)),
                RunStart::Over(result) => self.note(name, &service, result),
                RunStart::NotDue => {}
            }
        }
        let record = &mut self.rosters.lists.get_mut(name).expect("it is under way").record;
        let over = current.is_none();
        record.current = current;
        if over {
            (record.begun_at, record.over_at) = (None, Some(now));
        }
        plan.writes.push(Write::Roster(record.clone()));
        if over {
            self.rosters.arm(name, now, now);
        }
    }

    fn begin_run(&mut self, roster: &str, service: &str, now: Now, plan: &mut Plan) -> RunStart {
        let failed = |why: &str| RunStart::Over(ServiceResult::new(JobState::Failed, Some(why)));
        let check = self.rosters.check_of(roster);
        match self.rosters.due_at(service, check, now) {
            None => return failed("no service has this name: configure it"),
            Some(due_at) if due_at > now.wall && !Mutant::CycleRepeats.on() => {
                return RunStart::NotDue;
            }
            Some(_) => {}
        }
        let mut job = self.rosters.run_of(service).expect("it is configured");
        // A lane that stays closed, or paused, must not hold up the roster.
        (job.spec.max_wait, job.spec.start_within) = (Some(check), Some(check));
        if Mutant::ServiceTwice.on() {
            job.spec.key = None;
        }
        match self.submit_as(Origin::Service, job, now, plan) {
            Ok(Admission::Accepted(job) | Admission::Joined(job)) => self.begun(service, job),
            Ok(other) => unreachable!("due work enters, but not as {other:?}"),
            Err(error) => failed(&error.to_string()),
        }
    }

    /// The result of beginning a run. It may be over already, because its lane stays closed for too
    /// long.
    fn begun(&self, service: &str, job: JobId) -> RunStart {
        let last = self.rosters.services[service].record.last.as_ref();
        match last.filter(|last| last.job == job) {
            Some(last) => RunStart::Over(last.result.clone()),
            None => RunStart::Runs(job),
        }
    }

    fn note(&mut self, roster: &str, service: &Arc<str>, result: ServiceResult) {
        let roster = self.rosters.lists.get_mut(roster).expect("it is under way");
        roster.record.current = None;
        roster.record.results.push((service.clone(), result));
    }

    /// Takes in the end of a run: a success is remembered, and every cycle that waited for it goes
    /// on.
    pub(crate) fn run_over(&mut self, key: &[u8], report: &Report, now: Now, plan: &mut Plan) {
        let name = key.strip_prefix(RUN_KEY).and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name else { return };
        let result = ServiceResult::of(report);
        let Some(service) = self.rosters.services.get_mut(name) else { return };
        if report.state == JobState::Done || Mutant::TimedOnFailure.on() {
            service.record.succeeded_at = Some(now);
        }
        let run = ServiceRun { job: report.job, ended_at: now.wall, result: result.clone() };
        (service.record.last, service.stored) = (Some(run), true);
        plan.writes.push(Write::Service(service.record.clone()));
        let name = service.record.name.clone();
        let waits = |roster: &&Roster| {
            roster.record.current.as_ref().is_some_and(|(_, job)| *job == report.job)
        };
        let waiting = self.rosters.lists.values().filter(waits);
        let waiting: Vec<Arc<str>> = waiting.map(|roster| roster.record.name.clone()).collect();
        for roster in waiting {
            self.note(&roster, &name, result.clone());
            // Written now, with the report. The cycle may be taken on by another process.
            plan.writes.push(Write::Roster(self.rosters.lists[&roster].record.clone()));
            self.rosters.steps.push(roster);
        }
    }

    /// Runs a service now, due or not. A run that is under way is joined.
    pub fn run_service(
        &mut self,
        name: &str,
        now: Now,
        plan: &mut Plan,
    ) -> Result<Admission, RunError> {
        let job = self.rosters.run_of(name).ok_or_else(|| UnknownService(name.into()))?;
        let job = Submission { priority: Some(Priority::Interactive), ..job };
        Ok(self.submit(job, now, plan)?)
    }

    /// Marks a service as never run. It is due at the next check.
    pub fn reset_service(&mut self, name: &str, plan: &mut Plan) -> Result<(), UnknownService> {
        let service = self.rosters.services.get_mut(name);
        let service = service.ok_or_else(|| UnknownService(name.into()))?;
        (service.record.succeeded_at, service.record.since) = (None, Now::default());
        service.stored = true;
        plan.writes.push(Write::Service(service.record.clone()));
        Ok(())
    }

    /// The present state of all services, by name.
    pub fn service_statuses(&self, now: Now) -> Vec<ServiceStatus> {
        let next = self.rosters.next_runs(now);
        let status = |service: &Service| ServiceStatus {
            record: service.record.clone(),
            terms: service.terms.clone(),
            running: self.run_under_way(&service.record.name),
            next_at: next.get(&service.record.name).copied(),
        };
        self.rosters.services.values().map(status).collect()
    }

    fn run_under_way(&self, service: &str) -> Option<JobId> {
        let key = run_key(service);
        let found = self.keys.find(0, &key, |job| self.jobs[job].key.as_ref() == Some(&key));
        found.map(|job| self.jobs[job].id)
    }

    /// The present state of all configured rosters, by name.
    pub fn roster_statuses(&self, now: Now) -> Vec<RosterStatus> {
        let status = |roster: &Roster| {
            let terms = roster.terms.clone()?;
            let check_at = self.rosters.check_at(roster, now);
            Some(RosterStatus { record: roster.record.clone(), terms, check_at })
        };
        self.rosters.lists.values().filter_map(status).collect()
    }
}

/// The result of an attempt to begin a run.
enum RunStart {
    Runs(JobId),
    Over(ServiceResult),
    NotDue,
}
