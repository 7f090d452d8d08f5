//! What an attempt, a call and a job came to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::{Blob, JobId};
use crate::priority::Priority;
use crate::rate::Rate;
use crate::time::{Span, Time};

/// What a call came to: exactly one per call (J1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// An answer.
    Done {
        /// Whether it settles the question (J2).
        conclusive: bool,
        /// JSON text.
        #[serde(with = "blob")]
        value: Blob,
    },
    /// The service answered that there is nothing.
    Empty,
    /// Not asked, and why.
    Skipped(Skip),
    /// Asked in vain.
    Failed(Failure),
    /// Withdrawn by its caller.
    Cancelled,
    /// The same call is under way (D3).
    Duplicate {
        /// In this job.
        of: JobId,
    },
    /// Goes on in another lane of the same stage (J7).
    Moved {
        /// That lane.
        to: Arc<str>,
    },
}

impl Outcome {
    /// Whether it settles its job's question.
    pub fn is_conclusive(&self) -> bool {
        matches!(self, Outcome::Done { conclusive: true, .. })
    }

    /// Whether the service gave an answer, be it that there is none.
    pub fn is_answer(&self) -> bool {
        matches!(self, Outcome::Done { .. } | Outcome::Empty)
    }
}

/// Why a call was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skip {
    /// The lane stays closed for longer than the call would wait (W1).
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
    /// The job ran out of time (W2).
    Deadline,
    /// Another lane had the answer (J2).
    EarlyExit,
    /// The kind said so (J6).
    NotApplicable,
    /// An earlier stage had the answer (J3).
    Stage,
    /// The lane was stopped by hand, and the call would wait for it no longer (W1).
    Paused {
        /// Its budget.
        max_wait: Span,
        /// Its priority.
        priority: Priority,
    },
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A short stable name: `timeout`, `connect`, `status_404`.
    pub class: Arc<str>,
    /// Whether trying again may help.
    pub retryable: bool,
    /// For people.
    pub message: Option<Arc<str>>,
}

impl Failure {
    /// A failure that trying again may cure.
    pub fn transient(class: &str) -> Failure {
        Failure { class: class.into(), retryable: true, message: None }
    }

    /// A failure that stays.
    pub fn permanent(class: &str) -> Failure {
        Failure { class: class.into(), retryable: false, message: None }
    }

    /// The same with words for people.
    #[must_use]
    pub fn because(mut self, message: &str) -> Failure {
        self.message = Some(message.into());
        self
    }
}

/// What a failure says something about (L7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum About {
    /// The upstream, and with it every call of the lane: a reset, a timeout, a status of 5xx.
    #[default]
    Lane,
    /// This call alone: a short body, a checksum, a range that does not fit.
    Call,
}

/// What one attempt came to, as its worker tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An answer.
    Done {
        /// Whether it settles the question.
        conclusive: bool,
        /// JSON text.
        value: Blob,
    },
    /// Nothing there.
    Empty,
    /// In vain.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// When the service wants to be asked again.
        retry_after: Option<Span>,
        /// What it says something about.
        about: About,
    },
    /// The upstream says that it did not process the request (L7): it is sent again, at the cost of
    /// no attempt.
    NotProcessed,
    /// Too fast for the service (L6, L7).
    Throttled {
        /// When the service wants to be asked again.
        retry_after: Option<Span>,
        /// Whether the call waits for that, rather than having failed.
        again: bool,
    },
    /// To be asked elsewhere (J7).
    Moved {
        /// On this lane.
        lane: Arc<str>,
        /// With this payload, if not the same.
        payload: Option<Blob>,
    },
    /// Nobody knows what it came to, as when the worker panicked (J5): the call has failed, and
    /// nothing is known about the service.
    Lost {
        /// What went wrong.
        failure: Failure,
    },
    /// Nothing was sent: the reservation ran out first (L4).
    Unused,
}

/// What a service said about its own limits (L8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// A gap between calls.
    pub every: Option<Span>,
    /// A window.
    pub window: Option<Rate>,
    /// So many calls are left, and for how long that holds.
    pub left: Option<(u32, Span)>,
    /// Calls at once.
    pub in_flight: Option<u32>,
}

/// How one call went, in its job's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// Where it was to go.
    pub lane: Arc<str>,
    /// What it came to.
    pub outcome: Outcome,
    /// Real requests made.
    pub attempts: u32,
    /// From joining the queue to the last start, or to the end of waiting.
    pub waited: Span,
    /// The last attempt, from start to end.
    pub ran: Span,
    /// Whether the answer came from the cache (C1).
    pub cached: bool,
}

/// One line: `crossref: done {"title": ...}`.
impl std::fmt::Display for CallReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.lane, self.outcome.name())?;
        match &self.outcome {
            Outcome::Done { value, .. } => write!(f, " {}", String::from_utf8_lossy(value)),
            Outcome::Skipped(skip) => write!(f, " ({})", skip.reason()),
            Outcome::Failed(failure) => write!(f, " ({})", failure.class),
            Outcome::Duplicate { of } => write!(f, " of job {of}"),
            Outcome::Moved { to } => write!(f, " to {to}"),
            Outcome::Empty | Outcome::Cancelled => Ok(()),
        }
    }
}

/// What became of a job as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// None of its calls runs.
    Waiting,
    /// At least one runs.
    Running,
    /// Any call done or empty.
    Done,
    /// None, and at least one failed.
    Failed,
    /// Nothing but skipped.
    Skipped,
    /// Withdrawn.
    Cancelled,
}

/// What the outcomes amount to (J4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Somebody settled the question.
    Conclusive,
    /// Everybody answered.
    All,
    /// Everybody answered that there is nothing.
    Empty,
    /// Somebody could not be asked.
    Inconclusive,
}

/// What a job came to: its answer and its coverage, lane by lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which job.
    pub job: JobId,
    /// What became of it.
    pub state: JobState,
    /// What it amounts to.
    pub answer: Answer,
    /// When it was finished.
    pub finished_at: Time,
    /// Its coverage.
    pub calls: Vec<CallReport>,
    /// Whether the job goes on: this is what there was at one caller's deadline (D1).
    pub partial: bool,
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
