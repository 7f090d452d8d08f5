//! What a run came to.

use std::time::Duration;

/// Counts of files, and what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Fetched in this run.
    pub fetched: u64,
    /// There before, and left alone.
    pub skipped: u64,
    /// Asked about, and unchanged.
    pub unchanged: u64,
    /// Will not come.
    pub failed: u64,
    /// Put off by limits, closed hosts or a deadline.
    pub deferred: u64,
    /// Left for the next run by an interruption.
    pub parked: u64,
    /// Lines of the list that cannot be meant.
    pub mistakes: u64,
    /// Whether there is more in the list that nobody looked at.
    pub unread: bool,
    /// Bytes received.
    pub bytes: u64,
    /// Requests sent.
    pub requests: u64,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub end: End,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Everything was looked at.
    #[default]
    Complete,
    /// Its time was over.
    Deadline,
    /// Somebody wanted it to end.
    Interrupted,
}
