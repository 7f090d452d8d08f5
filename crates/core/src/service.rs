//! Services: work that comes again, its durable memory, and when it is due (S1).

use std::num::NonZeroU16;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cron::Cron;
use crate::job::{Blob, JobId};
use crate::mutant::Mutant;
use crate::outcome::{JobState, Outcome, Report};
use crate::time::{Now, Span, Time};

/// The kind of the jobs that run services.
pub const SERVICE_KIND: &str = "service";
/// The most services, and the most rosters.
pub const MOST_SERVICES: usize = 10_000;
/// The longest reason of a failed run that is remembered, in bytes.
const LONGEST_WHY: usize = 500;
/// A success that is further ahead of the clock than this was dated by a wrong clock.
const WRONG_CLOCK: Span = Span::days(1);

/// When a service is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// This long after its last success.
    Every(Span),
    /// As long after its last success as its roster waits between two checks.
    EveryCheck,
    /// At these moments of the wall clock.
    Cron(Cron),
}

/// A service as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTerms {
    /// Its name.
    pub name: Arc<str>,
    /// When it is due.
    pub when: When,
    /// The lane that paces it.
    pub lane: Arc<str>,
    /// Attempts of one run.
    pub attempts: NonZeroU16,
    /// Bytes for its worker.
    pub payload: Blob,
}

/// A roster as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterTerms {
    /// Its name.
    pub name: Arc<str>,
    /// How long it waits between two checks.
    pub check: Span,
    /// The services that it runs, in this order.
    pub services: Vec<Arc<str>>,
}

/// The durable memory of a service. It is never deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// Its name.
    pub name: Arc<str>,
    /// When it was first configured.
    pub since: Now,
    /// When it last succeeded.
    pub succeeded_at: Option<Now>,
    /// Its last run that is over.
    pub last: Option<ServiceRun>,
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRun {
    /// The job that ran it.
    pub job: JobId,
    /// When it was over, by the wall clock.
    pub ended_at: Time,
    /// Its result.
    pub result: ServiceResult,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceResult {
    /// Done, failed, skipped or cancelled.
    pub state: JobState,
    /// The reason, if it is not done.
    pub why: Option<Arc<str>>,
}

/// The durable memory of a roster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterRecord {
    /// Its name.
    pub name: Arc<str>,
    /// When the cycle under way began, by the wall clock.
    pub begun_at: Option<Time>,
    /// When its last cycle was over.
    pub over_at: Option<Now>,
    /// The service that it runs now, and the job that does so.
    pub current: Option<(Arc<str>, JobId)>,
    /// The services that its cycle has not looked at yet.
    pub remaining: Vec<Arc<str>>,
    /// The results of this cycle so far, or of the last one.
    pub results: Vec<(Arc<str>, ServiceResult)>,
}

impl When {
    /// When a service with this memory is due next, by the wall clock. A moment that has passed
    /// means now. `check` is the interval of its roster's checks.
    pub fn due_at(&self, record: &ServiceRecord, check: Span, now: Now) -> Time {
        let interval = match self {
            When::Cron(cron) => {
                return cron.next_after(record.covered_until(now)).unwrap_or(Time::NEVER);
            }
            When::Every(interval) => *interval,
            When::EveryCheck => check,
        };
        let interval = if Mutant::OneInterval.on() { check } else { interval };
        match record.succeeded_at {
            None => Time::ZERO,
            // A clock stepped back must not put a service off, and one that stood still while the
            // machine slept must not either: whichever of the two clocks is first.
            Some(last) => (last.wall + interval).min(now.wall_time(last.time + interval)),
        }
    }
}

impl ServiceRecord {
    /// The moment, by the wall clock, up to which a cron expression asks for no run any more.
    fn covered_until(&self, now: Now) -> Time {
        let last = self.succeeded_at.unwrap_or(self.since);
        if last.wall > now.wall + WRONG_CLOCK { now.wall_time(last.time) } else { last.wall }
    }
}

impl ServiceResult {
    /// The result that the report of a run amounts to.
    pub(crate) fn of(report: &Report) -> ServiceResult {
        let last = report.calls.last().map(|call| &call.outcome);
        let why = match last {
            Some(Outcome::Failed(failure)) => {
                Some(failure.message.as_ref().unwrap_or(&failure.class).to_string())
            }
            Some(Outcome::Skipped(skip)) => Some(skip.reason().to_string()),
            _ => None,
        };
        ServiceResult::new(report.state, why.as_deref())
    }

    pub(crate) fn new(state: JobState, why: Option<&str>) -> ServiceResult {
        let cut = |why: &str| why[..why.floor_char_boundary(LONGEST_WHY)].into();
        ServiceResult { state, why: why.map(cut) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    const HOUR: Span = Span::hours(1);

    fn both(at: Time) -> Now {
        Now { time: at, wall: at }
    }

    fn hours(n: u64) -> Time {
        Time::ZERO + Span::hours(n)
    }

    fn succeeded(at: Now) -> ServiceRecord {
        ServiceRecord { succeeded_at: Some(at), ..ServiceRecord::default() }
    }

    #[track_caller]
    fn check(when: &When, record: &ServiceRecord, now: Now, expected: bool) {
        assert_eq!(when.due_at(record, HOUR, now) <= now.wall, expected, "{when:?} at {now:?}");
    }

    #[test]
    fn s1_a_service_is_due_when_it_never_ran_or_its_own_interval_has_passed() {
        let (hourly, daily) = (When::EveryCheck, When::Every(Span::days(1)));
        check(&daily, &ServiceRecord::default(), both(hours(100)), true);
        let record = succeeded(both(hours(100)));
        check(&hourly, &record, both(Time(hours(101).0 - 1)), false);
        check(&hourly, &record, both(hours(101)), true);
        check(&daily, &record, both(hours(101)), false);
        check(&daily, &record, both(hours(124)), true);
    }

    #[test]
    fn w5_a_wrong_clock_neither_freezes_a_service_nor_runs_it_at_once_again() {
        // It succeeded while the clock showed a year too much.
        let record = succeeded(Now { time: hours(100), wall: hours(9_000) });
        let set_right = |hour| Now { time: hours(hour), wall: hours(hour) };
        check(&When::EveryCheck, &record, set_right(100), false);
        check(&When::EveryCheck, &record, set_right(101), true);
        let daily = When::Cron(Cron::new("0 3 * * *", TimeZone::UTC).expect("a cron"));
        check(&daily, &record, set_right(101), false);
        check(&daily, &record, set_right(123), true);
    }

    #[test]
    fn w5_the_machine_slept_and_only_the_wall_clock_knows() {
        let record = succeeded(both(hours(100)));
        check(&When::EveryCheck, &record, Now { time: hours(100), wall: hours(172) }, true);
    }

    #[test]
    fn s1_cron_asks_for_moments_since_the_last_success_and_not_for_those_before_it_was_known() {
        let daily = When::Cron(Cron::new("0 3 * * *", TimeZone::UTC).expect("a cron"));
        let new = ServiceRecord { since: both(hours(28)), ..ServiceRecord::default() };
        check(&daily, &new, both(hours(50)), false);
        check(&daily, &new, both(hours(51)), true);
        check(&daily, &succeeded(both(hours(51) + Span::mins(5))), both(hours(52)), false);
        // A clock set back a little does not bring the moment again.
        let early = Now { time: hours(51) + Span::mins(6), wall: hours(51) - Span::mins(1) };
        let record = succeeded(both(hours(51) + Span::mins(5)));
        check(&daily, &record, early, false);
        check(&daily, &record, Now { time: hours(52), wall: hours(51) }, false);
    }
}
