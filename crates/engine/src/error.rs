//! Errors of the handle: one per operation, and each of them tells when the engine has ended.

use paceline_core::{JobId, SpanError, SubmitError, UnknownLane, UnknownService};

use crate::driver::Ended;
use crate::lane::LaneError;
use crate::service::ServiceError;

/// A lane that was not paused, resumed or reset.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no such lane.
    #[error(transparent)]
    Unknown(#[from] UnknownLane),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Limits that were not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    /// The description of the lane is invalid.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// There is no such lane.
    #[error(transparent)]
    Unknown(#[from] UnknownLane),
    /// The group was not described at the start.
    #[error(
        "lane `{lane}` is in the group `{group}`, which does not exist: add it, or leave it out"
    )]
    UnknownGroup {
        /// The lane.
        lane: String,
        /// Its group.
        group: String,
    },
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

impl From<ControlError> for ChangeError {
    fn from(error: ControlError) -> ChangeError {
        match error {
            ControlError::Unknown(lane) => lane.into(),
            ControlError::Ended(ended) => ended.into(),
        }
    }
}

/// A service that was not reset.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ResetServiceError {
    /// There is no such service.
    #[error(transparent)]
    Unknown(#[from] UnknownService),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Services and rosters that were not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SetServicesError {
    /// The description of one of them is invalid.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// A job that was not retried.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RetryError {
    /// There is no such job.
    #[error("no job {0}: it never existed, or was forgotten after `keep_finished`")]
    Unknown(JobId),
    /// It is still under way.
    #[error("job {0} is not finished: it can only be retried afterwards")]
    Unfinished(JobId),
    /// Nothing failed.
    #[error("job {0} has an answer from every lane: there is nothing to retry")]
    Complete(JobId),
    /// It can no longer be submitted as it was.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// A job that is not followed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FollowError {
    /// The deadline is not a span of time.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// An engine that did not stop as it was told.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StopError {
    /// The grace is not a span of time: the engine runs on.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// It had ended already, and not because it was stopped.
    #[error(transparent)]
    Ended(#[from] Ended),
}
