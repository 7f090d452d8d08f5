//! The summary of a run.

use std::time::Duration;

/// Counts of files, bytes and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files fetched in this run.
    pub fetched: u64,
    /// Existing files that were kept.
    pub skipped: u64,
    /// Files that the server reported as unchanged.
    pub unchanged: u64,
    /// Files that failed.
    pub failed: u64,
    /// Files deferred by limits, closed hosts or a deadline.
    pub deferred: u64,
    /// Files left for the next run by an interruption.
    pub parked: u64,
    /// Invalid lines of the list.
    pub mistakes: u64,
    /// Whether the rest of the list was not read.
    pub unread: bool,
    /// Bytes received.
    pub bytes: u64,
    /// Requests sent.
    pub requests: u64,
    /// The duration of the run.
    pub took: Duration,
    /// How it ended.
    pub end: End,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// All items were processed.
    #[default]
    Complete,
    /// Its deadline passed.
    Deadline,
    /// It was interrupted.
    Interrupted,
}
