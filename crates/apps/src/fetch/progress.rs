//! Progress of a run, for display.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline::jobs::AttemptId;

use super::task::{Saved, shown};

/// Counters of a run.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    requests: AtomicU64,
    listed: AtomicU64,
    list_read: AtomicBool,
    active: Mutex<BTreeMap<AttemptId, Arc<Active>>>,
}

/// A body in transfer.
#[derive(Debug)]
pub struct Active {
    /// The target of the file.
    pub file: String,
    /// The whole length; zero if the server gives none.
    pub total: u64,
    done: AtomicU64,
}

impl Active {
    /// Bytes written so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Progress {
    /// Bytes received in this run.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests sent in this run.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Files found so far: those of the list, and those that an earlier run left.
    pub fn listed(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }

    /// Whether the list was read to its end.
    pub fn list_read(&self) -> bool {
        self.list_read.load(Ordering::Relaxed)
    }

    pub(super) fn add_listed(&self, files: u64) {
        self.listed.fetch_add(files, Ordering::Relaxed);
    }

    pub(super) fn end_list(&self) {
        self.list_read.store(true, Ordering::Relaxed);
    }

    /// The bodies in transfer, the oldest first.
    pub fn active(&self) -> Vec<Arc<Active>> {
        self.lock().values().cloned().collect()
    }

    /// Returns `true` if no body is in transfer.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Shows a body until the guard is dropped.
    pub(super) fn begin(
        self: &Arc<Progress>,
        attempt: AttemptId,
        file: &str,
        done: u64,
        total: Option<u64>,
    ) -> Reading {
        let total = total.unwrap_or_default();
        let active = Arc::new(Active { file: file.to_string(), total, done: done.into() });
        self.lock().insert(attempt, active.clone());
        Reading { progress: self.clone(), attempt, active }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<AttemptId, Arc<Active>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows its body until dropped.
pub(super) struct Reading {
    progress: Arc<Progress>,
    attempt: AttemptId,
    active: Arc<Active>,
}

impl Reading {
    pub(super) fn received(&self, bytes: usize) {
        self.active.done.fetch_add(bytes as u64, Ordering::Relaxed);
        self.progress.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.progress.lock().remove(&self.attempt);
    }
}

/// An event of a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// A file was saved.
    Done {
        /// Its URL.
        url: String,
        /// The saved file.
        saved: Saved,
        /// Requests that were sent for it.
        attempts: u32,
    },
    /// A file of an earlier run was kept.
    Skipped {
        /// Its URL.
        url: String,
        /// The saved file.
        saved: Saved,
    },
    /// An attempt failed and may be retried.
    Retry {
        /// Its URL.
        url: String,
        /// The class of the failure.
        class: String,
        /// The failure, for people.
        message: String,
        /// The number of the attempt.
        attempt: u16,
    },
    /// The server throttled a request.
    Throttled {
        /// The lane in question.
        lane: String,
        /// The wait that the server asked for, if any.
        retry_after: Option<Duration>,
    },
    /// A file failed.
    Failed(Failed),
    /// A file was deferred: by limits, a closed host or a deadline.
    Deferred(Failed),
    /// An invalid line of the list.
    Mistake(super::input::Mistake),
}

/// A file that was not saved, and why.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its URLs, mirrors included.
    pub urls: Vec<String>,
    /// The target of the file.
    pub target: String,
    /// The expected checksum.
    pub checksum: Option<super::checksum::Checksum>,
    /// The class of the failure.
    pub class: String,
    /// The failure, for people.
    pub message: String,
}

impl Failed {
    /// The first URL, without a login.
    pub fn shown(&self) -> String {
        let url = self.urls.first().and_then(|url| url::Url::parse(url).ok());
        url.map(|url| shown(&url)).unwrap_or_default()
    }
}

/// A subscriber to the events of a run.
pub trait Watch: Send + Sync {
    /// Receives each event, on any thread. Must not block.
    fn event(&self, event: &Event);
}
