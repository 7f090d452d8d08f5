//! The order of calls, and the workers that they take (P1 to P5, Q3).

use std::num::NonZeroU32;

use paceline::turn::LaneAct;
use paceline_core::{AcrossLanes, GroupLimits, Limits, OnCrash, Priority, Span, Window};
use paceline_sim::*;

#[test]
fn p1_higher_goes_first_then_older() {
    let mut world = World::new().lane("nyaa", Limits::default());
    world.submit(job(1).on("nyaa"));
    world.run_for("0s");
    world.submit(job(2).on("nyaa"));
    world.submit(job(3).on("nyaa").as_(Priority::Rss));
    world.submit(job(4).on("nyaa").as_(Priority::Interactive));
    world.submit(job(5).on("nyaa").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("10s"), @"
    0.000 start #1 nyaa background
    1.000 done #1 nyaa
    1.000 report #1 done, all
    1.000 start #4 nyaa interactive
    2.000 done #4 nyaa
    2.000 report #4 done, all
    2.000 start #5 nyaa interactive
    3.000 done #5 nyaa
    3.000 report #5 done, all
    3.000 start #3 nyaa rss
    4.000 done #3 nyaa
    4.000 report #3 done, all
    4.000 start #2 nyaa background
    5.000 done #2 nyaa
    5.000 report #2 done, all
    ");
}

#[test]
fn p2_a_background_call_beside_a_constant_stream_of_interactive_calls_still_runs() {
    let mut world = World::new().lane("nyaa", every("10s")).latency("0s");
    world.submit(job(1).on("nyaa").as_(Priority::Interactive));
    world.submit(job(2).on("nyaa"));
    for n in 3..1_003 {
        world.submit(job(n).on("nyaa").as_(Priority::Interactive));
        world.run_for("1s");
    }
    let trace = world.run_for("1s");
    let ran: Vec<&str> = trace.lines().filter(|line| line.contains("#2 ")).collect();
    insta::assert_snapshot!(ran.join("\n"), @"
    900.000 start #2 nyaa background
    900.000 done #2 nyaa
    900.000 report #2 done, all
    ");
}

#[test]
fn p2_a_backlog_that_aged_to_the_top_still_runs_at_the_background_gap() {
    let mut world = World::new().lane("nyaa", every("60s")).latency("0s").settings(|settings| {
        settings.age_after = Span::secs(1);
    });
    for n in 1..=50 {
        world.submit(job(n).on("nyaa"));
    }
    let trace = world.run_for("250s");
    let starts: Vec<&str> = trace.lines().filter(|line| line.contains("start")).collect();
    insta::assert_snapshot!(starts.join("\n"), @"
      0.000 start #1 nyaa background
     60.000 start #2 nyaa background
    120.000 start #3 nyaa background
    180.000 start #4 nyaa background
    240.000 start #5 nyaa background
    ");
}

#[test]
fn p3_a_full_pool_keeps_a_worker_for_interactive_calls() {
    let mut world = World::new()
        .lane("a", at_once(9))
        .lane("b", at_once(9))
        .lane("c", at_once(9))
        .latency("10s")
        .settings(|settings| {
            settings.pool.max_running = NonZeroU32::new(3).expect("3");
            settings.pool.max = NonZeroU32::new(3).expect("3");
        });
    world.submit(job(1).on("a"));
    world.submit(job(2).on("b"));
    world.submit(job(3).on("c"));
    world.run_for("0s");
    world.submit(job(4).on("c").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("15s"), @"
     0.000 start #1 a background
     0.000 start #2 b background
     0.000 start #4 c interactive
    10.000 done #1 a
    10.000 report #1 done, all
    10.000 done #2 b
    10.000 report #2 done, all
    10.000 done #4 c
    10.000 report #4 done, all
    10.000 start #3 c background
    ");
}

#[test]
fn p4_tenants_take_turns() {
    let mut world = World::new().lane("dblp", Limits::default());
    for (n, tenant) in [(1, "ann"), (2, "ann"), (3, "ann"), (4, "bob"), (5, "cem"), (6, "bob")] {
        world.submit(job(n).on("dblp").tenant(tenant));
    }
    insta::assert_snapshot!(world.run_for("10s"), @"
    0.000 start #1 dblp background
    1.000 done #1 dblp
    1.000 report #1 done, all
    1.000 start #4 dblp background
    2.000 done #4 dblp
    2.000 report #4 done, all
    2.000 start #5 dblp background
    3.000 done #5 dblp
    3.000 report #5 done, all
    3.000 start #2 dblp background
    4.000 done #2 dblp
    4.000 report #2 done, all
    4.000 start #6 dblp background
    5.000 done #6 dblp
    5.000 report #6 done, all
    5.000 start #3 dblp background
    6.000 done #3 dblp
    6.000 report #3 done, all
    ");
}

#[test]
fn p4_a_call_that_aged_goes_before_other_tenants_turns() {
    for tenants in [["ann", "ann"], ["ann", "bob"]] {
        let mut world = World::new().lane("dblp", Limits::default()).settings(|settings| {
            settings.age_after = Span::secs(1);
        });
        world.submit(job(1).on("dblp").as_(Priority::Interactive));
        world.run_for("0s");
        // Jobs 2 and 3 are of one tenant, the rest of another; 3 has aged when its turn comes.
        for (n, tenant) in [(2, tenants[0]), (3, tenants[0])] {
            world.submit(job(n).on("dblp").tenant(tenant).as_(Priority::Completion));
        }
        world.run_for("900ms");
        for n in 4..=8 {
            world.submit(job(n).on("dblp").tenant(tenants[1]).as_(Priority::Completion));
        }
        let trace = world.run_for("4s");
        let starts: Vec<&str> = trace.lines().filter(|line| line.contains("start")).collect();
        assert_eq!(
            starts[1..4],
            [
                "   1.000 start #2 dblp completion",
                "   2.000 start #3 dblp completion",
                "   3.000 start #4 dblp completion"
            ],
            "{tenants:?}"
        );
    }
}

#[test]
fn p5_however_many_lanes_hang_another_starts_in_the_same_turn() {
    for hung in [1, 2, 50] {
        let mut world = World::new().lane("dead:*", at_once(20)).lane("fine", Limits::default());
        let mut n = 0;
        for lane in 0..hung {
            for _ in 0..20 {
                n += 1;
                world.answer(n, hangs("1h"));
                world.submit(job(n).on(&format!("dead:{lane}")));
            }
        }
        let before = world.run_for("30s");
        assert_eq!(before.matches("start").count(), hung + 19.min(hung * 10), "{hung} lanes");
        world.submit(job(n + 1).on("fine"));
        world.submit(job(n + 2).on("fine").as_(Priority::Interactive));
        let trace = world.run_for("10s");
        let fine: Vec<&str> = trace.lines().filter(|line| line.contains("fine")).collect();
        assert_eq!(
            fine,
            [
                format!("  30.000 start #{} fine interactive", n + 2),
                format!("  31.000 done #{} fine", n + 2),
                format!("  31.000 start #{} fine background", n + 1),
                format!("  32.000 done #{} fine", n + 1),
            ],
        );
    }
}

#[test]
fn p5_at_the_bound_of_lanes_the_order_decides_and_why_says_so() {
    let lanes = ["a", "b", "c"].into_iter();
    let world = lanes.fold(World::new(), |world, lane| world.lane(lane, Limits::default()));
    let mut world = world.latency("10s").settings(|settings| {
        settings.pool.max_lanes = NonZeroU32::new(2).expect("2");
    });
    for (n, lane) in (1..).zip(["a", "b", "c"]) {
        world.submit(job(n).on(lane));
    }
    world.run_for("1s");
    assert_eq!(world.why(2), ["b: workers until -, 0 ahead"], "one is kept for interactive calls");
    world.submit(job(4).on("c").as_(Priority::Interactive));
    let trace = world.run_for("30s");
    assert_eq!(moments(&trace, "start #4"), ["1.000"], "{trace}");
    assert_eq!(moments(&trace, "start #2"), ["11.000"], "{trace}");
}

#[test]
fn q3_the_pool_grows_one_worker_per_step_while_calls_lack_one() {
    let mut world =
        World::new().lane("a", at_once(9)).lane("b", at_once(9)).latency("1h").settings(
            |settings| {
                settings.pool.base = NonZeroU32::new(2).expect("2");
                settings.pool.max = NonZeroU32::new(5).expect("5");
            },
        );
    for n in 1..=6 {
        world.submit(job(n).on(if n % 2 == 0 { "a" } else { "b" }));
    }
    insta::assert_snapshot!(world.run_for("10s"), @"
    0.000 start #1 b background
    0.000 start #2 a background
    0.000 start #3 b background
    0.000 start #4 a background
    1.000 start #5 b background
    2.000 start #6 a background
    ");
}

#[test]
fn q3_calls_that_keep_no_worker_leave_the_pool_to_others() {
    let lanes = ["a", "b", "c", "d", "e"];
    let world = World::new().kind("visit", OnCrash::End).keeping_no_worker("visit").latency("10s");
    let world = lanes.into_iter().fold(world, |world, lane| world.lane(lane, Limits::default()));
    let mut world = world.settings(|settings| {
        settings.pool.base = NonZeroU32::new(2).expect("2");
        settings.pool.max = NonZeroU32::new(2).expect("2");
    });
    for (n, lane) in (1..).zip(&lanes[..4]) {
        world.submit(job(n).kind("visit").on(lane));
    }
    world.submit(job(5).on("e"));
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 a background
    0.000 start #2 b background
    0.000 start #3 c background
    0.000 start #4 d background
    0.000 start #5 e background
    ");
}

#[test]
fn p2_the_older_call_of_a_lane_goes_first_though_only_the_younger_needs_a_worker() {
    let world = World::new().kind("visit", OnCrash::End).keeping_no_worker("visit").latency("10s");
    let world = ["a", "b", "c"].into_iter().fold(world, |world, lane| world.lane(lane, at_once(1)));
    let mut world = world.settings(|settings| {
        settings.across_lanes = AcrossLanes::Turns;
        settings.age_after = Span::secs(1);
        settings.pool.max_lanes = NonZeroU32::new(2).expect("2");
        settings.pool.interactive_reserve = 1;
    });
    world.submit(job(1).on("a").then("b").as_(Priority::Interactive));
    world.answer_on(1, "a", nothing().after("10s"));
    world.run_for("2s");
    world.submit(job(2).kind("visit").on("b"));
    world.submit(job(3).kind("visit").on("b"));
    world.submit(job(4).on("c"));
    let trace = world.run_for("30s");
    // #1 joined b eight seconds after #3, and the last worker is for interactive calls.
    assert_eq!(moments(&trace, "start #3"), ["12.000"], "{trace}");
    assert_eq!(moments(&trace, "start #1 b"), ["22.000"], "{trace}");
}

#[test]
fn p5_calls_that_keep_no_worker_are_bounded_by_their_lane_alone() {
    let world = World::new().kind("visit", OnCrash::End).keeping_no_worker("visit").latency("10s");
    let limits = Limits { in_flight: NonZeroU32::new(4).expect("4"), ..Limits::default() };
    let mut world = world.lane("a", limits).settings(|settings| {
        settings.pool.base = NonZeroU32::new(2).expect("2");
        settings.pool.max = NonZeroU32::new(2).expect("2");
    });
    for n in 1..=5 {
        world.submit(job(n).kind("visit").on("a"));
    }
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.000 start #1 a background
    0.000 start #2 a background
    0.000 start #3 a background
    0.000 start #4 a background
    ");
}

#[test]
fn p1_a_call_that_was_ready_starts_although_its_lane_left_its_group() {
    let grouped = Limits { group: Some("host".into()), ..at_once(1) };
    let mut world = World::new()
        .settings(|settings| {
            settings.pool.max_lanes = NonZeroU32::MIN;
            settings.pool.interactive_reserve = 0;
        })
        .group("host", GroupLimits::default())
        .lane("nyaa", at_once(1))
        .lane("arxiv", grouped)
        .latency("10s");
    world.submit(job(1).on("nyaa"));
    world.run_for("1s");
    world.submit(job(2).on("arxiv"));
    world.run_for("1s");
    world.tell_lane("arxiv", LaneAct::Change(Box::new(at_once(1))));
    let trace = world.run_for("10s");
    assert_eq!(moments(&trace, "start #2"), ["10.000"], "{trace}");
}

#[test]
fn l3_no_call_of_a_group_spends_the_room_that_a_better_call_waits_for() {
    let windows = vec![Window::new("5/10s".parse().expect("a rate"))];
    let group = GroupLimits { windows, ..GroupLimits::default() };
    let in_group = || Limits { group: Some("g".into()), ..at_once(9) };
    let world = World::new().group("g", group).lane("a", in_group()).lane("b", in_group());
    let mut world = world.kind("permit", OnCrash::Repeat).keeping_no_worker("permit").latency("0s");
    world.submit(job(1).on("b").kind("permit"));
    world.submit(job(2).on("a").cost(5));
    // Younger calls that need no worker arrive all the time.
    for n in 3..=40 {
        world.submit(job(n).on("b").kind("permit"));
        world.run_for("1s");
    }
    let trace = world.run_for("60s");
    assert_eq!(moments(&trace, "start #2 "), ["10.000"], "{trace}");
}
