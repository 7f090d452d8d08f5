//! Jobs that are the same work, and callers that want one no more (D1, D2, W4).

use std::collections::BTreeMap;

use paceline::jobs::{Cancelled, OnDuplicate, Once};
use paceline::report::JobState;
use paceline::{Admission, Call, Job, Lane, NotSubmitted, Outcome, Paceline, Span};

use crate::desk::{ask, small, soon, start};

#[tokio::test]
async fn d1_a_second_job_with_the_key_joins_the_first() {
    let (pace, mut desk) = small();
    let first = pace.submit(ask("x").key("k")).await.expect("accepted");
    let second = pace.submit(ask("y").key("k")).await.expect("accepted");
    assert_eq!(second.admission(), Admission::Joined(first.id()));
    desk.next().await.done();
    let reports = (soon(first.report()).await, soon(second.report()).await);
    assert_eq!(reports.0.expect("a report"), reports.1.expect("a report"));
    assert!(desk.is_quiet());
    let third = pace.submit(ask("z").key("k")).await.expect("accepted");
    assert!(matches!(third.admission(), Admission::Accepted(_)), "the key is free again");
}

#[tokio::test]
async fn d1_a_caller_that_joins_gets_what_there_is_at_its_own_deadline() {
    let (pace, mut desk) = small();
    let patient = pace.submit(ask("x").key("k")).await.expect("accepted");
    let visit = desk.next().await;
    let hasty = pace.submit(ask("y").key("k").deadline("50ms")).await.expect("accepted");
    let late = std::time::Duration::from_millis(60);
    let follower = pace.follow_within(patient.id(), late).await.expect("running").expect("known");
    let partial = soon(hasty.report()).await.expect("what there is");
    assert!(partial.partial);
    assert_eq!(
        (partial.state, &*partial.calls[0].to_string()),
        (JobState::Running, "a: skipped (deadline)")
    );
    assert_eq!(partial.calls[0].attempts, 1, "it is on the wire");
    visit.done();
    for job in [patient, follower] {
        let report = soon(job.report()).await.expect("a report");
        assert_eq!((report.partial, &*report.calls[0].to_string()), (false, r#"a: done "x!""#));
    }
    // Who follows too late is told at once, of a job that goes on.
    let next = pace.submit(ask("z")).await.expect("accepted");
    let visit = desk.next().await;
    let passed = std::time::Duration::ZERO;
    let late = pace.follow_within(next.id(), passed).await.expect("running").expect("known");
    assert!(soon(late.report()).await.expect("what there is").partial);
    visit.done();
}

#[tokio::test]
async fn j1_a_job_without_lanes_is_refused() {
    let (pace, _desk) = small();
    for job in [Job::new("ask", "x"), Job::new("ask", "x").on(["a"]).on([] as [&str; 0])] {
        let refused = pace.submit(job).await.expect_err("no lane");
        assert_eq!(refused.to_string(), "a job needs at least one lane in each stage");
    }
    let refused = pace.submit(ask("x").key("")).await.expect_err("no key");
    assert_eq!(refused.to_string(), "a key needs at least one byte: leave it out for none");
}

#[tokio::test]
async fn d1_a_caller_may_refuse_to_join() {
    let (pace, mut desk) = small();
    let first = pace.submit(ask("x").key("k")).await.expect("accepted");
    let refused = pace.submit(ask("y").key("k").on_duplicate(OnDuplicate::Refuse)).await;
    let refused = refused.expect_err("it is a duplicate");
    assert!(matches!(refused, NotSubmitted::Duplicate(job) if job == first.id()));
    assert_eq!(refused.to_string(), "job 1 is the same work and is not finished");
    desk.next().await.done();
    assert_eq!(
        soon(first.report()).await.expect("a report").calls[0].to_string(),
        r#"a: done "x!""#
    );
}

#[tokio::test]
async fn d1_a_waiting_job_takes_the_payload_of_the_one_that_replaces_it() {
    let (pace, mut desk) = small();
    let _busy = pace.submit(ask("busy")).await.expect("accepted");
    let busy = desk.next().await;
    let replacing = |payload| ask(payload).key("k").on_duplicate(OnDuplicate::Replace);
    let first = pace.submit(replacing("old")).await.expect("accepted");
    let second = pace.submit(replacing("new")).await.expect("accepted");
    assert_eq!(second.admission(), Admission::Replaced(first.id()));
    busy.done();
    let visit = desk.next().await;
    assert_eq!(visit.payload, "\"new\"");
    let late = pace.submit(replacing("too late")).await.expect_err("it runs already");
    assert!(matches!(late, NotSubmitted::Duplicate(job) if job == first.id()));
    visit.done();
    for job in [first, second] {
        let report = soon(job.report()).await.expect("a report");
        assert_eq!(report.calls[0].to_string(), r#"a: done "new!""#);
    }
}

#[tokio::test]
async fn d2_a_schedule_key_counts_until_the_job_is_due() {
    let (pace, mut desk) = small();
    let later = |payload| ask(payload).schedule_key("nightly").delay("300ms");
    let first = pace.submit(later("x")).await.expect("accepted");
    let second = pace.submit(later("y")).await.expect("accepted");
    assert_eq!(second.admission(), Admission::Joined(first.id()));
    let at_once = pace.submit(ask("now").schedule_key("nightly")).await.expect("accepted");
    assert!(matches!(at_once.admission(), Admission::Accepted(_)));
    desk.next().await.done();
    let due = desk.next().await;
    assert_eq!(due.payload, "\"x\"");
    let next = pace.submit(later("z").delay("1h")).await.expect("accepted");
    assert!(matches!(next.admission(), Admission::Accepted(_)), "the first is due and runs");
}

#[tokio::test]
async fn keys_are_bytes_of_any_kind() {
    let (pace, _desk) = small();
    let keys: [&[u8]; 5] = [b"\0", b"\0\0", &[0xFF; 1_024], "ключ".as_bytes(), b"'; --"];
    for (n, key) in (1..).zip(keys) {
        let job = pace.submit(ask("x").key(key)).await.expect("accepted");
        assert_eq!(job.admission(), Admission::Accepted(paceline::JobId(n)));
        let same = pace.submit(ask("x").key(key)).await.expect("accepted");
        assert_eq!(same.admission(), Admission::Joined(job.id()));
    }
}

#[tokio::test]
async fn w4_cancelling_drops_the_future_of_a_running_call() {
    let (pace, mut desk) = small();
    let job = pace.submit(ask("x")).await.expect("accepted");
    let next = pace.submit(ask("next")).await.expect("accepted");
    let mut visit = desk.next().await;
    assert_eq!(soon(pace.cancel(job.id())).await.expect("running"), Cancelled::Job);
    visit.dropped().await;
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(
        (report.state, &*report.calls[0].to_string()),
        (JobState::Cancelled, "a: cancelled")
    );
    desk.next().await.done();
    soon(next.report()).await.expect("the slot is free again");
    assert_eq!(soon(pace.cancel(report.job)).await.expect("running"), Cancelled::Finished);
    let never = soon(pace.cancel(paceline::JobId(999))).await.expect("running");
    assert_eq!(never, Cancelled::Unknown);
}

#[tokio::test]
async fn w4_a_waiting_call_is_cancelled_without_a_request() {
    let (pace, mut desk) = small();
    let jobs = pace.submit_all([ask("runs"), ask("waits"), ask("later").delay("1h")]).await;
    let mut jobs = jobs.into_iter().map(|job| job.expect("accepted"));
    let (runs, waits, later) =
        (jobs.next(), jobs.next().expect("three"), jobs.next().expect("three"));
    for job in [waits, later] {
        assert_eq!(soon(pace.cancel(job.id())).await.expect("running"), Cancelled::Job);
        let report = soon(job.report()).await.expect("a report");
        assert_eq!((report.state, report.calls[0].attempts), (JobState::Cancelled, 0));
    }
    desk.next().await.done();
    soon(runs.expect("three").report()).await.expect("a report");
    soon(pace.idle()).await.expect("running");
    assert!(desk.is_quiet());
}

#[tokio::test]
async fn d1_cancelling_detaches_one_of_several_callers() {
    let (pace, mut desk) = small();
    let first = pace.submit(ask("x").key("k")).await.expect("accepted");
    let second = pace.submit(ask("x").key("k")).await.expect("accepted");
    let mut visit = desk.next().await;
    assert_eq!(soon(pace.cancel(first.id())).await.expect("running"), Cancelled::Detached);
    let runs = soon(pace.job(first.id())).await.expect("running").expect("it is known");
    assert_eq!(runs.state, JobState::Running);
    assert_eq!(soon(pace.cancel(first.id())).await.expect("running"), Cancelled::Job);
    visit.dropped().await;
    assert_eq!(soon(second.report()).await.expect("a report").state, JobState::Cancelled);
}

#[tokio::test]
async fn d1_a_finished_job_is_found_by_its_key_also_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let open = || {
        let worker = |call: Call| async move { Outcome::done(call.payload::<String>()?) };
        start(Paceline::open(&path).lane(Lane::new("a").in_flight(10)).worker("ask", worker))
    };
    let pace = open();
    let jobs = (0..2_500).map(|n| ask("old").key(format!("page {n}")));
    let jobs = soon(pace.submit_all(jobs)).await;
    let ids: Vec<_> = jobs.into_iter().map(|job| job.expect("accepted").id()).collect();
    soon(pace.idle()).await.expect("running");
    let again = pace.submit(ask("new").key("page 7")).await.expect("accepted").id();
    soon(pace.idle()).await.expect("running");
    soon(pace.stop(std::time::Duration::ZERO)).await.expect("stopped");

    let pace = open();
    let keys = (0..2_501).map(|n| format!("page {n}"));
    let found = soon(pace.finished(keys)).await.expect("running");
    let numbers: Vec<_> = found.iter().flatten().map(|view| view.stored.record.id).collect();
    let mut expected = ids;
    expected[7] = again;
    assert_eq!(numbers, expected);
    assert!(found[2_500].is_none(), "no job has this key");
    let report = found[7].as_ref().and_then(|view| view.stored.report.as_ref());
    assert_eq!(report.expect("finished").calls[0].to_string(), r#"a: done "new""#);
    let none = soon(pace.finished(Vec::<&str>::new())).await.expect("running");
    assert!(none.is_empty());
}

#[tokio::test]
async fn d1_an_unfinished_job_is_not_found_as_finished() {
    let (pace, mut desk) = small();
    let first = pace.submit(ask("x").key("k")).await.expect("accepted");
    assert!(soon(pace.finished(["k"])).await.expect("running")[0].is_none());
    desk.next().await.done();
    let id = first.id();
    soon(first.report()).await.expect("a report");
    let _second = pace.submit(ask("y").key("k")).await.expect("accepted");
    let found = soon(pace.finished(["k"])).await.expect("running").remove(0);
    let found = found.expect("the first one");
    assert_eq!((found.stored.record.id, found.state), (id, JobState::Done));
}

#[tokio::test]
async fn what_was_handed_in_under_a_name_is_remembered_with_it_through_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || {
        let (worker, desk) = crate::desk::desk();
        let path = directory.path().join("store.db");
        (start(Paceline::open(path).lane(Lane::new("a")).worker("ask", worker)), desk)
    };
    let once = || Once {
        name: b"n".as_slice().into(),
        mark: "m".into(),
        keep: Span::hours(1),
        refused: BTreeMap::from([(1, "not a job".to_string())]),
        words: ToString::to_string,
    };
    let (pace, desk) = open();
    let wrong = paceline::Job::new("unknown", &1).on(["a"]);
    let unknown = ask("y").on(["b"]);
    let told = pace.hand_in([ask("x"), wrong, unknown], Some(once())).await.expect("it runs");
    assert!(matches!(told[0], Ok(Admission::Accepted(_))), "{told:?}");
    assert!(matches!(told[1], Err(NotSubmitted::Unacceptable(_))), "{told:?}");
    pace.stop(std::time::Duration::ZERO).await.expect("it stops");
    drop((pace, desk));
    let (pace, _desk) = open();
    let known = pace.remembered(b"n").await.expect("it runs").expect("it is remembered");
    assert_eq!(known.mark, "m");
    let job = told[0].as_ref().expect("accepted").job().expect("a job");
    assert_eq!(known.jobs[0], Ok(Admission::Accepted(job)));
    let refused: Vec<&str> =
        known.jobs[1..].iter().map(|it| it.as_ref().expect_err("refused").as_str()).collect();
    assert_eq!(
        refused,
        [
            "not a job",
            "no worker for the kind `unknown`: register one before the start",
            "no lane named `b`: configure it, or a template such as `host:*` that covers it",
        ]
    );
    assert!(pace.remembered(b"other").await.expect("it runs").is_none());
}
