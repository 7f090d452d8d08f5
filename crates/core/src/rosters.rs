//! Rosters and services by name: their configuration, their memory, and their next checks (S2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::job::{Blob, JobSpec, Submission};
use crate::service::{RosterRecord, RosterTerms, SERVICE_KIND, ServiceRecord, ServiceTerms, When};
use crate::time::{Now, Span, Time};

/// All services and rosters.
#[derive(Debug, Default)]
pub(crate) struct Rosters {
    pub(crate) services: BTreeMap<Arc<str>, Service>,
    pub(crate) lists: BTreeMap<Arc<str>, Roster>,
    /// Rosters by the moment of their next check, on either clock.
    by_time: BTreeSet<(Time, Arc<str>)>,
    by_wall: BTreeSet<(Time, Arc<str>)>,
    /// Rosters that have to be looked at in this turn.
    pub(crate) steps: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) terms: Option<ServiceTerms>,
    pub(crate) record: ServiceRecord,
    /// Whether the store has its record.
    pub(crate) stored: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// `None` for a roster that is configured no more: it rests as it was.
    pub(crate) terms: Option<RosterTerms>,
    pub(crate) record: RosterRecord,
    /// Its places in `by_time` and `by_wall`.
    pub(crate) armed: Option<Now>,
}

impl Rosters {
    /// Replaces the configuration. Runs and cycles that are under way go on, and services and
    /// rosters that are configured no more are remembered.
    pub(crate) fn configure(&mut self, services: &[ServiceTerms], rosters: &[RosterTerms]) {
        self.services.values_mut().for_each(|service| service.terms = None);
        for terms in services {
            let service = self.services.entry(terms.name.clone()).or_default();
            service.record.name = terms.name.clone();
            service.terms = Some(terms.clone());
        }
        self.lists.values_mut().for_each(|roster| roster.terms = None);
        for terms in rosters {
            let roster = self.lists.entry(terms.name.clone()).or_default();
            roster.record.name = terms.name.clone();
            roster.record.remaining.retain(|service| terms.services.contains(service));
            roster.terms = Some(terms.clone());
        }
        let names: Vec<Arc<str>> = self.lists.keys().cloned().collect();
        for name in &names {
            self.disarm(name);
        }
        self.steps.extend(names);
    }

    pub(crate) fn remember_service(&mut self, record: ServiceRecord) {
        let service = self.services.entry(record.name.clone()).or_default();
        (service.record, service.stored) = (record, true);
    }

    pub(crate) fn remember_roster(&mut self, record: RosterRecord) {
        let roster = self.lists.entry(record.name.clone()).or_default();
        let listed = |service: &Arc<str>| {
            roster.terms.as_ref().is_none_or(|terms| terms.services.contains(service))
        };
        let remaining = record.remaining.iter().filter(|service| listed(service)).cloned();
        roster.record = RosterRecord { remaining: remaining.collect(), ..record };
    }

    /// The next moment at which a roster has to be looked at, in engine time.
    pub(crate) fn wake_at(&self, now: Now) -> Option<Time> {
        if !self.steps.is_empty() {
            return Some(now.time);
        }
        let by_time = self.by_time.first().map(|(at, _)| *at);
        let by_wall = self.by_wall.first().map(|(at, _)| now.engine_time(*at));
        by_time.into_iter().chain(by_wall).min()
    }

    /// Returns `true` if a check waits for the wall clock, which may be stepped.
    pub(crate) fn wait(&self) -> bool {
        !self.by_wall.is_empty()
    }

    /// Returns `true` if a roster has to be looked at in this turn.
    pub(crate) fn can_step(&self) -> bool {
        !self.steps.is_empty()
    }

    pub(crate) fn disarm(&mut self, name: &Arc<str>) {
        if let Some(at) = self.lists.get_mut(name).and_then(|roster| roster.armed.take()) {
            self.by_time.remove(&(at.time, name.clone()));
            self.by_wall.remove(&(at.wall, name.clone()));
        }
    }

    /// Arms the next check: one interval after the last one, on the clock that comes first, or at
    /// the moment that a cron expression names.
    pub(crate) fn arm(&mut self, name: &Arc<str>, from: Now, now: Now) {
        self.disarm(name);
        let Some(at) = self.lists.get(name).and_then(|roster| self.next_check(roster, from, now))
        else {
            return;
        };
        self.by_time.insert((at.time, name.clone()));
        self.by_wall.insert((at.wall, name.clone()));
        self.lists.get_mut(name).expect("found above").armed = Some(at);
    }

    fn next_check(&self, roster: &Roster, from: Now, now: Now) -> Option<Now> {
        let terms = roster.terms.as_ref()?;
        let crons = terms.services.iter().filter_map(|service| {
            match &self.services.get(service)?.terms.as_ref()?.when {
                When::Cron(cron) => cron.next_after(now.wall),
                When::Every(_) | When::EveryCheck => None,
            }
        });
        let wall = crons.chain([from.wall + terms.check]).min().expect("there is a check");
        Some(Now { time: from.time + terms.check, wall })
    }

    /// The next check of a roster, by the wall clock; `None` while a cycle is under way. Where this
    /// process runs no rosters it is the check that would come.
    pub(crate) fn check_at(&self, roster: &Roster, now: Now) -> Option<Time> {
        if roster.record.begun_at.is_some() {
            return None;
        }
        let over_at = roster.record.over_at.unwrap_or_default();
        let at = roster.armed.or_else(|| self.next_check(roster, over_at, now))?;
        Some(at.wall.min(now.wall_time(at.time)).max(now.wall))
    }

    /// The next roster whose check has come on either clock.
    pub(crate) fn come(&self, now: Now) -> Option<Arc<str>> {
        let by_time = self.by_time.first().filter(|(at, _)| *at <= now.time);
        let by_wall = self.by_wall.first().filter(|(at, _)| *at <= now.wall);
        by_time.or(by_wall).map(|(_, name)| name.clone())
    }

    /// The moment at which a service is due for its roster; `None` if it is not configured.
    pub(crate) fn due_at(&self, service: &str, check: Span, now: Now) -> Option<Time> {
        let service = self.services.get(service)?;
        let when = &service.terms.as_ref()?.when;
        if service.stored {
            return Some(when.due_at(&service.record, check, now));
        }
        // A new service: moments of its cron expression before now do not count.
        Some(when.due_at(&ServiceRecord { since: now, ..ServiceRecord::default() }, check, now))
    }

    /// The services that a roster has to run now, those without a configuration included: each of
    /// them gets a result that says so.
    pub(crate) fn due(&self, roster: &str, now: Now) -> Vec<Arc<str>> {
        let Some(terms) = &self.lists[roster].terms else { return Vec::new() };
        let due = |service: &&Arc<str>| {
            self.due_at(service, terms.check, now).is_none_or(|due_at| due_at <= now.wall)
        };
        terms.services.iter().filter(due).cloned().collect()
    }

    pub(crate) fn check_of(&self, roster: &str) -> Span {
        self.lists[roster].terms.as_ref().map_or(Span::ZERO, |terms| terms.check)
    }

    /// Takes the next service off a cycle.
    pub(crate) fn next_of(&mut self, roster: &str) -> Option<Arc<str>> {
        let remaining = &mut self.lists.get_mut(roster)?.record.remaining;
        (!remaining.is_empty()).then(|| remaining.remove(0))
    }

    /// The job that runs a service.
    pub(crate) fn run_of(&self, service: &str) -> Option<Submission> {
        let terms = self.services.get(service)?.terms.as_ref()?;
        let mut spec = JobSpec::new(SERVICE_KIND, &[&terms.lane]);
        spec.key = Some(run_key(service));
        spec.retry.attempts = terms.attempts;
        Some(Submission::new(spec, terms.payload.clone()))
    }

    /// When each service will be run by a roster, by the wall clock.
    pub(crate) fn next_runs(&self, now: Now) -> BTreeMap<Arc<str>, Time> {
        let mut next: BTreeMap<Arc<str>, Time> = BTreeMap::new();
        for roster in self.lists.values() {
            let Some(terms) = &roster.terms else { continue };
            let check_at = self.check_at(roster, now);
            for service in &terms.services {
                let Some(due_at) = self.due_at(service, terms.check, now) else { continue };
                let at = match check_at {
                    None if roster.record.remaining.contains(service) => now.wall,
                    None => due_at.max(now.wall),
                    Some(check_at) => due_at.max(check_at),
                };
                next.entry(service.clone())
                    .and_modify(|first| *first = at.min(*first))
                    .or_insert(at);
            }
        }
        next
    }
}

/// No key of a caller begins like this, because it is no text: no caller's job is taken for a run.
pub(crate) const RUN_KEY: &[u8] = b"\xffservice:";

pub(crate) fn run_key(service: &str) -> Blob {
    [RUN_KEY, service.as_bytes()].concat().into()
}
