//! Writes become rows.

use std::collections::{BTreeMap, BTreeSet};

use paceline_core::{
    AttemptId, Blob, CachedAnswer, CallRecord, JobId, JobRecord, LaneId, LaneRecord, Report,
    Reservation, Stamp, Write,
};
use rusqlite::Connection;

use super::forms::Buffer;
use super::keys::hash;
use super::leaving::Leaving;
use super::statements::{Sql, Statements};

/// An index in memory of some rows, which spares the tables a search or an index on disk.
#[derive(Debug, Default)]
pub(super) struct TableIndex {
    /// Unfinished jobs with rows of calls: most have none.
    pub(super) with_calls: BTreeSet<JobId>,
    /// Attempts that have ended, by lane: an index of them on disk would cost each attempt a page.
    pub(super) ended: BTreeMap<LaneId, BTreeSet<AttemptId>>,
    /// Finished jobs that stand in no row of their own yet.
    pub(super) leaving: Leaving,
}

/// The row of a stamp.
fn row(clocks: [i64; 4], next: [i64; 4], leaving: Option<&[u8]>) -> impl rusqlite::Params {
    let ([time, wall, boot, since_boot], [job, attempt, lane, event]) = (clocks, next);
    (time, wall, boot, since_boot, job, attempt, lane, event, leaving)
}

/// One transaction. Dropped before `finish`, it leaves the connection in the middle of it: the
/// store is then unusable anyway (B4).
pub(super) struct Writer<'a> {
    statements: Statements<'a>,
    index: &'a mut TableIndex,
    buffer: &'a mut Buffer,
}

type Done = rusqlite::Result<()>;

impl<'a> Writer<'a> {
    pub(super) fn begin(
        connection: &'a Connection,
        index: &'a mut TableIndex,
        buffer: &'a mut Buffer,
    ) -> rusqlite::Result<Writer<'a>> {
        let mut writer = Writer { statements: Statements::new(connection), index, buffer };
        writer.run(Sql::Begin, ())?;
        Ok(writer)
    }

    pub(super) fn finish(mut self) -> Done {
        self.run(Sql::Commit, ())
    }

    /// The finished jobs that stand beside the stamp get their rows.
    pub(super) fn leaving_rows(&mut self) -> Done {
        let leaving = std::mem::take(&mut self.index.leaving);
        leaving.rows(|row| self.run(Sql::Leaving, row))
    }

    pub(super) fn run(&mut self, sql: Sql, values: impl rusqlite::Params) -> Done {
        self.statements.run(sql, values).map(drop)
    }

    pub(super) fn stamp(&mut self, stamp: &Stamp) -> Done {
        let Stamp { time, wall, boot, since_boot, next } = *stamp;
        let clocks = [time.0, wall.0, boot, since_boot].map(u64::cast_signed);
        let next = [next.job, next.attempt, next.lane, next.event].map(u64::cast_signed);
        if let Some(leaving) = self.index.leaving.bytes(self.buffer) {
            return self.statements.run(Sql::Stamp, row(clocks, next, Some(leaving))).map(drop);
        }
        self.leaving_rows()?;
        self.run(Sql::Stamp, row(clocks, next, None))
    }

    pub(super) fn apply(&mut self, write: &Write) -> Done {
        match write {
            Write::Job(record, payload) => self.job(record, payload),
            Write::Terms(job, terms) => {
                let terms = self.buffer.bytes_of_terms(terms);
                self.statements.run(Sql::Terms, (job.0.cast_signed(), terms)).map(drop)
            }
            Write::Payload(job, payload) if payload.is_empty() => {
                self.run(Sql::DropPayload, [job.0.cast_signed()])
            }
            Write::Payload(job, payload) => self.payload(*job, payload),
            Write::Call(record) => self.call(record),
            Write::Reserve(reservation) => self.reserve(reservation),
            Write::HandOver(_, id, call) => {
                let values = (id.0.cast_signed(), call.job.0.cast_signed(), call.index);
                self.run(Sql::HandOver, values)
            }
            Write::Started(_, id, at) => {
                self.run(Sql::Started, (id.0.cast_signed(), at.0.cast_signed()))
            }
            Write::Ended(lane, id, at) => {
                let values = (id.0.cast_signed(), at.0.cast_signed());
                if self.statements.run(Sql::Ended, values)? > 0 {
                    self.index.ended.entry(*lane).or_default().insert(*id);
                }
                Ok(())
            }
            Write::Release(lane, id) => {
                if let Some(ended) = self.index.ended.get_mut(lane) {
                    ended.remove(id);
                }
                self.run(Sql::Release, [id.0.cast_signed()])
            }
            Write::Forget(lane, below) => self.forget(*lane, *below),
            Write::Lane(record) => self.lane(record),
            Write::DropLane(lane) => {
                self.forget(*lane, AttemptId(u64::MAX))?;
                self.index.ended.remove(lane);
                self.run(Sql::DropLane, [lane.0.cast_signed()])
            }
            Write::Finish(report) => self.finished(report),
            Write::FinishedKey(job, key) => {
                self.run(Sql::FinishedKey, [hash(key), job.0.cast_signed()])
            }
            Write::Answer(answer) => self.answer(answer),
            Write::Service(record) => {
                let body = self.buffer.bytes_of(record);
                self.statements.run(Sql::Service, (&*record.name, body)).map(drop)
            }
            Write::Roster(record) => {
                let body = self.buffer.bytes_of(record);
                self.statements.run(Sql::Roster, (&*record.name, body)).map(drop)
            }
            Write::Note(name, Some(note)) => self.run(Sql::Note, (&**name, &**note)),
            Write::Note(name, None) => self.run(Sql::DropNote, [&**name]),
            Write::Events(events) => {
                let first = events.first().expect("there is at least one").id.cast_signed();
                let body = self.buffer.bytes_of_events(events);
                self.statements.run(Sql::Events, (first, body)).map(drop)
            }
        }
    }

    fn job(&mut self, record: &JobRecord, payload: &Blob) -> Done {
        let id = record.id.0.cast_signed();
        let (terms, spec) = self.buffer.bytes_of_job(&record.terms, &record.spec);
        let values = (id, record.submitted_at.0.cast_signed(), terms, spec);
        self.statements.run(Sql::Job, values)?;
        // No row is an empty payload.
        if payload.is_empty() { Ok(()) } else { self.payload(record.id, payload) }
    }

    fn payload(&mut self, job: JobId, payload: &Blob) -> Done {
        self.run(Sql::Payload, (job.0.cast_signed(), &**payload))
    }

    fn call(&mut self, record: &CallRecord) -> Done {
        self.index.with_calls.insert(record.job);
        let body = self.buffer.bytes_of_call(record);
        let values = (record.job.0.cast_signed(), record.index, body);
        self.statements.run(Sql::Call, values).map(drop)
    }

    fn reserve(&mut self, reservation: &Reservation) -> Done {
        let Reservation { lane, attempt, call, priority, cost, at, ended_at } = reservation;
        if ended_at.is_some() {
            self.index.ended.entry(*lane).or_default().insert(*attempt);
        }
        let values = (
            attempt.0.cast_signed(),
            lane.0.cast_signed(),
            call.job.0.cast_signed(),
            call.index,
            *priority as u8,
            cost,
            at.0.cast_signed(),
            ended_at.map(|at| at.0.cast_signed()),
        );
        self.run(Sql::Reserve, values)
    }

    fn forget(&mut self, lane: LaneId, below: AttemptId) -> Done {
        let Some(ended) = self.index.ended.get_mut(&lane) else { return Ok(()) };
        let kept = ended.split_off(&below);
        for id in std::mem::replace(ended, kept) {
            self.run(Sql::Release, [id.0.cast_signed()])?;
        }
        Ok(())
    }

    fn lane(&mut self, record: &LaneRecord) -> Done {
        let body = self.buffer.bytes_of_lane(record);
        self.statements.run(Sql::Lane, (record.id.0.cast_signed(), body)).map(drop)
    }

    fn finished(&mut self, report: &Report) -> Done {
        let id = report.job.0.cast_signed();
        let body = self.buffer.bytes_of_report(report);
        let values = (id, report.finished_at.0.cast_signed(), body);
        let moved = self.statements.run(Sql::Finish, values)?;
        assert_eq!(moved, 1, "only an unfinished job is finished");
        self.index.leaving.add(report.job, report.finished_at);
        self.run(Sql::DropJob, [id])?;
        if self.index.with_calls.remove(&report.job) {
            self.run(Sql::DropCalls, [id])?;
        }
        Ok(())
    }

    fn answer(&mut self, answer: &CachedAnswer) -> Done {
        let value = answer.value.as_ref();
        let values = (
            &*answer.lane,
            &*answer.key,
            answer.expires_at.0.cast_signed(),
            value.map(|found| found.conclusive),
            value.map(|found| &*found.value),
        );
        self.run(Sql::Answer, values)
    }
}
