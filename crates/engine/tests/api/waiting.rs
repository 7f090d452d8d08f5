//! Time: work due later, deadlines, budgets for waiting, and a queue that is full (W1 to W5, Q1).

use std::num::NonZeroU32;

use paceline::lanes::Reason;
use paceline::report::{Answer, CallOutcome, JobState, Skip};
use paceline::{Job, Lane, NotSubmitted, Paceline, Span};

use crate::desk::{ask, between, desk, moments, small, soon, start, when};

#[tokio::test]
async fn w5_delayed_work_starts_when_due() {
    let pace = start(Paceline::in_memory().lane(Lane::new("a").in_flight(4)).worker("ask", when));
    let job = pace.submit(ask("later").delay("60ms")).await.expect("accepted");
    let view = soon(pace.job(job.id())).await.expect("running").expect("it is known");
    let started = moments(&soon(job.report()).await.expect("a report"))[0];
    let wait = between(view.stored.record.submitted_at.0, started);
    // Due moments are of the wall clock, which may run a little faster than the engine's.
    assert!(wait >= Span::millis(59) && wait < Span::secs(10), "{wait}");
}

#[tokio::test]
async fn w5_work_due_at_a_moment_waits_for_it_and_says_so() {
    let (pace, mut desk) = small();
    let view = pace.submit(ask("first").delay("1h")).await.expect("accepted");
    let why = soon(pace.why(view.id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::NotBefore);
    assert!(why[0].1.until.is_some());
    let past = std::time::SystemTime::UNIX_EPOCH;
    let job = pace.submit(ask("long ago").due(past)).await.expect("accepted");
    desk.next().await.done();
    assert_eq!(soon(job.report()).await.expect("a report").state, JobState::Done);
    let far = past + std::time::Duration::from_secs(1 << 40);
    let job = pace.submit(ask("far ahead").due(far)).await.expect("accepted");
    assert_eq!(soon(pace.why(job.id())).await.expect("running")[0].1.reason, Reason::NotBefore);
}

#[tokio::test]
async fn w2_a_deadline_reports_what_there_is_and_names_what_is_missing() {
    let (worker, mut desk) = desk();
    let builder = ["a", "b", "c"]
        .into_iter()
        .fold(Paceline::in_memory(), |all, name| all.lane(Lane::new(name)));
    let pace = start(builder.worker("ask", worker));
    let job = Job::new("ask", "x").on(["a", "b"]).on(["c"]).deadline("300ms");
    let job = pace.submit(job).await.expect("accepted");
    let (first, second) = (desk.next().await, desk.next().await);
    let (a, mut b) = if first.lane == "a" { (first, second) } else { (second, first) };
    a.answer(paceline::Outcome::empty());
    let report = soon(job.report()).await.expect("a report");
    let lines: Vec<String> = report.calls.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["a: empty", "b: skipped (deadline)", "c: skipped (deadline)"]);
    assert_eq!((report.state, report.answer), (JobState::Done, Answer::Inconclusive));
    b.dropped().await;
    assert!(desk.is_quiet(), "the next stage was not reached");
}

#[tokio::test]
async fn j1_requests_on_the_wire_are_told_whatever_ends_their_calls() {
    // No limit of this lane asks when an attempt started.
    let (worker, mut desk) = desk();
    let lane = Lane::new("a").in_flight(9);
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let late = pace.submit(ask("late").deadline("200ms")).await.expect("accepted");
    let cancelled = pace.submit(ask("cancelled")).await.expect("accepted");
    let _visits = (desk.next().await, desk.next().await);
    let report = soon(late.report()).await.expect("a report");
    assert_eq!(report.calls[0].attempts, 1);
    assert!(report.calls[0].ran >= Span::millis(100), "{:?}", report.calls[0]);
    pace.cancel(cancelled.id()).await.expect("running");
    let report = soon(cancelled.report()).await.expect("a report");
    assert_eq!(report.calls[0].attempts, 1);
    assert!(report.calls[0].ran >= Span::millis(100), "{:?}", report.calls[0]);
}

#[tokio::test]
async fn w1_a_call_is_skipped_when_its_lane_stays_closed_for_longer() {
    let (worker, mut desk) = desk();
    let lane = Lane::new("a").limit("1/h");
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let job = pace.submit(ask("x")).await.expect("accepted");
    desk.next().await.done();
    soon(job.report()).await.expect("a report");
    let job = pace.submit(ask("hasty").max_wait("10s").rss()).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    let CallOutcome::Skipped(Skip::MaxWait { wait, max_wait, .. }) = report.calls[0].outcome else {
        panic!("{}", report.calls[0]);
    };
    assert!(wait > Span::mins(59) && wait <= Span::hours(1) + Span::secs(1), "{wait}");
    assert_eq!((max_wait, report.state), (Span::secs(10), JobState::Skipped));

    let job = pace.submit(ask("patient").start_within("30ms")).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!(report.calls[0].to_string(), "a: skipped (start_within)");
    assert!(report.calls[0].waited >= Span::millis(30));
}

#[tokio::test]
async fn q1_beyond_its_bound_the_queue_refuses_each_job_for_itself() {
    let (worker, mut desk) = desk();
    let builder = Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker);
    let two = NonZeroU32::new(2).expect("above zero");
    let pace = start(builder.settings(|settings| settings.max_waiting = two));
    let running = pace.submit(ask("runs")).await.expect("accepted");
    let visit = desk.next().await;
    let later = ask("later").delay("1h");
    let answers = pace.submit_all([ask("1"), ask("2"), ask("3"), later]).await;
    let accepted: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, false, true], "what is due later needs no room (Q2)");
    let refused = answers.into_iter().nth(2).expect("four").expect_err("no room");
    let NotSubmitted::Full { lane, retry_at } = &refused else { panic!("{refused}") };
    // Only the running call holds the lane: no moment is known.
    assert_eq!((lane.as_deref(), *retry_at), (Some("a"), None));
    assert_eq!(
        refused.to_string(),
        "the lane `a` has no room for more waiting calls: try again later, or raise its `max_waiting`"
    );
    visit.done();
    soon(running.report()).await.expect("a report");
    let next = desk.next().await;
    pace.submit(ask("3")).await.expect("there is room again");
    next.done();
}

#[tokio::test]
async fn l2_interactive_work_needs_a_tenth_of_the_gap_where_its_lane_says_so() {
    let lane = Lane::new("a").every("2h").gap_share([0.1, 0.5, 0.7, 1.0]);
    let (worker, mut desk) = desk();
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    pace.submit(ask("x")).await.expect("accepted");
    desk.next().await.done();
    let slow = pace.submit(ask("background")).await.expect("accepted");
    let fast = pace.submit(ask("interactive").interactive()).await.expect("accepted");
    let (slow, fast) = (pace.why(slow.id()), pace.why(fast.id()));
    let until = |why: Vec<(u16, paceline::lanes::Why)>| why[0].1.until.expect("a gap ends");
    let (slow, fast) =
        (until(soon(slow).await.expect("running")), until(soon(fast).await.expect("running")));
    assert_eq!(slow.since(fast), Span::mins(108));
}
