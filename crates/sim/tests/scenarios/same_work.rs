//! Duplicate work (D1 to D3).

use paceline_core::{Limits, OnDuplicate, Priority};
use paceline_sim::*;

#[test]
fn d1_a_second_job_with_the_key_joins_and_the_last_caller_cancels() {
    let mut world = World::new().lane("nyaa", every_by_share("60s"));
    world.submit(job(1).on("nyaa"));
    world.run_for("0s");
    world.submit(job(2).on("nyaa").key("k"));
    world.submit(job(3).on("nyaa").key("k").as_(Priority::Interactive));
    world.submit(job(4).on("nyaa").key("k").on_duplicate(OnDuplicate::Refuse));
    world.cancel(3);
    world.run_for("3s");
    world.cancel(2);
    world.submit(job(5).on("nyaa").as_(Priority::Interactive).key("k"));
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 nyaa background
    0.000 submit 3: joins #2
    0.000 submit 4: refused, same as #2
    1.000 done #1 nyaa
    1.000 report #1 done, all
    3.000 cancelled #2 nyaa
    3.000 report #2 cancelled, inconclusive
    3.000 submit 5: accepted as #3
    6.000 start #3 nyaa interactive
    7.000 done #3 nyaa
    7.000 report #3 done, all
    ");
}

#[test]
fn d1_a_key_is_held_through_a_retry_and_a_restart() {
    let mut world = World::new().lane("nyaa", Limits::default());
    world.submit(job(1).on("nyaa").key("k").attempts(2));
    world.answer(1, failed("connect"));
    world.run_for("1ms");
    world.submit(job(2).on("nyaa").key("k").on_duplicate(OnDuplicate::Refuse));
    world.crash_for("1ms");
    world.run_for("2ms");
    world.submit(job(3).on("nyaa").key("k").on_duplicate(OnDuplicate::Refuse));
    insta::assert_snapshot!(world.run_for("5s"), @"
    0.000 start #1 nyaa background
    0.001 submit 2: refused, same as #1
    0.001 crash
    0.003 submit 3: refused, same as #1
    0.475 start #1 nyaa background
    1.475 done #1 nyaa
    1.475 report #1 done, all
    ");
}

#[test]
fn d2_a_delayed_job_is_replaced_before_it_is_due_and_its_schedule_key_is_free_then() {
    let mut world = World::new().lane("tracker", Limits::default());
    let again = |n| job(n).on("tracker").schedule_key("hash").on_duplicate(OnDuplicate::Replace);
    world.submit(again(1).due("10s"));
    world.run_for("5s");
    world.submit(again(2).due("10s"));
    world.run_for("11s");
    world.submit(again(3).due("10s"));
    insta::assert_snapshot!(world.run_for("20s"), @"
     5.000 submit 2: replaces #1
    15.000 start #1 tracker background
    16.000 done #1 tracker
    16.000 report #1 done, all
    16.000 submit 3: accepted as #2
    26.000 start #2 tracker background
    27.000 done #2 tracker
    27.000 report #2 done, all
    ");
}

#[test]
fn d3_three_rss_calls_in_a_burst_run_once_and_all_jobs_end() {
    let mut world = World::new().lane("nyaa", every_by_share("60s"));
    for n in 1..=3 {
        world.submit(job(n).on("nyaa").as_(Priority::Rss));
    }
    world.run_for("30s");
    world.submit(job(4).on("nyaa").as_(Priority::Rss));
    insta::assert_snapshot!(world.run_for("30s"), @"
     0.000 duplicate #2 nyaa of #1
     0.000 report #2 skipped, inconclusive
     0.000 duplicate #3 nyaa of #1
     0.000 report #3 skipped, inconclusive
     0.000 start #1 nyaa rss
     1.000 done #1 nyaa
     1.000 report #1 done, all
    30.000 start #4 nyaa rss
    31.000 done #4 nyaa
    31.000 report #4 done, all
    ");
    assert!(world.idle());
}

#[test]
fn d1_twenty_thousand_delayed_jobs_are_admitted_in_well_under_a_second() {
    let mut world = World::new().lane("tracker", Limits::default());
    let jobs = |n: u64| job(n).on("tracker").key(&n.to_string()).due("1h");
    let started = stopwatch();
    world.submit_all((1..=20_000).map(jobs).collect());
    let took = started.elapsed();
    assert!(world.run_for("1s").is_empty());
    // Generous, because the checkers run too and the machine may be busy.
    assert!(took.as_secs() < 2, "{took:?}");
}

#[expect(clippy::disallowed_methods, reason = "how fast admission really is")]
fn stopwatch() -> std::time::Instant {
    std::time::Instant::now()
}
