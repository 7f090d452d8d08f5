//! Calls that share one request: places, budgets, attempts and crashes of each (C2, R1, L6, L7, W1,
//! B2).

use paceline::turn::LaneAct;
use paceline_core::{Limits, OnCrash, Outcome, Priority, Skip, Span};
use paceline_sim::*;

#[test]
fn r1_calls_that_lead_on_in_one_turn_have_places_of_their_own() {
    let mut world = World::new().lane("a", at_once(2)).latency("0ms");
    for n in 1..=2 {
        (0..21).for_each(|_| world.answer(n, throttled("40s")));
    }
    world.submit_all(vec![job(1).on("a").cache_key("q"), job(2).on("a").cache_key("r")]);
    world.run_for("5500ms");
    world.submit_all(vec![job(3).on("a").cache_key("q"), job(4).on("a").cache_key("r")]);
    let trace = world.run_for("20m");
    assert_eq!(moments(&trace, "failed #1"), ["800.000"], "{trace}");
    assert_eq!(moments(&trace, "done #3"), ["840.000"], "{trace}");
    assert_eq!(moments(&trace, "done #4"), ["840.000"], "{trace}");
}

#[test]
fn w1_a_call_that_joins_one_in_backoff_is_judged_by_its_lane() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    world.answer(1, unavailable("60s"));
    world.submit(job(1).on("a").cache_key("q").attempts(2));
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
fn w1_a_pause_skips_each_call_that_shares_by_its_own_budget() {
    let mut world = World::new().lane("a", every("1h")).latency("0ms");
    world.submit(job(1).on("a"));
    world.submit(job(2).on("a").cache_key("q").max_wait("2h"));
    world.submit(job(3).on("a").cache_key("q").max_wait("90m"));
    world.run_for("1s");
    world.tell_lane("a", LaneAct::Pause);
    world.run_for("1s");
    // The most urgent call takes the lead, and joins a lane that was paused before.
    let urgent = job(4).on("a").cache_key("q").as_(Priority::Interactive);
    world.submit(urgent.max_wait("3h"));
    insta::assert_snapshot!(world.run_for("3h"), @"
       0.000 start #1 a background
       0.000 done #1 a
       0.000 report #1 done, all
       2.000 skipped #4 a max_wait, paused, would wait 3h as interactive
       2.000 report #4 skipped, inconclusive
    5401.000 skipped #3 a max_wait, paused, would wait 1h30m as background
    5401.000 report #3 skipped, inconclusive
    7201.000 skipped #2 a max_wait, paused, would wait 2h as background
    7201.000 report #2 skipped, inconclusive
    ");
}

#[test]
fn w1_a_pause_spares_a_call_that_comes_back_in_time() {
    let mut world = World::new().lane("a", at_once(1)).lane("b", every("1h")).latency("0ms");
    world.submit(job(1).on("b"));
    world.answer(2, unavailable("10s"));
    world.submit(job(2).on("a").attempts(2).max_wait("1m"));
    world.submit(job(3).on("b").cache_key("q").max_wait("2h"));
    world.run_for("1s");
    world.tell_lane("a", LaneAct::Pause);
    world.tell_lane("b", LaneAct::Pause);
    world.run_for("1s");
    world.crash_for("1s");
    world.run_for("20s");
    assert_eq!(world.why(2), ["a: paused until -, 0 ahead"]);
    assert_eq!(world.why(3), ["b: paused until -, 0 ahead, also gap"]);
    insta::assert_snapshot!(world.run_for("3h"), @"
       0.000 start #1 b background
       0.000 start #2 a background
       0.000 done #1 b
       0.000 report #1 done, all
       0.000 closed a until 10.000
       2.000 crash
      61.000 skipped #2 a max_wait, paused, would wait 1m as background
      61.000 report #2 skipped, inconclusive
    7201.000 skipped #3 b max_wait, paused, would wait 2h as background
    7201.000 report #3 skipped, inconclusive
    ");
}

#[test]
fn w1_a_call_that_shares_keeps_its_time_to_start_through_a_restart() {
    let mut world = World::new().lane("a", every("60s")).latency("0ms");
    world.submit(job(1).on("a"));
    world.submit(job(2).on("a").cache_key("q"));
    world.submit(job(3).on("a").cache_key("q").start_within("10s"));
    world.run_for("8s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("60s"), @"
     0.000 start #1 a background
     0.000 done #1 a
     0.000 report #1 done, all
     8.000 crash
    10.000 skipped #3 a start_within
    10.000 report #3 skipped, inconclusive
    60.000 start #2 a background
    60.000 done #2 a
    60.000 report #2 done, all
    ");
}

#[test]
fn w1_a_call_whose_shared_request_was_not_sent_may_still_start_too_late() {
    let mut world = World::new().lane("a", every("10s")).latency("0ms");
    world.submit(job(1).on("a").cache_key("q"));
    world.submit(job(2).on("a").cache_key("q").start_within("20ms"));
    // The commit takes longer than the promise holds.
    world = world.commits_take("60ms");
    insta::assert_snapshot!(world.run_for("1s"), @"
    0.120 skipped #2 a start_within
    0.120 report #2 skipped, inconclusive
    0.120 start #1 a background
    0.180 done #1 a
    0.180 report #1 done, all
    ");
}

#[test]
fn l7_a_request_that_was_not_processed_counts_for_each_call_that_shared_it() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    (0..30).for_each(|_| world.answer(1, not_processed()));
    (0..30).for_each(|_| world.answer(2, not_processed()));
    world.submit(job(1).on("a").cache_key("q").attempts(2));
    world.run_for("9500ms");
    // From the tenth request on.
    world.submit(job(2).on("a").cache_key("q").attempts(1));
    let trace = world.run_for("60s");
    // After 20 at no cost the first fails with its second attempt, and the other goes on for its
    // own 20.
    assert_eq!(moments(&trace, "failed #1"), ["21.000"], "{trace}");
    assert_eq!(moments(&trace, "failed #2"), ["30.000"], "{trace}");
}

#[test]
fn d1_a_caller_that_raises_a_call_which_follows_makes_it_lead() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    world.submit(job(1).on("a"));
    world.submit(job(2).on("a").as_(Priority::Completion));
    world.submit(job(3).on("a").as_(Priority::Completion));
    world.submit(job(4).on("a").cache_key("q"));
    world.submit(job(5).on("a").cache_key("q").key("k"));
    world.run_for("500ms");
    world.submit(job(6).on("a").key("k").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("10s"), @"
    0.000 start #2 a completion
    0.000 done #2 a
    0.000 report #2 done, all
    0.500 submit 6: joins #5
    1.000 start #5 a interactive
    1.000 done #5 a
    1.000 report #5 done, all
    1.000 done #4 a
    1.000 report #4 done, all
    2.000 start #3 a completion
    2.000 done #3 a
    2.000 report #3 done, all
    3.000 start #1 a background
    3.000 done #1 a
    3.000 report #1 done, all
    ");
}

#[test]
fn b2_a_crash_counts_for_all_calls_that_share_a_request() {
    let world = World::new().kind("pay", OnCrash::Fail).lane("a", Limits::default());
    let mut world = world.latency("10s");
    world.submit(job(1).on("a").cache_key("q").kind("pay"));
    world.submit(job(2).on("a").cache_key("q").kind("pay"));
    world.submit(job(3).on("a").cache_key("q"));
    world.run_for("1s");
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 a background
     1.000 crash
     2.000 failed #1 a crash
     2.000 report #1 failed, inconclusive
     2.000 failed #2 a crash
     2.000 report #2 failed, inconclusive
     2.000 start #3 a background
    12.000 done #3 a
    12.000 report #3 done, all
    ");
}

#[test]
fn b2_a_crash_counts_for_the_call_that_a_request_was_handed_to() {
    let world = World::new().kind("pay", OnCrash::Fail).kind("permit", OnCrash::TakeUp);
    let mut world = world.lane("a", at_once(2)).lane("b", at_once(2)).latency("10s");
    world.submit(job(1).on("a").cache_key("q").kind("pay"));
    world.submit(job(2).on("a").cache_key("q").kind("pay"));
    world.submit(job(3).on("b").cache_key("q").kind("permit"));
    world.submit(job(4).on("b").cache_key("q").kind("permit"));
    world.run_for("1s");
    world.cancel(1);
    world.cancel(3);
    world.crash_for("1s");
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 a background
     0.000 start #3 b background
     1.000 cancelled #1 a
     1.000 report #1 cancelled, inconclusive
     1.000 cancelled #3 b
     1.000 report #3 cancelled, inconclusive
     1.000 crash
     2.000 failed #2 a crash
     2.000 report #2 failed, inconclusive
     2.000 take up #4 b
    10.000 done #4 b
    10.000 report #4 done, all
    ");
}

/// Runs a scenario with little stack: settling calls recursively would overflow it.
fn on_a_small_stack(scenario: fn()) {
    let small = std::thread::Builder::new().stack_size(512 << 10);
    small.spawn(scenario).expect("a thread").join().expect("the scenario passes");
}

#[test]
fn c2_calls_that_share_one_which_can_never_start_end_without_recursion() {
    on_a_small_stack(|| {
        let mut world = World::new().lane("a", windows(&["10/60s"])).latency("0ms");
        world.submit(job(1).on("a").cost(10));
        world.submit_all((2..=1_500).map(|n| job(n).on("a").cost(5).cache_key("q")).collect());
        world.tell_lane("a", LaneAct::Change(Box::new(windows(&["3/60s"]))));
        let trace = world.run_for("1s");
        assert_eq!(moments(&trace, "a cost").len(), 1_499);
    });
}

#[test]
fn w1_calls_that_share_one_on_a_paused_lane_end_without_recursion() {
    on_a_small_stack(|| {
        let mut world = World::new().lane("a", at_once(1)).latency("0ms");
        (0..100).for_each(|_| world.answer(1, failed("reset")));
        world.submit(job(1).on("a").cache_key("q").attempts(100));
        // Long enough that it waits minutes for its next retry.
        world.run_for("10m");
        let same = |n: u64| job(n).on("a").cache_key("q").max_wait("1s");
        world.submit_all((2..=1_500).map(same).collect());
        world.tell_lane("a", LaneAct::Pause);
        world.run_for("2s");
        world.cancel(1);
        let trace = world.run_for("1s");
        assert_eq!(moments(&trace, "a max_wait, paused").len(), 1_499);
    });
}

/// Two calls share a failed request, and the first of them leaves or stays. Returns when the second
/// goes on.
fn second_of_two(leaves: bool) -> String {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    world.answer(1, failed("reset"));
    let same = |n: u64| job(n).on("a").cache_key("q").attempts(4);
    world.submit_all(vec![same(1), same(2)]);
    world.run_for("1ms");
    if leaves {
        world.cancel(1);
    }
    world.run_for("1ms");
    world.crash_for("1ms");
    let trace = world.run_for("70s");
    let starts = moments(&trace, if leaves { "start #2" } else { "start #1" });
    (*starts.last().expect("it is tried again")).into()
}

#[test]
fn r1_a_call_that_shared_a_failed_request_waits_for_its_retry_when_the_leader_goes() {
    assert_eq!(second_of_two(true), second_of_two(false));
}

#[test]
fn c2_a_call_that_shared_no_request_goes_at_once_when_the_leader_goes() {
    let mut world = World::new().lane("a", at_once(1)).latency("0ms");
    world.answer(1, failed("reset"));
    world.submit(job(1).on("a").cache_key("q").attempts(4));
    world.run_for("1ms");
    world.submit(job(2).on("a").cache_key("q"));
    world.run_for("1ms");
    world.cancel(1);
    let trace = world.run_for("70s");
    assert_eq!(moments(&trace, "start #2"), ["0.002"], "{trace}");
}

#[test]
fn p1_the_most_urgent_call_that_shares_leads_when_the_leader_waits_again() {
    let mut world = World::new().lane("a", every("10s")).latency("1s");
    world.answer(1, not_processed());
    world.submit(job(1).on("a").cache_key("q"));
    world.run_for("500ms");
    world.submit(job(2).on("a").cache_key("q").as_(Priority::Interactive));
    world.submit_all((3..=4).map(|n| job(n).on("a").as_(Priority::Completion)).collect());
    let trace = world.run_for("40s");
    assert_eq!(moments(&trace, "start #2 a interactive"), ["10.000"], "{trace}");
    assert_eq!(moments(&trace, "start #4"), ["30.000"], "{trace}");
}

#[test]
fn w1_a_gap_that_grows_while_a_call_waits_for_its_retry_is_undercut_by_no_default() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    (0..100).for_each(|_| world.answer(1, failed("reset")));
    world.submit(job(1).on("a").cache_key("q").attempts(101));
    world.run_for("10m");
    world.submit(job(2).on("a").cache_key("q").as_(Priority::Background));
    world.run_for("0s");
    world.tell_lane("a", LaneAct::Change(Box::new(every("2h"))));
    world.submit(job(3).on("a"));
    let trace = world.run_for("5h");
    assert_eq!(moments(&trace, "skipped #2").len(), 0, "{trace}");
}

#[test]
fn w2_calls_that_leave_a_shared_request_together_leave_the_others_with_it() {
    let mut world = World::new().lane("a", at_once(1)).latency("10s");
    let same = |n: u64| job(n).on("a").cache_key("q");
    world.submit_all(vec![
        same(1).deadline("5s"),
        same(2).deadline("5s"),
        same(3).start_within("1s").deadline("5s"),
        same(4),
        same(5).deadline("5s"),
    ]);
    let trace = world.run_for("11s");
    assert_eq!(moments(&trace, "start #").len(), 1, "{trace}");
    for n in [1, 2, 3, 5] {
        let report = world.report(n);
        let outcome = (&report.calls[0].outcome, report.calls[0].attempts);
        assert_eq!(outcome, (&Outcome::Skipped(Skip::Deadline), 1), "#{n}");
        assert_eq!(report.calls[0].ran, Span::secs(5), "#{n}");
    }
    assert_eq!(moments(&trace, "done #4"), ["10.000"], "{trace}");
}

#[test]
fn w1_calls_that_start_too_late_leave_a_shared_request_together() {
    let mut world = World::new().lane("a", every("10s")).latency("0ms");
    world.submit(job(1).on("a"));
    let same = |n: u64| job(n).on("a").cache_key("q");
    world.submit_all((2..=4).map(|n| same(n).start_within("5s")).collect());
    world.submit(same(5));
    let trace = world.run_for("20s");
    assert_eq!(moments(&trace, "a start_within"), ["5.000"; 3], "{trace}");
    assert_eq!(moments(&trace, "start #5"), ["10.000"], "{trace}");
}

#[test]
fn p1_the_most_urgent_call_that_shares_leads_when_the_leader_goes() {
    let mut world = World::new().lane("a", every("10s")).latency("0ms");
    world.submit(job(1).on("a"));
    world.run_for("0s");
    world.submit(job(2).on("a").cache_key("q").as_(Priority::Interactive));
    world.run_for("0s");
    world.submit(job(3).on("a").cache_key("q"));
    world.submit(job(4).on("a").cache_key("q").as_(Priority::Interactive));
    world.submit_all((5..=6).map(|n| job(n).on("a").as_(Priority::Completion)).collect());
    world.cancel(2);
    let trace = world.run_for("40s");
    assert_eq!(moments(&trace, "start #4 a interactive"), ["10.000"], "{trace}");
    assert_eq!(moments(&trace, "start #5"), ["20.000"], "{trace}");
}

#[test]
fn w1_a_gap_that_grew_is_undercut_by_no_default_when_a_call_in_backoff_goes() {
    let mut world = World::new().lane("a", every("1s")).latency("0ms");
    (0..100).for_each(|_| world.answer(1, failed("reset")));
    world.submit(job(1).on("a").cache_key("q").attempts(101));
    world.run_for("10m");
    world.submit_all(
        (2..=3).map(|n| job(n).on("a").cache_key("q").as_(Priority::Background)).collect(),
    );
    world.tell_lane("a", LaneAct::Change(Box::new(every("2h"))));
    world.cancel(1);
    let trace = world.run_for("5h");
    assert_eq!(moments(&trace, "skipped").len(), 0, "{trace}");
}
