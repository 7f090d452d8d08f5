//! Runs of services and rosters, measured on the wire (S1 to S3).

use std::collections::BTreeMap;
use std::sync::Arc;

use paceline_core::{
    AttemptId, Blob, JobId, JobRecord, JobState, Now, Report, RosterTerms, SERVICE_KIND, Setup,
    Span, Time, When,
};

use super::Checker;

/// The most delay of a check, by a commit, a restart, or a step of the clock.
const LATE: Span = Span::secs(60);

/// The runs of services.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Unfinished jobs that run services; `true` for those that an operator started.
    jobs: BTreeMap<JobId, (Arc<str>, bool)>,
    /// The service of each job that ever ran one.
    names: BTreeMap<JobId, Arc<str>>,
    attempts: BTreeMap<AttemptId, JobId>,
    on_the_wire: BTreeMap<AttemptId, JobId>,
    succeeded: BTreeMap<Arc<str>, Now>,
    /// When the last run of each service ended, whatever its outcome.
    over: BTreeMap<Arc<str>, Time>,
    up_since: Time,
    /// Services that an operator started in this turn.
    pub(super) asked: Vec<Arc<str>>,
}

/// The interval of a service on this roster; `None` for cron.
fn interval(setup: &Setup, roster: &RosterTerms, service: &str) -> Option<Span> {
    let terms = setup.services.iter().find(|terms| *terms.name == *service)?;
    match terms.when {
        When::Every(interval) => Some(interval),
        When::EveryCheck => Some(roster.check),
        When::Cron(_) => None,
    }
}

fn lists(roster: &RosterTerms, service: &str) -> bool {
    roster.services.iter().any(|listed| **listed == *service)
}

impl Checker {
    pub(super) fn runs_reopened(&mut self, now: Time) {
        self.runs.up_since = now;
        self.runs.on_the_wire.clear();
    }

    pub(crate) fn no_more_rosters(&mut self) {
        self.setup.rosters.clear();
    }

    /// S1: no service runs before it is due, unless an operator starts it.
    pub(super) fn run_accepted(&mut self, record: &JobRecord, payload: &Blob) {
        if &*record.spec.kind != SERVICE_KIND {
            return;
        }
        let name: Arc<str> = String::from_utf8_lossy(payload).into();
        let asked = self.runs.asked.contains(&name);
        self.runs.names.insert(record.id, name.clone());
        self.runs.jobs.insert(record.id, (name.clone(), asked));
        let now = self.now;
        let Some(last) = self.runs.succeeded.get(&name).copied().filter(|_| !asked) else { return };
        let rosters = self.setup.rosters.iter().filter(|roster| lists(roster, &name));
        let due = |roster: &RosterTerms| {
            let interval = interval(&self.setup, roster, &name);
            interval.is_none_or(|interval| {
                now.time >= last.time + interval || now.wall >= last.wall + interval
            })
        };
        // A service that was due in the turn that removes the rosters still runs.
        let over = self.setup.rosters.is_empty();
        if !over && !rosters.into_iter().any(due) {
            self.broken("S1", format!("{name} runs again {} later", now.time.since(last.time)));
        }
    }

    pub(super) fn run_reserved(&mut self, attempt: AttemptId, job: JobId) {
        if self.runs.jobs.contains_key(&job) {
            self.runs.attempts.insert(attempt, job);
        } else {
            // The number of a reservation that a power cut lost is used again.
            self.runs.attempts.remove(&attempt);
        }
    }

    /// S3: no service runs twice at once. S2: the services of a roster run one after another.
    pub(super) fn run_arrives(&mut self, attempt: AttemptId, at: Time) {
        let Some(job) = self.runs.attempts.get(&attempt).copied() else { return };
        let name = self.runs.names[&job].clone();
        let asked = |runs: &Runs, job: &JobId| runs.jobs.get(job).is_none_or(|(_, asked)| *asked);
        let others = self.runs.on_the_wire.values();
        let others: Vec<(Arc<str>, bool)> =
            others.map(|job| (self.runs.names[job].clone(), asked(&self.runs, job))).collect();
        let asked = asked(&self.runs, &job);
        self.runs.on_the_wire.insert(attempt, job);
        for (other, other_asked) in others {
            if other == name {
                self.violation("S3", at, format!("{name} runs twice at once"));
            } else if !asked && !other_asked && self.only_together(&name, &other) {
                self.violation("S2", at, format!("{name} and {other} of one roster run at once"));
            }
        }
    }

    /// Returns `true` if two services are on one roster and on no other.
    fn only_together(&self, one: &str, other: &str) -> bool {
        let on = |service: &str| {
            let rosters = self.setup.rosters.iter().filter(|roster| lists(roster, service));
            rosters.map(|roster| roster.name.clone()).collect::<Vec<_>>()
        };
        let (one, other) = (on(one), on(other));
        one.len() == 1 && one == other
    }

    /// The service that an attempt runs, if any.
    pub(crate) fn service_of(&self, attempt: AttemptId) -> Option<Arc<str>> {
        let job = self.runs.attempts.get(&attempt)?;
        self.runs.names.get(job).cloned()
    }

    pub(super) fn run_left(&mut self, attempt: AttemptId) {
        self.runs.on_the_wire.remove(&attempt);
    }

    pub(super) fn run_finished(&mut self, report: &Report) {
        let Some((name, _)) = self.runs.jobs.remove(&report.job) else { return };
        self.runs.over.insert(name.clone(), self.now.time);
        if report.state == JobState::Done {
            self.runs.succeeded.insert(name, self.now);
        }
    }

    /// S3: the next check is always armed, so no service of an idle roster stays due for long.
    pub(super) fn check_rosters(&mut self) {
        let busy = |roster: &RosterTerms| {
            self.runs.jobs.values().any(|(service, _)| lists(roster, service))
        };
        let mut forgotten = None;
        for roster in self.setup.rosters.iter().filter(|roster| !busy(roster)) {
            let patience = roster.check + LATE;
            let over = roster.services.iter().filter_map(|service| self.runs.over.get(service));
            let idle_since = over.copied().max().unwrap_or_default().max(self.runs.up_since);
            if self.now.time.since(idle_since) <= patience {
                continue;
            }
            for service in &roster.services {
                let last = self.runs.succeeded.get(service).copied().unwrap_or_default();
                let interval = interval(&self.setup, roster, service).unwrap_or(Span::days(30));
                if self.now.time.since(last.time) > interval + patience {
                    forgotten = Some((roster.name.clone(), service.clone()));
                }
            }
        }
        if let Some((roster, service)) = forgotten {
            self.broken("S3", format!("{roster} does not run {service}, which is due"));
        }
    }
}
