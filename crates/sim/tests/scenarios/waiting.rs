//! Waiting, and its end (W1 to W5, Q1, Q2).

use std::num::NonZeroU32;

use paceline::turn::LaneAct;
use paceline_core::{Limits, Priority, Span};
use paceline_sim::*;

#[test]
fn w1_an_rss_call_waits_fifteen_seconds_for_a_closed_lane_and_a_background_call_sixty() {
    let mut world = World::new().lane("nyaa", Limits::default());
    world.answer(1, throttled("40s"));
    world.submit(job(1).on("nyaa"));
    world.run_for("2s");
    world.submit(job(2).on("nyaa").as_(Priority::Rss));
    world.submit(job(3).on("nyaa").as_(Priority::Background));
    world.submit(job(4).on("nyaa").as_(Priority::Completion));
    world.submit(job(5).on("nyaa").max_wait("38s"));
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 nyaa background
     0.000 closed nyaa until 40.000
     2.000 skipped #2 nyaa max_wait, needs 38s, would wait 15s as rss
     2.000 report #2 skipped, inconclusive
    40.000 start #4 nyaa completion
    41.000 done #4 nyaa
    41.000 report #4 done, all
    41.000 start #1 nyaa background
    42.000 done #1 nyaa
    42.000 report #1 done, all
    42.000 start #3 nyaa background
    43.000 done #3 nyaa
    43.000 report #3 done, all
    43.000 start #5 nyaa background
    44.000 done #5 nyaa
    44.000 report #5 done, all
    ");
}

#[test]
fn w1_a_default_budget_never_undercuts_the_lanes_own_gap() {
    let mut world = World::new().lane("nyaa", every_by_share("60s"));
    world.submit(job(1).on("nyaa").as_(Priority::Interactive));
    world.submit(job(2).on("nyaa").as_(Priority::Rss));
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 nyaa interactive
     1.000 done #1 nyaa
     1.000 report #1 done, all
    30.000 start #2 nyaa rss
    31.000 done #2 nyaa
    31.000 report #2 done, all
    ");
}

#[test]
fn w1_a_default_budget_grows_with_the_lanes_gap_and_does_not_shrink_with_it() {
    let change = |gap: &str| LaneAct::Change(Box::new(every(gap)));
    let mut world = World::new().lane("nyaa", every("1s"));
    world.submit(job(1).on("nyaa").as_(Priority::Interactive));
    world.submit(job(2).on("nyaa").as_(Priority::Background).cache_key("q"));
    world.submit(job(3).on("nyaa").as_(Priority::Rss).cache_key("q"));
    world.submit(job(4).on("nyaa").as_(Priority::Background));
    world.run_for("500ms");
    world.tell_lane("nyaa", change("90s"));
    world.run_for("100s");
    world.answer(5, throttled("80s"));
    world.submit(job(5).on("nyaa").as_(Priority::Interactive));
    world.tell_lane("nyaa", change("1s"));
    world.run_for("2s");
    // The fourth keeps the budget that it had.
    world.submit(job(6).on("nyaa").as_(Priority::Background));
    insta::assert_snapshot!(world.run_for("100s"), @"
      0.000 start #1 nyaa interactive
      1.000 done #1 nyaa
      1.000 report #1 done, all
     90.000 start #3 nyaa rss
     91.000 done #3 nyaa
     91.000 report #3 done, all
     91.000 done #2 nyaa
     91.000 report #2 done, all
    100.500 start #5 nyaa interactive
    100.500 closed nyaa until 180.500
    102.500 skipped #6 nyaa max_wait, needs 1m18s, would wait 1m as background
    102.500 report #6 skipped, inconclusive
    180.500 start #5 nyaa interactive
    181.500 done #5 nyaa
    181.500 report #5 done, all
    181.500 start #4 nyaa background
    182.500 done #4 nyaa
    182.500 report #4 done, all
    ");
}

#[test]
fn w1_start_within_holds_no_longer_once_a_shared_request_is_made() {
    let mut world = World::new().lane("nyaa", Limits::default()).latency("10s");
    world.submit(job(1).on("nyaa").cache_key("q"));
    world.run_for("1s");
    world.submit(job(2).on("nyaa").cache_key("q").start_within("5s"));
    let trace = world.run_for("15s");
    assert_eq!(moments(&trace, "done #2"), ["10.000"], "{trace}");
}

#[test]
fn w1_start_within_counts_the_wait_behind_others_too() {
    let mut world = World::new().lane("nyaa", Limits::default()).latency("10s");
    world.submit(job(1).on("nyaa"));
    world.submit(job(2).on("nyaa").start_within("5s"));
    insta::assert_snapshot!(world.run_for("15s"), @"
     0.000 start #1 nyaa background
     5.000 skipped #2 nyaa start_within
     5.000 report #2 skipped, inconclusive
    10.000 done #1 nyaa
    10.000 report #1 done, all
    ");
}

#[test]
fn w2_a_deadline_reports_the_outcomes_so_far_and_names_the_missing_ones() {
    let mut world = World::new()
        .lane("a", Limits::default())
        .lane("b", Limits::default())
        .lane("c", Limits::default());
    world.answer_on(1, "a", nothing().after("1s"));
    world.answer_on(1, "b", done().after("60s"));
    world.submit(job(1).on("a").on("b").then("c").deadline("9s"));
    insta::assert_snapshot!(world.run_for("70s"), @"
    0.000 start #1 a background
    0.000 start #1 b background
    1.000 empty #1 a
    9.000 skipped #1 b deadline
    9.000 skipped #1 c deadline
    9.000 report #1 done, inconclusive
    ");
}

#[test]
fn w3_every_waiting_call_says_why_until_when_and_behind_how_many() {
    let mut world = World::new().lane("nyaa", every("60s")).latency("0s");
    world.submit(job(1).on("nyaa"));
    world.submit(job(2).on("nyaa"));
    world.submit(job(3).on("nyaa"));
    world.submit(job(4).on("nyaa").due("5m"));
    world.run_for("1s");
    let why: Vec<String> = [2, 3, 4].into_iter().flat_map(|n| world.why(n)).collect();
    insta::assert_snapshot!(why.join("\n"), @"
    nyaa: gap until 60.000, 0 ahead
    nyaa: gap until 60.000, 1 ahead, also priority
    nyaa: not_before until 300.000, 0 ahead
    ");
}

#[test]
fn w4_a_cancelled_waiting_call_ends_in_the_same_turn_and_a_running_one_is_aborted() {
    let mut world = World::new().lane("nyaa", every("60s")).latency("30s");
    world.submit(job(1).on("nyaa"));
    world.submit(job(2).on("nyaa"));
    world.run_for("5s");
    world.cancel(2);
    world.cancel(1);
    insta::assert_snapshot!(world.run_for("100s"), @"
    0.000 start #1 nyaa background
    5.000 cancelled #2 nyaa
    5.000 report #2 cancelled, inconclusive
    5.000 cancelled #1 nyaa
    5.000 report #1 cancelled, inconclusive
    ");
    assert!(world.idle());
}

#[test]
fn w5_work_due_in_two_seconds_starts_at_two_seconds() {
    let mut world = World::new().lane("tracker", Limits::default());
    world.submit(job(1).on("tracker").due("2s"));
    insta::assert_snapshot!(world.run_for("10s"), @"
    2.000 start #1 tracker background
    3.000 done #1 tracker
    3.000 report #1 done, all
    ");
}

#[test]
fn w5_a_slow_disk_makes_no_timer_late_because_its_reservation_was_written_before() {
    let starts = |lead: Span| {
        let world = World::new().lane("tracker", at_once(9)).commits_take("9ms");
        let mut world = world.settings(|settings| settings.lead = lead);
        for label in 1..=3 {
            world.submit(job(label).on("tracker").due(&format!("{label}s")));
        }
        let trace = world.run_for("10s");
        let starts = trace.lines().filter(|line| line.contains("start"));
        starts.map(|line| line.trim().to_string()).collect::<Vec<String>>()
    };
    let in_time = [1, 2, 3].map(|n| format!("{n}.000 start #{n} tracker background"));
    assert_eq!(starts(Span::millis(10)), in_time);
    assert_ne!(starts(Span::ZERO), in_time, "here the commit comes first");
}

#[test]
fn w5_a_clock_stepped_back_releases_nothing_early_and_one_stepped_forward_opens_no_window() {
    let mut world = World::new().lane("tracker", windows(&["1/60s"])).latency("0s");
    world.submit(job(1).on("tracker"));
    world.submit(job(2).on("tracker"));
    world.submit(job(3).on("tracker").due("10s"));
    world.step_wall("-1h");
    world.run_for("30s");
    world.step_wall("2h");
    insta::assert_snapshot!(world.run_for("200s"), @"
      0.000 wall clock steps by -3600000000 us
      0.000 start #1 tracker background
      0.000 done #1 tracker
      0.000 report #1 done, all
     30.000 wall clock steps by 7200000000 us
     60.000 start #2 tracker background
     60.000 done #2 tracker
     60.000 report #2 done, all
    120.000 start #3 tracker background
    120.000 done #3 tracker
    120.000 report #3 done, all
    ");
}

#[test]
fn w1_a_call_on_the_wire_that_others_join_waits_as_long_as_they_would() {
    let mut world = World::new().lane("nyaa", Limits::default());
    world.answer(1, throttled("40s").after("2s"));
    world.submit(job(1).on("nyaa").key("feed").as_(Priority::Rss));
    world.run_for("1s");
    world.submit(job(2).on("nyaa").key("feed").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("2m"), @"
     0.000 start #1 nyaa rss
     1.000 submit 2: joins #1
     2.000 closed nyaa until 42.000
    42.000 start #1 nyaa interactive
    43.000 done #1 nyaa
    43.000 report #1 done, all
    ");
}

#[test]
fn w1_a_job_that_must_be_in_time_is_refused_when_the_limits_leave_no_room_for_it() {
    let mut limits = windows(&["2/10s"]);
    limits.in_flight = NonZeroU32::new(9).expect("above zero");
    let mut world = World::new().lane("nyaa", limits);
    for n in 1..=7 {
        world.submit(job(n).on("nyaa").start_within("15s").in_time());
    }
    world.run_for("6s");
    world.submit(job(8).on("nyaa").start_within("15s").in_time());
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 submit 5: too late, it would wait 20s
     0.000 submit 6: too late, it would wait 20s
     0.000 submit 7: too late, it would wait 20s
     0.000 start #1 nyaa background
     0.000 start #2 nyaa background
     1.000 done #1 nyaa
     1.000 report #1 done, all
     1.000 done #2 nyaa
     1.000 report #2 done, all
     6.000 submit 8: accepted as #5
    10.000 start #3 nyaa background
    10.000 start #4 nyaa background
    11.000 done #3 nyaa
    11.000 report #3 done, all
    11.000 done #4 nyaa
    11.000 report #4 done, all
    20.000 start #5 nyaa background
    21.000 done #5 nyaa
    21.000 report #5 done, all
    ");
}

#[test]
fn w1_calls_ahead_take_their_gaps_and_higher_priorities_go_first() {
    let mut world = World::new().lane("nyaa", every_by_share("10s"));
    world.submit(job(1).on("nyaa"));
    world.run_for("1s");
    world.submit(job(2).on("nyaa").start_within("15s").in_time());
    world.submit(job(3).on("nyaa").start_within("15s").in_time());
    world.submit(job(4).on("nyaa").start_within("15s").in_time().as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 nyaa background
     1.000 done #1 nyaa
     1.000 report #1 done, all
     1.000 submit 3: too late, it would wait 19s
     1.000 submit 4: accepted as #3
     1.000 start #3 nyaa interactive
     2.000 done #3 nyaa
     2.000 report #3 done, all
    11.000 start #2 nyaa background
    12.000 done #2 nyaa
    12.000 report #2 done, all
    ");
}

#[test]
fn w1_the_wait_for_a_paused_lane_has_no_known_end() {
    let mut world = World::new().lane("nyaa", Limits::default());
    world.tell_lane("nyaa", LaneAct::Pause);
    world.run_for("1s");
    world.submit(job(1).on("nyaa").start_within("15s").in_time());
    let trace = world.run_for("20s");
    assert_eq!(trace.trim(), "1.000 submit 1: too late, it would wait for an unknown time");
}

#[test]
fn w1_a_call_that_shares_another_keeps_its_own_budget() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    world.answer(1, throttled("60s"));
    world.submit(job(1).on("a").cache_key("q"));
    world.run_for("1s");
    world.submit(job(2).on("a").cache_key("q").max_wait("2s"));
    world.submit(job(3).on("a").cache_key("q").max_wait("2m"));
    insta::assert_snapshot!(world.run_for("70s"), @"
     0.000 start #1 a background
     0.000 closed a until 60.000
     1.000 skipped #2 a max_wait, needs 59s, would wait 2s as background
     1.000 report #2 skipped, inconclusive
    60.000 start #1 a background
    60.000 done #1 a
    60.000 report #1 done, all
    60.000 done #3 a
    60.000 report #3 done, all
    ");
}

#[test]
fn w1_a_lane_that_closes_skips_calls_that_only_share() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    world.submit(job(1).on("a"));
    world.answer(2, throttled("60s"));
    world.submit(job(2).on("a"));
    world.submit(job(3).on("a").cache_key("q"));
    world.submit(job(4).on("a").cache_key("q").max_wait("5s"));
    insta::assert_snapshot!(world.run_for("70s"), @"
     0.000 start #1 a background
     0.000 done #1 a
     0.000 report #1 done, all
     1.000 start #2 a background
     1.000 closed a until 61.000
     1.000 skipped #4 a max_wait, needs 1m, would wait 5s as background
     1.000 report #4 skipped, inconclusive
    61.000 start #2 a background
    61.000 done #2 a
    61.000 report #2 done, all
    62.000 start #3 a background
    62.000 done #3 a
    62.000 report #3 done, all
    ");
}

#[test]
fn w1_a_call_that_waits_for_its_whole_cost_is_budgeted_by_that() {
    let mut world = World::new().lane("a", windows(&["5/60s"])).latency("0ms");
    world.submit(job(1).on("a").cost(5).max_wait("2s"));
    world.submit(job(2).on("a").cost(4).max_wait("2s"));
    world.submit(job(3).on("a").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("70s"), @"
    0.000 skipped #1 a max_wait, needs 1m50ms, would wait 2s as background
    0.000 report #1 skipped, inconclusive
    0.000 start #3 a interactive
    0.000 done #3 a
    0.000 report #3 done, all
    0.000 start #2 a background
    0.000 done #2 a
    0.000 report #2 done, all
    ");
}

#[test]
fn w1_a_pause_counts_against_budgets_that_a_caller_named() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    world.submit(job(1).on("a"));
    world.submit(job(2).on("a").max_wait("5s"));
    world.submit(job(3).on("a").as_(Priority::Background));
    world.run_for("500ms");
    world.tell_lane("a", LaneAct::Pause);
    world.run_for("1s");
    world.submit(job(4).on("a").max_wait("5s"));
    world.submit(job(5).on("a").as_(Priority::Rss));
    world.run_for("2s");
    world.crash_for("1s");
    world.run_for("96500ms");
    world.tell_lane("a", LaneAct::Resume);
    insta::assert_snapshot!(world.run_for("5s"), @"
      0.000 start #1 a background
      0.000 done #1 a
      0.000 report #1 done, all
      1.500 skipped #4 a max_wait, paused, would wait 5s as background
      1.500 report #4 skipped, inconclusive
      3.500 crash
      5.500 skipped #2 a max_wait, paused, would wait 5s as background
      5.500 report #2 skipped, inconclusive
    100.000 start #5 a rss
    100.000 done #5 a
    100.000 report #5 done, all
    101.000 start #3 a background
    101.000 done #3 a
    101.000 report #3 done, all
    ");
}

#[test]
fn w1_a_shared_call_that_a_more_urgent_caller_joins_waits_longer_and_its_lane_goes_on() {
    let mut world = World::new().lane("nyaa", every("5s"));
    world.answer(1, throttled("600s").after("1s"));
    world.submit(job(1).on("nyaa"));
    world.run_for("0s");
    // Job 3 shares the request of job 2 and has the smaller budget, until job 4 joins it.
    world.submit(job(2).on("nyaa").cache_key("same").as_(Priority::Completion));
    world.submit(job(3).on("nyaa").cache_key("same").key("k").as_(Priority::Background));
    world.run_for("500ms");
    world.submit(job(4).on("nyaa").key("k").as_(Priority::Completion));
    insta::assert_snapshot!(world.run_for("20m"), @"
      0.000 start #1 nyaa background
      0.500 submit 4: joins #3
      1.000 closed nyaa until 601.000
    601.000 start #2 nyaa completion
    602.000 done #2 nyaa
    602.000 report #2 done, all
    602.000 done #3 nyaa
    602.000 report #3 done, all
    606.000 start #1 nyaa background
    607.000 done #1 nyaa
    607.000 report #1 done, all
    ");
}
