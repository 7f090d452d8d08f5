//! Where promises survive: the verbs of a store, and the stores that keep them.
//!
//! A [`Store`] keeps what the rules hand out: each [`Write`] of a plan, in one transaction per
//! turn, and hands it back as [`Record`]s at the next start. [`Memory`] keeps it as long as the
//! process lives, [`Sqlite`] in one file. Both pass the same suite (`conformance`, behind the
//! feature of that name), and a store of your own has to pass it as well.
//!
//! | after | is there |
//! |---|---|
//! | `commit` returned `Ok` and the process was killed, or the power was cut | all of it |
//! | `commit_soon` returned `Ok` and the process was killed | all of it |
//! | `commit_soon` returned `Ok` and the power was cut | all up to the last `commit`, and maybe more |
//! | either returned an error, or the process died before it returned | all of that batch or none |

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

/// A store of promises. One thread owns it, and every verb is one transaction.
pub trait Store: Send {
    /// Hands out every lane, then every unfinished job, then the calls of unfinished jobs, then
    /// the reservations, each in the order of their numbers; then services and rosters by name.
    /// Payloads and notes stay in the store. Returns the stamp of the last commit, `None` for a new
    /// store.
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Option<Stamp>, StoreError>;

    /// Writes all of `writes`, in their order, or none. When it returns `Ok` they survive a crash.
    ///
    /// After an `Err` it is unknown whether they were written. The store answers nothing more and
    /// has to be opened again.
    fn commit(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError>;

    /// Writes all of `writes` or none, without waiting for the disk. They survive a kill. A power
    /// cut may take them, up to the next [`commit`](Store::commit), which makes all before it as
    /// safe as itself.
    fn commit_soon(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        self.commit(stamp, writes)
    }

    /// Fails if the files of the store are no longer where they were opened. The store answers
    /// nothing more then.
    ///
    /// The engine calls this once a second while it commits: a file that was deleted or replaced
    /// takes writes without an error.
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The payload of a job, finished or not; `None` if there is no such job.
    fn payload(&mut self, job: JobId) -> Result<Option<Blob>, StoreError>;

    /// The note under this name.
    fn note(&mut self, name: &str) -> Result<Option<Blob>, StoreError>;

    /// The names of all notes that begin with `beginning`, in their order.
    fn notes(&mut self, beginning: &str) -> Result<Vec<Arc<str>>, StoreError>;

    /// For each lookup, in its place, the cached answer that has not expired at `now`.
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

    /// For each key, in its place, the newest finished job that has it.
    fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<StoredJob>>, StoreError>;

    /// At most `most` kept events with numbers above `after`, ascending.
    fn events(&mut self, after: u64, most: usize) -> Result<Vec<Numbered>, StoreError>;

    /// Forgets events with numbers below `below`. A few of them may stay.
    fn forget_events(&mut self, below: u64) -> Result<(), StoreError>;

    /// Takes one small step of forgetting: jobs finished before `finished_before` and answers
    /// expired at `now`, the oldest first and at most [`PRUNE_STEP`] of each. Returns the number of
    /// both; zero means that nothing is left to forget.
    ///
    /// A step costs what it forgets, however much is kept. After a power cut some of it may be
    /// back.
    fn prune(&mut self, finished_before: Time, now: Time) -> Result<usize, StoreError>;
}

/// The most finished jobs, and the most answers, that one step of [`Store::prune`] forgets.
pub const PRUNE_STEP: usize = 200;

/// The position at which a list of jobs goes on, and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// Jobs with higher numbers, the oldest first.
    After(JobId),
    /// Jobs with lower numbers, the newest first.
    Before(JobId),
}

impl Cursor {
    /// All jobs, the newest first.
    pub const NEWEST: Cursor = Cursor::Before(JobId(u64::MAX));

    /// The position behind this job, in the same direction.
    #[must_use]
    pub fn at(self, job: JobId) -> Cursor {
        match self {
            Cursor::After(_) => Cursor::After(job),
            Cursor::Before(_) => Cursor::Before(job),
        }
    }
}

/// The oldest first, after this job or from the beginning.
impl From<Option<JobId>> for Cursor {
    fn from(after: Option<JobId>) -> Cursor {
        Cursor::After(after.unwrap_or_default())
    }
}

/// The jobs that a list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFilter {
    /// All jobs.
    All,
    /// Unfinished jobs.
    Unfinished,
}

/// A job as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// The job as it was accepted.
    pub record: JobRecord,
    /// Its report, once it is finished.
    pub report: Option<Report>,
}

/// A store that cannot keep its promises. Each message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open. One file has one owner.
    #[error("`{path}` is in use by {}: stop it first, or name another store", owner(*.pid))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that owns it, if its lock file names one.
        pid: Option<u32>,
    },
    /// The directory is missing.
    #[error("no directory for `{path}`: create it first")]
    NoDirectory {
        /// The file that was to be in it.
        path: PathBuf,
    },
    /// The file or its directory is not writable.
    #[error("cannot write `{path}`: make it and its directory writable, or name another store")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Source,
    },
    /// The file belongs to another program.
    #[error("`{path}` is not a Paceline store: name another file, or move this one away")]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of the program wrote the file.
    #[error(
        "`{path}` was written by a newer program (version {found} of the store, this program \
         knows {known}): use the newer program"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// The file holds something that no version of the program writes.
    #[error("`{path}` is damaged ({what}): restore it from a copy, or move it away and start anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, and its place.
        what: String,
    },
    /// The disk is full.
    #[error("no room left on the disk of `{path}`: free some space and start again")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Any other failure of the disk or the system.
    #[error("cannot use `{path}`: check the disk and start again")]
    Failed {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Source,
    },
    /// The store was used after a failed write.
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
    /// The file or its log was deleted, moved or replaced.
    #[error(
        "`{path}` or its log was deleted, moved or replaced while in use, so nothing more is \
         accepted: leave both in place while a process uses them, restore the store and start again"
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The SQLite library is too old.
    #[error("SQLite {found} may lose commits: build with {oldest} or newer")]
    OldSqlite {
        /// The version in use.
        found: &'static str,
        /// The oldest version that is safe.
        oldest: &'static str,
    },
}

/// The cause of an error.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_string(), |pid| format!("process {pid}"))
}
