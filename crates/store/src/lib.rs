//! Where promises survive: the verbs of a store, and the stores that keep them.

mod answer_cache;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
mod sqlite;

use std::path::PathBuf;
use std::sync::Arc;

use paceline_core::{
    Blob, CachedAnswer, JobId, JobRecord, Lookup, Numbered, Record, Report, Stamp, Time, Write,
};

pub use memory::Memory;
pub use sqlite::{Backup, BackupError, BackupProgress, MissingLog, Sqlite, backup};

/// What the engine asks of a store. One thread owns it; every verb is one transaction.
pub trait Store: Send {
    /// Hands out every lane, then every unfinished job, then the calls of unfinished jobs, then
    /// the reservations, each in the order of their numbers; then services and rosters by name.
    /// Payloads and notes stay where they are.
    ///
    /// `None` for a store that has never seen a commit.
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Option<Stamp>, StoreError>;

    /// Writes all of `writes`, in their order, or none. When it returns `Ok` they survive a crash.
    ///
    /// After an `Err` it is unknown whether they were written (B4): the store answers nothing more
    /// and has to be opened again.
    fn commit(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError>;

    /// The same for writes that have to outlive the process and not the machine: a kill takes
    /// nothing from them, a power cut may take the last of them until the next `commit`, which
    /// makes all before it as safe as itself.
    fn commit_soon(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        self.commit(stamp, writes)
    }

    /// Whether what is written still reaches what was opened. After an `Err` the store answers
    /// nothing more.
    ///
    /// The engine asks once a second while it commits: a file that was deleted or replaced takes
    /// writes like any other.
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The payload of a job, finished or not; `None` if there is no such job.
    fn payload(&mut self, job: JobId) -> Result<Option<Blob>, StoreError>;

    /// What is kept under this name.
    fn note(&mut self, name: &str) -> Result<Option<Blob>, StoreError>;

    /// The names of all notes that begin like this, in their order.
    fn notes(&mut self, beginning: &str) -> Result<Vec<Arc<str>>, StoreError>;

    /// Cached answers that have not expired at `now`, one for each lookup in its place (C1).
    fn answers(
        &mut self,
        lookups: &[Lookup],
        now: Time,
    ) -> Result<Vec<Option<CachedAnswer>>, StoreError>;

    /// At most `most` jobs from `from` on. A list of unfinished jobs costs nothing for the finished
    /// ones, however many there are.
    fn list(
        &mut self,
        from: Cursor,
        most: usize,
        filter: JobFilter,
    ) -> Result<Vec<StoredJob>, StoreError>;

    /// One job, finished or not.
    fn job(&mut self, id: JobId) -> Result<Option<StoredJob>, StoreError>;

    /// The newest finished job with each of these keys, in its place (D1).
    fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<StoredJob>>, StoreError>;

    /// At most `most` kept events with numbers above `after`, ascending.
    fn events(&mut self, after: u64, most: usize) -> Result<Vec<Numbered>, StoreError>;

    /// Forgets events with numbers below this one; a few of them may stay.
    fn forget_events(&mut self, below: u64) -> Result<(), StoreError>;

    /// One small step of forgetting: jobs finished before `finished_before` and answers expired
    /// at `now`, the oldest first and at most [`PRUNE_STEP`] of each. Returns how many of both
    /// went; zero means that nothing is left to forget.
    ///
    /// A step costs what it forgets, however much is kept. After a power cut some of it may be
    /// back.
    fn prune(&mut self, finished_before: Time, now: Time) -> Result<usize, StoreError>;
}

/// How many finished jobs, and how many answers, one step of [`Store::prune`] forgets at most.
pub const PRUNE_STEP: usize = 200;

/// Where a list of jobs goes on, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// With numbers above this one, the oldest first.
    After(JobId),
    /// With numbers below this one, the newest first.
    Before(JobId),
}

impl Cursor {
    /// All jobs, the newest first.
    pub const NEWEST: Cursor = Cursor::Before(JobId(u64::MAX));

    /// The same way, from this job on.
    #[must_use]
    pub fn at(self, job: JobId) -> Cursor {
        match self {
            Cursor::After(_) => Cursor::After(job),
            Cursor::Before(_) => Cursor::Before(job),
        }
    }
}

/// The oldest first, from the beginning if it is not said.
impl From<Option<JobId>> for Cursor {
    fn from(after: Option<JobId>) -> Cursor {
        Cursor::After(after.unwrap_or_default())
    }
}

/// Which jobs are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFilter {
    /// All of them.
    All,
    /// Those that are not finished.
    Unfinished,
}

/// A job as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// What was submitted.
    pub record: JobRecord,
    /// What it came to, once it is finished.
    pub report: Option<Report>,
}

/// What keeps a store from its promises. Each says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// One file, one owner.
    #[error("`{path}` is in use by {}: stop it first, or name another store", owner(*.pid))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that owns it, if it said so.
        pid: Option<u32>,
    },
    /// The directory is missing.
    #[error("no directory for `{path}`: create it first")]
    NoDirectory {
        /// The file that was to be in it.
        path: PathBuf,
    },
    /// Not ours to write.
    #[error("cannot write `{path}`: make it and its directory writable, or name another store")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Source,
    },
    /// Somebody else's file.
    #[error("`{path}` is not a Paceline store: name another file, or move this one away")]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// From the future.
    #[error(
        "`{path}` was written by a newer program (version {found} of the store, this program \
         knows {known}): use the newer program"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest one that this program reads.
        known: u32,
    },
    /// What was read cannot have been written by us.
    #[error("`{path}` is damaged ({what}): restore it from a copy, or move it away and start anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was wrong, and where.
        what: String,
    },
    /// The disk is full.
    #[error("no room left on the disk of `{path}`: free some space and start again")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Anything else between us and the disk.
    #[error("cannot use `{path}`: check the disk and start again")]
    Failed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Source,
    },
    /// Asked after a failed write (B4).
    #[error("a write to `{path}` failed, so what it holds is unknown: start again to read it back")]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// A copy of an open store, without its log.
    #[error(
        "`{path}` was copied while in use, and `{log}` with its newest commits is missing: copy \
         both files while no process uses them, make the copy with `paceline store backup`, or \
         open what is there with `--accept-older`"
    )]
    LogMissing {
        /// The file.
        path: PathBuf,
        /// The log that belongs beside it.
        log: PathBuf,
    },
    /// The file or its log is not there any more.
    #[error(
        "`{path}` or its log was deleted, moved or replaced while in use, so nothing more is \
         accepted: leave both in place while a process uses them, restore the store and start again"
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// A library with known bugs.
    #[error("SQLite {found} may lose commits: build with {oldest} or newer")]
    OldSqlite {
        /// The version in use.
        found: &'static str,
        /// The oldest one that is safe.
        oldest: &'static str,
    },
}

/// The cause of an error.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_string(), |pid| format!("process {pid}"))
}
