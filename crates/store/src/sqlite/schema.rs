//! The file: how it is opened, how it is told from other programs' files, and its tables, version
//! by version.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Outlives;
use crate::StoreError;

/// Marks a SQLite file as a Paceline store: `Pace` in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x5061_6365;

/// Before this one a commit could be lost while a checkpoint restarted the log.
const OLDEST_SQLITE: (i32, &str) = (3_051_003, "3.51.3");

/// How long to wait for a lock that a reader of the same file holds for a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The steps from each version of the file to the next; the first one makes a new file. A released
/// step never changes.
const STEPS: [&str; 7] = [
    // An unfinished job is in `jobs`, so that a start reads those and no others. Its payload lies
    // apart: it is neither read at the start nor copied at the end. An attempt is found by its
    // number, which grows: whatever the number of lanes, one turn touches a few pages.
    "
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        time INTEGER NOT NULL, wall INTEGER NOT NULL,
        boot INTEGER NOT NULL, since_boot INTEGER NOT NULL,
        next_job INTEGER NOT NULL, next_attempt INTEGER NOT NULL, next_lane INTEGER NOT NULL
    );
    CREATE TABLE lanes (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, submitted_at INTEGER NOT NULL,
        terms BLOB NOT NULL, spec BLOB NOT NULL
    );
    CREATE TABLE finished (
        id INTEGER PRIMARY KEY, finished_at INTEGER NOT NULL, submitted_at INTEGER NOT NULL,
        terms BLOB NOT NULL, spec BLOB NOT NULL, report BLOB NOT NULL
    );
    CREATE TABLE payloads (job INTEGER PRIMARY KEY, payload BLOB NOT NULL);
    CREATE TABLE calls (
        job INTEGER NOT NULL, idx INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (job, idx)
    ) WITHOUT ROWID;
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY, lane INTEGER NOT NULL,
        job INTEGER NOT NULL, idx INTEGER NOT NULL,
        priority INTEGER NOT NULL, cost INTEGER NOT NULL,
        at INTEGER NOT NULL, ended_at INTEGER
    );
    CREATE TABLE cache (
        lane TEXT NOT NULL, key BLOB NOT NULL,
        expires_at INTEGER NOT NULL, conclusive INTEGER, value BLOB,
        PRIMARY KEY (lane, key)
    ) WITHOUT ROWID;
    ",
    // Finished jobs by their keys, of which a row holds a hash (see `keys.rs`): small, and several
    // jobs may have the same. What was finished before this step is not found by its key.
    "
    CREATE TABLE finished_keys (
        hash INTEGER NOT NULL, job INTEGER NOT NULL,
        PRIMARY KEY (hash, job)
    ) WITHOUT ROWID;
    ",
    // Work that comes again, and what workers and tools keep for themselves: few rows, and nothing
    // forgets them.
    "
    CREATE TABLE services (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE rosters (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE notes (name TEXT PRIMARY KEY, body BLOB NOT NULL);
    ",
    // Events that are kept, one row for those of one turn, by the number of the first.
    "
    ALTER TABLE meta ADD COLUMN next_event INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE events (first INTEGER PRIMARY KEY, body BLOB NOT NULL);
    ",
    // A row while a process has the store open and has written to it (see `mark.rs`).
    "
    CREATE TABLE opened (id INTEGER PRIMARY KEY CHECK (id = 1));
    ",
    // Old jobs and answers are found by their age: jobs do not finish in the order of their
    // numbers. A row names the jobs that finished at one moment, so that a commit pays for one and
    // not for each of its jobs (see `leaving.rs`).
    "
    CREATE TABLE leaving (
        finished_at INTEGER NOT NULL, first INTEGER NOT NULL, others BLOB,
        PRIMARY KEY (finished_at, first)
    ) WITHOUT ROWID;
    INSERT INTO leaving SELECT finished_at, id, NULL FROM finished;
    CREATE INDEX cache_by_expiry ON cache (expires_at);
    ",
    // The jobs that finished last stand beside the stamp until they fill a row.
    "
    ALTER TABLE meta ADD COLUMN leaving BLOB;
    ",
];

/// The version of the files that this program writes.
const VERSION: u32 = STEPS.len() as u32;

/// Opens the file at `path`, a new one or a store, and brings it up to this version. Closed as it
/// is, the connection leaves the log where it is.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    if rusqlite::version_number() < OLDEST_SQLITE.0 {
        return Err(StoreError::OldSqlite { found: rusqlite::version(), oldest: OLDEST_SQLITE.1 });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fault = |error| explain(path, error);
    // Payloads may hold secrets: a new file is for its owner alone, and so is the log beside it.
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    // If it failed, opening the file fails as well, with SQLite's error.
    drop(new);
    let mut connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    // Another program's file must stay as it is. So nothing is written before the version is known,
    // and a log that its owner may have left is not tidied up on the way out.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fault)?;
    let found = version(path, &connection)?;
    connection.busy_timeout(PATIENCE).map_err(fault)?;
    configure(&connection).map_err(fault)?;
    migrate(&mut connection, found).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

pub(super) fn version(path: &Path, connection: &Connection) -> Result<u32, StoreError> {
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let read = || -> rusqlite::Result<_> {
        Ok((
            ask("PRAGMA application_id")?,
            ask("PRAGMA user_version")?,
            ask("SELECT count(*) FROM sqlite_schema")?,
        ))
    };
    let path_buf = || path.to_path_buf();
    match read().map_err(|error| explain(path, error))? {
        (0, 0, 0) => Ok(0),
        (id, version, _) if id == i64::from(APPLICATION_ID) => match u32::try_from(version) {
            Ok(found) if found <= VERSION => Ok(found),
            Ok(found) => Err(StoreError::Newer { path: path_buf(), found, known: VERSION }),
            Err(_) => Err(StoreError::NotAStore { path: path_buf() }),
        },
        _ => Err(StoreError::NotAStore { path: path_buf() }),
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    sync_commits(connection, Outlives::Machine)?;
    // Small checkpoints: a commit that has to wait for one waits 4 ms, not 20.
    connection.pragma_update(None, "wal_autocheckpoint", 500)?;
    // After one huge commit the log gives its space back.
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.pragma_update(None, "cache_size", -64_000)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Sets how the commits from here on are synced. The log is one file, so a sync takes along all
/// that was written to it before, and checkpoints sync either way.
pub(super) fn sync_commits(connection: &Connection, outlives: Outlives) -> rusqlite::Result<()> {
    let level = match outlives {
        Outlives::Process => "NORMAL",
        // Anything less than FULL loses acknowledged commits when the power fails.
        Outlives::Machine => "FULL",
    };
    connection.pragma_update(None, "synchronous", level)
}

fn migrate(connection: &mut Connection, found: u32) -> rusqlite::Result<()> {
    for (version, step) in (1..).zip(STEPS).skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

/// SQLite's error as one that names the file and says what to do.
pub(super) fn explain(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.to_path_buf();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path },
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        // An error without a code is no failure of the disk: a row could not be read.
        Some(ErrorCode::DatabaseCorrupt) | None => {
            StoreError::Damaged { path, what: error.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::InUse { path, pid: None }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::Unwritable { path, source: error.into() }
        }
        Some(_) => StoreError::Failed { path, source: error.into() },
    }
}
