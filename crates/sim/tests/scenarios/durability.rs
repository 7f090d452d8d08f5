//! Crashes, restarts and stops (B1 to B3).

use paceline_core::{Limits, OnCrash, OnDuplicate, Span};
use paceline_sim::*;

#[test]
fn b1_a_crash_between_reserve_and_settle_loses_no_job_and_charges_the_lane() {
    let mut world = World::new().lane("crossref", every("10s")).latency("3s");
    world.submit(job(1).on("crossref"));
    world.submit(job(2).on("crossref"));
    world.run_for("1s");
    world.crash_for("2s");
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 crossref background
     1.000 crash
    10.050 start #1 crossref background
    13.050 done #1 crossref
    13.050 report #1 done, all
    20.050 start #2 crossref background
    23.050 done #2 crossref
    23.050 report #2 done, all
    ");
    assert!(world.idle());
}

#[test]
fn b2_a_call_whose_process_died_is_repeated_or_fails_as_its_kind_says() {
    let mut world = World::new()
        .lane("a", Limits::default())
        .lane("b", Limits::default())
        .kind("pay", OnCrash::Fail)
        .latency("3s");
    world.submit(job(1).on("a"));
    world.submit(job(2).on("b").kind("pay"));
    world.run_for("1s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("10s"), @"
    0.000 start #1 a background
    0.000 start #2 b background
    1.000 crash
    2.000 failed #2 b crash
    2.000 report #2 failed, inconclusive
    2.000 start #1 a background
    5.000 done #1 a
    5.000 report #1 done, all
    ");
}

#[test]
fn b4_after_a_failed_commit_no_caller_is_answered_and_the_next_start_finds_the_writes() {
    let mut world = World::new().lane("a", Limits::default());
    world.run_for("1s");
    world.fail_commit();
    world.submit(job(1).on("a"));
    let trace = world.run_for("1ms");
    assert!(!trace.contains("start"), "nothing starts that is not known to be written\n{trace}");
    let trace = world.run_for("10s");
    let after: Vec<&str> = trace
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(_, what)| what)
        .collect();
    insta::assert_snapshot!(after.join("\n"), @"
    crash
    start #1 a background
    done #1 a
    report #1 done, all
    ");
}

#[test]
fn b3_stopping_with_work_waiting_loses_nothing() {
    let mut world = World::new().lane("nyaa", every("60s")).lane("tracker", Limits::default());
    world.submit(job(1).on("nyaa"));
    world.submit(job(2).on("nyaa"));
    world.submit(job(3).on("tracker").due("90s"));
    world.run_for("5s");
    world.crash_for("20s");
    insta::assert_snapshot!(world.run_for("150s"), @"
     0.000 start #1 nyaa background
     1.000 done #1 nyaa
     1.000 report #1 done, all
     5.000 crash
    60.000 start #2 nyaa background
    61.000 done #2 nyaa
    61.000 report #2 done, all
    90.000 start #3 tracker background
    91.000 done #3 tracker
    91.000 report #3 done, all
    ");
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
    insta::assert_snapshot!(world.run_for("20s"), @"
     1.000 crash
    21.000 crash
    21.000 start #1 a background
    22.000 done #1 a
    22.000 report #1 done, all
    ");
}

#[test]
fn l4_a_power_cut_loses_no_reservation_that_a_limit_counts() {
    let mut world = World::new().lane("paced", every("20s")).lane("free", Limits::default());
    world.submit(job(1).on("paced"));
    world.submit(job(2).on("paced"));
    world.submit(job(3).on("free"));
    world.submit(job(4).on("free"));
    world.answer(2, done().after("5s"));
    world.answer(3, done().after("21s").settled_after("1s"));
    world.answer(4, done().after("5s"));
    world.run_for("21500ms");
    assert_eq!(world.unsynced(), 1, "the promise of #4 and no other");
    world.power_cut_for("1s");
    insta::assert_snapshot!(world.run_for("70s"), @"
     0.000 start #1 paced background
     0.000 start #3 free background
     1.000 done #1 paced
     1.000 report #1 done, all
    20.000 start #2 paced background
    21.000 answered #3 free
    21.000 start #4 free background
    21.500 crash
    22.500 start #3 free background
    23.500 done #3 free
    23.500 report #3 done, all
    23.500 start #4 free background
    24.500 done #4 free
    24.500 report #4 done, all
    40.050 start #2 paced background
    41.050 done #2 paced
    41.050 report #2 done, all
    ");
    assert!(world.idle());
}

#[test]
fn b2_a_power_cut_loses_no_reservation_of_work_that_must_not_be_repeated() {
    let mut world = World::new().lane("bank", Limits::default()).kind("pay", OnCrash::Fail);
    for n in 1..=2 {
        world.submit(job(n).kind("pay").on("bank"));
        world.answer(n, done().after("1s").settled_after("5s"));
    }
    world.run_for("1500ms");
    assert_eq!(world.unsynced(), 0);
    world.power_cut_for("1s");
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 bank background
    1.000 answered #1 bank
    1.000 start #2 bank background
    1.500 crash
    2.500 failed #1 bank crash
    2.500 report #1 failed, inconclusive
    2.500 failed #2 bank crash
    2.500 report #2 failed, inconclusive
    ");
    assert!(world.idle());
}

#[test]
fn b2_jobs_that_end_with_their_process_are_over_after_a_crash_and_charge_nothing_more() {
    let mut world = World::new().lane("nyaa", windows(&["1/10s"])).kind("visit", OnCrash::End);
    for n in 1..=3 {
        world.submit(job(n).kind("visit").on("nyaa"));
    }
    world.submit(job(4).on("nyaa"));
    world.run_for("500ms");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 nyaa background
     0.500 crash
     1.500 failed #1 nyaa crash
     1.500 report #1 failed, inconclusive
     1.500 failed #2 nyaa crash
     1.500 report #2 failed, inconclusive
     1.500 failed #3 nyaa crash
     1.500 report #3 failed, inconclusive
    10.050 start #4 nyaa background
    11.050 done #4 nyaa
    11.050 report #4 done, all
    ");
}

#[test]
fn l5_a_call_that_outlives_its_process_is_taken_up_with_its_slot() {
    let mut world =
        World::new().lane("nyaa", Limits::default()).kind("permit", OnCrash::TakeUp).latency("10s");
    for n in 1..=2 {
        world.submit(job(n).kind("permit").on("nyaa"));
    }
    world.submit(job(3).on("nyaa"));
    world.run_for("2s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 start #1 nyaa background
     2.000 crash
     3.000 failed #2 nyaa crash
     3.000 report #2 failed, inconclusive
     3.000 take up #1 nyaa
    10.000 done #1 nyaa
    10.000 report #1 done, all
    10.000 start #3 nyaa background
    20.000 done #3 nyaa
    20.000 report #3 done, all
    ");
    assert!(world.idle());
}

#[test]
fn l5_of_several_open_attempts_the_newest_is_taken_up() {
    let limits = Limits { timeout: Some(Span::secs(1)), ..at_once(2) };
    let mut world = World::new().lane("nyaa", limits).kind("permit", OnCrash::TakeUp);
    // The first attempt has timed out and is still on the wire when the second starts.
    world.answer(1, hangs("60s"));
    world.answer(1, done().after("900ms"));
    world.submit(job(1).kind("permit").on("nyaa").attempts(3));
    world.run_for("2s");
    world.crash_for("10ms");
    insta::assert_snapshot!(world.run_for("30s"), @"
    0.000 start #1 nyaa background
    1.475 start #1 nyaa background
    2.000 crash
    2.010 take up #1 nyaa
    2.375 done #1 nyaa
    2.375 report #1 done, all
    ");
    assert!(world.idle());
}

#[test]
fn l4_a_disk_slower_than_the_time_to_send_slows_calls_down_and_stops_none() {
    let mut world = World::new().lane("nyaa", every("10s")).commits_take("170ms");
    for n in 1..=3 {
        world.submit(job(n).on("nyaa"));
    }
    insta::assert_snapshot!(world.run_for("40s"), @"
     0.510 start #1 nyaa background
     1.680 done #1 nyaa
     1.680 report #1 done, all
    10.680 start #2 nyaa background
    11.850 done #2 nyaa
    11.850 report #2 done, all
    20.850 start #3 nyaa background
    22.020 done #3 nyaa
    22.020 report #3 done, all
    ");
    assert!(world.idle());
}

#[test]
fn b1_a_job_with_a_lane_that_is_not_configured_is_parked_as_a_whole_also_after_a_move() {
    let mut world = World::new()
        .lane("nyaa", Limits::default())
        .lane("dblp", every("10s"))
        .lane("arxiv", Limits::default());
    world.answer_on(2, "nyaa", moved("dblp"));
    world.submit(job(1).on("dblp"));
    world.submit(job(2).on("nyaa").then("arxiv"));
    world.run_for("2s");
    world.restart_with(|setup| setup.lanes.retain(|(name, _)| &**name != "arxiv"));
    let trace = world.run_for("60s");
    assert_eq!(trace.matches("start #2").count(), 1, "{trace}");
    world.restart_with(|setup| setup.lanes.push(("arxiv".into(), Limits::default())));
    let trace = world.run_for("60s");
    assert_eq!(trace.matches("start #2 dblp").count(), 1, "{trace}");
}

#[test]
fn b2_a_call_whose_process_died_twenty_one_times_has_failed() {
    let mut world = World::new().lane("a", Limits::default()).latency("1m");
    world.submit(job(1).on("a"));
    for _ in 0..20 {
        world.run_for("2s");
        world.crash_for("1s");
    }
    let trace = world.run_for("2s");
    assert_eq!(trace.matches("start #1").count(), 21, "{trace}");
    assert!(!trace.contains("failed"), "{trace}");
    world.crash_for("1s");
    let trace = world.run_for("2s");
    assert_eq!(trace.matches("failed #1 a crash").count(), 1, "{trace}");
}

#[test]
fn d1_a_job_parked_for_lack_of_a_lane_is_replaced_only_if_it_was_not_tried() {
    let lanes = || World::new().lane("a", Limits::default()).lane("b", Limits::default());
    for tried in ["a", "b"] {
        let mut world = lanes().latency("60s");
        world.submit(job(1).on(tried).then("a").key("k"));
        world.run_for("1s");
        world.restart_with(|setup| setup.lanes.retain(|(name, _)| &**name != "a"));
        world.submit(job(2).on("b").key("k").due("1h").on_duplicate(OnDuplicate::Replace));
        let trace = world.run_for("1s");
        assert!(trace.contains("submit 2: refused, same as #1"), "{trace}");
    }
}

#[test]
fn b1_a_job_parked_for_lack_of_a_lane_still_names_it() {
    let mut world = World::new().lane("a", every("60s")).lane("b", Limits::default());
    world.submit(job(1).on("a"));
    world.submit(job(2).on("a"));
    world.run_for("2s");
    world.restart_with(|setup| setup.lanes.retain(|(name, _)| &**name != "a"));
    world.run_for("1s");
    assert_eq!(world.why(2), ["a: workers until -, 0 ahead"]);
    world.cancel(2);
    let trace = world.run_for("1s");
    assert_eq!(trace.matches("cancelled #2 a").count(), 1, "{trace}");
}
