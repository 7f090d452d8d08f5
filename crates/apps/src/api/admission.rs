//! What became of a submitted job, as the API shows it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use paceline::{Admission, NotSubmitted, Report};
use serde::Serialize;
use utoipa::ToSchema;

use super::moment::wall;
use super::problem::{Problem, not_submitted};

/// What became of a submitted job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Admission)]
pub struct Admitted {
    /// Its number; nothing if it was refused.
    pub job: Option<u64>,
    #[schema(value_type = AdmissionWord)]
    /// `accepted`, `joined`, `replaced` or `refused`.
    pub admission: &'static str,
    /// When to try again, if that may help.
    pub retry_at: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Its report, if that was waited for and came.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::JobDoc>)]
    pub report: Option<Arc<Report>>,
    /// How long its own caller wanted to wait at most.
    #[serde(skip)]
    pub time_limit: Option<Duration>,
}

/// `accepted`: a new job. `joined`: the same work is under way. `replaced`: the waiting job has the
/// new payload. `refused`: nothing was done.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum AdmissionWord {
    /// A new job.
    Accepted,
    /// The same work is under way.
    Joined,
    /// A waiting job has the new payload.
    Replaced,
    /// Nothing was done.
    Refused,
}

impl Admitted {
    /// The admission of one job, or the problem that a lone job is refused with.
    pub fn of(told: Result<Admission, NotSubmitted>, now: SystemTime) -> Result<Admitted, Problem> {
        let (job, admission) = match told {
            Ok(Admission::Accepted(job)) => (job, "accepted"),
            Ok(Admission::Joined(job)) => (job, "joined"),
            Ok(Admission::Replaced(job)) => (job, "replaced"),
            Ok(Admission::Duplicate(job)) => {
                return Err(not_submitted(&NotSubmitted::Duplicate(job), now));
            }
            Ok(Admission::Refused { lane, retry_at }) => {
                let retry_at = retry_at.map(wall);
                return Err(not_submitted(&NotSubmitted::Full { lane, retry_at }, now));
            }
            Ok(Admission::TooLate { wait, retry_at }) => {
                let retry_at = retry_at.map(wall);
                return Err(not_submitted(&NotSubmitted::TooLate { wait, retry_at }, now));
            }
            Err(error) => return Err(not_submitted(&error, now)),
        };
        Ok(Admitted {
            job: Some(job.0),
            admission,
            retry_at: None,
            problem: None,
            report: None,
            time_limit: None,
        })
    }

    /// One that was refused, among others that were not.
    pub fn refused(problem: Problem) -> Admitted {
        let retry_at = problem.retry_at().map(str::to_string);
        Admitted {
            job: None,
            admission: "refused",
            retry_at,
            problem: Some(problem),
            report: None,
            time_limit: None,
        }
    }
}
