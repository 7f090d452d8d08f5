//! What is going on, for whoever wants to show it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline::jobs::AttemptId;

use super::task::{Saved, shown};

/// Counts that grow while files come.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    requests: AtomicU64,
    listed: AtomicU64,
    list_read: AtomicBool,
    active: Mutex<BTreeMap<AttemptId, Arc<Active>>>,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Active {
    /// The file that it goes to.
    pub file: String,
    /// Its whole length; zero if the server does not say.
    pub total: u64,
    done: AtomicU64,
}

impl Active {
    /// Bytes that are there.
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

    /// Files that are known so far: those of the list, and those that an earlier run left.
    pub fn listed(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }

    /// Whether the list was read to its end, so that no more files will be known.
    pub fn list_read(&self) -> bool {
        self.list_read.load(Ordering::Relaxed)
    }

    pub(super) fn add_listed(&self, files: u64) {
        self.listed.fetch_add(files, Ordering::Relaxed);
    }

    pub(super) fn end_list(&self) {
        self.list_read.store(true, Ordering::Relaxed);
    }

    /// The bodies that are being read, the oldest first.
    pub fn active(&self) -> Vec<Arc<Active>> {
        self.lock().values().cloned().collect()
    }

    /// Whether no body is being read.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A body begins; it is shown until the guard is dropped.
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

/// While it lives, its body is shown.
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

/// Something that people or programs may want to know.
#[derive(Clone, Debug)]
pub enum Event {
    /// A file is there.
    Done {
        /// What was asked for.
        url: String,
        /// What came of it.
        saved: Saved,
        /// Requests that it took.
        attempts: u32,
    },
    /// A file was there before.
    Skipped {
        /// What was asked for.
        url: String,
        /// What is known about it.
        saved: Saved,
    },
    /// An attempt was in vain and may be repeated.
    Retry {
        /// What was asked for.
        url: String,
        /// The kind of failure.
        class: String,
        /// For people.
        message: String,
        /// Which attempt it was.
        attempt: u16,
    },
    /// The server wants fewer requests.
    Throttled {
        /// The lane that rests.
        lane: String,
        /// For how long, if the server said so.
        retry_after: Option<Duration>,
    },
    /// A file will not come.
    Failed(Failed),
    /// A file was put off: limits, a closed host, a deadline.
    Deferred(Failed),
    /// A line of the list that cannot be meant.
    Mistake(super::input::Mistake),
}

/// What did not come, and why.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What was asked for, mirrors included.
    pub urls: Vec<String>,
    /// The file that it would have been.
    pub target: String,
    /// What its bytes should have come to.
    pub checksum: Option<super::checksum::Checksum>,
    /// The kind of failure.
    pub class: String,
    /// For people.
    pub message: String,
}

impl Failed {
    /// The first of its addresses, without the login that it may carry.
    pub fn shown(&self) -> String {
        let url = self.urls.first().and_then(|url| url::Url::parse(url).ok());
        url.map(|url| shown(&url)).unwrap_or_default()
    }
}

/// Whoever wants to know.
pub trait Watch: Send + Sync {
    /// Told of each thing that happens, from any thread; must not wait.
    fn event(&self, event: &Event);
}
