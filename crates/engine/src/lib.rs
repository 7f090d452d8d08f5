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
mod builder;
mod following;
mod job;
mod lane;
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

pub use answer::{Filter, JobView};
pub use builder::{Builder, StartError};
pub use driver::Ended;
pub use following::{Following, NotSubmitted};
pub use job::{Job, JobError};
pub use lane::{Group, Lane, LaneError};
pub use once::{Once, Remembered};
pub use paceline::{ChangeError, Paceline};
pub use run::DEFAULT_TIMEOUT;
pub use service::{Roster, SHORTEST_CHECK, Service, ServiceError, own_lane};
pub use span::{IntoRate, IntoSpan};
pub use turn::RetryError;
pub use worker::{Call, Failed, Hold, Late, Outcome, Work, Worker};

pub use jiff::tz::TimeZone;
pub use paceline_core::{
    AcrossLanes, Admission, Announced, Answer, AttemptId, Blob, CallId, CallReport, Cancelled,
    DueAt, Event, Failure, GapFrom, GroupLimits, Happened, JobId, JobState, LaneStatus, Limits,
    Numbered, OnCrash, OnDuplicate, Outcome as CallOutcome, Portion, Priority, Rate, Reason,
    Report, RosterStatus, SERVICE_KIND, ServiceResult, ServiceRun, ServiceStatus, Settings, Skip,
    Span, SubmitError, Summary, Time, UnknownLane, UnknownService, When, Why, Window,
};
pub use paceline_store::{Cursor, StoreError, StoredJob};
