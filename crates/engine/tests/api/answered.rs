//! Calls whose upstream has answered while their worker is not done with them (L5, B2, B3, W4).

use std::time::Duration;

use paceline::jobs::Cancelled;
use paceline::lanes::Reason;
use paceline::report::JobState;
use paceline::{Call, Failure, Job, Lane, Outcome, Paceline, Work, Worker};
use tokio::sync::{mpsc, oneshot};

use crate::desk::{ask, soon, start};

const LONG: Duration = Duration::from_hours(1);

/// A worker that says it is answered, hands out the key to its end, and waits for it.
struct Saving {
    ends: mpsc::UnboundedSender<(String, oneshot::Sender<()>)>,
}

impl Worker for Saving {
    async fn run(&self, call: Call) -> Work {
        // Before anything is sent it means nothing.
        call.answered();
        call.sending()?;
        let (end, ended) = oneshot::channel();
        let payload: String = call.payload()?;
        if payload != "quiet" {
            call.answered();
            call.answered();
        }
        self.ends.send((payload, end))?;
        let _ = ended.await;
        Outcome::done(())
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

/// The ends of attempts, as they come.
struct Ends(mpsc::UnboundedReceiver<(String, oneshot::Sender<()>)>);

impl Ends {
    /// The next attempt, which must be of this job.
    #[track_caller]
    fn of(&mut self, payload: &str) -> impl Future<Output = oneshot::Sender<()>> {
        let next = soon(self.0.recv());
        async move {
            let (found, end) = next.await.expect("the engine runs");
            assert_eq!(found, payload);
            end
        }
    }
}

fn saving() -> (Saving, Ends) {
    let (ends, receiver) = mpsc::unbounded_channel();
    (Saving { ends }, Ends(receiver))
}

fn engine() -> (Paceline, Ends) {
    let (worker, ends) = saving();
    (start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker)), ends)
}

#[tokio::test]
async fn l5_the_next_call_starts_while_the_answered_one_is_not_settled() {
    let (pace, mut ends) = engine();
    let first = pace.submit(ask("first")).await.expect("accepted");
    let end_first = ends.of("first").await;
    let second = pace.submit(ask("second")).await.expect("accepted");
    let end_second = ends.of("second").await;
    let view = soon(pace.job(first.id())).await.expect("running").expect("known");
    assert_eq!(view.state, JobState::Running);
    assert!(soon(pace.why(first.id())).await.expect("running").is_empty());

    let mut idle = Box::pin(pace.idle());
    drop(end_second);
    let report = tokio::select! {
        _ = &mut idle => panic!("the first is not settled"),
        report = soon(second.report()) => report.expect("a report"),
    };
    assert_eq!(report.state, JobState::Done);
    drop(end_first);
    assert_eq!(soon(first.report()).await.expect("a report").state, JobState::Done);
    soon(idle).await.expect("running");
    assert_eq!(soon(pace.lanes()).await.expect("running")[0].in_flight, 0);
}

#[tokio::test]
async fn l5_a_worker_that_does_not_say_so_keeps_its_slot_to_the_end() {
    let (pace, mut ends) = engine();
    let first = pace.submit(ask("quiet")).await.expect("accepted");
    let end = ends.of("quiet").await;
    let second = pace.submit(ask("second")).await.expect("accepted");
    let why = soon(pace.why(second.id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::Busy);
    drop(end);
    soon(first.report()).await.expect("a report");
    drop(ends.of("second").await);
    soon(second.report()).await.expect("a report");
}

#[tokio::test]
async fn l5_to_say_it_after_the_outcome_changes_nothing() {
    let (lend, mut lent) = mpsc::unbounded_channel();
    let worker = move |call: Call| {
        let lend = lend.clone();
        async move {
            if call.payload_bytes() == b"\"child\"" {
                lend.send((call.clone(), call.hold()))?;
            }
            Outcome::done(())
        }
    };
    let pace = start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker));
    let first = pace.submit(ask("child")).await.expect("accepted");
    let (call, hold) = soon(lent.recv()).await.expect("the engine runs");
    soon(first.report()).await.expect("the outcome need not wait");
    call.answered();
    let second = pace.submit(ask("next")).await.expect("accepted");
    let why = soon(pace.why(second.id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::Busy);
    drop((call, hold));
    soon(second.report()).await.expect("a report");
}

#[tokio::test]
async fn w4_a_cancelled_call_is_dropped_and_its_slot_is_given_back_once() {
    let (pace, mut ends) = engine();
    let first = pace.submit(ask("first")).await.expect("accepted");
    let mut end_first = ends.of("first").await;
    let _second = pace.submit(ask("quiet")).await.expect("accepted");
    let end_second = ends.of("quiet").await;
    assert_eq!(soon(pace.cancel(first.id())).await.expect("running"), Cancelled::Job);
    soon(end_first.closed()).await;
    soon(first.report()).await.expect("a report");
    let third = pace.submit(ask("third")).await.expect("accepted");
    let why = soon(pace.why(third.id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::Busy);
    assert_eq!(soon(pace.lanes()).await.expect("running")[0].in_flight, 1);
    drop(end_second);
    drop(ends.of("third").await);
    soon(third.report()).await.expect("a report");
}

#[tokio::test]
async fn b3_a_stop_waits_for_what_was_answered() {
    let (pace, mut ends) = engine();
    let job = pace.submit(ask("first")).await.expect("accepted");
    let end = ends.of("first").await;
    let stopping = pace.clone();
    let mut stopped = Box::pin(async move { stopping.stop(LONG).await });
    tokio::select! {
        // The stop comes first: a call that came before it would run, and the test would not end it.
        biased;
        _ = &mut stopped => panic!("a call still runs"),
        refused = soon(pace.submit(ask("late"))) => drop(refused),
    }
    drop(end);
    assert_eq!(soon(job.report()).await.expect("a report").state, JobState::Done);
    soon(stopped).await.expect("stopped");
}

#[tokio::test]
async fn b2_past_the_grace_it_is_dropped_and_made_again_at_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let (worker, mut ends) = saving();
    let pace = start(Paceline::open(&path).lane(Lane::new("a")).worker("ask", worker));
    let job = pace.submit(ask("first")).await.expect("accepted").id();
    let mut end = ends.of("first").await;
    soon(pace.stop(Duration::ZERO)).await.expect("stopped");
    soon(end.closed()).await;

    let (worker, mut ends) = saving();
    let pace = start(Paceline::open(&path).lane(Lane::new("a")).worker("ask", worker));
    let following = soon(pace.follow(job)).await.expect("running").expect("known");
    drop(ends.of("first").await);
    assert_eq!(soon(following.report()).await.expect("a report").state, JobState::Done);
}

#[tokio::test]
async fn a_timeout_after_the_answer_says_so() {
    let (worker, mut ends) = saving();
    let lane = Lane::new("a").timeout("20ms");
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let job = pace.submit(Job::new("ask", "first").on(["a"]).attempts(1)).await.expect("accepted");
    let mut end = ends.of("first").await;
    soon(end.closed()).await;
    let report = soon(job.report()).await.expect("a report");
    let expected = Failure::transient("timeout").because("answered, but not finished in 20ms");
    assert_eq!(report.calls[0].outcome, paceline::report::CallOutcome::Failed(expected));
}
