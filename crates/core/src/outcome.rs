//! The results of attempts, calls and jobs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::{Blob, JobId};
use crate::priority::Priority;
use crate::rate::Rate;
use crate::time::{Span, Time};

/// The result of a call. Each call gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The upstream answered with a value.
    Done {
        /// Whether the value settles the job's question.
        conclusive: bool,
        /// JSON text.
        #[serde(with = "blob")]
        value: Blob,
    },
    /// The upstream answered that there is nothing.
    Empty,
    /// The call was not made, or its answer was no longer wanted.
    Skipped(Skip),
    /// All attempts failed.
    Failed(Failure),
    /// The job was cancelled.
    Cancelled,
    /// The same feed is being read by another job.
    Duplicate {
        /// That job.
        of: JobId,
    },
    /// The call went on in another lane of the same stage, as after a redirect.
    Moved {
        /// That lane.
        to: Arc<str>,
    },
}

impl Outcome {
    /// Returns `true` if it settles its job's question.
    pub fn is_conclusive(&self) -> bool {
        matches!(self, Outcome::Done { conclusive: true, .. })
    }

    /// Returns `true` if the upstream gave an answer, an empty one included.
    pub fn is_answer(&self) -> bool {
        matches!(self, Outcome::Done { .. } | Outcome::Empty)
    }
}

/// Why a call was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skip {
    /// The lane stays closed for longer than the call would wait.
    MaxWait {
        /// The wait that it would have needed.
        wait: Span,
        /// Its budget.
        max_wait: Span,
        /// Its priority.
        priority: Priority,
    },
    /// It did not start in time.
    StartWithin {
        /// Its budget.
        start_within: Span,
    },
    /// The job's deadline passed.
    Deadline,
    /// Another call gave the conclusive answer.
    EarlyExit,
    /// Its worker said that it does not apply to the lane.
    NotApplicable,
    /// An earlier stage settled the job.
    Stage,
    /// An operator paused the lane, and the call's budget is over.
    Paused {
        /// Its budget.
        max_wait: Span,
        /// Its priority.
        priority: Priority,
    },
}

/// A failure, for programs (`class`) and for people (`message`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A short stable name: `timeout`, `connect`, `status_404`.
    pub class: Arc<str>,
    /// Whether another attempt may succeed.
    pub retryable: bool,
    /// A sentence for people.
    pub message: Option<Arc<str>>,
}

impl Failure {
    /// A failure that another attempt may cure.
    pub fn transient(class: &str) -> Failure {
        Failure { class: class.into(), retryable: true, message: None }
    }

    /// A failure that stays.
    pub fn permanent(class: &str) -> Failure {
        Failure { class: class.into(), retryable: false, message: None }
    }

    /// Adds a message for people.
    #[must_use]
    pub fn because(mut self, message: &str) -> Failure {
        self.message = Some(message.into());
        self
    }
}

/// The message, or without one the class.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or(&self.class))
    }
}

impl std::error::Error for Failure {}

/// The scope of a failure: only those of the lane count towards its cooldown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum About {
    /// The upstream, and with it every call of the lane: a reset, a timeout, a status of 5xx.
    #[default]
    Lane,
    /// This call alone: a short body, a checksum, a range that does not fit.
    Call,
}

/// The result of one attempt, as its worker reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The upstream answered with a value.
    Done {
        /// Whether the value settles the job's question.
        conclusive: bool,
        /// JSON text.
        value: Blob,
    },
    /// The upstream answered that there is nothing.
    Empty,
    /// The attempt failed.
    Failed {
        /// The failure.
        failure: Failure,
        /// The wait that the upstream asked for.
        retry_after: Option<Span>,
        /// Whether it says something about the lane or about this call only.
        about: About,
    },
    /// The upstream says that it did not process the request. It is sent again, at the cost of no
    /// attempt.
    NotProcessed,
    /// The upstream refused the request because it came too soon.
    Throttled {
        /// The wait that the upstream asked for.
        retry_after: Option<Span>,
        /// Whether the call is made again then; otherwise it has failed.
        again: bool,
    },
    /// The call goes on in another lane, as after a redirect.
    Moved {
        /// That lane.
        lane: Arc<str>,
        /// The payload there, if it is another one.
        payload: Option<Blob>,
    },
    /// The result is unknown, as when the worker panicked. The call has failed, and nothing follows
    /// for its lane.
    Lost {
        /// The failure that the call reports.
        failure: Failure,
    },
    /// Nothing was sent: the reservation ran out first.
    Unused,
}

/// The limits that an upstream announced in a response. They may slow its lane down and never speed
/// it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// A gap between calls.
    pub every: Option<Span>,
    /// Calls per window.
    pub window: Option<Rate>,
    /// Calls that are left, and the span after which the upstream counts anew.
    pub left: Option<(u32, Span)>,
    /// Calls in flight.
    pub in_flight: Option<u32>,
}

/// One call in its job's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// Its lane.
    pub lane: Arc<str>,
    /// Its outcome.
    pub outcome: Outcome,
    /// Requests that were really made.
    pub attempts: u32,
    /// From joining the queue to the last start, or to the end of waiting.
    pub waited: Span,
    /// The last attempt, from start to end.
    pub ran: Span,
    /// Whether the answer came from the cache.
    pub cached: bool,
}

/// One line: `crossref: done {"title": ...}`.
impl std::fmt::Display for CallReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.lane, self.outcome)
    }
}

/// One line: `failed (timeout): no answer in 30s`.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        match self {
            Outcome::Done { value, .. } => write!(f, " {}", String::from_utf8_lossy(value)),
            Outcome::Skipped(skip) => write!(f, " ({})", skip.reason()),
            Outcome::Failed(Failure { class, message: Some(message), .. }) => {
                write!(f, " ({class}): {message}")
            }
            Outcome::Failed(Failure { class, .. }) => write!(f, " ({class})"),
            Outcome::Duplicate { of } => write!(f, " of job {of}"),
            Outcome::Moved { to } => write!(f, " to {to}"),
            Outcome::Empty | Outcome::Cancelled => Ok(()),
        }
    }
}

/// The state of a job as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// None of its calls runs.
    Waiting,
    /// At least one runs.
    Running,
    /// At least one call is done or empty.
    Done,
    /// No call is done or empty, and at least one has failed.
    Failed,
    /// No call has an answer, and none has failed.
    Skipped,
    /// The last caller cancelled it.
    Cancelled,
}

/// The sum of a job's outcomes. A lane that gave no answer never looks like one that found
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// At least one answer is conclusive.
    Conclusive,
    /// Every call that applies has an answer.
    All,
    /// Every call that applies has the answer that there is nothing.
    Empty,
    /// At least one call has no answer, and none is conclusive.
    Inconclusive,
}

/// The result of a job: its answer and its coverage, lane by lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The job.
    pub job: JobId,
    /// Its state.
    pub state: JobState,
    /// The sum of its outcomes.
    pub answer: Answer,
    /// When it was finished.
    pub finished_at: Time,
    /// Its calls, in their order.
    pub calls: Vec<CallReport>,
    /// Whether the job goes on: these are the outcomes at one caller's deadline.
    pub partial: bool,
}

/// A line for the job, then one for each call.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "job {}: {} ({})", self.job, self.state.name(), self.answer.name())?;
        if self.partial {
            f.write_str(", not finished")?;
        }
        for call in &self.calls {
            write!(f, "\n  {call}")?;
        }
        Ok(())
    }
}

/// Bytes as bytes, not as a list of numbers.
pub(crate) mod blob {
    use super::Blob;
    use serde::{Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(blob: &Blob, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(blob)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Blob, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Blob;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(bytes.into())
            }
        }
        from.deserialize_bytes(Bytes)
    }
}
