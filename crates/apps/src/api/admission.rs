//! Admissions: how a submitted job was received.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use paceline::{Admission, NotSubmitted, Report};
use serde::Serialize;
use utoipa::ToSchema;

use super::moment::wall;
use super::problem::{Problem, not_submitted};

/// How a submitted job was received.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Admission)]
pub struct Admitted {
    /// The job's number; `null` if it was refused.
    pub job: Option<u64>,
    #[schema(value_type = AdmissionWord)]
    /// `accepted`, `joined`, `replaced` or `refused`.
    pub admission: &'static str,
    /// When to retry, if a later attempt may be accepted.
    pub retry_at: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// Its report, if the request waited for it and the job finished in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::JobDoc>)]
    pub report: Option<Arc<Report>>,
    /// The caller's own deadline, counted from the submission.
    #[serde(skip)]
    pub time_limit: Option<Duration>,
}

/// `accepted`: a new job. `joined`: an unfinished job is the same work. `replaced`: a waiting job
/// has the new payload. `refused`: no job was made or changed.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum AdmissionWord {
    /// A new job.
    Accepted,
    /// An unfinished job is the same work.
    Joined,
    /// A waiting job has the new payload.
    Replaced,
    /// No job was made or changed.
    Refused,
}

impl Admitted {
    /// The admission of one job, or the problem that says why it was refused.
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

    /// A job of a list that was refused.
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
