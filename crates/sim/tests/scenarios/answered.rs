//! Attempts that were answered and are not settled yet (L5 and its consequences).

use std::num::NonZeroU32;

use paceline_core::{GapFrom, GroupLimits, Limits};
use paceline_sim::*;

fn once(world: &mut World, jobs: u64) {
    for n in 1..=jobs {
        world.submit(job(n).on("host"));
    }
}

#[test]
fn l5_the_slot_is_free_when_the_upstream_has_responded_and_the_call_settles_later() {
    let mut world = World::new().lane("host", Limits::default());
    for n in 1..=3 {
        world.answer(n, done().after("1s").settled_after("5s"));
    }
    once(&mut world, 3);
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 host background
    1.000 answered #1 host
    1.000 start #2 host background
    2.000 answered #2 host
    2.000 start #3 host background
    3.000 answered #3 host
    6.000 done #1 host
    6.000 report #1 done, all
    7.000 done #2 host
    7.000 report #2 done, all
    8.000 done #3 host
    8.000 report #3 done, all
    ");
    assert!(world.idle());
}

#[test]
fn b3_an_answered_attempt_counts_as_running() {
    let mut world = World::new().lane("host", Limits::default());
    world.answer(1, done().after("1s").settled_after("5s"));
    once(&mut world, 1);
    world.run_for("5999ms");
    assert!(!world.idle());
    assert!(world.why(1).is_empty(), "it does not wait");
    world.run_for("1ms");
    assert!(world.idle());
}

#[test]
fn l5_beyond_max_answered_an_attempt_keeps_its_slot_to_the_end() {
    let limits = Limits::default();
    let mut world = World::new().lane("host", limits).settings(|settings| {
        settings.max_answered = 1;
    });
    for n in 1..=3 {
        world.answer(n, done().after("1s").settled_after("5s"));
    }
    once(&mut world, 3);
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 host background
     1.000 answered #1 host
     1.000 start #2 host background
     2.000 answered #2 host
     6.000 done #1 host
     6.000 report #1 done, all
     7.000 done #2 host
     7.000 report #2 done, all
     7.000 start #3 host background
     8.000 answered #3 host
    13.000 done #3 host
    13.000 report #3 done, all
    ");
}

#[test]
fn l2_a_gap_from_the_finish_runs_from_the_answer() {
    let limits = Limits { gap_from: GapFrom::Finish, ..every("10s") };
    let mut world = World::new().lane("host", limits);
    world.answer(1, done().after("1s").settled_after("20s"));
    once(&mut world, 2);
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 start #1 host background
     1.000 answered #1 host
    11.000 start #2 host background
    12.000 done #2 host
    12.000 report #2 done, all
    21.000 done #1 host
    21.000 report #1 done, all
    ");
}

#[test]
fn l2_a_gap_from_the_answer_holds_across_a_restart() {
    let limits = Limits { gap_from: GapFrom::Finish, ..every("60s") };
    let mut world = World::new().lane("host", limits);
    world.answer(1, done().after("1s").settled_after("20s"));
    once(&mut world, 2);
    world.run_for("30s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 host background
     1.000 answered #1 host
    21.000 done #1 host
    21.000 report #1 done, all
    30.000 crash
    61.000 start #2 host background
    62.000 done #2 host
    62.000 report #2 done, all
    ");
}

#[test]
fn b2_a_crash_repeats_an_attempt_that_was_answered_and_not_settled() {
    let limits = Limits { gap_from: GapFrom::Finish, ..every("10s") };
    let mut world = World::new().lane("host", limits);
    world.answer(1, done().after("1s").settled_after("20s"));
    once(&mut world, 1);
    world.run_for("5s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 start #1 host background
     1.000 answered #1 host
     5.000 crash
    16.000 start #1 host background
    17.000 done #1 host
    17.000 report #1 done, all
    ");
}

#[test]
fn l7_no_second_probe_goes_out_before_the_verdict_of_the_first() {
    let limits = Limits { fail_after: NonZeroU32::MIN, ..at_once(3) };
    let mut world = World::new().lane("host", limits);
    world.answer(1, failed("status_500"));
    world.submit(job(1).on("host").attempts(1));
    world.run_for("1s");
    world.answer(2, done().after("1s").settled_after("5s"));
    for n in 2..=4 {
        world.submit(job(n).on("host"));
    }
    world.run_for("62s");
    assert_eq!(world.why(3), ["host: probe until -, 0 ahead"]);
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 start #1 host background
     0.000 closed host until 60.000
     0.000 failed #1 host status_500
     0.000 report #1 failed, inconclusive
    60.000 start #2 host background
    61.000 answered #2 host
    66.000 done #2 host
    66.000 report #2 done, all
    66.000 start #3 host background
    66.000 start #4 host background
    67.000 done #3 host
    67.000 report #3 done, all
    67.000 done #4 host
    67.000 report #4 done, all
    ");
}

#[test]
fn l9_the_slot_of_its_group_is_free_too() {
    let shared = GroupLimits { in_flight: Some(NonZeroU32::MIN), ..GroupLimits::default() };
    let limits = Limits { group: Some("shared".into()), ..Limits::default() };
    let world = World::new().group("shared", shared);
    let mut world = world.lane("a", limits.clone()).lane("b", limits);
    world.answer(1, done().after("1s").settled_after("5s"));
    world.submit(job(1).on("a"));
    world.submit(job(2).on("b"));
    insta::assert_snapshot!(world.run_for("10s"), @"
    0.000 start #1 a background
    1.000 answered #1 a
    1.000 start #2 b background
    2.000 done #2 b
    2.000 report #2 done, all
    6.000 done #1 a
    6.000 report #1 done, all
    ");
}

#[test]
fn w4_a_cancelled_attempt_that_was_answered_frees_its_slot_once() {
    let mut world = World::new().lane("host", Limits::default());
    world.answer(1, done().after("1s").settled_after("50s"));
    world.answer(2, done().after("1s").settled_after("50s"));
    world.submit(job(1).on("host"));
    world.submit(job(2).on("host").deadline("5s"));
    world.submit(job(3).on("host"));
    world.submit(job(4).on("host"));
    world.run_for("2500ms");
    world.cancel(1);
    insta::assert_snapshot!(world.run_for("30s"), @"
    0.000 start #1 host background
    1.000 answered #1 host
    1.000 start #2 host background
    2.000 answered #2 host
    2.000 start #3 host background
    2.500 cancelled #1 host
    2.500 report #1 cancelled, inconclusive
    3.000 done #3 host
    3.000 report #3 done, all
    3.000 start #4 host background
    4.000 done #4 host
    4.000 report #4 done, all
    5.000 skipped #2 host deadline
    5.000 report #2 skipped, inconclusive
    ");
    assert!(world.idle());
}

#[test]
fn j1_a_throttled_call_that_is_reported_late_returns_to_its_place() {
    let mut world = World::new().lane("host", Limits::default());
    world.answer(1, throttled("8s").after("1s").settled_after("2s"));
    once(&mut world, 2);
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 start #1 host background
     1.000 answered #1 host
     1.000 start #2 host background
     2.000 done #2 host
     2.000 report #2 done, all
     3.000 closed host until 11.000
    11.000 start #1 host background
    12.000 done #1 host
    12.000 report #1 done, all
    ");
}
