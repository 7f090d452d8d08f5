//! A store in memory: the same promises, except that nothing survives the process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paceline_core::{
    AttemptId, Blob, CachedAnswer, CallId, CallRecord, JobId, JobRecord, LaneId, LaneRecord,
    Lookup, Numbered, Record, Report, Reservation, RosterRecord, ServiceRecord, Stamp, Time, Write,
};

use crate::{Cursor, JobFilter, PRUNE_STEP, Store, StoreError, StoredJob};

/// A store in memory. Clones are handles to the same store, so it outlives the engine that it was
/// given to. To play a crash, drop that engine and give a clone to the next one.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Tables>>);

impl Memory {
    /// An independent store with the same contents.
    #[must_use]
    pub fn copy(&self) -> Memory {
        Memory(Arc::new(Mutex::new(self.tables().clone())))
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic in `each` of a load leaves the tables as they were.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type AnswerKey = (Arc<str>, Blob);

#[derive(Clone, Debug, Default)]
struct Tables {
    stamp: Option<Stamp>,
    lanes: BTreeMap<LaneId, LaneRecord>,
    jobs: BTreeMap<JobId, JobRecord>,
    finished: BTreeMap<JobId, (JobRecord, Report)>,
    finished_keys: BTreeSet<(Blob, JobId)>,
    payloads: BTreeMap<JobId, Blob>,
    calls: BTreeMap<CallId, CallRecord>,
    attempts: BTreeMap<AttemptId, Reservation>,
    answers: BTreeMap<AnswerKey, CachedAnswer>,
    services: BTreeMap<Arc<str>, ServiceRecord>,
    rosters: BTreeMap<Arc<str>, RosterRecord>,
    notes: BTreeMap<Arc<str>, Blob>,
    events: BTreeMap<u64, Numbered>,
    /// Finished jobs and answers, by the moments from which on they may be forgotten.
    by_time: BTreeSet<(Time, JobId)>,
    by_expiry: BTreeSet<(Time, AnswerKey)>,
}

impl Tables {
    fn apply(&mut self, write: &Write) {
        match write.clone() {
            Write::Job(record, payload) => {
                self.payloads.insert(record.id, payload);
                let before = self.jobs.insert(record.id, record);
                assert!(before.is_none(), "numbers of jobs are never used twice");
            }
            Write::Terms(job, terms) => {
                self.jobs.entry(job).and_modify(|record| record.terms = terms);
            }
            Write::Payload(job, payload) => {
                self.payloads.insert(job, payload);
            }
            Write::Call(record) => {
                self.calls.insert(CallId { job: record.job, index: record.index }, record);
            }
            Write::Reserve(reservation) => {
                let before = self.attempts.insert(reservation.attempt, reservation);
                assert!(before.is_none(), "numbers of attempts are never used twice");
            }
            Write::HandOver(_, id, call) => {
                self.attempts.entry(id).and_modify(|attempt| attempt.call = call);
            }
            Write::Started(_, id, at) => {
                self.attempts.entry(id).and_modify(|attempt| attempt.at = at);
            }
            Write::Ended(_, id, at) => {
                self.attempts.entry(id).and_modify(|attempt| attempt.ended_at = Some(at));
            }
            Write::Release(_, id) => {
                self.attempts.remove(&id);
            }
            Write::Forget(lane, below) => self.forget(lane, below),
            Write::Lane(record) => {
                self.lanes.insert(record.id, record);
            }
            Write::DropLane(lane) => {
                self.lanes.remove(&lane);
                self.forget(lane, AttemptId(u64::MAX));
            }
            Write::Finish(report) => self.finish((*report).clone()),
            Write::FinishedKey(job, key) => {
                self.finished_keys.insert((key, job));
            }
            Write::Answer(answer) => {
                let key = (answer.lane.clone(), answer.key.clone());
                self.by_expiry.insert((answer.expires_at, key.clone()));
                if let Some(before) = self.answers.insert(key.clone(), answer.clone())
                    && before.expires_at != answer.expires_at
                {
                    self.by_expiry.remove(&(before.expires_at, key));
                }
            }
            Write::Service(record) => {
                self.services.insert(record.name.clone(), record);
            }
            Write::Roster(record) => {
                self.rosters.insert(record.name.clone(), record);
            }
            Write::Note(name, Some(note)) => {
                self.notes.insert(name, note);
            }
            Write::Note(name, None) => {
                self.notes.remove(&name);
            }
            Write::Events(events) => {
                self.events.extend(events.into_iter().map(|event| (event.id, event)));
            }
        }
    }

    fn forget(&mut self, lane: LaneId, below: AttemptId) {
        self.attempts.retain(|&id, attempt| {
            attempt.lane != lane || id >= below || attempt.ended_at.is_none()
        });
    }

    fn finish(&mut self, report: Report) {
        let record = self.jobs.remove(&report.job).expect("only an unfinished job is finished");
        let first = CallId { job: report.job, index: 0 };
        let last = CallId { job: report.job, index: u16::MAX };
        let calls: Vec<CallId> = self.calls.range(first..=last).map(|(&id, _)| id).collect();
        for call in calls {
            self.calls.remove(&call);
        }
        self.by_time.insert((report.finished_at, report.job));
        self.finished.insert(report.job, (record, report));
    }

    fn stored(&self, id: JobId) -> Option<StoredJob> {
        let unfinished = |record: &JobRecord| StoredJob { record: record.clone(), report: None };
        let finished = |(record, report): &(JobRecord, Report)| StoredJob {
            record: record.clone(),
            report: Some(report.clone()),
        };
        self.jobs.get(&id).map(unfinished).or_else(|| self.finished.get(&id).map(finished))
    }

    fn newest(&self, key: &Blob) -> Option<StoredJob> {
        let same = (key.clone(), JobId(0))..=(key.clone(), JobId(u64::MAX));
        let (_, job) = self.finished_keys.range(same).next_back()?;
        self.stored(*job)
    }

    fn forget_finished(&mut self, id: JobId) {
        let (record, _) = self.finished.remove(&id).expect("found among the finished");
        self.payloads.remove(&id);
        if let Some(key) = record.spec.key.clone() {
            self.finished_keys.remove(&(key, id));
        }
    }

    fn prune_jobs(&mut self, finished_before: Time) -> usize {
        let oldest = self.by_time.iter().take(PRUNE_STEP);
        let old: Vec<_> = oldest.take_while(|(at, _)| *at < finished_before).copied().collect();
        for entry in &old {
            self.by_time.remove(entry);
            self.forget_finished(entry.1);
        }
        old.len()
    }

    fn prune_answers(&mut self, now: Time) -> usize {
        let oldest = self.by_expiry.iter().take(PRUNE_STEP);
        let expired: Vec<_> = oldest.take_while(|(at, _)| *at <= now).cloned().collect();
        for entry in &expired {
            self.by_expiry.remove(entry);
            self.answers.remove(&entry.1);
        }
        expired.len()
    }
}

impl Store for Memory {
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Option<Stamp>, StoreError> {
        let tables = self.tables();
        tables.lanes.values().cloned().map(Record::Lane).for_each(&mut *each);
        tables.jobs.values().cloned().map(Record::Job).for_each(&mut *each);
        tables.calls.values().cloned().map(Record::Call).for_each(&mut *each);
        tables.attempts.values().cloned().map(Record::Reservation).for_each(&mut *each);
        tables.services.values().cloned().map(Record::Service).for_each(&mut *each);
        tables.rosters.values().cloned().map(Record::Roster).for_each(&mut *each);
        Ok(tables.stamp)
    }

    fn commit(&mut self, stamp: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for write in writes {
            tables.apply(write);
        }
        tables.stamp = Some(*stamp);
        Ok(())
    }

    fn payload(&mut self, job: JobId) -> Result<Option<Blob>, StoreError> {
        Ok(self.tables().payloads.get(&job).cloned())
    }

    fn notes(&mut self, beginning: &str) -> Result<Vec<Arc<str>>, StoreError> {
        let tables = self.tables();
        let from = (Included(Arc::from(beginning)), Unbounded);
        let names = tables.notes.range::<Arc<str>, _>(from).map(|(name, _)| name.clone());
        Ok(names.take_while(|name| name.starts_with(beginning)).collect())
    }

    fn note(&mut self, name: &str) -> Result<Option<Blob>, StoreError> {
        Ok(self.tables().notes.get(name).cloned())
    }

    fn answers(
        &mut self,
        lookups: &[Lookup],
        now: Time,
    ) -> Result<Vec<Option<CachedAnswer>>, StoreError> {
        let tables = self.tables();
        let find = |lookup: &Lookup| {
            let answer = tables.answers.get(&(lookup.lane.clone(), lookup.key.clone()));
            answer.filter(|answer| now < answer.expires_at).cloned()
        };
        Ok(lookups.iter().map(find).collect())
    }

    fn list(
        &mut self,
        from: Cursor,
        most: usize,
        filter: JobFilter,
    ) -> Result<Vec<StoredJob>, StoreError> {
        let tables = self.tables();
        let mut ids = some(&tables.jobs, from, most);
        if filter == JobFilter::All {
            ids.extend(some(&tables.finished, from, most));
        }
        match from {
            Cursor::After(_) => ids.sort_unstable(),
            Cursor::Before(_) => ids.sort_unstable_by_key(|&id| Reverse(id)),
        }
        Ok(ids.into_iter().take(most).filter_map(|id| tables.stored(id)).collect())
    }

    fn job(&mut self, id: JobId) -> Result<Option<StoredJob>, StoreError> {
        Ok(self.tables().stored(id))
    }

    fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<StoredJob>>, StoreError> {
        let tables = self.tables();
        Ok(keys.iter().map(|key| tables.newest(key)).collect())
    }

    fn events(&mut self, after: u64, most: usize) -> Result<Vec<Numbered>, StoreError> {
        let above = (Excluded(after), Unbounded);
        Ok(self.tables().events.range(above).take(most).map(|(_, event)| event.clone()).collect())
    }

    fn forget_events(&mut self, below: u64) -> Result<(), StoreError> {
        let mut tables = self.tables();
        tables.events = tables.events.split_off(&below);
        Ok(())
    }

    fn prune(&mut self, finished_before: Time, now: Time) -> Result<usize, StoreError> {
        let mut tables = self.tables();
        Ok(tables.prune_jobs(finished_before) + tables.prune_answers(now))
    }
}

/// The first numbers of a table from there on.
fn some<T>(table: &BTreeMap<JobId, T>, from: Cursor, most: usize) -> Vec<JobId> {
    match from {
        Cursor::After(id) => {
            table.range((Excluded(id), Unbounded)).take(most).map(|(&id, _)| id).collect()
        }
        Cursor::Before(id) => table.range(..id).rev().take(most).map(|(&id, _)| id).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_the_promises_of_a_store() {
        crate::conformance::all(&mut || {
            let memory = Memory::default();
            Box::new(move || Box::new(memory.clone()))
        });
    }

    #[test]
    fn a_copy_goes_its_own_way() {
        let mut memory = Memory::default();
        let mut copy = memory.copy();
        memory.commit(&Stamp::default(), &[]).expect("memory never fails");
        assert_eq!(copy.load(&mut |_| ()).expect("memory never fails"), None);
    }
}
