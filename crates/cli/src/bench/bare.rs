//! SQLite without the engine: the cost of a commit on this disk, in the same run.

use std::path::Path;
use std::time::Duration;

use super::stopwatch::now;

/// One row, one commit, full sync: nothing else.
pub(super) struct Bare(rusqlite::Connection);

impl Bare {
    pub(super) fn open(path: &Path) -> anyhow::Result<Bare> {
        let connection = rusqlite::Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=500;
             CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB);",
        )?;
        Ok(Bare(connection))
    }

    /// Commits one row, and returns the time it took.
    pub(super) fn commit(&mut self) -> anyhow::Result<Duration> {
        let start = now();
        let mut insert = self.0.prepare_cached("INSERT INTO rows (body) VALUES (?1)")?;
        insert.execute([[7u8; 200].as_slice()])?;
        Ok(start.elapsed())
    }
}
