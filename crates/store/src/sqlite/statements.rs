//! The statements that change the file, each prepared once.

use rusqlite::{CachedStatement, Connection, Params};

/// One statement.
#[derive(Clone, Copy)]
pub(super) enum Sql {
    Begin,
    Commit,
    Stamp,
    StampLeaving,
    Job,
    Payload,
    DropPayload,
    Terms,
    Call,
    DropCalls,
    Reserve,
    HandOver,
    Started,
    Ended,
    Release,
    Lane,
    DropLane,
    Finish,
    DropJob,
    Answer,
    DropFinished,
    Leaving,
    DropLeaving,
    FinishedKey,
    DropFinishedKey,
    DropAnswer,
    Service,
    Roster,
    Note,
    DropNote,
    Events,
    DropEvents,
}

const SQL: [(Sql, &str); 32] = [
    (Sql::Begin, "BEGIN IMMEDIATE"),
    (Sql::Commit, "COMMIT"),
    (Sql::Stamp, "INSERT OR REPLACE INTO meta VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
    (Sql::StampLeaving, "UPDATE meta SET leaving = NULL"),
    (Sql::Job, "INSERT INTO jobs VALUES (?, ?, ?, ?)"),
    (Sql::Payload, "INSERT OR REPLACE INTO payloads VALUES (?, ?)"),
    (Sql::DropPayload, "DELETE FROM payloads WHERE job = ?"),
    (Sql::Terms, "UPDATE jobs SET terms = ?2 WHERE id = ?1"),
    (Sql::Call, "INSERT OR REPLACE INTO calls VALUES (?, ?, ?)"),
    (Sql::DropCalls, "DELETE FROM calls WHERE job = ?"),
    (Sql::Reserve, "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?)"),
    (Sql::HandOver, "UPDATE attempts SET job = ?2, idx = ?3 WHERE id = ?1"),
    (Sql::Started, "UPDATE attempts SET at = ?2 WHERE id = ?1"),
    (Sql::Ended, "UPDATE attempts SET ended_at = ?2 WHERE id = ?1"),
    (Sql::Release, "DELETE FROM attempts WHERE id = ?"),
    (Sql::Lane, "INSERT OR REPLACE INTO lanes VALUES (?, ?)"),
    (Sql::DropLane, "DELETE FROM lanes WHERE id = ?"),
    (
        Sql::Finish,
        "INSERT INTO finished SELECT id, ?2, submitted_at, terms, spec, ?3 FROM jobs WHERE id = ?1",
    ),
    (Sql::DropJob, "DELETE FROM jobs WHERE id = ?"),
    (Sql::Answer, "INSERT OR REPLACE INTO cache VALUES (?, ?, ?, ?, ?)"),
    (Sql::DropFinished, "DELETE FROM finished WHERE id = ?"),
    (Sql::Leaving, "INSERT INTO leaving VALUES (?, ?, ?)"),
    (Sql::DropLeaving, "DELETE FROM leaving WHERE finished_at = ? AND first = ?"),
    (Sql::FinishedKey, "INSERT OR IGNORE INTO finished_keys VALUES (?, ?)"),
    (Sql::DropFinishedKey, "DELETE FROM finished_keys WHERE hash = ? AND job = ?"),
    (Sql::DropAnswer, "DELETE FROM cache WHERE lane = ? AND key = ?"),
    (Sql::Service, "INSERT OR REPLACE INTO services VALUES (?, ?)"),
    (Sql::Roster, "INSERT OR REPLACE INTO rosters VALUES (?, ?)"),
    (Sql::Note, "INSERT OR REPLACE INTO notes VALUES (?, ?)"),
    (Sql::DropNote, "DELETE FROM notes WHERE name = ?"),
    (Sql::Events, "INSERT INTO events VALUES (?, ?)"),
    // The last row that begins below may reach beyond: it stays.
    (
        Sql::DropEvents,
        "DELETE FROM events WHERE first < (SELECT max(first) FROM events WHERE first <= ?)",
    ),
];

/// The statements of one transaction: each is looked up by its text at most once in it.
pub(super) struct Statements<'c> {
    connection: &'c Connection,
    ready: [Option<CachedStatement<'c>>; SQL.len()],
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Statements<'c> {
        Statements { connection, ready: [const { None }; SQL.len()] }
    }

    /// Runs a statement. Returns the number of rows that it changed.
    pub(super) fn run(&mut self, sql: Sql, values: impl Params) -> rusqlite::Result<usize> {
        let place = sql as usize;
        let statement = match &mut self.ready[place] {
            Some(statement) => statement,
            empty => empty.insert(self.connection.prepare_cached(SQL[place].1)?),
        };
        statement.execute(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_stands_at_its_own_place() {
        for (place, (sql, _)) in SQL.into_iter().enumerate() {
            assert_eq!(sql as usize, place);
        }
    }
}
