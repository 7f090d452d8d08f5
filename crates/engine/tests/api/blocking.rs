//! Workers that block their thread.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use paceline::jobs::Cancelled;
use paceline::report::CallOutcome;
use paceline::{Call, Job, Lane, Outcome, Paceline, Work, blocking};
use tokio::sync::mpsc;

use crate::desk::{ask, soon, start};

/// A closure that blocks until the test lets it go on.
struct Gate {
    begun: mpsc::UnboundedReceiver<Call>,
    go_on: Sender<Work>,
}

fn gate() -> (impl Fn(&Call) -> Work + Send + Sync + 'static, Gate) {
    let (begin, begun) = mpsc::unbounded_channel();
    let (go_on, wait): (Sender<Work>, Receiver<Work>) = channel();
    let wait = Mutex::new(wait);
    let worker = move |call: &Call| {
        let _ = begin.send(call.clone());
        let wait = wait.lock().expect("one at a time");
        wait.recv().unwrap_or_else(|_| Outcome::empty())
    };
    (worker, Gate { begun, go_on })
}

fn engine(worker: impl paceline::Worker) -> Paceline {
    start(Paceline::in_memory().lane(Lane::new("a").timeout("1h")).worker("ask", worker))
}

#[tokio::test]
async fn a_closure_that_blocks_is_a_worker() {
    let pace = engine(blocking(|call: &Call| {
        let text: String = call.payload()?;
        let number: u32 = text.parse()?;
        Outcome::done(number + 1)
    }));
    let job = pace.submit(ask("41")).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(report.value::<u32>("a").expect("a number"), 42);
    let job = pace.submit(ask("many").attempts(1)).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(report.calls[0].to_string(), "a: failed (error): invalid digit found in string");
}

#[tokio::test]
async fn j5_a_panic_of_a_closure_is_a_failed_outcome() {
    let pace = engine(blocking(|_: &Call| panic!("no such file")));
    let job = pace.submit(ask("x")).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(report.calls[0].to_string(), "a: failed (panic): no such file");
}

#[tokio::test]
async fn l5_a_cancelled_closure_keeps_its_slot_until_it_returns() {
    let (worker, mut gate) = gate();
    let pace = engine(blocking(worker));
    let first = pace.submit(ask("1")).await.expect("accepted");
    let call = soon(gate.begun.recv()).await.expect("it begins");
    assert!(!call.is_over());
    let (id, second) = (first.id(), pace.submit(ask("2")).await.expect("accepted"));
    assert_eq!(soon(pace.cancel(id)).await.expect("running"), Cancelled::Job);
    let report = soon(first.report()).await.expect("a report");
    assert_eq!(report.calls[0].outcome, CallOutcome::Cancelled);
    assert_eq!(report.calls[0].attempts, 1, "it was made (J1)");
    let over = async {
        while !call.is_over() {
            tokio::task::yield_now().await;
        }
    };
    soon(over).await;
    // The lane takes one call at a time, and that one is still there.
    drop(call);
    for _ in 0..3 {
        let lanes = soon(pace.lanes()).await.expect("running");
        assert_eq!((lanes[0].in_flight, lanes[0].waiting), (1, 1));
    }
    assert!(gate.begun.try_recv().is_err());
    gate.go_on.send(Outcome::done("too late")).expect("it waits");
    drop(soon(gate.begun.recv()).await.expect("the slot is free"));
    gate.go_on.send(Outcome::done(2)).expect("it waits");
    let report = soon(second.report()).await.expect("a report");
    assert_eq!(report.value::<u8>("a").expect("a number"), 2);
}

#[test]
fn a_closure_that_got_no_thread_in_time_is_not_run() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build().expect("a runtime");
    let runs = Arc::new(AtomicU32::new(0));
    runtime.block_on(async {
        let (let_go, wait) = channel::<()>();
        let taken = tokio::task::spawn_blocking(move || wait.recv());
        let counted = runs.clone();
        let worker = blocking(move |_: &Call| {
            counted.fetch_add(1, Ordering::Relaxed);
            Outcome::empty()
        });
        let lane = Lane::new("a");
        let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
        let mut events = pace.events();
        let first = pace.submit(ask("1")).await.expect("accepted");
        while !matches!(soon(events.recv()).await, Ok(paceline::Event::Started(..))) {}
        soon(pace.cancel(first.id())).await.expect("running");
        // It has no thread to wait for: its slot is free as soon as it is dropped.
        while soon(pace.lanes()).await.expect("running")[0].in_flight > 0 {
            tokio::task::yield_now().await;
        }
        let second = pace.submit(Job::new("ask", "2").on(["a"])).await.expect("accepted");
        let_go.send(()).expect("the thread waits");
        let _ = taken.await;
        let report = soon(second.report()).await.expect("a report");
        assert_eq!(report.calls[0].outcome, CallOutcome::Empty);
    });
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn l4_a_closure_that_waits_for_a_thread_is_neither_charged_nor_a_failure_of_its_lane() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(async {
        let (let_go, wait) = channel::<()>();
        let taken = tokio::task::spawn_blocking(move || wait.recv());
        let lane = Lane::new("a").timeout("300ms");
        let worker = blocking(|_: &Call| Outcome::done("ran"));
        let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
        let mut events = pace.events();
        let job = pace.submit(ask("1").attempts(1)).await.expect("accepted");
        // Each start that finds no thread goes back; together they wait for longer than the timeout.
        for _ in 0..4 {
            while !matches!(soon(events.recv()).await, Ok(paceline::Event::Started(..))) {}
        }
        let_go.send(()).expect("the thread waits");
        let _ = taken.await;
        let report = soon(job.report()).await.expect("a report");
        assert_eq!(report.value::<String>("a").expect("it ran"), "ran");
        assert_eq!(report.calls[0].attempts, 1);
    });
}
