//! The descriptions of services and rosters.

use std::collections::BTreeSet;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use jiff::tz::TimeZone;
use paceline_core::{
    Blob, Cron, CronError, Limits, MOST_SERVICES, NameError, RosterTerms, ServiceTerms, Span,
    SpanError, When, check_name,
};
use serde::Serialize;

use crate::span::IntoSpan;

/// The shortest span between two checks of a roster.
pub const SHORTEST_CHECK: Span = Span::millis(100);
/// The lanes of services that name none.
pub(crate) const OWN_LANES: &str = "service:*";

/// The description of a service or roster is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{name}`: {problem}")]
pub struct ServiceError {
    what: &'static str,
    name: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Span(#[from] SpanError),
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("the payload cannot be written as JSON: {0}")]
    Payload(String),
    #[error("it is described twice")]
    Twice,
    #[error("`{0}` is zero: it would run without end")]
    Zero(&'static str),
    #[error("`check` is shorter than {SHORTEST_CHECK}")]
    ShortCheck,
    #[error("no service named `{0}`: describe it, or take it off the roster")]
    NoService(Arc<str>),
    #[error("it lists the service `{0}` twice")]
    ServiceTwice(Arc<str>),
    #[error("there are too many: at most {MOST_SERVICES}")]
    TooMany,
}

/// The description of work that comes again. The worker of the kind
/// [`SERVICE_KIND`](crate::services::SERVICE_KIND) runs it, and is given its payload.
#[derive(Clone, Debug)]
pub struct Service {
    terms: ServiceTerms,
    problem: Option<Problem>,
}

impl Service {
    /// A service that is due at every check of its roster, and has one attempt per run.
    pub fn new(name: &str, payload: &(impl Serialize + ?Sized)) -> Service {
        let name_problem = check_name("service", name).err().map(Problem::from);
        let (payload, problem) = match serde_json::to_vec(payload) {
            Ok(payload) => (Blob::from(payload), name_problem),
            Err(error) => (Blob::default(), Some(Problem::Payload(error.to_string()))),
        };
        let terms = ServiceTerms {
            name: name.into(),
            when: When::EveryCheck,
            lane: own_lane(name).into(),
            attempts: NonZeroU16::MIN,
            payload,
        };
        Service { terms, problem }
    }

    fn fail(mut self, problem: impl Into<Problem>) -> Service {
        self.problem = self.problem.or(Some(problem.into()));
        self
    }

    /// Makes it due this long after its last success.
    #[must_use]
    pub fn every(mut self, interval: impl IntoSpan) -> Service {
        match interval.into_span() {
            Ok(Span::ZERO) => self.fail(Problem::Zero("every")),
            Ok(interval) => {
                self.terms.when = When::Every(interval);
                self
            }
            Err(error) => self.fail(error),
        }
    }

    /// Makes it due at the moments that a cron expression names, in the time zone `zone`.
    #[must_use]
    pub fn cron(mut self, expression: &str, zone: TimeZone) -> Service {
        match Cron::new(expression, zone) {
            Ok(cron) => {
                self.terms.when = When::Cron(cron);
                self
            }
            Err(error) => self.fail(error),
        }
    }

    /// Sets the lane that paces it; by default one of its own, without limits.
    #[must_use]
    pub fn lane(mut self, name: &str) -> Service {
        self.terms.lane = name.into();
        self
    }

    /// Sets how often a run that fails is retried; 0 by default.
    #[must_use]
    pub fn retries(mut self, retries: u16) -> Service {
        self.terms.attempts = NonZeroU16::MIN.saturating_add(retries);
        self
    }
}

/// The description of a list of services that are run in turn.
#[derive(Clone, Debug)]
pub struct Roster {
    terms: RosterTerms,
    problem: Option<Problem>,
}

impl Roster {
    /// A roster that checks every minute which of its services are due.
    pub fn new<S: AsRef<str>>(name: &str, services: impl IntoIterator<Item = S>) -> Roster {
        let problem = check_name("roster", name).err().map(Problem::from);
        let services = services.into_iter().map(|service| service.as_ref().into()).collect();
        Roster { terms: RosterTerms { name: name.into(), check: Span::mins(1), services }, problem }
    }

    /// Sets how long it waits between two checks: how often it looks for due services, not how often
    /// they run.
    #[must_use]
    pub fn check(mut self, span: impl IntoSpan) -> Roster {
        match span.into_span() {
            Ok(span) => self.terms.check = span,
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }
}

/// The lane of a service that names none.
pub fn own_lane(service: &str) -> String {
    OWN_LANES.replace('*', service)
}

/// The limits of a lane that paces one service only. The failures of that service close nothing.
pub(crate) fn own_limits() -> Limits {
    Limits { fail_after: NonZeroU32::MAX, ..Limits::default() }
}

/// Checks that services and rosters fit together.
pub(crate) fn build(
    services: Vec<Service>,
    rosters: Vec<Roster>,
) -> Result<(Vec<ServiceTerms>, Vec<RosterTerms>), ServiceError> {
    let mut names = BTreeSet::new();
    for Service { terms, problem } in &services {
        let twice = (!names.insert(terms.name.clone())).then_some(Problem::Twice);
        let many = (names.len() > MOST_SERVICES).then_some(Problem::TooMany);
        if let Some(problem) = problem.clone().or(twice).or(many) {
            return Err(ServiceError { what: "service", name: terms.name.to_string(), problem });
        }
    }
    let mut seen = BTreeSet::new();
    for roster in &rosters {
        let twice = (!seen.insert(&roster.terms.name)).then_some(Problem::Twice);
        let many = (seen.len() > MOST_SERVICES).then_some(Problem::TooMany);
        let problem = roster.problem.clone().or(twice).or(many).or_else(|| list(roster, &names));
        if let Some(problem) = problem {
            let name = roster.terms.name.to_string();
            return Err(ServiceError { what: "roster", name, problem });
        }
    }
    let services = services.into_iter().map(|service| service.terms).collect();
    Ok((services, rosters.into_iter().map(|roster| roster.terms).collect()))
}

/// The first mistake in the list of a roster.
fn list(roster: &Roster, services: &BTreeSet<Arc<str>>) -> Option<Problem> {
    if roster.terms.check < SHORTEST_CHECK {
        return Some(Problem::ShortCheck);
    }
    let mut seen = BTreeSet::new();
    for service in &roster.terms.services {
        if !services.contains(service) {
            return Some(Problem::NoService(service.clone()));
        }
        if !seen.insert(service) {
            return Some(Problem::ServiceTwice(service.clone()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Service {
        Service::new(name, &())
    }

    #[track_caller]
    fn check(services: Vec<Service>, rosters: Vec<Roster>, expected: &str) {
        let error = build(services, rosters).expect_err("a mistake").to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        check(vec![service("")], vec![], "service ``: a service needs a name");
        check(vec![service("a"), service("a")], vec![], "service `a`: it is described twice");
        check(vec![service("a").every("0s")], vec![], "service `a`: `every` is zero");
        check(
            vec![service("a").cron("daily", TimeZone::UTC)],
            vec![],
            "service `a`: `daily` is not a cron expression",
        );
        check(vec![], vec![Roster::new("n", ["a"])], "roster `n`: no service named `a`");
        check(
            vec![service("a")],
            vec![Roster::new("n", ["a", "a"])],
            "roster `n`: it lists the service `a` twice",
        );
        check(
            vec![],
            vec![Roster::new("n", [""; 0]).check("1ms")],
            "roster `n`: `check` is shorter than 100ms",
        );
    }
}
