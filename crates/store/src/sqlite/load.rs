//! Rows become records.

use std::sync::Arc;

use paceline_core::{
    AttemptId, CachedAnswer, CachedValue, CallId, Counters, JobId, JobRecord, JobSpec, LaneId,
    Lookup, Numbered, Priority, Record, Reservation, RosterRecord, ServiceRecord, Stamp, Time,
};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

use super::apply::TableIndex;
use super::forms::{
    Specs, Unreadable, read, read_call, read_events, read_lane, read_report, read_terms,
};
use super::keys::hash;
use super::leaving::Leaving;
use crate::StoredJob;

pub(super) fn stamp(connection: &Connection) -> rusqlite::Result<Option<Stamp>> {
    let sql = "SELECT time, wall, boot, since_boot, next_job, next_attempt, next_lane, next_event FROM meta";
    let read = |row: &Row<'_>| {
        let next = Counters {
            job: number(row, 4)?,
            attempt: number(row, 5)?,
            lane: number(row, 6)?,
            event: number(row, 7)?,
        };
        Ok(Stamp {
            time: time(row, 0)?,
            wall: time(row, 1)?,
            boot: number(row, 2)?,
            since_boot: number(row, 3)?,
            next,
        })
    };
    connection.query_row(sql, [], read).optional()
}

/// The jobs that finished last.
pub(super) fn leaving(connection: &Connection) -> rusqlite::Result<Leaving> {
    let read = |row: &Row<'_>| match row.get_ref(0)?.as_blob_or_null()? {
        Some(bytes) => readable(0, Leaving::read(bytes)),
        None => Ok(Leaving::default()),
    };
    let found = connection.query_row("SELECT leaving FROM meta", [], read).optional()?;
    Ok(found.unwrap_or_default())
}

pub(super) fn lanes(connection: &Connection, each: &mut dyn FnMut(Record)) -> rusqlite::Result<()> {
    for_each(connection, "SELECT body FROM lanes ORDER BY id", |row| {
        each(Record::Lane(readable(0, read_lane(bytes(row, 0)?))?));
        Ok(())
    })
}

pub(super) fn jobs(connection: &Connection, each: &mut dyn FnMut(Record)) -> rusqlite::Result<()> {
    let mut specs = Specs::default();
    for_each(connection, "SELECT id, submitted_at, terms, spec FROM jobs ORDER BY id", |row| {
        let spec = readable(3, specs.read(bytes(row, 3)?))?;
        each(Record::Job(job_record(row, spec)?));
        Ok(())
    })
}

pub(super) fn calls(
    connection: &Connection,
    index: &mut TableIndex,
    each: &mut dyn FnMut(Record),
) -> rusqlite::Result<()> {
    for_each(connection, "SELECT body FROM calls ORDER BY job, idx", |row| {
        let call = readable(0, read_call(bytes(row, 0)?))?;
        index.with_calls.insert(call.job);
        each(Record::Call(call));
        Ok(())
    })
}

pub(super) fn reservations(
    connection: &Connection,
    index: &mut TableIndex,
    each: &mut dyn FnMut(Record),
) -> rusqlite::Result<()> {
    let sql = "SELECT id, lane, job, idx, priority, cost, at, ended_at FROM attempts ORDER BY id";
    for_each(connection, sql, |row| {
        let priority = Priority::ALL.get(usize::from(row.get::<_, u8>(4)?));
        let ended_at: Option<i64> = row.get(7)?;
        let reservation = Reservation {
            attempt: AttemptId(number(row, 0)?),
            lane: LaneId(number(row, 1)?),
            call: CallId { job: JobId(number(row, 2)?), index: row.get(3)? },
            priority: *priority.ok_or(rusqlite::Error::IntegralValueOutOfRange(4, row.get(4)?))?,
            cost: row.get(5)?,
            at: time(row, 6)?,
            ended_at: ended_at.map(|at| Time(at.cast_unsigned())),
        };
        if ended_at.is_some() {
            index.ended.entry(reservation.lane).or_default().insert(reservation.attempt);
        }
        each(Record::Reservation(reservation));
        Ok(())
    })
}

pub(super) fn services(
    connection: &Connection,
    each: &mut dyn FnMut(Record),
) -> rusqlite::Result<()> {
    for_each(connection, "SELECT body FROM services ORDER BY name", |row| {
        each(Record::Service(body::<ServiceRecord>("service", row, 0)?));
        Ok(())
    })?;
    for_each(connection, "SELECT body FROM rosters ORDER BY name", |row| {
        each(Record::Roster(body::<RosterRecord>("roster", row, 0)?));
        Ok(())
    })
}

/// A row of `id, submitted_at, terms, spec, finished_at, report`.
pub(super) fn stored_job(row: &Row<'_>) -> rusqlite::Result<StoredJob> {
    let record = job_record(row, Arc::new(spec(row, 3)?))?;
    let report = match row.get_ref(5)?.as_blob_or_null()? {
        Some(bytes) => Some(readable(5, read_report(record.id, time(row, 4)?, bytes))?),
        None => None,
    };
    Ok(StoredJob { record, report })
}

/// The part of a job that never changes.
pub(super) fn spec(row: &Row<'_>, column: usize) -> rusqlite::Result<JobSpec> {
    body("job", row, column)
}

/// The hash of the key in a job's spec, if it has one. A spec that cannot be read has none: it is
/// on its way out.
pub(super) fn key_hash(row: &Row<'_>, column: usize) -> Option<i64> {
    spec(row, column).ok()?.key.as_deref().map(hash)
}

/// A row of `first, body`.
pub(super) fn events(row: &Row<'_>) -> rusqlite::Result<Vec<Numbered>> {
    readable(1, read_events(number(row, 0)?, bytes(row, 1)?))
}

/// A row of `expires_at, conclusive, value`.
pub(super) fn answer(row: &Row<'_>, lookup: &Lookup) -> rusqlite::Result<CachedAnswer> {
    let conclusive: Option<bool> = row.get(1)?;
    let value = match conclusive {
        Some(conclusive) => {
            Some(CachedValue { conclusive, value: row.get_ref(2)?.as_blob()?.into() })
        }
        None => None,
    };
    let Lookup { lane, key } = lookup.clone();
    Ok(CachedAnswer { lane, key, value, expires_at: time(row, 0)? })
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Time> {
    number(row, column).map(Time)
}

/// Numbers and moments use all 64 bits, and SQLite has no unsigned ones.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get_ref(column)?.as_i64()?.cast_unsigned())
}

fn job_record(row: &Row<'_>, spec: Arc<JobSpec>) -> rusqlite::Result<JobRecord> {
    let terms = readable(2, read_terms(bytes(row, 2)?))?;
    Ok(JobRecord { id: JobId(number(row, 0)?), submitted_at: time(row, 1)?, terms, spec })
}

fn body<T: serde::de::DeserializeOwned>(
    what: &'static str,
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    readable(column, read(what, bytes(row, column)?))
}

/// The bytes of a blob. Any other value was not written by this program: it has no bytes, and
/// reading them fails.
fn bytes<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    Ok(row.get_ref(column)?.as_blob().unwrap_or_default())
}

fn readable<T>(column: usize, read: Result<T, Unreadable>) -> rusqlite::Result<T> {
    read.map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(error))
    })
}

fn for_each(
    connection: &Connection,
    sql: &str,
    mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(row)?;
    }
    Ok(())
}
