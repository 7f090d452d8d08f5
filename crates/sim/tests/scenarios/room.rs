//! The bounds on waiting calls (Q1, Q2).

use std::num::NonZeroU32;

use paceline::turn::LaneAct;
use paceline_core::{GroupLimits, Limits, OnCrash, OnDuplicate, Priority};
use paceline_sim::*;

fn n(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("above zero")
}

#[test]
fn q1_beyond_the_bound_a_submission_is_refused_with_the_moment_to_retry() {
    let mut world = World::new().lane("nyaa", every("60s")).settings(|settings| {
        settings.max_waiting = NonZeroU32::new(2).expect("2");
    });
    world.submit(job(1).on("nyaa"));
    world.run_for("0s");
    for n in 2..=4 {
        world.submit(job(n).on("nyaa"));
    }
    insta::assert_snapshot!(world.run_for("70s"), @"
     0.000 start #1 nyaa background
     0.000 submit 4: no room on nyaa, again at 60.000
     1.000 done #1 nyaa
     1.000 report #1 done, all
    60.000 start #2 nyaa background
    61.000 done #2 nyaa
    61.000 report #2 done, all
    ");
}

#[test]
fn q2_work_due_later_enters_a_full_queue() {
    let mut world = World::new().lane("nyaa", every("60s")).settings(|settings| {
        settings.max_waiting = NonZeroU32::new(1).expect("1");
    });
    world.submit(job(1).on("nyaa"));
    world.run_for("0s");
    world.submit(job(2).on("nyaa"));
    world.submit(job(3).on("nyaa").due("10s"));
    insta::assert_snapshot!(world.run_for("200s"), @"
      0.000 start #1 nyaa background
      1.000 done #1 nyaa
      1.000 report #1 done, all
     60.000 start #2 nyaa background
     61.000 done #2 nyaa
     61.000 report #2 done, all
    120.000 start #3 nyaa background
    121.000 done #3 nyaa
    121.000 report #3 done, all
    ");
}

#[test]
fn q1_a_full_lane_refuses_its_own_work_and_no_other_lanes() {
    let mut world = World::new()
        .lane("stuck", Limits::default())
        .lane("nyaa", every("60s"))
        .settings(|settings| settings.lane_waiting = n(2));
    world.tell_lane("stuck", LaneAct::Pause);
    for n in 1..=3 {
        world.submit(job(n).on("stuck"));
    }
    for n in 4..=7 {
        world.submit(job(n).on("nyaa"));
    }
    // Only an operator ends a pause, so no moment is named for it.
    insta::assert_snapshot!(world.run_for("2s"), @"
    0.000 submit 3: no room on stuck
    0.000 submit 4: accepted as #3
    0.000 submit 5: accepted as #4
    0.000 submit 6: no room on nyaa, again at 1.000
    0.000 submit 7: no room on nyaa, again at 1.000
    0.000 start #3 nyaa background
    1.000 done #3 nyaa
    1.000 report #3 done, all
    ");
}

#[test]
fn q1_no_moment_is_named_while_only_running_calls_hold_a_lane() {
    let mut world = World::new()
        .lane("nyaa", Limits { max_waiting: Some(n(1)), ..Limits::default() })
        .latency("90s");
    for n in 1..=2 {
        world.submit(job(n).on("nyaa"));
        world.run_for("1s");
    }
    world.submit(job(3).on("nyaa"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 nyaa background
    2.000 submit 3: no room on nyaa
    ");
}

#[test]
fn q1_a_tenth_is_kept_for_interactive_work() {
    let mut world = World::new()
        .lane("stuck", Limits::default())
        .settings(|settings| settings.lane_waiting = n(10));
    world.tell_lane("stuck", LaneAct::Pause);
    let background: Vec<JobBuilder> = (1..=10).map(|n| job(n).on("stuck")).collect();
    world.submit_all(background);
    world.submit(job(11).on("stuck").as_(Priority::Interactive));
    world.submit(job(12).on("stuck").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 submit 10: no room on stuck
    0.000 submit 11: accepted as #10
    0.000 submit 12: no room on stuck
    ");
}

#[test]
fn q1_a_job_that_can_never_wait_is_an_error() {
    let mut world = World::new()
        .lane("a", Limits::default())
        .lane("b", Limits::default())
        .lane("c", Limits::default())
        .settings(|settings| settings.max_waiting = n(2));
    world.submit(job(1).on("a").on("b").on("c"));
    // One that does not apply never waits.
    world.submit(job(2).on("a").on("b").on("c").not_applicable(&[1]));
    insta::assert_snapshot!(world.run_for("2s"), @"
    0.000 skipped #1 b not_applicable
    0.000 submit 1: 3 calls in one stage can never wait at once: there is room for 2 (`max_waiting`)
    0.000 submit 2: accepted as #1
    0.000 start #1 a background
    0.000 start #1 c background
    1.000 done #1 a
    1.000 done #1 c
    1.000 report #1 done, conclusive
    ");
}

#[test]
fn q1_calls_that_ask_the_cache_and_calls_that_share_a_request_take_room() {
    let mut world = World::new()
        .lane("stuck", Limits::default())
        .settings(|settings| settings.lane_waiting = n(2));
    world.tell_lane("stuck", LaneAct::Pause);
    world.run_for("0s");
    let asking = |key: &'static str| move |n| job(n).on("stuck").cache_key(key);
    world.submit_all((1..=3).map(asking("same")).collect());
    world.run_for("1s");
    world.submit(job(4).on("stuck"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 submit 3: no room on stuck
    1.000 submit 4: no room on stuck
    ");
}

#[test]
fn q1_kinds_that_keep_no_worker_take_room_on_their_own_lane_alone() {
    let mut world = World::new()
        .kind("visit", OnCrash::End)
        .keeping_no_worker("visit")
        .lane("stuck", Limits::default())
        .lane("idle", Limits::default())
        .settings(|settings| settings.max_waiting = n(2));
    world.tell_lane("stuck", LaneAct::Pause);
    world.submit_all((1..=2).map(|n| job(n).on("stuck")).collect());
    world.submit(job(3).on("idle"));
    world.submit(job(4).on("idle").kind("visit"));
    world.submit(job(5).on("stuck").kind("visit"));
    insta::assert_snapshot!(world.run_for("2s"), @"
    0.000 submit 3: no room
    0.000 submit 4: accepted as #3
    0.000 submit 5: no room on stuck
    0.000 start #3 idle background
    1.000 done #3 idle
    1.000 report #3 done, all
    ");
}

#[test]
fn q1_a_changed_bound_holds_for_later_submissions() {
    let mut world = World::new().lane("stuck", Limits::default());
    world.tell_lane("stuck", LaneAct::Pause);
    world.submit(job(1).on("stuck"));
    world.submit(job(2).on("stuck"));
    world.run_for("1s");
    let smaller = Limits { max_waiting: Some(n(2)), ..Limits::default() };
    world.tell_lane("stuck", LaneAct::Change(Box::new(smaller)));
    world.submit(job(3).on("stuck"));
    world.run_for("1s");
    world.crash_for("1s");
    world.run_for("2s");
    // The configuration of the next start has no such bound.
    world.submit(job(4).on("stuck"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    1.000 submit 3: no room on stuck
    2.000 crash
    4.000 submit 4: accepted as #3
    ");
}

#[test]
fn q3_the_pool_grows_when_one_lane_is_full() {
    let mut world = World::new()
        .lane("stuck", Limits::default())
        .lane("nyaa", at_once(30))
        .latency("60s")
        .settings(|settings| {
            settings.lane_waiting = n(30);
            settings.pool.base = n(2);
            settings.pool.max = n(4);
            settings.pool.interactive_reserve = 0;
            settings.pool.lane_share = paceline_core::Portion::ONE;
        });
    world.tell_lane("stuck", LaneAct::Pause);
    world.submit_all((1..=18).map(|n| job(n).on("stuck")).collect());
    world.run_for("10s");
    world.submit_all((19..=24).map(|n| job(n).on("nyaa")).collect());
    let trace = world.run_for("0s");
    // The first takes no slot; one slot came when the lane filled up, one comes now.
    assert_eq!(moments(&trace, "start").len(), 5, "{trace}");
}

#[test]
fn q1_no_moment_is_named_where_a_lane_has_its_share_of_the_pool() {
    let limits = Limits { max_waiting: Some(n(2)), ..at_once(20) };
    let mut world = World::new().lane("nyaa", limits).latency("90s").settings(|settings| {
        (settings.pool.base, settings.pool.max) = (n(4), n(4));
    });
    for n in 1..=5 {
        world.submit(job(n).on("nyaa"));
        world.run_for("1s");
    }
    // Three run: the first, and half of the pool.
    world.submit(job(6).on("nyaa"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 nyaa background
    1.000 start #2 nyaa background
    2.000 start #3 nyaa background
    5.000 submit 6: no room on nyaa
    ");
}

#[test]
fn q1_no_moment_is_named_where_running_calls_fill_the_group() {
    let limits = || Limits { group: Some("g".into()), max_waiting: Some(n(1)), ..at_once(5) };
    let group = GroupLimits { in_flight: Some(n(1)), ..GroupLimits::default() };
    let world = World::new().group("g", group).lane("a", limits()).lane("b", limits());
    let mut world = world.latency("90s");
    world.submit(job(1).on("a"));
    world.run_for("1s");
    world.submit(job(2).on("b"));
    world.submit(job(3).on("b"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 a background
    1.000 submit 3: no room on b
    ");
}

#[test]
fn q1_a_lane_filled_by_calls_that_ask_the_cache_names_its_opening() {
    let mut world = World::new().lane("nyaa", Limits { max_waiting: Some(n(2)), ..every("60s") });
    let asking = (1..=3).map(|n| job(n).on("nyaa").cache_key(&n.to_string())).collect();
    world.submit_all(asking);
    insta::assert_snapshot!(world.run_for("0s"), @"
    0.000 submit 3: no room on nyaa, again at 1.000
    0.000 start #1 nyaa background
    ");
}

#[test]
fn q1_work_due_later_needs_room_when_it_is_to_begin_now() {
    let mut world = World::new().lane("nyaa", Limits { max_waiting: Some(n(1)), ..every("60s") });
    world.submit(job(1).on("nyaa"));
    world.run_for("1s");
    world.submit(job(2).on("nyaa").key("a").due("10m"));
    world.submit(job(3).on("nyaa").key("b").due("10m"));
    world.submit(job(4).on("nyaa").key("a").on_duplicate(OnDuplicate::Replace));
    world.submit(job(5).on("nyaa").key("b").on_duplicate(OnDuplicate::Replace));
    insta::assert_snapshot!(world.run_for("12m"), @"
      0.000 start #1 nyaa background
      1.000 done #1 nyaa
      1.000 report #1 done, all
      1.000 submit 4: replaces #2
      1.000 submit 5: no room on nyaa, again at 60.000
     60.000 start #2 nyaa background
     61.000 done #2 nyaa
     61.000 report #2 done, all
    601.000 start #3 nyaa background
    602.000 done #3 nyaa
    602.000 report #3 done, all
    ");
}

#[test]
fn q1_no_moment_is_named_while_all_lanes_that_may_run_hang() {
    let mut world = World::new()
        .lane("a", at_once(1))
        .lane("b", at_once(1))
        .lane("c", Limits { max_waiting: Some(n(1)), ..Limits::default() })
        .latency("90s")
        .settings(|settings| {
            settings.pool.max_lanes = n(2);
            settings.pool.interactive_reserve = 0;
        });
    (1..=3).for_each(|n| world.submit(job(n).on(["a", "b", "c"][n as usize - 1])));
    world.run_for("1s");
    world.submit(job(4).on("c"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 a background
    0.000 start #2 b background
    1.000 submit 4: no room on c
    ");
}

#[test]
fn q1_no_moment_is_named_while_a_running_call_holds_the_calls_that_share_it() {
    let limits = Limits { max_waiting: Some(n(2)), ..at_once(5) };
    let mut world = World::new().lane("a", limits).latency("90s");
    let same = |n: u64| job(n).on("a").cache_key("q");
    world.submit(same(1));
    world.run_for("0s");
    (2..=3).for_each(|n| world.submit(same(n)));
    world.run_for("1s");
    world.submit(job(4).on("a"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 a background
    1.000 submit 4: no room on a
    ");
}

#[test]
fn q1_waiting_permits_give_no_moment_to_retry() {
    let mut world = World::new()
        .lane("stuck", Limits::default())
        .lane("paced", every("60s"))
        .lane("free", at_once(1))
        .kind("permit", OnCrash::Repeat)
        .keeping_no_worker("permit")
        .settings(|settings| settings.max_waiting = n(2));
    world.tell_lane("stuck", LaneAct::Pause);
    (1..=2).for_each(|n| world.submit(job(n).on("paced").kind("permit")));
    world.run_for("0s");
    (3..=4).for_each(|n| world.submit(job(n).on("stuck")));
    world.submit(job(5).on("free"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 paced background
    0.000 submit 5: no room
    1.000 done #1 paced
    1.000 report #1 done, all
    ");
}

#[test]
fn q1_work_that_would_not_wait_for_a_paused_lane_asks_for_no_room_on_it() {
    let limits = Limits { max_waiting: Some(n(1)), ..Limits::default() };
    let mut world = World::new().lane("stuck", limits);
    world.tell_lane("stuck", LaneAct::Pause);
    world.submit(job(1).on("stuck"));
    world.submit(job(2).on("stuck").start_within("10s").in_time());
    insta::assert_snapshot!(world.run_for("1s"), @"0.000 submit 2: too late, it would wait for an unknown time");
}

#[test]
fn q1_a_call_that_waits_for_a_retry_takes_no_room() {
    let limits = Limits { max_waiting: Some(n(1)), ..Limits::default() };
    let mut world = World::new().lane("nyaa", limits);
    world.answer(1, unavailable("60s"));
    world.submit(job(1).on("nyaa").attempts(2));
    world.run_for("2s");
    world.submit(job(2).on("nyaa"));
    insta::assert_snapshot!(world.run_for("70s"), @"
     0.000 start #1 nyaa background
     0.000 closed nyaa until 60.000
    60.000 start #1 nyaa background
    61.000 done #1 nyaa
    61.000 report #1 done, all
    61.000 start #2 nyaa background
    62.000 done #2 nyaa
    62.000 report #2 done, all
    ");
}
