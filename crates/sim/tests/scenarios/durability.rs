//! Crashes, restarts and stops (B1 to B3).

use paceline_core::{Limits, OnCrash};
use paceline_sim::*;

#[test]
fn b1_a_crash_between_reserve_and_settle_loses_no_job_and_charges_the_lane() {
    let mut world = World::new().lane("crossref", every("10s")).latency("3s");
    world.submit(job(1).on("crossref"));
    world.submit(job(2).on("crossref"));
    world.run_for("1s");
    world.crash_for("2s");
    insta::assert_snapshot!(world.run_for("60s"), @"");
    assert!(world.idle());
}

#[test]
fn b2_a_call_under_which_the_process_died_is_repeated_or_fails_as_its_kind_says() {
    let mut world = World::new()
        .lane("a", Limits::default())
        .lane("b", Limits::default())
        .kind("pay", OnCrash::Fail)
        .latency("3s");
    world.submit(job(1).on("a"));
    world.submit(job(2).on("b").kind("pay"));
    world.run_for("1s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("10s"), @"");
}

#[test]
fn b3_stopping_with_work_waiting_loses_nothing() {
    let mut world = World::new().lane("nyaa", every("60s")).lane("tracker", Limits::default());
    world.submit(job(1).on("nyaa"));
    world.submit(job(2).on("nyaa"));
    world.submit(job(3).on("tracker").due("90s"));
    world.run_for("5s");
    world.crash_for("20s");
    insta::assert_snapshot!(world.run_for("150s"), @"");
    assert!(world.idle());
}

#[test]
fn b3_work_of_an_unknown_kind_is_parked_until_a_start_that_knows_it() {
    let mut world = World::new().lane("a", Limits::default()).kind("new", OnCrash::Repeat);
    world.submit(job(1).on("a").kind("new").due("10s"));
    world.run_for("1s");
    world.restart_with(|setup| setup.kinds.truncate(1));
    world.run_for("20s");
    assert!(world.idle());
    world.restart_with(|setup| {
        let mut kind = setup.kinds[0].clone();
        kind.name = "new".into();
        setup.kinds.push(kind);
    });
    insta::assert_snapshot!(world.run_for("20s"), @"");
}
