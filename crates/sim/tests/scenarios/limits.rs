//! Lanes and their limits (L1 to L11).

use std::num::NonZeroU32;

use paceline::turn::LaneAct;
use paceline_core::{
    AcrossLanes, Announced, GapFrom, GroupLimits, Limits, OnCrash, Portion, Priority, Span, Window,
};
use paceline_sim::*;

#[test]
fn l1_twenty_calls_of_two_seconds_on_a_wide_lane_take_two_seconds() {
    let mut world = World::new().lane("mirror", at_once(20)).latency("2s").settings(|settings| {
        settings.pool.base = NonZeroU32::new(40).expect("above zero");
        settings.pool.max = NonZeroU32::new(40).expect("above zero");
    });
    for n in 1..=20 {
        world.submit(job(n).on("mirror"));
    }
    world.run_for("1999ms");
    assert!(!world.idle());
    let trace = world.run_for("1ms");
    assert!(world.idle());
    assert_eq!(trace.matches("0.000 start").count(), 20);
    assert_eq!(trace.matches("2.000 report").count(), 20);
}

#[test]
fn l2_a_gap_holds_for_every_priority() {
    let mut world = World::new().lane("nyaa", every("10s"));
    for n in 1..=3 {
        world.submit(job(n).on("nyaa").as_(Priority::Interactive));
    }
    let trace = world.run_for("30s");
    assert_eq!(moments(&trace, "start"), ["0.000", "10.000", "20.000"], "{trace}");
}

#[test]
fn l2_a_gap_of_a_minute_shrinks_with_priority_where_the_lane_asks_for_it() {
    let mut world = World::new().lane("nyaa", every_by_share("60s"));
    world.submit(job(1).on("nyaa"));
    world.run_for("0s");
    for (n, priority) in [
        (2, Priority::Completion),
        (3, Priority::Rss),
        (4, Priority::Interactive),
        (5, Priority::Interactive),
    ] {
        world.submit(job(n).on("nyaa").as_(priority).max_wait("10m"));
    }
    insta::assert_snapshot!(world.run_for("200s"), @"
     0.000 start #1 nyaa background
     1.000 done #1 nyaa
     1.000 report #1 done, all
     6.000 start #4 nyaa interactive
     7.000 done #4 nyaa
     7.000 report #4 done, all
    12.000 start #5 nyaa interactive
    13.000 done #5 nyaa
    13.000 report #5 done, all
    42.000 start #3 nyaa rss
    43.000 done #3 nyaa
    43.000 report #3 done, all
    84.000 start #2 nyaa completion
    85.000 done #2 nyaa
    85.000 report #2 done, all
    ");
}

#[test]
fn l2_a_gap_from_the_finish_survives_a_restart() {
    let limits = Limits { gap_from: GapFrom::Finish, ..every("10s") };
    let mut world = World::new().lane("script", limits).latency("100s");
    world.submit(job(1).on("script"));
    world.run_for("101s");
    world.submit(job(2).on("script"));
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("200s"), @"
      0.000 start #1 script background
    100.000 done #1 script
    100.000 report #1 done, all
    101.000 crash
    110.000 start #2 script background
    210.000 done #2 script
    210.000 report #2 done, all
    ");
}

#[test]
fn l4_a_request_with_slack_counts_at_its_latest_arrival() {
    // The first request is in transit for 300 ms, the second not at all, and so on.
    for limits in [windows(&["1/10s"]), every("10s")] {
        let limits = Limits { slack: Some(Span::millis(300)), ..limits };
        let mut world = World::new().lane("far", limits).latency("100ms");
        for n in 1..=3 {
            world.submit(job(n).on("far"));
        }
        world.run_for("2s");
        world.crash_for("1s");
        let trace = world.run_for("20s");
        assert_eq!(moments(&trace, "start"), ["0.000", "10.300", "20.600"], "{trace}");
    }
}

#[test]
fn l3_a_window_opens_when_its_oldest_attempt_leaves_and_a_cost_waits_for_its_whole_room() {
    let mut world = World::new()
        .lane("arxiv", Limits { in_flight: NonZeroU32::new(5).expect("5"), ..windows(&["3/10s"]) });
    world.submit(job(1).on("arxiv"));
    world.run_for("4s");
    world.submit(job(2).on("arxiv").cost(2));
    world.submit(job(3).on("arxiv").cost(2));
    world.submit(job(4).on("arxiv"));
    world.submit(job(5).on("arxiv").cost(4));
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 arxiv background
     1.000 done #1 arxiv
     1.000 report #1 done, all
     4.000 submit 5: a cost of 4 can never fit the limit `3/10s` of `arxiv`: it allows 3
     4.000 start #2 arxiv background
     5.000 done #2 arxiv
     5.000 report #2 done, all
    14.000 start #3 arxiv background
    14.000 start #4 arxiv background
    15.000 done #3 arxiv
    15.000 report #3 done, all
    15.000 done #4 arxiv
    15.000 report #4 done, all
    ");
}

#[test]
fn l4_a_reservation_that_the_crash_left_open_is_still_charged() {
    let mut world = World::new().lane("crossref", windows(&["1/60s"])).latency("5s");
    world.submit(job(1).on("crossref"));
    world.run_for("2s");
    world.crash_for("3s");
    insta::assert_snapshot!(world.run_for("120s"), @"
     0.000 start #1 crossref background
     2.000 crash
    60.050 start #1 crossref background
    65.050 done #1 crossref
    65.050 report #1 done, all
    ");
}

#[test]
fn l5_a_request_that_timed_out_but_hangs_keeps_its_slot() {
    let limits = Limits { timeout: Some(Span::secs(5)), ..Limits::default() };
    let mut world = World::new().lane("slow", limits);
    world.answer(1, hangs("30s"));
    world.submit(job(1).on("slow").attempts(1));
    world.submit(job(2).on("slow"));
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 slow background
     5.000 failed #1 slow timeout
     5.000 report #1 failed, inconclusive
    30.000 start #2 slow background
    31.000 done #2 slow
    31.000 report #2 done, all
    ");
}

#[test]
fn l6_a_retry_after_closes_that_lane_only_and_the_throttled_call_keeps_its_place() {
    let mut world = World::new().lane("nyaa", Limits::default()).lane("arxiv", Limits::default());
    world.answer(1, throttled("8s"));
    world.submit(job(1).on("nyaa").attempts(1));
    world.submit(job(2).on("nyaa"));
    world.submit(job(3).on("arxiv"));
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 nyaa background
     0.000 start #3 arxiv background
     0.000 closed nyaa until 8.000
     1.000 done #3 arxiv
     1.000 report #3 done, all
     8.000 start #1 nyaa background
     9.000 done #1 nyaa
     9.000 report #1 done, all
     9.000 start #2 nyaa background
    10.000 done #2 nyaa
    10.000 report #2 done, all
    ");
}

#[test]
fn l6_a_cooldown_survives_a_restart_and_is_lifted_by_hand() {
    let mut world = World::new().lane("nyaa", Limits::default());
    world.answer(1, throttled("600s"));
    world.submit(job(1).on("nyaa"));
    world.run_for("10s");
    world.crash_for("1s");
    world.run_for("100s");
    world.tell_lane("nyaa", LaneAct::Reset);
    insta::assert_snapshot!(world.run_for("100s"), @"
      0.000 start #1 nyaa background
      0.000 closed nyaa until 600.000
     10.000 crash
    110.000 start #1 nyaa background
    111.000 done #1 nyaa
    111.000 report #1 done, all
    ");
}

#[test]
fn l7_throttled_without_retry_after_the_lane_slows_down_and_recovers() {
    let mut world = World::new().lane("nyaa", every("2s")).latency("0s");
    for n in 1..=8 {
        world.submit(job(n).on("nyaa"));
    }
    world.answer(1, throttled_without_a_date());
    world.answer(1, throttled_without_a_date());
    let trace = world.run_for("2m");
    let starts: Vec<&str> = trace.lines().filter(|line| line.contains("start")).collect();
    insta::assert_snapshot!(starts.join("\n"), @"
     0.000 start #1 nyaa background
     4.000 start #1 nyaa background
    12.000 start #1 nyaa background
    20.000 start #2 nyaa background
    28.000 start #3 nyaa background
    36.000 start #4 nyaa background
    44.000 start #5 nyaa background
    50.000 start #6 nyaa background
    56.000 start #7 nyaa background
    62.000 start #8 nyaa background
    ");
}

#[test]
fn l7_failures_climb_the_ladder_and_one_probe_goes_out_after_each_rung() {
    let limits = Limits { fail_after: NonZeroU32::new(2).expect("2"), ..at_once(3) };
    let mut world = World::new().lane("dblp", limits);
    for n in 1..=4 {
        world.submit(job(n).on("dblp").attempts(1));
    }
    world.answer(1, failed("status_500"));
    world.answer(2, failed("status_500"));
    world.answer(3, failed("status_500"));
    world.answer(4, failed("status_500"));
    world.run_for("5s");
    for n in 5..=7 {
        world.submit(job(n).on("dblp").attempts(1));
    }
    insta::assert_snapshot!(world.run_for("500s"), @"
      0.000 start #1 dblp background
      0.000 start #2 dblp background
      0.000 start #3 dblp background
      0.000 failed #1 dblp status_500
      0.000 report #1 failed, inconclusive
      0.000 closed dblp until 60.000
      0.000 failed #2 dblp status_500
      0.000 report #2 failed, inconclusive
      0.000 failed #3 dblp status_500
      0.000 report #3 failed, inconclusive
     60.000 start #4 dblp background
     60.000 closed dblp until 360.000
     60.000 failed #4 dblp status_500
     60.000 report #4 failed, inconclusive
    360.000 start #5 dblp background
    361.000 done #5 dblp
    361.000 report #5 done, all
    361.000 start #6 dblp background
    361.000 start #7 dblp background
    362.000 done #6 dblp
    362.000 report #6 done, all
    362.000 done #7 dblp
    362.000 report #7 done, all
    ");
}

#[test]
fn l8_announced_limits_slow_their_lane_down() {
    let mut world = World::new().lane("crossref", at_once(3)).latency("0s");
    let left = Announced { left: Some((1, Span::secs(30))), ..Announced::default() };
    world.answer(1, done().announcing(left));
    world.submit(job(1).on("crossref"));
    world.run_for("0s");
    world.submit(job(2).on("crossref"));
    world.submit(job(3).on("crossref"));
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 crossref background
     0.000 done #1 crossref
     0.000 report #1 done, all
     0.000 start #2 crossref background
     0.000 done #2 crossref
     0.000 report #2 done, all
    30.000 start #3 crossref background
    30.000 done #3 crossref
    30.000 report #3 done, all
    ");
}

#[test]
fn l8_a_lane_that_is_announced_no_call_at_once_goes_on_one_at_a_time() {
    let mut world = World::new().lane("nyaa", at_once(3));
    let none = Announced { in_flight: Some(0), ..Announced::default() };
    world.answer(1, done().announcing(none));
    world.submit(job(1).on("nyaa"));
    world.run_for("2s");
    world.submit_all((2..=4).map(|n| job(n).on("nyaa")).collect());
    let trace = world.run_for("10s");
    assert_eq!(moments(&trace, "start"), ["0.000", "2.000", "3.000", "4.000"], "{trace}");
}

#[test]
fn l8_answered_requests_are_not_subtracted_from_the_announced_remainder() {
    let limits = Limits { slack: Some(Span::secs(1)), ..windows(&["100/h"]) };
    let mut world = World::new().lane("crossref", limits).latency("100ms");
    let left = Announced { left: Some((1, Span::secs(30))), ..Announced::default() };
    world.answer(2, done().after("100ms").announcing(left));
    for n in 1..=4 {
        world.submit(job(n).on("crossref"));
    }
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 crossref background
     1.100 done #1 crossref
     1.100 report #1 done, all
     1.100 start #2 crossref background
     1.200 done #2 crossref
     1.200 report #2 done, all
     1.200 start #3 crossref background
     2.300 done #3 crossref
     2.300 report #3 done, all
    31.200 start #4 crossref background
    31.300 done #4 crossref
    31.300 report #4 done, all
    ");
}

#[test]
fn p1_lanes_take_turns_by_their_starts_whatever_their_slack() {
    let mut world = World::new().latency("100ms").settings(|settings| {
        settings.across_lanes = AcrossLanes::Turns;
        settings.pool.base = NonZeroU32::MIN;
        settings.pool.max = NonZeroU32::MIN;
        settings.pool.interactive_reserve = 0;
    });
    for (lane, slack) in [("far", Span::secs(1)), ("near", Span::ZERO)] {
        world = world.lane(lane, Limits { slack: Some(slack), ..windows(&["100/h"]) });
    }
    for n in 1..=6 {
        world.submit(job(n).on(if n <= 3 { "near" } else { "far" }));
    }
    let trace = world.run_for("10s");
    let starts = trace.lines().filter(|line| line.contains("start"));
    let lanes: Vec<&str> = starts.filter_map(|line| line.split(' ').rev().nth(1)).collect();
    assert_eq!(lanes, ["near", "far", "near", "far", "near", "far"], "{trace}");
}

#[test]
fn l9_two_indexers_behind_one_host_share_its_limit() {
    let group = GroupLimits { every: Some(Span::secs(3)), ..GroupLimits::default() };
    let member = || Limits { group: Some("host".into()), ..on_the_spot() };
    let mut world = World::new()
        .group("host", group)
        .lane("tv", member())
        .lane("films", member())
        .lane("books", Limits::default());
    for (n, lane) in [(1, "tv"), (2, "films"), (3, "tv"), (4, "books")] {
        world.submit(job(n).on(lane));
    }
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 tv background
    0.000 start #4 books background
    1.000 done #1 tv
    1.000 report #1 done, all
    1.000 done #4 books
    1.000 report #4 done, all
    3.000 start #2 films background
    4.000 done #2 films
    4.000 report #2 done, all
    6.000 start #3 tv background
    7.000 done #3 tv
    7.000 report #3 done, all
    ");
}

#[test]
fn l10_a_lane_that_a_template_made_is_dropped_only_when_it_is_as_good_as_new() {
    let mut world = World::new().lane("host:*", every("10s")).latency("0s").settings(|settings| {
        settings.max_lanes = NonZeroU32::new(2).expect("2");
    });
    world.submit(job(1).on("host:a"));
    world.submit(job(2).on("host:b"));
    world.submit(job(3).on("host:c"));
    world.run_for("20s");
    world.submit(job(4).on("host:c"));
    insta::assert_snapshot!(world.run_for("1s"), @"
     0.000 submit 3: no room for the lane `host:c`: 2 lanes exist and none is idle (`max_lanes`)
     0.000 start #1 host:a background
     0.000 start #2 host:b background
     0.000 done #1 host:a
     0.000 report #1 done, all
     0.000 done #2 host:b
     0.000 report #2 done, all
    20.000 submit 4: accepted as #3
    20.000 start #3 host:c background
    20.000 done #3 host:c
    20.000 report #3 done, all
    ");
    assert_eq!(
        world.lane_list().iter().map(|name| &**name).collect::<Vec<_>>(),
        ["host:b", "host:c"]
    );
}

#[test]
fn l11_a_backlog_that_aged_to_the_top_runs_at_the_background_gap_and_spends_no_kept_share() {
    let mut window = Window::new("10/h".parse().expect("a rate"));
    window.keep[Priority::Interactive.index()] = Portion::thousandths(200);
    let limits = Limits { windows: vec![window], ..every("60s") };
    let mut world = World::new().lane("nyaa", limits).latency("0s").settings(|settings| {
        settings.age_after = Span::secs(10);
    });
    for n in 1..=50 {
        world.submit(job(n).on("nyaa").max_wait("10d"));
    }
    world.run_for("20m");
    world.submit(job(51).on("nyaa").as_(Priority::Interactive));
    let trace = world.run_for("39m");
    let starts: Vec<&str> = trace.lines().filter(|line| line.contains("start")).collect();
    insta::assert_snapshot!(starts.join("\n"), @"
       0.000 start #1 nyaa background
      60.000 start #2 nyaa background
     120.000 start #3 nyaa background
     180.000 start #4 nyaa background
     240.000 start #5 nyaa background
     300.000 start #6 nyaa background
     360.000 start #7 nyaa background
     420.000 start #8 nyaa background
    1200.000 start #51 nyaa interactive
    ");
}

#[test]
fn l11_an_attempt_reserved_without_limits_and_sent_under_them_counts_in_them() {
    let mut world = World::new().lane("nyaa", at_once(9)).latency("0s");
    world.submit(job(1).on("nyaa").due("1s"));
    world.run_for("995ms");
    world.tell_lane("nyaa", LaneAct::Change(Box::new(windows(&["1/60s"]))));
    world.submit(job(2).on("nyaa"));
    // Its start was not reported, so it counts at its latest possible arrival.
    insta::assert_snapshot!(world.run_for("2m"), @"
     1.000 start #1 nyaa background
     1.000 done #1 nyaa
     1.000 report #1 done, all
    61.050 start #2 nyaa background
    61.050 done #2 nyaa
    61.050 report #2 done, all
    ");
}

#[test]
fn l11_a_call_that_comes_back_to_limits_too_small_for_it_fails_and_does_not_wait_for_ever() {
    let mut world = World::new().lane("nyaa", windows(&["5/60s"]));
    world.answer(1, throttled("5s").after("1s"));
    world.submit(job(1).on("nyaa").cost(3));
    world.run_for("500ms");
    world.tell_lane("nyaa", LaneAct::Change(Box::new(windows(&["2/60s"]))));
    insta::assert_snapshot!(world.run_for("2m"), @"
    0.000 start #1 nyaa background
    1.000 closed nyaa until 6.000
    1.000 failed #1 nyaa cost
    1.000 report #1 failed, inconclusive
    ");
}

#[test]
fn l11_a_restart_with_limits_too_small_for_a_call_fails_it_also_on_a_lane_never_used() {
    let mut world = World::new()
        .lane("slow", Limits::default())
        .lane("nyaa", windows(&["5/60s"]))
        .settings(|settings| {
            settings.pool.max_lanes = NonZeroU32::MIN;
            settings.pool.interactive_reserve = 0;
        });
    world.submit(job(1).on("slow"));
    world.submit(job(2).on("nyaa").cost(3));
    world.run_for("500ms");
    world.restart_with(|setup| setup.lanes[1].1 = windows(&["2/60s"]));
    insta::assert_snapshot!(world.run_for("1m"), @"
    0.000 start #1 slow background
    0.500 crash
    0.500 failed #2 nyaa cost
    0.500 report #2 failed, inconclusive
    0.500 start #1 slow background
    1.500 done #1 slow
    1.500 report #1 done, all
    ");
}

#[test]
fn l7_a_call_that_cannot_be_made_again_slows_its_lane_down_and_has_failed() {
    let mut world = World::new().lane("nyaa", every("1s"));
    world.answer(1, turned_away());
    world.submit(job(1).on("nyaa"));
    world.submit(job(2).on("nyaa"));
    insta::assert_snapshot!(world.run_for("5s"), @"
    0.000 start #1 nyaa background
    0.000 failed #1 nyaa throttled
    0.000 report #1 failed, inconclusive
    2.000 start #2 nyaa background
    3.000 done #2 nyaa
    3.000 report #2 done, all
    ");
}

#[test]
fn l2_a_gap_from_the_finish_holds_beside_a_call_that_was_answered_and_taken_up() {
    let limits = Limits { gap_from: GapFrom::Finish, ..every("5s") };
    let two = NonZeroU32::new(2).expect("2");
    let mut world =
        World::new().kind("permit", OnCrash::TakeUp).lane("a", Limits { in_flight: two, ..limits });
    world.answer(1, done().after("1s").settled_after("30s"));
    world.submit(job(1).on("a").kind("permit"));
    world.run_for("1200ms");
    world.submit(job(2).on("a"));
    world.crash_for("100ms");
    let trace = world.run_for("10s");
    assert_eq!(moments(&trace, "start #2"), ["6.300"], "{trace}");
}

#[test]
fn p2_an_attempt_that_was_taken_up_ends_at_the_priority_of_its_reservation() {
    let limits = Limits { gap_from: GapFrom::Finish, ..every_by_share("20s") };
    let mut world = World::new()
        .settings(|settings| settings.age_after = Span::secs(5))
        .kind("permit", OnCrash::TakeUp)
        .lane("a", limits)
        .latency("30s");
    world.submit(job(1).on("a").kind("permit").key("k"));
    world.run_for("10s");
    world.submit(job(2).on("a").kind("permit").key("k").as_(Priority::Completion));
    world.crash_for("100ms");
    world.submit(job(3).on("a").as_(Priority::Completion).max_wait("1h"));
    // At the highest rank: a tenth of the gap after the finish, at 30 s, of what was background
    // work.
    let trace = world.run_for("60s");
    assert_eq!(moments(&trace, "start #2"), ["32.000"], "{trace}");
}

fn group_of(rate: &str) -> GroupLimits {
    GroupLimits { windows: windows(&[rate]).windows, ..GroupLimits::default() }
}

fn in_group(limits: Limits, group: &str) -> Limits {
    Limits { group: Some(group.into()), ..limits }
}

#[test]
fn l9_a_lane_that_joins_a_group_brings_its_open_reservations() {
    let mut world = World::new()
        .group("g", group_of("5/10s"))
        .lane("a", at_once(5))
        .lane("b", in_group(at_once(5), "g"))
        .commits_take("40ms");
    world.submit_all((1..=5).map(|n| job(n).on("a")).collect());
    world.run_for("20ms");
    world.tell_lane("a", LaneAct::Change(Box::new(in_group(at_once(5), "g"))));
    for n in 6..=10 {
        world.submit(job(n).on("b"));
    }
    let trace = world.run_for("9s");
    assert_eq!(trace.matches("start").count(), 5, "{trace}");
    let trace = world.run_for("2s");
    assert_eq!(trace.matches("start").count(), 10, "{trace}");
}

#[test]
fn l9_a_group_still_counts_a_lane_that_is_configured_no_more() {
    let mut world = World::new()
        .group("g", group_of("5/30s"))
        .lane("a", in_group(at_once(5), "g"))
        .lane("b", in_group(at_once(5), "g"));
    for n in 1..=5 {
        world.submit(job(n).on("a"));
    }
    world.run_for("2s");
    world.restart_with(|setup| setup.lanes.retain(|(name, _)| &**name != "a"));
    for n in 6..=10 {
        world.submit(job(n).on("b"));
    }
    let trace = world.run_for("27s");
    assert_eq!(trace.matches("start").count(), 5, "{trace}");
    let trace = world.run_for("2s");
    assert_eq!(trace.matches("start").count(), 10, "{trace}");
}

#[test]
fn l9_a_group_still_counts_a_lane_that_has_left_it_through_a_restart() {
    let mut world = World::new()
        .group("g", group_of("5/30s"))
        .lane("a", in_group(at_once(5), "g"))
        .lane("b", in_group(at_once(5), "g"));
    for n in 1..=5 {
        world.submit(job(n).on("a"));
    }
    world.run_for("2s");
    world.tell_lane("a", LaneAct::Change(Box::new(at_once(5))));
    world.restart_with(|setup| setup.lanes[0].1.group = None);
    for n in 6..=10 {
        world.submit(job(n).on("b"));
    }
    let trace = world.run_for("27s");
    assert_eq!(trace.matches("start").count(), 5, "{trace}");
    let trace = world.run_for("2s");
    assert_eq!(trace.matches("start").count(), 10, "{trace}");
}

#[test]
fn l6_a_retry_after_shorter_than_the_gap_slows_the_lane_down_too() {
    for reaction in [throttled("0s"), throttled("1ms"), throttled_without_a_date()] {
        for limits in [at_once(10), Limits { every: Some(Span::ZERO), ..at_once(10) }] {
            let mut world = World::new().lane("a", limits).latency("0ms");
            for n in 1..=10 {
                (0..20).for_each(|_| world.answer(n, reaction.clone()));
                world.submit(job(n).on("a"));
            }
            let trace = world.run_for("1s");
            let starts = trace.matches("start").count();
            assert!(starts <= 12, "{starts} requests in the first second\n{trace}");
        }
    }
}

#[test]
fn l6_a_retry_after_longer_than_the_gap_sets_only_the_cooldown() {
    let mut world = World::new().lane("a", at_once(10)).latency("0ms");
    world.answer(1, throttled("5s"));
    world.submit(job(1).on("a"));
    world.run_for("1s");
    for n in 2..=5 {
        world.submit(job(n).on("a"));
    }
    let trace = world.run_for("10s");
    assert_eq!(moments(&trace, "start"), ["0.000", "5.000", "5.000", "5.000", "5.000", "5.000"]);
}

#[test]
fn l7_a_lane_without_a_gap_finds_the_rate_that_its_upstream_allows() {
    for latency in ["10ms", "150ms"] {
        let mut world = World::new().lane("a", at_once(4)).latency(latency).strict("a", "5/s");
        for n in 1..=1_500 {
            world.submit(job(n).on("a").attempts(1));
        }
        let before = world.run_for("60s");
        let trace = world.run_for("200s");
        let later = &trace[before.len()..];
        let (starts, done) = (later.matches("start").count(), later.matches(" done #").count());
        assert!(done >= 800, "{done} of 1000 in 200 s with {latency}");
        let throttled = starts.saturating_sub(done);
        assert!(throttled * 20 <= starts, "{throttled} of {starts} were throttled");
        let all = (trace.matches("start").count(), trace.matches(" done #").count());
        assert!((all.0 - all.1) * 20 <= all.0, "{all:?}");
    }
}

#[test]
fn l7_a_request_that_was_not_processed_is_sent_again_at_no_cost() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    (0..20).for_each(|_| world.answer(1, not_processed()));
    world.submit(job(1).on("a").attempts(1));
    world.submit(job(2).on("a"));
    let trace = world.run_for("30s");
    assert_eq!(trace.matches("start #1").count(), 21, "{trace}");
    assert_eq!(moments(&trace, "done #1"), ["20.000"], "it keeps its place, at the lane's pace");
    assert!(!trace.contains("closed"));
}

#[test]
fn l7_a_request_that_is_never_processed_has_failed_after_the_twentieth_repetition() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    (0..30).for_each(|_| world.answer(1, not_processed()));
    world.submit(job(1).on("a").attempts(1));
    let trace = world.run_for("30s");
    assert_eq!(trace.matches("start #1").count(), 21, "{trace}");
    assert!(trace.contains("failed #1 a not_processed"), "{trace}");
}

#[test]
fn l6_a_call_that_is_throttled_without_end_has_failed_after_the_twentieth_time() {
    let mut world = World::new().lane("a", on_the_spot()).latency("0ms");
    (0..30).for_each(|_| world.answer(1, throttled("60s")));
    world.submit(job(1).on("a").attempts(1));
    let trace = world.run_for("30m");
    assert_eq!(trace.matches("start #1").count(), 21, "{trace}");
    assert_eq!(moments(&trace, "failed #1 a throttled"), ["1200.000"], "{trace}");
}

#[test]
fn l7_failures_that_concern_one_call_close_nothing() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    for n in 1..=6 {
        (0..3).for_each(|_| world.answer(n, spoilt("short_body")));
        world.submit(job(n).on("a"));
    }
    for n in 7..=56 {
        world.submit(job(n).on("a"));
    }
    let trace = world.run_for("2s");
    assert_eq!(trace.matches(" done #").count(), 50, "{trace}");
    assert!(!trace.contains("closed"), "{trace}");
}

#[test]
fn l7_retries_of_one_call_count_once_towards_the_ladder() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    (0..9).for_each(|_| world.answer(1, failed("status_500")));
    world.submit(job(1).on("a").attempts(10));
    let trace = world.run_for("30m");
    assert!(trace.contains("done #1"), "{trace}");
    assert!(!trace.contains("closed"), "{trace}");
}

#[test]
fn l7_l8_a_new_gap_runs_from_starts_that_left_no_trace_in_the_store() {
    let every = Announced { every: Some(Span::secs(1)), ..Announced::default() };
    for answer in [throttled_without_a_date(), done().announcing(every)] {
        let mut world = World::new().lane("a", at_once(3)).latency("10ms");
        world.answer(1, answer.after("10s"));
        world.submit(job(1).on("a"));
        world.run_for("9900ms");
        // While the lane has no limits, this attempt leaves no durable trace.
        world.submit(job(2).on("a"));
        world.run_for("150ms");
        world.crash_for("10ms");
        world.submit(job(3).on("a"));
        let trace = world.run_for("5s");
        assert_eq!(moments(&trace, "start")[2], "11.000", "{trace}");
    }
}

#[test]
fn w3_a_share_that_is_kept_is_named_as_such_and_a_window_that_is_spent_as_a_window() {
    let mut window = windows(&["2/10s"]);
    window.windows[0].keep[Priority::Interactive.index()] = Portion::thousandths(500);
    for (first, reason) in [(job(1), "keep"), (job(1).as_(Priority::Interactive).cost(2), "window")]
    {
        let mut world = World::new().lane("nyaa", window.clone());
        world.submit(first.on("nyaa"));
        world.submit(job(2).on("nyaa"));
        world.run_for("2s");
        assert_eq!(world.why(2), [format!("nyaa: {reason} until 10.000, 0 ahead")]);
    }
}

#[test]
fn l11_a_request_of_a_lane_without_limits_that_may_still_arrive_counts_in_a_new_window() {
    let slow_way = |limits| Limits { slack: Some(Span::secs(1)), ..limits };
    let mut world = World::new().lane("a", slow_way(at_once(9))).latency("5s");
    world.submit(job(1).on("a"));
    world.run_for("500ms");
    let limits = Limits { in_flight: at_once(9).in_flight, ..slow_way(windows(&["1/10s"])) };
    world.tell_lane("a", LaneAct::Change(Box::new(limits)));
    world.submit(job(2).on("a"));
    let trace = world.run_for("20s");
    assert_eq!(moments(&trace, "start"), ["0.000", "11.000"], "{trace}");
}

#[test]
fn l2_the_longest_gap_need_not_be_that_of_background_work() {
    let every = Some(Span::secs(10));
    let gap_share = [1000, 1000, 1000, 0].map(Portion::thousandths);
    let limits = Limits { every, gap_share, ..Limits::default() };
    let mut world = World::new().lane("a", limits).latency("0ms");
    world.submit(job(1).on("a"));
    world.run_for("1s");
    world.crash_for("1s");
    world.submit(job(2).on("a").as_(Priority::Interactive));
    let trace = world.run_for("20s");
    assert_eq!(moments(&trace, "start #2"), ["10.002"], "{trace}");
}

#[test]
fn r1_a_retry_after_of_a_few_milliseconds_does_not_replace_the_backoff() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    (0..1_000).for_each(|_| world.answer(1, unavailable("0ms")));
    world.submit(job(1).on("a").attempts(1_000));
    let trace = world.run_for("10m");
    let starts = moments(&trace, "start #1");
    assert!((10..200).contains(&starts.len()), "{trace}");
}
