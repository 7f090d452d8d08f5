//! Paceline runs work against services you do not own: at their pace, never past their limits,
//! and without losing any of it.
//!
//! ```
//! # use paceline::{Call, Job, Lane, Outcome, Paceline};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pace = Paceline::in_memory()
//!     .lane(Lane::new("crossref").every("1s").limit("1000/h").in_flight(2))
//!     .worker("lookup", |call: Call| async move { Outcome::done(call.payload::<String>()?) })
//!     .start()?;
//! let mut job = pace.submit(Job::new("lookup", "a title").on(["crossref"]).interactive()).await?;
//! while let Some(outcome) = job.next().await {
//!     println!("{outcome}");
//! }
//! # assert_eq!(job.report().await?.calls.len(), 1);
//! # Ok(()) }
//! ```

// What programs see.
mod blocking;
mod builder;
mod error;
mod following;
mod job;
mod lane;
mod outcome;
mod paceline;
mod service;
mod span;
mod worker;

// The loop.
mod alarm;
#[doc(hidden)]
pub mod answer;
mod clock;
mod driver;
mod once;
mod payloads;
mod run;
#[doc(hidden)]
pub mod turn;

pub use blocking::blocking;
pub use builder::{Builder, StartError};
pub use driver::Ended;
pub use error::StopError;
pub use following::{Following, NotSubmitted};
pub use job::Job;
pub use lane::{Group, Lane};
pub use outcome::{Failed, Outcome, Work};
pub use paceline::Paceline;
pub use paceline_core::{Admission, Event, Failure, JobId, Priority, Report, Settings, Span, Time};
pub use paceline_store::StoreError;
pub use span::IntoSpan;
pub use worker::{Call, Worker};

/// Jobs: how they are submitted, found, followed and cancelled.
pub mod jobs {
    pub use crate::answer::{Filter, JobView};
    pub use crate::error::{FollowError, RetryError};
    pub use crate::job::JobError;
    pub use crate::once::{Once, Remembered};
    pub use paceline_core::{
        AttemptId, Blob, CallId, Cancelled, DueAt, OnDuplicate, SubmitError, Summary,
    };
    pub use paceline_store::{Cursor, StoredJob};
}

/// Reports: what jobs and their calls came to.
pub mod report {
    pub use paceline_core::{
        Answer, CallReport, JobState, Outcome as CallOutcome, Skip, ValueError,
    };
}

/// Lanes: their limits, their state, and why calls wait for them.
pub mod lanes {
    pub use crate::error::{ChangeError, ControlError};
    pub use crate::lane::LaneError;
    pub use crate::span::IntoRate;
    pub use paceline_core::{
        AcrossLanes, GapFrom, GroupLimits, LaneStatus, Limits, Portion, Rate, Reason, UnknownLane,
        Why, Window,
    };
}

/// Workers beyond a closure: late starts, slots that are held, calls that a process left behind.
pub mod workers {
    pub use crate::blocking::Blocking;
    pub use crate::outcome::Late;
    pub use crate::run::DEFAULT_TIMEOUT;
    pub use crate::worker::Hold;
    pub use paceline_core::{Announced, OnCrash};
}

/// Events as they are kept, numbered, for subscribers that come back.
pub mod events {
    pub use paceline_core::{Happened, Numbered};
}

/// Services: work that comes again, and the rosters that run it.
pub mod services {
    pub use crate::error::{ResetServiceError, SetServicesError};
    pub use crate::service::{Roster, SHORTEST_CHECK, Service, ServiceError, own_lane};
    pub use jiff::tz::TimeZone;
    pub use paceline_core::{
        RosterStatus, SERVICE_KIND, ServiceResult, ServiceRun, ServiceStatus, UnknownService, When,
    };
}
