//! Backups: a copy of a store as it is at one moment, made while a process works on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup as Pages, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::lock::{self, Lock};
use super::{load, mark, real, schema};
use crate::{Source, StoreError};

/// Pages that are copied between two reports of the progress: 8 MiB.
const PAGES_AT_ONCE: i32 = 2_048;

/// The version of the store's form from which on it has a mark.
const MARKED_SINCE: u32 = 5;

/// A copy that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its file.
    pub path: PathBuf,
    /// The size of the file.
    pub bytes: u64,
    /// Unfinished jobs in it.
    pub unfinished: u64,
    /// Finished jobs in it.
    pub finished: u64,
}

/// The progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes copied so far.
    pub bytes: u64,
    /// Bytes in all.
    pub of: u64,
}

/// How to treat a store whose log, with its newest commits, is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingLog {
    /// Fail with [`StoreError::LogMissing`].
    Refuse,
    /// Take the store as it is, without those commits.
    Accept,
}

/// A backup that was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no store to copy.
    #[error("no store at `{0}`: name one that exists")]
    NoStore(PathBuf),
    /// The target exists. A backup overwrites nothing.
    #[error("`{0}` exists: name a file that does not, or move it away")]
    Exists(PathBuf),
    /// A log of another store would be taken for the log of the copy.
    #[error("`{0}` was left by another store: move it away, or choose another name for the copy")]
    LeftBehind(PathBuf),
    /// The file cannot be written.
    #[error("cannot write the copy `{path}`: choose another place")]
    Target {
        /// The target.
        path: PathBuf,
        /// The cause.
        source: Source,
    },
    /// The caller stopped it.
    #[error("stopped: no copy was made")]
    Stopped,
    /// The store or the disk of the copy failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies the store at `source` to the new file `target`, as it is at one moment: all that was
/// acknowledged before is in it. A process may work on the store meanwhile; its log grows until the
/// copy is made. The copy is durable, whole and closed, or there is none.
///
/// `tell` is called with the progress and says whether to go on.
pub fn backup(
    source: &Path,
    target: &Path,
    missing_log: MissingLog,
    mut tell: impl FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<Backup, BackupError> {
    let source = real(source);
    if !source.is_file() {
        return Err(BackupError::NoStore(source));
    }
    free(target)?;
    if missing_log == MissingLog::Refuse {
        mark::refuse_older(&source)?;
    }
    let original = Original::open(&source)?;
    let partial = Partial::new(target)?;
    copy(&original, &partial, &mut tell)?;
    let (unfinished, finished) = close(&partial, original.version)?;
    let bytes = partial.publish(target)?;
    Ok(Backup { path: target.into(), bytes, unfinished, finished })
}

/// Refuses a name that is taken, or beside which a log of another store stands: SQLite would take
/// that for the log of the copy.
fn free(target: &Path) -> Result<(), BackupError> {
    if target.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(target.into()));
    }
    let beside = ["-wal", "-journal"].map(|end| mark::companion(target, end));
    match beside.into_iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(log) => Err(BackupError::LeftBehind(log)),
        None => Ok(()),
    }
}

/// The store at one moment. Dropped, it leaves the files as they were.
struct Original {
    connection: Connection,
    path: PathBuf,
    version: u32,
}

impl Original {
    fn open(path: &Path) -> Result<Original, StoreError> {
        let fault = |error| schema::explain(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
        connection.busy_timeout(schema::PATIENCE).map_err(fault)?;
        // The owner may die meanwhile: its log is for the next owner to settle.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(fault)?;
        let mut original = Original { connection, path: path.into(), version: 0 };
        // One transaction reads one state, whatever is committed meanwhile.
        original.connection.execute_batch("BEGIN").map_err(fault)?;
        original.version = schema::version(path, &original.connection)?;
        match original.version {
            0 => Err(StoreError::NotAStore { path: path.into() }),
            _ => Ok(original),
        }
    }

    /// Finds out whether any process has the store. Where none has, the returned lock keeps it so.
    fn at_rest(&self) -> AtRest {
        if !lock::beside(&self.path).exists() {
            return AtRest::NeverOwned;
        }
        match lock::owner(&self.path) {
            Some(_) => AtRest::No,
            None => Lock::take(&self.path).map_or(AtRest::No, AtRest::Held),
        }
    }
}

enum AtRest {
    /// A file that never had an owner gets no lock beside it.
    NeverOwned,
    Held(#[expect(dead_code, reason = "held until the files are closed")] Lock),
    No,
}

impl Drop for Original {
    fn drop(&mut self) {
        let _ = self.connection.execute_batch("COMMIT");
        // No process has the store, and looking at it made an empty log: that goes again.
        let at_rest = self.at_rest();
        if !matches!(at_rest, AtRest::No)
            && mark::log(&self.path).metadata().is_ok_and(|log| log.len() == 0)
            && let Ok(memory) = Connection::open_in_memory()
        {
            let tidy = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(tidy, false);
            drop(std::mem::replace(&mut self.connection, memory));
        }
    }
}

/// The copy under a name of its own, until it is whole. Dropped, it is gone.
struct Partial {
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    fn new(target: &Path) -> Result<Partial, BackupError> {
        let wrong = |source: io::Error| refusal(target, source);
        let name = target.file_name().ok_or_else(|| wrong(ErrorKind::InvalidFilename.into()))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(hidden);
        // Payloads may hold secrets: it is for its owner alone.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.map_err(wrong)?;
        Ok(Partial { path, target: target.into() })
    }

    fn open(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.path, flags).map_err(|error| self.fault(error))
    }

    /// Errors name the file that was asked for.
    fn fault(&self, error: rusqlite::Error) -> StoreError {
        schema::explain(&self.target, error)
    }

    /// Gives it its name, durably. Returns its size.
    fn publish(&self, target: &Path) -> Result<u64, BackupError> {
        let wrong = |source| refusal(target, source);
        let file = File::open(&self.path).map_err(wrong)?;
        file.sync_all().map_err(wrong)?;
        let bytes = file.metadata().map_err(wrong)?.len();
        free(target)?;
        match fs::hard_link(&self.path, target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists(target.into()));
            }
            Ok(()) => {}
            // Some file systems have no links: there the name is taken as it is.
            Err(_) => fs::rename(&self.path, target).map_err(wrong)?,
        }
        let _ = fs::remove_file(&self.path);
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))
            .and_then(|it| it.sync_all())
            .map_err(wrong)?;
        Ok(bytes)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(mark::companion(&self.path, end));
        }
    }
}

fn copy(
    original: &Original,
    partial: &Partial,
    tell: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<(), BackupError> {
    let mut target = partial.open()?;
    let fault = |error| partial.fault(error);
    // All of it is synced at the end, and half of it is thrown away.
    target.pragma_update(None, "journal_mode", "OFF").map_err(fault)?;
    target.pragma_update(None, "synchronous", "OFF").map_err(fault)?;
    let size = |connection: &Connection| {
        connection.query_row("PRAGMA page_size", [], |row| row.get::<_, u32>(0))
    };
    let page = size(&original.connection).map_err(fault)?;
    let pages = Pages::new(&original.connection, &mut target).map_err(fault)?;
    loop {
        let step = pages.step(PAGES_AT_ONCE).map_err(fault)?;
        let (left, all) = (pages.progress().remaining, pages.progress().pagecount);
        let bytes = |pages: i32| u64::from(pages.unsigned_abs()) * u64::from(page);
        if tell(BackupProgress { bytes: bytes(all - left), of: bytes(all) }).is_break() {
            return Err(BackupError::Stopped);
        }
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => return Err(StoreError::InUse { path: original.path.clone(), pid: None }.into()),
        }
    }
}

/// Makes the copy a closed store, and counts its jobs.
fn close(partial: &Partial, version: u32) -> Result<(u64, u64), StoreError> {
    let connection = partial.open()?;
    let close = || -> rusqlite::Result<(u64, u64)> {
        if version >= MARKED_SINCE {
            connection.execute("DELETE FROM opened", [])?;
        }
        let sql = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM finished)";
        connection.query_row(sql, [], |row| Ok((load::number(row, 0)?, load::number(row, 1)?)))
    };
    let jobs = close().map_err(|error| partial.fault(error))?;
    connection.close().map_err(|(_, error)| partial.fault(error))?;
    // SQLite does not say when it fails to move the log into the file.
    if mark::log(&partial.path).exists() {
        let source = "its log could not be moved into it".into();
        return Err(StoreError::Failed { path: partial.target.clone(), source });
    }
    Ok(jobs)
}

fn refusal(target: &Path, error: io::Error) -> BackupError {
    let path = target.to_path_buf();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::NoDirectory { path }.into(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { path }.into(),
        _ => BackupError::Target { path, source: error.into() },
    }
}
