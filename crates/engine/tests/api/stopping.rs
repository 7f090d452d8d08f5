//! Ends and new beginnings: stopping, reopening, and one owner per store (B1 to B3, C2).

use std::path::PathBuf;
use std::time::Duration;

use paceline::jobs::{RetryError, SubmitError};
use paceline::report::JobState;
use paceline::workers::OnCrash;
use paceline::{
    Call, Ended, Failed, Failure, Lane, NotSubmitted, Outcome, Paceline, Span, Work, Worker,
};

use crate::desk::{Desk, ask, between, desk, moments, small, soon, start, when};

const LONG: Duration = Duration::from_hours(1);

/// A file for a store, gone with the test.
struct Shelf(tempfile::TempDir);

impl Shelf {
    fn new() -> Shelf {
        Shelf(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store.db")
    }

    /// An engine on it with one lane, `a`, and the desk behind it.
    fn open(&self) -> (Paceline, Desk) {
        let (worker, desk) = desk();
        (start(Paceline::open(self.path()).lane(Lane::new("a")).worker("ask", worker)), desk)
    }
}

#[tokio::test]
async fn b3_stopping_lets_running_calls_finish_and_keeps_the_rest() {
    let shelf = Shelf::new();
    let (pace, mut desk) = shelf.open();
    let jobs = pace.submit_all([ask("runs"), ask("waits"), ask("is due").delay("10ms")]).await;
    let mut jobs: Vec<_> = jobs.into_iter().map(|job| job.expect("accepted")).collect();
    let visit = desk.next().await;
    let stopping = pace.clone();
    let mut stopped = Box::pin(async move { stopping.stop(LONG).await });
    let refused = tokio::select! {
        _ = &mut stopped => panic!("a call still runs"),
        refused = refused_submission(&pace) => refused,
    };
    assert_eq!(refused.to_string(), "the engine is stopping and takes no new work");
    visit.done();
    let report = soon(jobs.remove(0).report()).await.expect("the running call finished");
    assert_eq!(report.state, JobState::Done);
    soon(stopped).await.expect("stopped");
    for job in jobs {
        let ended = soon(job.report()).await.expect_err("it waits for the next start");
        let text = "the engine has stopped: unfinished work waits in the store for the next start";
        assert_eq!(ended.to_string(), text);
    }
    soon(pace.stop(LONG)).await.expect("stopping twice is no mistake");
    assert!(matches!(soon(pace.ended()).await, Ended::Stopped));
    assert!(matches!(soon(pace.idle()).await, Err(Ended::Stopped)));
    assert!(matches!(soon(pace.list(None, 9, None)).await, Err(Ended::Stopped)));
    let refused = soon(pace.submit(ask("late"))).await.expect_err("it has stopped");
    assert!(matches!(refused, NotSubmitted::Ended(Ended::Stopped)));
    assert!(desk.is_quiet());

    let (pace, mut desk) = shelf.open();
    let mut payloads = Vec::new();
    for _ in 0..2 {
        let visit = desk.next().await;
        payloads.push(visit.payload.clone());
        visit.done();
    }
    payloads.sort();
    assert_eq!(payloads, ["\"is due\"", "\"waits\""]);
    soon(pace.idle()).await.expect("running");
    let (done, _) = soon(pace.list(None, 9, Some(JobState::Done))).await.expect("running");
    assert_eq!(done.len(), 3);
}

/// Submits until the engine no longer takes anything.
async fn refused_submission(pace: &Paceline) -> NotSubmitted {
    loop {
        match pace.submit(ask("one more").key("k").delay("1h")).await {
            Ok(job) => drop(soon(pace.cancel(job.id())).await),
            Err(refused) => return refused,
        }
    }
}

#[tokio::test]
async fn b3_nothing_is_retried_by_hand_while_stopping() {
    let (pace, mut desk) = small();
    let failed = pace.submit(ask("x")).await.expect("accepted");
    let id = failed.id();
    desk.next().await.fail(Failed::of(Failure::permanent("status_404")));
    soon(failed.report()).await.expect("a report");
    pace.submit(ask("runs")).await.expect("accepted");
    let visit = desk.next().await;
    let stopping = pace.clone();
    let mut stopped = Box::pin(async move { stopping.stop(LONG).await });
    tokio::select! {
        _ = &mut stopped => panic!("a call still runs"),
        refused = refused_submission(&pace) => drop(refused),
    }
    let refused = soon(pace.retry(id)).await;
    assert!(matches!(refused, Err(RetryError::Submit(SubmitError::Stopping))));
    visit.done();
    soon(stopped).await.expect("stopped");
}

#[tokio::test]
async fn b3_after_its_grace_a_running_call_is_dropped_and_made_again_later() {
    let shelf = Shelf::new();
    let (pace, mut desk) = shelf.open();
    let job = pace.submit(ask("slow")).await.expect("accepted");
    let mut visit = desk.next().await;
    let impatient = pace.clone();
    let (patient, impatient) = tokio::join!(soon(pace.stop(LONG)), async move {
        soon(impatient.stop(Duration::from_millis(20))).await
    });
    assert!(patient.is_ok() && impatient.is_ok(), "the shorter grace counts");
    assert!(visit.is_dropped(), "nothing of it is left on the wire");
    visit.dropped().await;
    soon(job.report()).await.expect_err("it waits for the next start");
    let (pace, mut desk) = shelf.open();
    desk.next().await.done();
    soon(pace.idle()).await.expect("running");
}

#[tokio::test]
async fn the_last_handle_to_go_stops_the_engine() {
    let shelf = Shelf::new();
    let (pace, mut desk) = shelf.open();
    let job = pace.submit(ask("x")).await.expect("accepted");
    let mut visit = desk.next().await;
    let other = pace.clone();
    drop(pace);
    assert!(!visit.is_dropped(), "one handle is left");
    drop(other);
    visit.dropped().await;
    let ended = soon(job.report()).await.expect_err("it has ended");
    assert!(matches!(ended, Ended::Stopped));
}

#[tokio::test]
async fn one_store_has_one_engine() {
    let shelf = Shelf::new();
    let (pace, _desk) = shelf.open();
    let second = Paceline::open(shelf.path()).start().expect_err("it is taken").to_string();
    let path = shelf.path().canonicalize().expect("it is there");
    let pid = std::process::id();
    let sentence = format!(
        "`{}` is in use by process {pid}: stop it first, or name another store",
        path.display()
    );
    assert_eq!(second, sentence);
    soon(pace.stop(LONG)).await.expect("stopped");
    start(Paceline::open(shelf.path()));
}

#[tokio::test]
async fn c2_answers_are_found_again_after_a_restart() {
    let shelf = Shelf::new();
    let (pace, mut desk) = shelf.open();
    for (key, work) in [("full", Outcome::done("found")), ("nothing", Outcome::empty())] {
        let job = pace.submit(ask("x").cache_key(key)).await.expect("accepted");
        desk.next().await.answer(work);
        assert!(!soon(job.report()).await.expect("a report").calls[0].cached);
    }
    let job = pace.submit(ask("x").cache_key("error")).await.expect("accepted");
    desk.next().await.fail(Failed::of(Failure::permanent("status_500")));
    soon(job.report()).await.expect("a report");
    soon(pace.stop(LONG)).await.expect("stopped");

    let (pace, mut desk) = shelf.open();
    for (key, line) in [("full", r#"a: done "found""#), ("nothing", "a: empty")] {
        let job = pace.submit(ask("x").cache_key(key)).await.expect("accepted");
        let report = soon(job.report()).await.expect("a report");
        assert_eq!((&*report.calls[0].to_string(), report.calls[0].cached), (line, true));
    }
    assert!(desk.is_quiet());
    pace.submit(ask("x").cache_key("error")).await.expect("accepted");
    desk.next().await.done();
}

#[tokio::test]
async fn b1_a_gap_holds_across_a_restart() {
    let shelf = Shelf::new();
    let mut starts = Vec::new();
    for _ in 0..3 {
        let lane = Lane::new("a").every("80ms");
        let pace = start(Paceline::open(shelf.path()).lane(lane).worker("ask", when));
        let job = pace.submit(ask("x")).await.expect("accepted");
        starts.extend(moments(&soon(job.report()).await.expect("a report")));
        soon(pace.stop(LONG)).await.expect("stopped");
    }
    for pair in starts.windows(2) {
        let gap = between(pair[0], pair[1]);
        assert!(gap >= Span::millis(80) && gap < Span::secs(10), "{gap}");
    }
}

#[tokio::test]
async fn d1_a_key_is_held_through_a_restart_and_jobs_can_be_followed() {
    let shelf = Shelf::new();
    let (pace, _desk) = shelf.open();
    let id = pace.submit(ask("x").key("k")).await.expect("accepted").id();
    soon(pace.stop(Duration::ZERO)).await.expect("stopped");
    let (pace, mut desk) = shelf.open();
    let job = soon(pace.follow(id)).await.expect("running").expect("it is known");
    let same = pace.submit(ask("y").key("k")).await.expect("accepted");
    assert_eq!(same.id(), id);
    desk.next().await.done();
    let reports = (soon(job.report()).await, soon(same.report()).await);
    assert_eq!(reports.0.expect("a report"), reports.1.expect("a report"));
}

/// Makes an attempt that must not be made twice.
struct Once<W>(W);

impl<W: Worker> Worker for Once<W> {
    async fn run(&self, call: Call) -> Work {
        self.0.run(call).await
    }

    fn on_crash(&self) -> OnCrash {
        OnCrash::Fail
    }
}

#[tokio::test]
async fn b2_a_call_that_was_cut_off_is_not_made_twice_if_its_kind_says_so() {
    let shelf = Shelf::new();
    let open = || {
        let (worker, desk) = desk();
        let builder = Paceline::open(shelf.path()).lane(Lane::new("a"));
        (start(builder.worker("ask", Once(worker))), desk)
    };
    let (pace, mut desk) = open();
    let cut_off = pace.submit(ask("sent")).await.expect("accepted").id();
    let waiting = pace.submit(ask("not sent")).await.expect("accepted").id();
    desk.next().await;
    soon(pace.stop(Duration::ZERO)).await.expect("stopped");
    // An engine without a worker for the kind leaves the attempt as it is.
    let stranger = start(Paceline::open(shelf.path()).lane(Lane::new("a")));
    soon(stranger.pause("b")).await.expect_err("a turn was taken");
    soon(stranger.stop(Duration::ZERO)).await.expect("stopped");
    let (pace, mut desk) = open();
    let visit = desk.next().await;
    assert_eq!(visit.job, waiting.0);
    visit.done();
    soon(pace.idle()).await.expect("running");
    let job = soon(pace.job(cut_off)).await.expect("running").expect("it is known");
    assert_eq!(job.state, JobState::Failed);
}

/// Makes calls that go on whatever becomes of the process, and expects to begin them, or not to.
struct Outliving<W>(W, bool);

impl<W: Worker> Worker for Outliving<W> {
    async fn run(&self, call: Call) -> Work {
        assert_eq!(call.taken_up().is_none(), self.1);
        self.0.run(call).await
    }

    fn on_crash(&self) -> OnCrash {
        OnCrash::TakeUp
    }
}

#[tokio::test]
async fn b3_a_stop_waits_for_no_call_that_outlives_it_and_the_next_start_takes_it_up() {
    let shelf = Shelf::new();
    let open = |begins: bool| {
        let (worker, desk) = desk();
        let builder = Paceline::open(shelf.path()).lane(Lane::new("a"));
        (start(builder.worker("ask", Outliving(worker, begins))), desk)
    };
    let (pace, mut desk) = open(true);
    let goes_on = pace.submit(ask("goes on")).await.expect("accepted").id();
    let waits = pace.submit(ask("waits")).await.expect("accepted").id();
    let began = desk.next().await;
    soon(pace.stop(LONG)).await.expect("stopped at once");
    drop(began);
    let (pace, mut desk) = open(false);
    let visit = desk.next().await;
    assert_eq!(visit.job, goes_on.0);
    let over = soon(pace.job(waits)).await.expect("running").expect("it is known");
    assert_eq!(over.state, JobState::Failed, "its caller is gone");
    visit.done();
    soon(pace.idle()).await.expect("running");
    let done = soon(pace.job(goes_on)).await.expect("running").expect("it is known");
    assert_eq!(done.state, JobState::Done);
    let report = done.stored.report.expect("it is finished");
    assert_eq!(report.calls[0].attempts, 1, "it was made once");
}

#[tokio::test]
async fn the_loop_shows_again_and_again_that_it_turns() {
    let (beat, mut beats) = tokio::sync::mpsc::unbounded_channel();
    let every = std::time::Duration::from_millis(5);
    let engine = Paceline::in_memory().heartbeat(every, move || {
        let _ = beat.send(());
    });
    let pace = start(engine);
    for _ in 0..3 {
        soon(beats.recv()).await.expect("it runs");
    }
    pace.stop(std::time::Duration::ZERO).await.expect("it stops");
    while soon(beats.recv()).await.is_some() {}
}
