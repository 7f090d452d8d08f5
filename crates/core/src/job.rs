//! The jobs that callers submit, and the answers to a submission.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::callers::Callers;
use crate::due::{Due, DueAt};
use crate::name::NameError;
use crate::priority::Priority;
use crate::time::{Span, Time};

/// Bytes that the rules carry and never read.
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
    /// Its position among the job's calls.
    pub index: u16,
}

/// When a job has its answer and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// When every call of the stage has settled.
    #[default]
    All,
    /// At the first conclusive outcome.
    Conclusive,
}

/// The fate of a second job that has the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// Join the first: both callers get the same report.
    #[default]
    Join,
    /// Refuse the second.
    Refuse,
    /// Replace the payload and the due moment of the first, if no attempt was made for it yet;
    /// otherwise refuse the second.
    Replace,
}

/// How failed attempts are retried: after an exponential backoff with full jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: NonZeroU16,
    /// The longest wait before the second attempt; it doubles with each further one.
    pub backoff: Span,
    /// The longest wait before any attempt.
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
    /// Names the worker that runs its calls.
    pub kind: Arc<str>,
    /// The lanes it visits. The next stage starts only if this one did not settle the job.
    pub stages: Vec<Vec<Arc<str>>>,
    /// Calls, by number, that their worker said do not apply: they are skipped.
    pub not_applicable: Vec<u16>,
    /// Jobs of different tenants take turns within one priority of a lane.
    pub tenant: Option<Arc<str>>,
    /// Says which work this is: unique among unfinished jobs.
    pub key: Option<Blob>,
    /// Unique among jobs that are not yet due.
    pub schedule_key: Option<Blob>,
    /// The fate of this job if its key, or its schedule key, is taken.
    pub on_duplicate: OnDuplicate,
    /// Calls are skipped when their lane stays closed for longer than this.
    pub max_wait: Option<Span>,
    /// Calls are skipped when they have not started this long after joining the queue.
    pub start_within: Option<Span>,
    /// When the job has its answer.
    pub until: Until,
    /// How failures are retried.
    pub retry: Retry,
    /// The cost of one attempt in every window.
    pub cost: NonZeroU32,
    /// The key under which its answers are cached, lane by lane; `None` asks no cache.
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
    /// `None` means background without a default `max_wait`.
    pub priority: Option<Priority>,
    /// No call starts before this moment.
    pub due: Option<DueAt>,
    /// The callers that wait for its report, each with a deadline of its own.
    pub callers: Callers,
}

impl Default for Terms {
    /// At once, background, for one caller without a deadline.
    fn default() -> Terms {
        Terms { priority: None, due: None, callers: Callers::one(Time::NEVER) }
    }
}

/// A job as a caller submits it.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The part that never changes.
    pub spec: JobSpec,
    /// `None` means background without a default `max_wait`.
    pub priority: Option<Priority>,
    /// When it may start.
    pub due: Due,
    /// How long this caller waits for the report.
    pub deadline: Option<Span>,
    /// Refuse the job at once if its lanes would not let it start within `start_within`.
    pub in_time: bool,
    /// Bytes for the worker.
    pub payload: Blob,
}

impl Submission {
    /// At once, background, without a deadline.
    pub fn new(spec: JobSpec, payload: Blob) -> Submission {
        let (priority, due, deadline, in_time) = (None, Due::Now, None, false);
        Submission { spec, priority, due, deadline, in_time, payload }
    }
}

/// The answer to a submission. A caller plans for each of these; none is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// A new job.
    Accepted(JobId),
    /// The same work is under way: its report is this caller's report.
    Joined(JobId),
    /// The waiting job has the new payload and due moment.
    Replaced(JobId),
    /// The same work is under way, and the caller asked not to join it.
    Duplicate(JobId),
    /// There is no room for its calls.
    Refused {
        /// The lane that is full; `None` if the queue as a whole is.
        #[serde(default)]
        lane: Option<Arc<str>>,
        /// When room is likely, by the wall clock. `None` while the lane is paused, or while only
        /// running calls hold it.
        retry_at: Option<Time>,
    },
    /// It would start too late, and its caller asked to be told now.
    TooLate {
        /// How long it would wait; `None` for a lane that is paused.
        wait: Option<Span>,
        /// When it would be in time again, by the wall clock.
        retry_at: Option<Time>,
    },
}

impl Admission {
    /// The job whose report this caller gets, if there is one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Admission::Accepted(job) | Admission::Joined(job) | Admission::Replaced(job) => {
                Some(*job)
            }
            Admission::Duplicate(_) | Admission::Refused { .. } | Admission::TooLate { .. } => None,
        }
    }
}

/// One line: `accepted as job 17`.
impl std::fmt::Display for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Admission::Accepted(job) => write!(f, "accepted as job {job}"),
            Admission::Joined(job) => write!(f, "joined job {job}, which is the same work"),
            Admission::Replaced(job) => write!(f, "replaced the work of job {job}"),
            Admission::Duplicate(job) => write!(f, "refused: job {job} is the same work"),
            Admission::Refused { lane: Some(lane), .. } => {
                write!(f, "refused: no room on the lane `{lane}`")
            }
            Admission::Refused { lane: None, .. } => f.write_str("refused: the queue is full"),
            Admission::TooLate { wait: Some(wait), .. } => {
                write!(f, "refused: it would wait for {wait}")
            }
            Admission::TooLate { wait: None, .. } => f.write_str("refused: its lane is paused"),
        }
    }
}

/// A submission that can never be accepted as it is. The caller can only report it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A name that is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A kind without a worker.
    #[error("no worker for the kind `{0}`: register one before the start")]
    UnknownKind(Arc<str>),
    /// A lane that neither exists nor matches a template.
    #[error("no lane named `{0}`: configure it, or a template such as `host:*` that covers it")]
    UnknownLane(Arc<str>),
    /// The bound on lanes is reached, and no lane can be dropped.
    #[error("no room for the lane `{lane}`: {max} lanes exist and none is idle (`max_lanes`)")]
    TooManyLanes {
        /// The lane that would be one too many.
        lane: Arc<str>,
        /// The bound.
        max: u32,
    },
    /// More calls than a job may have.
    #[error("{0} calls are too many for one job: at most {MOST_CALLS}")]
    TooManyCalls(usize),
    /// The same lane twice in one stage.
    #[error("the lane `{0}` is named twice in one stage")]
    LaneTwice(Arc<str>),
    /// A job, or a stage of it, that visits no lane.
    #[error("a job needs at least one lane in each stage")]
    NoLanes,
    /// More calls in the first stage than may ever wait at this priority.
    #[error(
        "{calls} calls in one stage can never wait at once: there is room for {room} (`max_waiting`)"
    )]
    NeverRoom {
        /// Calls of the first stage.
        calls: u32,
        /// The room that calls of its priority may use.
        room: u32,
    },
    /// A payload over the bound.
    #[error("a payload of {size} bytes is too large: at most {max}")]
    PayloadTooLarge {
        /// Its size, in bytes.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// A key over the bound.
    #[error("a {what} of {size} bytes is too long: at most {LONGEST_KEY}")]
    KeyTooLong {
        /// The key: `key`, `schedule key` or `cache key`.
        what: &'static str,
        /// Its size, in bytes.
        size: usize,
    },
    /// A key without bytes.
    #[error("a {0} needs at least one byte: leave it out for none")]
    EmptyKey(&'static str),
    /// A cost that no window could ever admit.
    #[error("a cost of {cost} can never fit the limit `{limit}` of `{lane}`: it allows {allowed}")]
    CostTooHigh {
        /// The cost of one attempt.
        cost: u32,
        /// The limit.
        limit: crate::rate::Rate,
        /// The lane that has the limit, itself or through its group.
        lane: Arc<str>,
        /// The part of the limit that calls of this priority may use.
        allowed: u64,
    },
    /// A span beyond ten years.
    #[error("`{0}` is longer than ten years")]
    TooLong(&'static str),
    /// The engine has been asked to stop.
    #[error("the engine is stopping and takes no new work")]
    Stopping,
}
