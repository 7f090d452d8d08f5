//! What a caller submits.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::callers::Callers;
use crate::due::{Due, DueAt};
use crate::name::NameError;
use crate::priority::Priority;
use crate::time::{Span, Time};

/// Bytes that the rules carry but never look into.
pub type Blob = Arc<[u8]>;

/// Calls that one job may have, in all its stages together.
pub const MOST_CALLS: usize = 1_000;
/// The longest key, in bytes.
pub const LONGEST_KEY: usize = 1_024;

/// The number of a job, never used twice in one store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// The number of an attempt, never used twice in one store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct AttemptId(pub u64);

/// The number of a lane in its store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LaneId(pub u64);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One call of one job: calls are numbered in the order of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// Its job.
    pub job: JobId,
    /// Its place among the job's calls.
    pub index: u16,
}

/// When a job has its answer (J2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// When every call of the stage has settled.
    #[default]
    All,
    /// At the first conclusive outcome.
    Conclusive,
}

/// What becomes of a second job with the same key (D1, D2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// It joins the first and gets the same report.
    #[default]
    Join,
    /// It is refused.
    Refuse,
    /// Its payload and due moment replace those of the first, if that still waits.
    Replace,
}

/// How a failed attempt is tried again (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: NonZeroU16,
    /// The bound of the first wait; each further one is twice as long.
    pub backoff: Span,
    /// The bound of any wait.
    pub backoff_max: Span,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            attempts: NonZeroU16::new(3).expect("above zero"),
            backoff: Span::secs(1),
            backoff_max: Span::mins(5),
        }
    }
}

/// The part of a job that never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Which worker runs its calls.
    pub kind: Arc<str>,
    /// The lanes it visits, stage by stage (J3).
    pub stages: Vec<Vec<Arc<str>>>,
    /// Calls, by number, that do not apply (J6).
    pub not_applicable: Vec<u16>,
    /// Who takes turns with whom (P4).
    pub tenant: Option<Arc<str>>,
    /// Unique among unfinished jobs (D1).
    pub key: Option<Blob>,
    /// Unique among jobs not yet due (D2).
    pub schedule_key: Option<Blob>,
    /// What a duplicate does.
    pub on_duplicate: OnDuplicate,
    /// Skipped when the lane stays closed for longer (W1).
    pub max_wait: Option<Span>,
    /// Skipped when not started so long after joining the queue (W1).
    pub start_within: Option<Span>,
    /// When it has its answer.
    pub until: Until,
    /// How failures are tried again.
    pub retry: Retry,
    /// What one attempt costs in every window (L3).
    pub cost: NonZeroU32,
    /// Under which key its answers are cached, lane by lane (C1).
    pub cache_key: Option<Blob>,
}

impl JobSpec {
    /// A job of `kind` with one stage of `lanes`.
    pub fn new(kind: &str, lanes: &[&str]) -> JobSpec {
        JobSpec {
            kind: kind.into(),
            stages: vec![lanes.iter().map(|&lane| lane.into()).collect()],
            not_applicable: Vec::new(),
            tenant: None,
            key: None,
            schedule_key: None,
            on_duplicate: OnDuplicate::Join,
            max_wait: None,
            start_within: None,
            until: Until::All,
            retry: Retry::default(),
            cost: NonZeroU32::MIN,
            cache_key: None,
        }
    }
}

/// The part of a job that a second caller, or a replacement, may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// `None`: background, and no default `max_wait`.
    pub priority: Option<Priority>,
    /// Nothing starts before this moment.
    pub due: Option<DueAt>,
    /// Who waits for its report, and until when (D1, W2).
    pub callers: Callers,
}

impl Default for Terms {
    /// At once, background, for one caller without a deadline.
    fn default() -> Terms {
        Terms { priority: None, due: None, callers: Callers::one(Time::NEVER) }
    }
}

/// A job on its way in.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What never changes.
    pub spec: JobSpec,
    /// Named by the caller, or background.
    pub priority: Option<Priority>,
    /// When it may start.
    pub due: Due,
    /// How long it may take in all.
    pub deadline: Option<Span>,
    /// Refused at once if its lanes would not let it start within `start_within`.
    pub in_time: bool,
    /// For the worker.
    pub payload: Blob,
}

impl Submission {
    /// At once, background, without a deadline.
    pub fn new(spec: JobSpec, payload: Blob) -> Submission {
        let (priority, due, deadline, in_time) = (None, Due::Now, None, false);
        Submission { spec, priority, due, deadline, in_time, payload }
    }
}

/// The answer to a submission: none of these is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// A new job.
    Accepted(JobId),
    /// The same work is under way: its report is the report.
    Joined(JobId),
    /// The waiting job has the new payload and due moment.
    Replaced(JobId),
    /// The same work is under way, and the caller wanted no such thing.
    Duplicate(JobId),
    /// No room (Q1): try again then.
    Refused {
        /// The lane that has none; without it the whole queue has none.
        #[serde(default)]
        lane: Option<Arc<str>>,
        /// When room is likely, by the wall clock; unknown for a lane that is paused, or that only
        /// running calls hold.
        retry_at: Option<Time>,
    },
    /// It would start too late, and its caller wanted to know now.
    TooLate {
        /// How long it would wait; nobody knows for a lane that is paused.
        wait: Option<Span>,
        /// When it would be in time again, by the wall clock.
        retry_at: Option<Time>,
    },
}

impl Admission {
    /// The job that will report, if there is one for this caller.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Admission::Accepted(job) | Admission::Joined(job) | Admission::Replaced(job) => {
                Some(*job)
            }
            Admission::Duplicate(_) | Admission::Refused { .. } | Admission::TooLate { .. } => None,
        }
    }
}

/// A submission that can never be accepted as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A bad name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A kind without a worker.
    #[error("no worker for the kind `{0}`: register one before the start")]
    UnknownKind(Arc<str>),
    /// A lane that neither exists nor matches a template.
    #[error("no lane named `{0}`: configure it, or a template such as `host:*` that covers it")]
    UnknownLane(Arc<str>),
    /// One lane too many for the bound on lanes.
    #[error("no room for the lane `{lane}`: {max} lanes exist and none is idle (`max_lanes`)")]
    TooManyLanes {
        /// The one that did not fit.
        lane: Arc<str>,
        /// The bound.
        max: u32,
    },
    /// More calls than a job may have.
    #[error("{0} calls are too many for one job: at most {MOST_CALLS}")]
    TooManyCalls(usize),
    /// The same lane twice in one stage.
    #[error("the lane `{0}` stands twice in one stage")]
    LaneTwice(Arc<str>),
    /// A job, or a stage of it, that visits no lane.
    #[error("a job needs a lane in each of its stages")]
    NoLanes,
    /// More calls in the first stage than may ever wait at this priority.
    #[error(
        "{calls} calls in one stage can never wait at once: there is room for {room} (`max_waiting`)"
    )]
    NeverRoom {
        /// Calls of the first stage.
        calls: u32,
        /// What the queue leaves for its priority.
        room: u32,
    },
    /// A payload over the bound.
    #[error("a payload of {size} bytes is too large: at most {max}")]
    PayloadTooLarge {
        /// Its size.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// A key over the bound.
    #[error("a {what} of {size} bytes is too long: at most {LONGEST_KEY}")]
    KeyTooLong {
        /// Which key.
        what: &'static str,
        /// Its size.
        size: usize,
    },
    /// A key without bytes.
    #[error("a {0} needs at least one byte: leave it out for none")]
    EmptyKey(&'static str),
    /// A cost that no window could ever admit.
    #[error("a cost of {cost} can never fit the limit `{limit}` of `{lane}`: it allows {allowed}")]
    CostTooHigh {
        /// What it costs.
        cost: u32,
        /// The limit.
        limit: crate::rate::Rate,
        /// The lane or group.
        lane: Arc<str>,
        /// What the limit leaves for this priority.
        allowed: u64,
    },
    /// A span beyond ten years.
    #[error("`{0}` is longer than ten years")]
    TooLong(&'static str),
    /// The engine is on its way out (B3).
    #[error("the engine is stopping and takes no new work")]
    Stopping,
}
