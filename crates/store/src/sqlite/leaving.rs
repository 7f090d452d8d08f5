//! Finished jobs by the moment at which they finished, to be forgotten in that order.

use std::collections::BTreeMap;

use paceline_core::{JobId, Time};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::load;
use crate::PRUNE_STEP;

/// Jobs of one row: it fits on its page.
const JOBS_PER_ROW: usize = 100;
const NUMBER: usize = size_of::<u64>();

/// The jobs that one transaction finishes, by their moments.
#[derive(Debug, Default)]
pub(super) struct Leaving(BTreeMap<Time, Vec<JobId>>);

impl Leaving {
    pub(super) fn add(&mut self, job: JobId, finished_at: Time) {
        self.0.entry(finished_at).or_default().push(job);
    }

    /// Hands out its rows: the moment, the first job, the others.
    pub(super) fn rows(
        self,
        mut each: impl FnMut((i64, i64, Option<Vec<u8>>)) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        for (at, jobs) in self.0 {
            for jobs in jobs.chunks(JOBS_PER_ROW) {
                let (first, others) = jobs.split_first().expect("a chunk has one at least");
                let bytes: Vec<u8> = others.iter().flat_map(|job| job.0.to_le_bytes()).collect();
                let others = Some(bytes).filter(|bytes| !bytes.is_empty());
                each((at.0.cast_signed(), first.0.cast_signed(), others))?;
            }
        }
        Ok(())
    }
}

/// Jobs on their way out.
#[derive(Debug, Default)]
pub(super) struct Old {
    /// The rows that name them.
    pub(super) rows: Vec<(i64, i64)>,
    /// The jobs, each with the hash of its key.
    pub(super) jobs: Vec<(i64, Option<i64>)>,
}

/// The first few jobs finished before this moment.
pub(super) fn old(connection: &Connection, finished_before: i64) -> rusqlite::Result<Old> {
    let sql = "SELECT finished_at, first, others FROM leaving
               WHERE finished_at >= 0 AND finished_at < ? ORDER BY finished_at, first";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([finished_before])?;
    let mut old = Old::default();
    while let Some(row) = rows.next()? {
        let jobs = named(row)?;
        if old.jobs.len() + jobs.len() > PRUNE_STEP {
            break;
        }
        old.rows.push((row.get(0)?, row.get(1)?));
        for job in jobs {
            old.jobs.push((job, key_hash(connection, job)?));
        }
    }
    Ok(old)
}

fn named(row: &Row<'_>) -> rusqlite::Result<Vec<i64>> {
    let others = row.get_ref(2)?.as_blob_or_null()?.unwrap_or_default();
    let (others, _) = others.as_chunks::<NUMBER>();
    let others = others.iter().map(|bytes| i64::from_le_bytes(*bytes));
    Ok(std::iter::once(row.get(1)?).chain(others).collect())
}

fn key_hash(connection: &Connection, job: i64) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached("SELECT spec FROM finished WHERE id = ?")?;
    let hash = statement.query_row([job], |row| Ok(load::key_hash(row, 0))).optional()?;
    Ok(hash.flatten())
}
