//! Callers of one job, each with its own deadline (D1, W2), and jobs that could never run (J1).

use paceline_core::{Limits, OnDuplicate, Outcome, Skip};
use paceline_sim::*;

#[test]
fn d1_each_caller_is_answered_at_its_own_deadline_and_the_last_one_ends_the_job() {
    let mut world = World::new().lane("fast", Limits::default()).lane("slow", every("1s"));
    let wish = |n| job(n).on("fast").on("slow").key("k");
    world.answer_on(1, "slow", hangs("60s"));
    world.submit(wish(1).deadline("10s"));
    world.submit(wish(2).deadline("5s"));
    world.submit(wish(3).deadline("20s"));
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 submit 2: joins #1
     0.000 submit 3: joins #1
     0.000 start #1 fast background
     0.000 start #1 slow background
     1.000 done #1 fast
     5.000 partial #1
    10.000 partial #1
    20.000 skipped #1 slow deadline
    20.000 report #1 done, conclusive
    ");
    let partials: Vec<_> = world.partials().iter().map(|it| it.calls.clone()).collect();
    for calls in &partials {
        assert!(matches!(calls[0].outcome, Outcome::Done { .. }));
        assert_eq!(calls[1].outcome, Outcome::Skipped(Skip::Deadline));
        assert_eq!(calls[1].attempts, 1, "the request on the wire was made");
    }
    let ran: Vec<String> = partials.iter().map(|calls| calls[1].ran.to_string()).collect();
    assert_eq!(ran, ["5s", "10s"]);
}

#[test]
fn d1_a_caller_without_a_deadline_gets_the_report_of_one_with() {
    let mut world = World::new().lane("nyaa", Limits::default()).latency("10s");
    world.submit(job(1).on("nyaa").key("k").deadline("5s"));
    world.submit(job(2).on("nyaa").key("k"));
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 submit 2: joins #1
     0.000 start #1 nyaa background
     5.000 partial #1
    10.000 done #1 nyaa
    10.000 report #1 done, all
    ");
}

#[test]
fn d1_a_cancel_withdraws_the_caller_that_would_wait_longest() {
    let mut world = World::new().lane("nyaa", Limits::default()).latency("60s");
    world.submit(job(1).on("nyaa").key("k").deadline("5s"));
    world.submit(job(2).on("nyaa").key("k"));
    world.run_for("1s");
    world.cancel(1);
    insta::assert_snapshot!(world.run_for("30s"), @"
    0.000 submit 2: joins #1
    0.000 start #1 nyaa background
    5.000 skipped #1 nyaa deadline
    5.000 report #1 skipped, inconclusive
    ");
}

#[test]
fn d1_deadlines_of_callers_survive_a_restart() {
    let mut world = World::new().lane("nyaa", Limits::default()).latency("60s");
    world.submit(job(1).on("nyaa").key("k").deadline("30s"));
    world.submit(job(2).on("nyaa").key("k").deadline("5s"));
    world.submit(job(3).on("nyaa").key("k").deadline("10s"));
    world.run_for("1s");
    world.crash_for("6s");
    insta::assert_snapshot!(world.run_for("40s"), @"
     0.000 submit 2: joins #1
     0.000 submit 3: joins #1
     0.000 start #1 nyaa background
     1.000 crash
     7.000 partial #1
     7.000 start #1 nyaa background
    10.000 partial #1
    30.000 skipped #1 nyaa deadline
    30.000 report #1 skipped, inconclusive
    ");
}

#[test]
fn d1_a_caller_that_replaces_work_keeps_its_own_deadline() {
    let replacing =
        |label| job(label).on("nyaa").key("k").due("10s").on_duplicate(OnDuplicate::Replace);
    let mut world = World::new().lane("nyaa", Limits::default());
    world.submit(job(1).on("nyaa").key("k").due("1h").deadline("5s"));
    world.submit(replacing(2));
    // Another caller with the same deadline, none, takes its place: one cancel ends the job.
    world.submit(replacing(3));
    let trace = world.run_for("20s");
    assert_eq!(moments(&trace, "partial #1"), ["5.000"], "{trace}");
    assert_eq!(moments(&trace, "done #1"), ["11.000"], "{trace}");
    world.submit(job(4).on("nyaa").key("k").due("10s"));
    world.submit(replacing(5));
    world.run_for("1s");
    world.cancel(4);
    let trace = world.run_for("1s");
    assert_eq!(trace.matches("report #2 cancelled").count(), 1, "{trace}");
}

#[test]
fn w5_a_delay_is_engine_time_and_a_date_the_wall_clocks() {
    let mut world = World::new().lane("a", Limits::default()).lane("b", Limits::default());
    world.submit(job(1).on("a").due("10s"));
    world.submit(job(2).on("b").date("20s"));
    world.run_for("5s");
    world.step_wall("-2h");
    world.run_for("1s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("60s"), @"
     5.000 wall clock steps by -7200000000 us
     6.000 crash
    10.000 start #1 a background
    11.000 done #1 a
    11.000 report #1 done, all
    ");
    assert_eq!(world.why(2), ["b: not_before until 7220.000, 0 ahead"]);
}

#[test]
fn d2_a_replacement_takes_the_form_of_the_new_job() {
    let mut world = World::new().lane("a", Limits::default());
    let again = |n| {
        let wish = job(n).on("a").schedule_key("hash");
        wish.on_duplicate(paceline_core::OnDuplicate::Replace)
    };
    world.submit(again(1).date("20s"));
    world.run_for("1s");
    world.submit(again(2).due("5s"));
    world.run_for("1s");
    world.step_wall("-2h");
    insta::assert_snapshot!(world.run_for("10s"), @"
    1.000 submit 2: replaces #1
    2.000 wall clock steps by -7200000000 us
    6.000 start #1 a background
    7.000 done #1 a
    7.000 report #1 done, all
    ");
}

#[test]
fn j1_a_job_or_a_stage_without_lanes_is_refused_and_so_is_an_empty_key() {
    let mut world = World::new().lane("a", Limits::default());
    world.submit(job(1));
    world.submit(job(2).on("a").key(""));
    world.submit(job(3).on("a").not_applicable(&[0]));
    insta::assert_snapshot!(world.run_for("2s"), @"
    0.000 skipped #1 a not_applicable
    0.000 report #1 skipped, empty
    0.000 submit 1: a job needs at least one lane in each stage
    0.000 submit 2: a key needs at least one byte: leave it out for none
    0.000 submit 3: accepted as #1
    ");
}
