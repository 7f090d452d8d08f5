//! Promises about finding jobs: finished ones by their keys, and unfinished ones.

use std::sync::Arc;

use paceline_core::{Blob, JobId, JobRecord, JobSpec, Time, Write};

use super::{Fixture, job, report};
use crate::{Cursor, JobFilter, PRUNE_STEP};

fn keyed(id: u64, key: &[u8]) -> JobRecord {
    let spec = JobSpec { key: Some(key.into()), ..(*job(id).spec).clone() };
    JobRecord { spec: Arc::new(spec), ..job(id) }
}

fn submit(id: u64, key: &[u8]) -> Write {
    Write::Job(keyed(id, key), b"x".as_slice().into())
}

fn finish(id: u64, key: &[u8], finished_at: u64) -> [Write; 2] {
    let report = report(id, finished_at, vec![]);
    [Write::Finish(report.into()), Write::FinishedKey(JobId(id), key.into())]
}

/// The numbers of the jobs found, which must be the same before and after opening anew.
#[track_caller]
fn found(fixture: &mut Fixture, keys: &[&[u8]]) -> Vec<Option<u64>> {
    let keys: Vec<Blob> = keys.iter().map(|key| Blob::from(*key)).collect();
    let before = fixture.store().finished(&keys).expect("a look");
    let after = fixture.reopen().finished(&keys).expect("a look");
    assert_eq!(before, after, "opening anew changes nothing");
    for (stored, key) in after.iter().zip(&keys) {
        let Some(stored) = stored else { continue };
        assert_eq!(stored.record.spec.key.as_ref(), Some(key));
        assert!(stored.report.is_some());
        assert_eq!(fixture.job(stored.record.id.0).as_ref(), Some(stored));
    }
    after.into_iter().map(|stored| stored.map(|stored| stored.record.id.0)).collect()
}

pub(super) fn the_newest_finished_job_is_found_by_its_key(fixture: &mut Fixture) {
    let long = vec![7; 5_000];
    assert_eq!(found(fixture, &[b"a", b""]), [None, None]);
    fixture.commit(&[submit(1, b"a"), submit(2, b""), submit(3, &long), submit(4, b"never")]);
    assert_eq!(found(fixture, &[b"a", b"", &long]), [None, None, None], "none is finished");
    fixture.commit(&[finish(1, b"a", 5), finish(2, b"", 5), finish(3, &long, 5)].concat());
    let keys: [&[u8]; 5] = [&long, b"a", b"never", b"", b"a"];
    assert_eq!(found(fixture, &keys), [Some(3), Some(1), None, Some(2), Some(1)]);

    // In one batch, as the engine writes it when a job is answered from the cache. An unfinished
    // job hides no finished one.
    fixture.commit(&[vec![submit(5, b"a")], finish(5, b"a", 6).to_vec()].concat());
    fixture.commit(&[submit(6, b"a")]);
    assert_eq!(found(fixture, &[b"a"]), [Some(5)]);
    fixture.commit(&finish(6, b"a", 7));
    assert_eq!(found(fixture, &[b"a"]), [Some(6)]);
    assert_eq!(fixture.store().finished(&[]).expect("a look"), []);
}

pub(super) fn a_forgotten_job_is_not_found_by_its_key(fixture: &mut Fixture) {
    let jobs = PRUNE_STEP as u64;
    let mut writes = Vec::new();
    for id in 1..=jobs {
        writes.push(submit(id, &id.to_le_bytes()));
        writes.extend(finish(id, &id.to_le_bytes(), id));
    }
    for (id, finished_at) in [(jobs + 1, 3), (jobs + 2, 900)] {
        writes.push(submit(id, b"again"));
        writes.extend(finish(id, b"again", finished_at));
    }
    fixture.commit(&writes);
    let old = jobs * 3 / 4;
    let prune = |fixture: &mut Fixture, before| {
        fixture.store().prune(Time(before), Time(0)).expect("a step") as u64
    };
    assert_eq!(prune(fixture, old + 1), old + 1);
    assert_eq!(prune(fixture, old + 1), 0);
    let (gone, stays) = (old.to_le_bytes(), (old + 1).to_le_bytes());
    assert_eq!(found(fixture, &[&gone, &stays, b"again"]), [None, Some(old + 1), Some(jobs + 2)]);
    assert_eq!(prune(fixture, 901), jobs - old + 1);
    assert_eq!(found(fixture, &[&stays, b"again"]), [None, None]);
    // The key can be used again.
    fixture
        .commit(&[vec![submit(jobs + 3, &gone)], finish(jobs + 3, &gone, 901).to_vec()].concat());
    assert_eq!(found(fixture, &[&gone]), [Some(jobs + 3)]);
}

pub(super) fn unfinished_jobs_are_listed_alone(fixture: &mut Fixture) {
    fixture
        .commit(&(1..=9).map(|id| Write::Job(job(id), b"x".as_slice().into())).collect::<Vec<_>>());
    fixture.commit(&[1, 2, 3, 7].map(|id| Write::Finish(report(id, 5, vec![]).into())));
    let mut listed = |from, most| -> Vec<u64> {
        let listed = fixture.store().list(from, most, JobFilter::Unfinished).expect("a list");
        assert!(listed.iter().all(|stored| stored.report.is_none()));
        listed.iter().map(|stored| stored.record.id.0).collect()
    };
    let after = |id| Cursor::After(JobId(id));
    assert_eq!(listed(after(0), 3), [4, 5, 6]);
    assert_eq!(listed(after(6), 3), [8, 9]);
    assert_eq!(listed(after(9), 3), [0; 0]);
    assert_eq!(listed(after(0), usize::MAX), [4, 5, 6, 8, 9]);
    assert_eq!(listed(after(u64::MAX), 3), [0; 0]);
    assert_eq!(listed(Cursor::NEWEST, 3), [9, 8, 6]);
    assert_eq!(listed(Cursor::Before(JobId(6)), 9), [5, 4]);
}

pub(super) fn jobs_are_listed_from_either_end(fixture: &mut Fixture) {
    let before = |id| Cursor::Before(JobId(id));
    fixture
        .commit(&(1..=9).map(|id| Write::Job(job(id), b"x".as_slice().into())).collect::<Vec<_>>());
    fixture.commit(&[1, 2, 3, 7].map(|id| Write::Finish(report(id, 5, vec![]).into())));
    let mut listed = |from, most| -> Vec<u64> {
        let listed = fixture.store().list(from, most, JobFilter::All).expect("a list");
        listed.iter().map(|stored| stored.record.id.0).collect()
    };
    assert_eq!(listed(Cursor::NEWEST, 3), [9, 8, 7]);
    assert_eq!(listed(before(7), 3), [6, 5, 4]);
    assert_eq!(listed(before(4), 9), [3, 2, 1]);
    assert_eq!(listed(before(1), 9), [0; 0]);
    assert_eq!(listed(None.into(), 4), [1, 2, 3, 4]);
    assert_eq!(listed(Cursor::NEWEST.at(JobId(3)), 1), [2]);
}
