//! Runs work against upstreams you do not own (APIs, hosts, trackers): at their pace, never past
//! their limits, and without losing any of it.
//!
//! A program describes *lanes* (an upstream and its limits) and *workers* (the code that makes one
//! request), and submits *jobs*. The engine decides when each request may go, makes it durable
//! before it starts, retries it, and reports.
//!
//! ```
//! use paceline::{Call, Job, Lane, Outcome, Paceline};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pace = Paceline::in_memory()
//!     .lane(Lane::new("crossref").every("1s").limit("1000/h").in_flight(2))
//!     .worker("lookup", |call: Call| async move {
//!         let title: String = call.payload()?;
//!         // Here goes the one request; an error with `?` is retried.
//!         Outcome::done(title.len())
//!     })
//!     .start()?;
//! let job = pace.submit(Job::new("lookup", "opticks").on(["crossref"])).await?;
//! let report = job.report().await?;
//! assert_eq!(report.value::<usize>("crossref")?, 7);
//! # Ok(()) }
//! ```
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | upstream | the outside thing that is called: an API, a host, a tracker |
//! | lane | one upstream and its limits: a gap, calls per window, calls in flight |
//! | job | what a caller submits and awaits; it visits one or more lanes |
//! | stage | lanes of a job that are asked together; the next stage starts only if this one gave no conclusive answer |
//! | call | the visit of one job to one lane; it may take several attempts |
//! | attempt | one request on the wire, charged to the lane |
//! | kind | the name that says which worker runs a call |
//! | worker | the code that makes one attempt: from a [`Call`] to an [`Outcome`] |
//! | outcome | what a call came to: done, empty, skipped, failed, cancelled, moved or duplicate |
//! | report | what a job came to, with one outcome per call |
//! | key | says that two jobs are the same work |
//! | service | work that comes again; a roster runs services in turn ([`services`]) |
//!
//! # Lanes
//!
//! Limits hold for the requests of all jobs together, where the upstream sees them, and through a
//! restart. A name that ends in `*` is a template: it makes a lane for every name that fits.
//!
//! ```
//! # use paceline::{Call, Group, Job, Lane, Outcome, Paceline};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pace = Paceline::in_memory()
//!     // A request per second, a thousand in any hour, two under way at once.
//!     .lane(Lane::new("crossref").every("1s").limit("1000/h").in_flight(2))
//!     // One lane per host, and never more than ten requests per second over all of them.
//!     .lane(Lane::new("host:*").every("100ms").group("hosts"))
//!     .group(Group::new("hosts").limit("10/s"))
//!     .worker("get", |call: Call| async move { Outcome::done(call.lane()) })
//!     .start()?;
//! let job = pace.submit(Job::new("get", "/").on(["host:example.org"])).await?;
//! println!("{}", job.report().await?);
//! # Ok(()) }
//! ```
//!
//! # Fan-out with stages
//!
//! The lanes of one stage are asked together. With [`Job::first_conclusive`] the first conclusive
//! answer ends the job: other calls are skipped, or aborted.
//!
//! ```
//! # use paceline::{Call, Job, Lane, Outcome, Paceline};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pace = Paceline::in_memory()
//!     .lane(Lane::new("shelf"))
//!     .lane(Lane::new("crossref").every("1s"))
//!     .lane(Lane::new("openalex").limit("10/s"))
//!     .worker("find", |call: Call| async move {
//!         match call.lane() {
//!             "crossref" => Outcome::done("10.1000/182"),
//!             _ => Outcome::empty(),
//!         }
//!     })
//!     .start()?;
//! let job = Job::new("find", "doi handbook")
//!     .on(["shelf"])
//!     .on(["crossref", "openalex"])
//!     .first_conclusive();
//! let report = pace.submit(job).await?.report().await?;
//! assert_eq!(report.value::<String>("crossref")?, "10.1000/182");
//! # Ok(()) }
//! ```
//!
//! # Keys
//!
//! Of jobs with the same key only one is unfinished at a time. A second one joins it by default, and
//! gets the same report; see [`Job::on_duplicate`](Job::on_duplicate) for the other choices.
//!
//! ```
//! # use paceline::{Admission, Call, Job, Lane, Outcome, Paceline};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pace = Paceline::in_memory()
//! #     .lane(Lane::new("crossref"))
//! #     .worker("lookup", |_: Call| async {
//! #         tokio::time::sleep(std::time::Duration::from_millis(50)).await;
//! #         Outcome::done("found")
//! #     })
//! #     .start()?;
//! let lookup = || Job::new("lookup", "opticks").on(["crossref"]).key("opticks");
//! let first = pace.submit(lookup()).await?;
//! let second = pace.submit(lookup()).await?;
//! assert_eq!(second.admission(), Admission::Joined(first.id()));
//! assert_eq!(first.report().await?, second.report().await?);
//! # Ok(()) }
//! ```
//!
//! # Crash and resume
//!
//! With [`Paceline::open`] a job is in the file when `submit` returns. After a crash, a kill or a stop
//! the next start goes on with what is unfinished, and repeats no finished call.
//!
//! ```
//! # use paceline::{Builder, Call, Job, Lane, Outcome, Paceline};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("work.db");
//! fn engine(path: &std::path::Path) -> Builder {
//!     let worker = |call: Call| async move { Outcome::done(call.payload::<String>()?) };
//!     Paceline::open(path).lane(Lane::new("crossref").every("1s")).worker("lookup", worker)
//! }
//!
//! let pace = engine(&path).start()?;
//! pace.pause("crossref").await?;
//! let id = pace.submit(Job::new("lookup", "opticks").on(["crossref"])).await?.id();
//! pace.stop("0s").await?;
//!
//! let pace = engine(&path).start()?;
//! pace.resume("crossref").await?;
//! let job = pace.follow(id).await?.expect("it is in the file");
//! assert_eq!(job.report().await?.value::<String>("crossref")?, "opticks");
//! # Ok(()) }
//! ```
//!
//! # Cache
//!
//! Answers of jobs with a cache key are kept, lane by lane: found ones for 7 days, empty ones for a
//! day, failures never. A call that finds its answer there makes no request.
//!
//! ```
//! # use paceline::{Call, Job, Lane, Outcome, Paceline};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pace = Paceline::in_memory()
//! #     .lane(Lane::new("crossref").limit("1/h"))
//! #     .worker("lookup", |_: Call| async { Outcome::done("10.1000/182") })
//! #     .start()?;
//! for cached in [false, true] {
//!     let job = Job::new("lookup", "opticks").on(["crossref"]).cache_key("opticks");
//!     let report = pace.submit(job).await?.report().await?;
//!     assert_eq!(report.calls[0].cached, cached);
//! }
//! # Ok(()) }
//! ```
//!
//! # More
//!
//! The [`guide`] goes through payloads, errors, state, blocking work, deadlines and stopping.
//! `examples/` has programs to run: `hello`, `fan_out`, `crash_and_resume`, `state`, `stream`.
//!
//! The engine runs on a thread of its own; workers run on the tokio runtime in which
//! [`Builder::start`] was called. Every attempt runs in a [`tracing`] span named `attempt`, with the
//! fields `job`, `lane`, `kind` and `attempt`.

// Only where documentation is made: a build from the crates alone needs no `docs`.
#[cfg(any(doc, doctest))]
#[doc = include_str!("../library.md")]
pub mod guide {}

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
mod clock;
mod driver;
mod once;
mod payloads;
mod run;
#[doc(hidden)]
pub mod turn;
mod view;

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
    pub use crate::error::{FollowError, RetryError};
    pub use crate::job::JobError;
    pub use crate::once::{Once, Remembered};
    pub use crate::view::{Filter, JobView};
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
