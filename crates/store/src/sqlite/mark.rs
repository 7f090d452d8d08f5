//! The mark of an open store: it stands in the file itself, so that a copy of the file alone tells
//! that its log is missing.
//!
//! The newest commits of an open store are in the log beside the file. So before the first of them
//! the mark is moved from the log into the file, and a clean close takes it out again in the log:
//! SQLite deletes a log only when all of it, the end of the mark included, is in the file. Whenever
//! a process dies, either its log is still there or the file carries no mark.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Outlives;
use super::schema::{self, APPLICATION_ID};
use crate::StoreError;

/// The place of the mark of a store that this process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nowhere: the file is all there is.
    Absent,
    /// Set by a process before this one, in the log at least.
    Inherited,
    /// In the log: a reader of the file keeps it from being moved there.
    InLog,
    /// In the file.
    InFile,
}

impl Mark {
    /// The mark as the file and its log tell it.
    pub(super) fn found(connection: &Connection) -> rusqlite::Result<Mark> {
        let marked = connection.query_row(MARKED, [], |row| row.get(0))?;
        Ok(if marked { Mark::Inherited } else { Mark::Absent })
    }

    /// Sets it, and moves it into the file if it can.
    pub(super) fn set(self, connection: &Connection) -> rusqlite::Result<Mark> {
        if self == Mark::Absent {
            // The move to the file syncs the log first.
            schema::sync_commits(connection, Outlives::Process)?;
            connection.execute("INSERT INTO opened VALUES (1)", [])?;
            schema::sync_commits(connection, Outlives::Machine)?;
        }
        move_to_file(connection)
    }

    /// Takes it out. Closing the connection moves that into the file.
    pub(super) fn clear(self, connection: &Connection) -> rusqlite::Result<()> {
        if self != Mark::Absent {
            schema::sync_commits(connection, Outlives::Process)?;
            connection.execute("DELETE FROM opened", [])?;
        }
        Ok(())
    }
}

const MARKED: &str = "SELECT EXISTS (SELECT 1 FROM opened)";

/// Moves the log into the file. A reader of an older state is not waited for.
fn move_to_file(connection: &Connection) -> rusqlite::Result<Mark> {
    connection.busy_timeout(Duration::ZERO)?;
    let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        let (busy, pages, moved): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        // While another process moves it, both are unknown.
        Ok(!busy || pages >= 0 && pages == moved)
    });
    connection.busy_timeout(schema::PATIENCE)?;
    Ok(if moved? { Mark::InFile } else { Mark::InLog })
}

/// Refuses a file that carries the mark and has no log beside it.
pub(super) fn refuse_older(path: &Path) -> Result<(), StoreError> {
    let log = log(path);
    if log.exists() || !is_marked(path) {
        return Ok(());
    }
    Err(StoreError::LogMissing { path: path.into(), log })
}

/// The log of the store at `path`.
pub(super) fn log(path: &Path) -> PathBuf {
    companion(path, "-wal")
}

/// A file that SQLite keeps beside the store at `path`.
pub(super) fn companion(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(end);
    name.into()
}

/// Returns `true` if the file alone carries the mark. A file that is no store carries none: opening
/// it tells.
fn is_marked(path: &Path) -> bool {
    let look = || -> rusqlite::Result<bool> {
        let connection = alone(path)?;
        let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        Ok(id == APPLICATION_ID && connection.query_row(MARKED, [], |row| row.get(0))?)
    };
    look().unwrap_or(false)
}

/// The file as it is, without a log, and without leaving one behind.
fn alone(path: &Path) -> rusqlite::Result<Connection> {
    let mut address = b"file:".to_vec();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => address.extend(format!("%{byte:02X}").bytes()),
            byte => address.push(byte),
        }
    }
    address.extend(b"?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(OsString::from_vec(address), flags)
}
