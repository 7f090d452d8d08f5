//! Promises about forgetting: old jobs and answers go in small steps, and nothing else goes.

use paceline_core::{JobId, Record, Time, Write};

use super::{Fixture, found, job, report};
use crate::PRUNE_STEP;

pub(super) fn steps_are_small_and_take_only_old_jobs_and_answers(fixture: &mut Fixture) {
    let jobs = 2 * PRUNE_STEP as u64 + 10;
    let mut writes =
        vec![Write::Answer(found("old", "1", 10)), Write::Answer(found("new", "2", 99))];
    for id in 1..=jobs {
        writes.push(Write::Job(job(id), b"x".as_slice().into()));
        writes.push(Write::Finish(report(id, if id % 2 == 0 { 5 } else { 50 }, vec![]).into()));
    }
    writes.push(Write::Job(job(jobs + 1), b"x".as_slice().into()));
    fixture.commit(&writes);
    assert_eq!(fixture.answers(&["old", "new"], 9).iter().flatten().count(), 2);
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(fixture.store().prune(Time(50), Time(10)).expect("a step"));
    }
    assert_eq!(steps, [1 + PRUNE_STEP, 5, 0]);
    // It is gone from the cache as well: even an earlier moment does not bring it back.
    assert_eq!(fixture.answers(&["old", "new"], 9), [None, Some(found("new", "2", 99))]);
    assert_eq!(fixture.listed(0, 3), [1, 3, 5]);
    assert_eq!(fixture.job(2), None);
    assert_eq!(fixture.store().payload(JobId(2)).expect("a look"), None);
    assert_eq!(fixture.records(), [Record::Job(job(jobs + 1))]);
}

pub(super) fn old_jobs_are_found_whatever_stands_before_them(fixture: &mut Fixture) {
    // Many that were submitted early and finished late, then one that finished first.
    let last = 3 * PRUNE_STEP as u64;
    let mut writes = Vec::new();
    for id in 1..=last {
        let at = if id == last { 5 } else { 50 };
        writes.push(Write::Job(job(id), b"x".as_slice().into()));
        writes.push(Write::Finish(report(id, at, vec![]).into()));
        writes.push(Write::Answer(found(&format!("{id:06}"), "1", at)));
    }
    fixture.commit(&writes);
    // A newer answer for the same key has its own time.
    fixture
        .commit(&[Write::Answer(found("000001", "1", 5)), Write::Answer(found("000001", "1", 60))]);
    assert_eq!(fixture.store().prune(Time(50), Time(10)).expect("a step"), 2);
    assert_eq!(fixture.store().prune(Time(50), Time(10)).expect("a step"), 0);
    assert_eq!(fixture.job(last), None);
    assert_eq!(fixture.answers(&["000001"], 55), [Some(found("000001", "1", 60))]);
}

pub(super) fn jobs_of_many_commits_are_old_after_a_restart_too(fixture: &mut Fixture) {
    // Commits that finish one job, several, and more than are remembered at once.
    let sizes = [1, 3, 1, 1_200, 1, 90, 400, 700, 1];
    let jobs = (1..=sizes.iter().sum()).map(|id| Write::Job(job(id), b"x".as_slice().into()));
    fixture.commit(&jobs.collect::<Vec<_>>());
    let mut last = 0;
    for (at, size) in (10..).zip(sizes) {
        // Jobs do not finish in the order of their numbers.
        let order = (last + 1..=last + size).rev();
        let finish = |id| Write::Finish(report(id, at, vec![]).into());
        fixture.commit(&order.map(finish).collect::<Vec<_>>());
        last += size;
        if at % 2 == 0 {
            fixture.reopen();
        }
    }
    for (at, size) in (10..).zip(sizes) {
        assert_eq!(forgotten(fixture, at), 0, "nothing is as old as {at}");
        assert_eq!(forgotten(fixture, at + 1), size, "all that finished at {at} is forgotten");
        fixture.reopen();
    }
    assert_eq!(fixture.listed(0, 1), [] as [u64; 0]);
}

fn forgotten(fixture: &mut Fixture, finished_before: u64) -> u64 {
    let mut step = || fixture.store().prune(Time(finished_before), Time(0)).expect("a step") as u64;
    std::iter::from_fn(|| Some(step()).filter(|&gone| gone > 0)).sum()
}
