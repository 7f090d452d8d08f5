//! Finished jobs by the moment at which they finished, to be forgotten in that order.
//!
//! The newest stand beside the stamp, on a page that every commit writes anyway; when they are many
//! they become rows. A row for each commit would cost each commit a page.

use std::collections::BTreeMap;

use paceline_core::{JobId, Time};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::forms::{Buffer, Unreadable, read};
use super::load;
use crate::PRUNE_STEP;

/// Jobs of one row: it fits on its page.
const JOBS_PER_ROW: usize = 100;
const NUMBER: usize = size_of::<u64>();
/// A step goes on to the next job while it has forgotten less than this: a large one takes its
/// time.
pub(super) const STEP_BYTES: u64 = 2 << 20;
/// Beyond these the newest become rows: they fit on the page of the stamp.
const MOST_JOBS: usize = 1_000;
const MOST_BYTES: usize = 2_000;

/// The jobs that finished last, by their moments.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    moments: BTreeMap<Time, Vec<JobId>>,
    jobs: usize,
}

/// A moment, its first job, and the differences from each job to the next.
type Stored = Vec<(u64, u64, Vec<i64>)>;

impl Leaving {
    pub(super) fn add(&mut self, job: JobId, finished_at: Time) {
        self.moments.entry(finished_at).or_default().push(job);
        self.jobs += 1;
    }

    /// When the first of them finished.
    pub(super) fn first(&self) -> Option<Time> {
        self.moments.first_key_value().map(|(at, _)| *at)
    }

    /// Their stored form, if there are any and not too many.
    pub(super) fn bytes<'b>(&self, buffer: &'b mut Buffer) -> Option<&'b [u8]> {
        if self.jobs == 0 || self.jobs > MOST_JOBS {
            return None;
        }
        let stored: Stored = self.moments.iter().map(|(at, jobs)| steps(*at, jobs)).collect();
        Some(buffer.bytes_of(&stored)).filter(|bytes| bytes.len() <= MOST_BYTES)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Leaving, Unreadable> {
        let mut leaving = Leaving::default();
        for (at, first, steps) in read::<Stored>("finished jobs", bytes)? {
            let mut job = first;
            leaving.add(JobId(job), Time(at));
            for step in steps {
                job = job.wrapping_add_signed(step);
                leaving.add(JobId(job), Time(at));
            }
        }
        Ok(leaving)
    }

    /// Hands out its rows: the moment, the first job, the others.
    pub(super) fn rows(
        self,
        mut each: impl FnMut((i64, i64, Option<Vec<u8>>)) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        for (at, jobs) in self.moments {
            for jobs in jobs.chunks(JOBS_PER_ROW) {
                let (first, rest) = jobs.split_first().expect("a chunk has one at least");
                let numbers: Vec<i64> = rest.iter().map(|job| job.0.cast_signed()).collect();
                each((at.0.cast_signed(), first.0.cast_signed(), others(&numbers)))?;
            }
        }
        Ok(())
    }
}

fn steps(at: Time, jobs: &[JobId]) -> (u64, u64, Vec<i64>) {
    let step = |two: &[JobId]| two[1].0.wrapping_sub(two[0].0).cast_signed();
    (at.0, jobs[0].0, jobs.windows(2).map(step).collect())
}

/// Jobs on their way out.
#[derive(Debug, Default)]
pub(super) struct Old {
    /// The rows that name them.
    pub(super) rows: Vec<(i64, i64)>,
    /// The jobs, each with the hash of its key.
    pub(super) jobs: Vec<(i64, Option<i64>)>,
    /// The rest of the last row, if not all its jobs fit into this step.
    pub(super) stays: Option<(i64, i64, Option<Vec<u8>>)>,
}

/// The first few jobs finished before this moment.
pub(super) fn old(connection: &Connection, finished_before: i64) -> rusqlite::Result<Old> {
    let sql = "SELECT finished_at, first, others FROM leaving
               WHERE finished_at >= 0 AND finished_at < ? ORDER BY finished_at, first";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([finished_before])?;
    let mut old = Old::default();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let jobs = named(row)?;
        if old.jobs.len() + jobs.len() > PRUNE_STEP || bytes > STEP_BYTES {
            break;
        }
        old.rows.push((row.get(0)?, row.get(1)?));
        for (at, &job) in jobs.iter().enumerate() {
            if bytes > STEP_BYTES {
                old.stays = Some((row.get(0)?, job, others(&jobs[at + 1..])));
                break;
            }
            let (key_hash, size) = looked_at(connection, job)?;
            old.jobs.push((job, key_hash));
            bytes += size;
        }
    }
    Ok(old)
}

/// The job that a row begins with, and those after it.
fn named(row: &Row<'_>) -> rusqlite::Result<Vec<i64>> {
    let others = row.get_ref(2)?.as_blob_or_null()?.unwrap_or_default();
    let (others, _) = others.as_chunks::<NUMBER>();
    let others = others.iter().map(|bytes| i64::from_le_bytes(*bytes));
    Ok(std::iter::once(row.get(1)?).chain(others).collect())
}

fn others(jobs: &[i64]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = jobs.iter().flat_map(|job| job.to_le_bytes()).collect();
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

/// The hash of a job's key, and the number of bytes that go with the job. Most of them are not
/// read.
fn looked_at(connection: &Connection, job: i64) -> rusqlite::Result<(Option<i64>, u64)> {
    let sql = "SELECT spec, length(spec) + length(terms) + length(report)
               + ifnull((SELECT length(payload) FROM payloads WHERE job = id), 0)
               FROM finished WHERE id = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &Row<'_>| Ok((load::key_hash(row, 0), load::number(row, 1)?));
    Ok(statement.query_row([job], read).optional()?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_beside_the_stamp_are_read_as_they_were_written() {
        let mut leaving = Leaving::default();
        for (job, at) in [(7, 10), (3, 10), (u64::MAX, 10), (4, u64::MAX), (5, 9)] {
            leaving.add(JobId(job), Time(at));
        }
        let mut buffer = Buffer::default();
        let bytes = leaving.bytes(&mut buffer).expect("a few").to_vec();
        let read = Leaving::read(&bytes).expect("its own form");
        assert_eq!((read.moments, read.jobs), (leaving.moments, 5));
        assert_eq!(read_first(&bytes), Some(Time(9)));
        assert!(Leaving::read(&bytes[..bytes.len() - 1]).is_err());
    }

    fn read_first(bytes: &[u8]) -> Option<Time> {
        Leaving::read(bytes).expect("its own form").first()
    }

    #[test]
    fn too_many_for_the_page_of_the_stamp_become_rows() {
        let mut leaving = Leaving::default();
        (0..=MOST_JOBS as u64).for_each(|job| leaving.add(JobId(job), Time(1)));
        assert!(leaving.bytes(&mut Buffer::default()).is_none());
        let mut leaving = Leaving::default();
        (0..300).for_each(|n| leaving.add(JobId(n << 40), Time(n)));
        assert!(leaving.bytes(&mut Buffer::default()).is_none());
        let mut rows = 0;
        let counted = leaving.rows(|_| {
            rows += 1;
            Ok(())
        });
        assert_eq!((counted, rows), (Ok(()), 300));
    }
}
