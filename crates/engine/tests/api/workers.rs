//! Workers that panic, hang, come late, hold on and give up (J5 to J7, L4 to L6, R1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use paceline::lanes::Reason;
use paceline::report::{Answer, CallOutcome, JobState};
use paceline::workers::{Announced, Late};
use paceline::{
    Call, Event, Failed, Failure, Job, Lane, Outcome, Paceline, Report, Span, Time, Work, Worker,
};
use tokio::sync::mpsc;

use crate::desk::{ask, between, desk, moments, small, soon, start, when};

fn failure(report: &Report) -> &Failure {
    match &report.calls[0].outcome {
        CallOutcome::Failed(failure) => failure,
        other => panic!("{other:?} is no failure"),
    }
}

#[tokio::test]
async fn j5_a_panic_is_a_failed_outcome_and_the_slot_is_free_again() {
    let worker = |call: Call| {
        assert!(call.payload_bytes() != b"\"at once\"", "before its first await");
        async move {
            tokio::task::yield_now().await;
            assert!(call.payload_bytes() != b"\"later\"", "after its first await");
            Outcome::done(())
        }
    };
    let pace = start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker));
    for (payload, message) in
        [("at once", "before its first await"), ("later", "after its first await")]
    {
        let job = pace.submit(ask(payload).key("k")).await.expect("accepted");
        let report = soon(job.report()).await.expect("a report");
        assert_eq!((report.state, report.calls[0].attempts), (JobState::Failed, 1));
        let expected = Failure::permanent("panic").because(message);
        assert_eq!(*failure(&report), expected);
    }
    let job = pace.submit(ask("well").key("k")).await.expect("the key is free");
    assert_eq!(soon(job.report()).await.expect("the slot is free").state, JobState::Done);
    soon(pace.idle()).await.expect("running");
}

/// Panics when it is dropped.
struct Grudge;

impl Drop for Grudge {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[tokio::test]
async fn j5_a_panic_while_a_future_is_dropped_is_a_failed_outcome_too() {
    let worker = |call: Call| async move {
        if call.payload_bytes() == b"\"grudge\"" {
            let _grudge = Grudge;
            std::future::pending::<()>().await;
        }
        Outcome::done(())
    };
    let lane = Lane::new("a").timeout("20ms");
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let job = pace.submit(ask("grudge").attempts(1)).await.expect("accepted");
    assert_eq!(soon(job.report()).await.expect("a report").state, JobState::Failed);
    let job = pace.submit(ask("well")).await.expect("accepted");
    assert_eq!(soon(job.report()).await.expect("the slot is free").state, JobState::Done);
}

#[tokio::test]
async fn a_timeout_drops_the_future_and_frees_the_slot() {
    let (worker, mut desk) = desk();
    let lane = Lane::new("a").timeout("20ms");
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let job = pace.submit(ask("slow").attempts(1)).await.expect("accepted");
    desk.next().await.dropped().await;
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(*failure(&report), Failure::transient("timeout").because("no answer in 20ms"));
    assert!(report.calls[0].ran >= Span::millis(20));
    soon(pace.change(Lane::new("a"))).await.expect("sound");
    let job = pace.submit(ask("patient")).await.expect("accepted");
    desk.next().await.done();
    assert_eq!(soon(job.report()).await.expect("a report").state, JobState::Done);
}

#[tokio::test]
async fn l5_a_hold_keeps_the_slot_when_the_future_is_gone() {
    let (lend, mut holds) = mpsc::unbounded_channel();
    let worker = move |call: Call| {
        let lend = lend.clone();
        async move {
            if call.payload_bytes() == b"\"child\"" {
                lend.send(call.hold())?;
                std::future::pending::<()>().await;
            }
            Outcome::done(())
        }
    };
    let lane = Lane::new("a").timeout("20ms");
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let first = pace.submit(ask("child").attempts(1)).await.expect("accepted");
    let hold = soon(holds.recv()).await.expect("the engine runs");
    let second = pace.submit(ask("next")).await.expect("accepted");
    let report = soon(first.report()).await.expect("the outcome need not wait");
    assert_eq!(&*failure(&report).class, "timeout");
    let why = soon(pace.why(second.id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::Busy);
    assert_eq!(soon(pace.lanes()).await.expect("running")[0].in_flight, 1);
    drop(hold);
    assert_eq!(soon(second.report()).await.expect("a report").state, JobState::Done);
}

/// Connects for as long as the test wants, and only then sends.
struct Connecting {
    connects: mpsc::UnboundedSender<tokio::sync::oneshot::Sender<()>>,
    times_late: Arc<AtomicU32>,
}

impl Worker for Connecting {
    async fn run(&self, call: Call) -> Work {
        let (connected, connection) = tokio::sync::oneshot::channel();
        self.connects.send(connected)?;
        connection.await?;
        if call.sending().is_err() {
            self.times_late.fetch_add(1, Ordering::Relaxed);
        }
        Outcome::done(call.sending()?.0)
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn l4_a_worker_that_is_late_gives_its_reservation_back_and_runs_again() {
    let (connects, mut connecting) = mpsc::unbounded_channel();
    let times_late = Arc::new(AtomicU32::new(0));
    let worker = Connecting { connects, times_late: times_late.clone() };
    let lane = Lane::new("a").limit("2/h");
    let builder = Paceline::in_memory().lane(lane).lane(Lane::new("clock")).worker("ask", worker);
    let pace = start(builder.worker("tick", |_: Call| async { Outcome::empty() }));
    let mut starts = pace.events();
    let job = pace.submit(ask("x").attempts(1)).await.expect("accepted");
    // A worker that was late has twice as long the next time.
    for late in ["60ms", "110ms"] {
        let connected = soon(connecting.recv()).await.expect("the engine runs");
        // Another job's due moment is the event that tells that `send_by` has passed.
        let later = Job::new("tick", "").delay(late).on(["clock"]);
        let later = pace.submit(later).await.expect("accepted");
        soon(later.report()).await.expect("a report");
        connected.send(()).expect("it waits");
    }
    let at_once = async {
        while let Some(connected) = connecting.recv().await {
            connected.send(()).expect("it waits");
        }
    };
    let report = tokio::select! {
        report = soon(job.report()) => report.expect("a report"),
        () = at_once => unreachable!("the engine runs"),
    };
    assert_eq!(report.calls[0].attempts, 1, "being late costs nothing");
    let times_late = times_late.load(Ordering::Relaxed);
    assert!(times_late >= 2, "a busy machine may be late once more");
    let used = soon(pace.lanes()).await.expect("running")[0].used[0].1;
    assert_eq!(used, 1, "and is charged nowhere");
    let mut started = 0;
    while let Ok(event) = starts.try_recv() {
        started += u32::from(matches!(event, Event::Started(_, lane) if &*lane == "a"));
    }
    assert_eq!(started, times_late + 1);
}

/// Learns of its lane's limit before it sends the first request.
#[derive(Default)]
struct Reading {
    has_read: AtomicBool,
}

impl Worker for Reading {
    async fn run(&self, call: Call) -> Work {
        if !self.has_read.swap(true, Ordering::Relaxed) {
            let announced = Announced { every: Some(Span::millis(80)), ..Announced::default() };
            return Err(Failed::from(Late).announcing(announced));
        }
        Outcome::done(call.sending()?.0)
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn l8_a_limit_that_is_learned_before_anything_was_sent_counts() {
    let lane = Lane::new("a").in_flight(1);
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", Reading::default()));
    let mut sent_at = Vec::new();
    let jobs = pace.submit_all(["x", "y", "z"].map(ask)).await;
    for job in jobs {
        let report = soon(job.expect("accepted").report()).await.expect("a report");
        sent_at.extend(moments(&report));
    }
    let gaps: Vec<_> = sent_at.windows(2).map(|pair| between(pair[0], pair[1])).collect();
    assert!(gaps.iter().all(|gap| *gap >= Span::millis(80)), "{gaps:?}");
}

#[tokio::test]
async fn r1_an_error_is_tried_again_after_a_backoff() {
    let worker = |call: Call| async move {
        if call.number() < 3 {
            "no number".parse::<u32>()?;
        }
        Outcome::done(call.number())
    };
    let pace = start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker));
    let job = pace.submit(ask("x").attempts(3).backoff("10ms")).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!((&*report.calls[0].to_string(), report.calls[0].attempts), ("a: done 3", 3));
    let job = pace.submit(ask("x").attempts(2).backoff("10ms")).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    let message = "invalid digit found in string";
    assert_eq!(*failure(&report), Failure::transient("error").because(message));
    assert_eq!(report.calls[0].attempts, 2);
}

#[tokio::test]
async fn r1_a_waiting_retry_holds_no_slot_and_retry_after_wins() {
    let (pace, mut desk) = small();
    let job = pace.submit(ask("x").backoff("1h")).await.expect("accepted");
    desk.next().await.fail(Failed::of(Failure::transient("status_503")));
    let other = pace.submit(ask("other")).await.expect("accepted");
    desk.next().await.done();
    soon(other.report()).await.expect("the slot is free");
    let why = soon(pace.why(job.id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::Backoff);
    soon(pace.cancel(job.id())).await.expect("running");

    let job = pace.submit(ask("x").backoff("1h")).await.expect("accepted");
    let failure = Failed::of(Failure::transient("status_503"));
    desk.next().await.fail(failure.retry_after(Duration::from_millis(30)));
    let visit = desk.next().await;
    assert_eq!(visit.number, 2);
    visit.done();
    assert_eq!(soon(job.report()).await.expect("a report").state, JobState::Done);
}

#[tokio::test]
async fn r1_a_failure_that_stays_is_not_tried_again() {
    let (pace, mut desk) = small();
    let job = pace.submit(ask("x").attempts(9)).await.expect("accepted");
    desk.next().await.fail(Failed::of(Failure::permanent("status_404")));
    let report = soon(job.report()).await.expect("a report");
    assert_eq!((report.calls[0].attempts, &*failure(&report).class), (1, "status_404"));
}

#[tokio::test]
async fn l6_throttled_closes_the_lane_and_costs_the_call_nothing() {
    let (pace, mut desk) = small();
    let mut events = pace.events();
    let job = pace.submit(ask("x").attempts(1)).await.expect("accepted");
    let visit = desk.next().await;
    visit.answer(Outcome::throttled(Some(Duration::from_millis(1_200))));
    let until = loop {
        if let Event::Closed(lane, until) = soon(events.recv()).await.expect("none was missed") {
            assert_eq!(&*lane, "a");
            break until;
        }
    };
    let other = pace.submit(ask("other").interactive()).await.expect("accepted");
    let why = soon(pace.why(other.id())).await.expect("running");
    assert_eq!((why[0].1.reason, why[0].1.until), (Reason::Cooldown, Some(until)));
    let visit = desk.next().await;
    assert_eq!(visit.payload, "\"other\"", "interactive work goes first even so");
    visit.done();
    soon(other.report()).await.expect("a report");
    let visit = desk.next().await;
    assert_eq!(visit.number, 1, "being throttled was no attempt");
    visit.done();
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(report.state, JobState::Done);
    assert!(report.finished_at >= until);
}

/// Says no to payloads that are no numbers.
struct Numbers;

impl Worker for Numbers {
    async fn run(&self, call: Call) -> Work {
        Outcome::done(call.payload::<u32>()?)
    }

    fn applies(&self, payload: &[u8], lane: &str) -> bool {
        lane != "a" || payload.iter().all(u8::is_ascii_digit)
    }
}

#[tokio::test]
async fn j6_calls_that_do_not_apply_are_skipped_before_anything_is_charged() {
    let builder = Paceline::in_memory().lane(Lane::new("a").limit("1/h")).lane(Lane::new("b"));
    let pace = start(builder.worker("ask", Numbers));
    let job = pace.submit(Job::new("ask", "text").on(["a"])).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(report.calls[0].to_string(), "a: skipped (not_applicable)");
    assert_eq!((report.state, report.answer), (JobState::Skipped, Answer::Empty));
    assert_eq!(soon(pace.lanes()).await.expect("running")[0].used[0].1, 0);

    let job = pace.submit(Job::new("ask", &7).on(["a", "b"])).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    let lines: Vec<String> = report.calls.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["a: done 7", "b: done 7"]);
    let job = pace.submit(Job::new("ask", "text").on(["b"])).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!((&*failure(&report).class, failure(&report).retryable), ("payload", false));
}

#[tokio::test]
async fn j7_a_moved_call_goes_on_in_the_other_lane_of_the_same_job() {
    let (worker, mut desk) = desk();
    let builder = Paceline::in_memory().lane(Lane::new("a")).lane(Lane::new("host:*"));
    let pace = start(builder.worker("ask", worker));
    let job = pace.submit(ask("here")).await.expect("accepted");
    let id = job.id().0;
    let there = serde_json::value::to_raw_value("there").expect("JSON");
    desk.next().await.answer(Outcome::moved("host:b", Some(&there)));
    let visit = desk.next().await;
    assert_eq!((visit.job, &*visit.lane, &*visit.payload), (id, "host:b", "\"there\""));
    visit.done();
    let report = soon(job.report()).await.expect("a report");
    let lines: Vec<String> = report.calls.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["a: moved to host:b", r#"host:b: done "there!""#]);

    let job = pace.submit(ask("here")).await.expect("accepted");
    desk.next().await.answer(Outcome::moved("nowhere", None));
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(&*failure(&report).class, "moved");
    let message = failure(&report).message.as_deref().expect("words");
    assert!(message.starts_with("no lane named `nowhere`"), "{message}");
}

#[tokio::test]
async fn j7_a_chain_of_moves_is_bounded() {
    let worker = |call: Call| async move {
        Outcome::moved(if call.lane() == "a" { "b" } else { "a" }, None)
    };
    let builder = Paceline::in_memory().lane(Lane::new("a")).lane(Lane::new("b"));
    let pace = start(builder.worker("ask", worker));
    let job = pace.submit(ask("x")).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    let last = report.calls.last().expect("calls").to_string();
    assert_eq!(
        (report.calls.len(), report.state, &*last),
        (41, JobState::Failed, "a: failed (moved): moved too often")
    );
}

#[tokio::test]
async fn starts_are_told_by_the_workers_own_thread() {
    let pace = start(Paceline::in_memory().lane(Lane::new("a").every("30ms")).worker("ask", when));
    let jobs = pace.submit_all([ask("1"), ask("2"), ask("3")]).await;
    let mut starts = Vec::new();
    for job in jobs {
        let report = soon(job.expect("accepted").report()).await.expect("a report");
        starts.extend(moments(&report));
        assert!(report.finished_at >= Time(starts[starts.len() - 1]));
    }
    for pair in starts.windows(2) {
        let gap = between(pair[0], pair[1]);
        assert!(gap >= Span::millis(30) && gap < Span::secs(10), "{gap}");
    }
}
