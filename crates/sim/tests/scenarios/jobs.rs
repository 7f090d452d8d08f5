//! Jobs, their stages, retries and outcomes (J1 to J7, R1, C1, C2).

use paceline_core::{Limits, OnCrash, Priority, Span};
use paceline_sim::*;

fn lanes(names: &[&str]) -> World {
    names.iter().fold(World::new(), |world, name| world.lane(name, Limits::default()))
}

#[test]
fn j2_a_conclusive_answer_is_delivered_at_once_although_another_lane_would_take_longer() {
    let mut world = World::new().lane("fast", Limits::default()).lane("slow", every("9s"));
    world.answer(1, done());
    world.submit(job(1).on("slow"));
    world.answer_on(2, "fast", done());
    world.submit(job(2).on("fast").on("slow").first_answer());
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 slow background
    0.000 start #2 fast background
    0.000 done #1 slow
    0.000 report #1 done, all
    0.000 done #2 fast
    0.000 skipped #2 slow early_exit
    0.000 report #2 done, conclusive
    ");
}

#[test]
fn j3_the_next_stage_starts_only_if_this_one_did_not_settle_the_job() {
    let mut world = lanes(&["local", "remote", "web"]);
    world.answer_on(1, "local", nothing());
    world.answer_on(1, "remote", hint());
    world.submit(job(1).on("local").then("remote").then("web"));
    world.run_for("5s");
    world.answer_on(2, "local", done());
    world.submit(job(2).on("local").then("remote").then("web"));
    insta::assert_snapshot!(world.run_for("5s"), @"
    0.000 start #1 local background
    0.000 empty #1 local
    0.000 start #1 remote background
    0.000 done #1 remote not conclusive
    0.000 start #1 web background
    1.000 done #1 web
    1.000 report #1 done, conclusive
    5.000 start #2 local background
    5.000 done #2 local
    5.000 skipped #2 remote stage
    5.000 skipped #2 web stage
    5.000 report #2 done, conclusive
    ");
}

#[test]
fn j4_no_response_never_looks_like_nothing_found() {
    let mut world = lanes(&["a", "b"]);
    world.answer_on(1, "a", nothing());
    world.answer_on(1, "b", refused("status_500"));
    world.submit(job(1).on("a").on("b"));
    world.answer_on(2, "a", nothing());
    world.answer_on(2, "b", nothing());
    world.submit(job(2).on("a").on("b"));
    insta::assert_snapshot!(world.run_for("5s"), @"
    0.000 start #1 a background
    0.000 start #1 b background
    0.000 empty #1 a
    0.000 failed #1 b status_500
    0.000 report #1 done, inconclusive
    0.000 start #2 a background
    0.000 start #2 b background
    0.000 empty #2 a
    0.000 empty #2 b
    0.000 report #2 done, empty
    ");
}

#[test]
fn j5_a_panic_is_a_failed_outcome_and_frees_everything() {
    let mut world = lanes(&["a"]);
    world.answer(1, panics());
    world.submit(job(1).on("a").key("k"));
    world.run_for("0s");
    world.submit(job(2).on("a").key("k"));
    world.submit(job(3).on("a"));
    insta::assert_snapshot!(world.run_for("5s"), @"
    0.000 start #1 a background
    0.000 failed #1 a panic
    0.000 report #1 failed, inconclusive
    0.000 start #2 a background
    1.000 done #2 a
    1.000 report #2 done, all
    1.000 start #3 a background
    2.000 done #3 a
    2.000 report #3 done, all
    ");
}

#[test]
fn j6_a_call_that_does_not_apply_is_never_made() {
    let mut world = lanes(&["needs-doi", "arxiv"]);
    world.answer(1, nothing());
    world.submit(job(1).on("needs-doi").on("arxiv").not_applicable(&[0]));
    insta::assert_snapshot!(world.run_for("5s"), @"
    0.000 skipped #1 needs-doi not_applicable
    0.000 start #1 arxiv background
    0.000 empty #1 arxiv
    0.000 report #1 done, empty
    ");
}

#[test]
fn j7_a_moved_call_goes_on_elsewhere_at_the_other_lanes_pace() {
    let mut world = World::new().lane("short", Limits::default()).lane("cdn", every("10s"));
    world.submit(job(1).on("cdn"));
    world.answer_on(2, "short", moved("cdn"));
    world.submit(job(2).on("short"));
    world.answer_on(3, "short", moved("nowhere"));
    world.submit(job(3).on("short"));
    insta::assert_snapshot!(world.run_for("20s"), @"
     0.000 start #1 cdn background
     0.000 start #2 short background
     0.000 moved #2 short to cdn
     0.000 start #3 short background
     0.000 failed #3 short moved
     0.000 report #3 failed, inconclusive
     1.000 done #1 cdn
     1.000 report #1 done, all
    10.000 start #2 cdn background
    11.000 done #2 cdn
    11.000 report #2 done, all
    ");
}

#[test]
fn j7_a_call_that_is_moved_for_the_41st_time_has_failed() {
    let mut world = lanes(&["a", "b"]);
    for _ in 0..21 {
        world.answer_on(1, "a", moved("b"));
        world.answer_on(1, "b", moved("a"));
    }
    world.submit(job(1).on("a"));
    let trace = world.run_for("10s");
    assert_eq!(trace.matches("start #1").count(), 41, "{trace}");
    assert_eq!(trace.matches("moved #1").count(), 40, "{trace}");
    assert_eq!(moments(&trace, "failed #1 a moved").len(), 1, "{trace}");
    assert_eq!(moments(&trace, "report #1 failed, inconclusive").len(), 1, "{trace}");
}

#[test]
fn r1_only_transient_failures_are_retried_and_retry_after_wins() {
    let mut world = lanes(&["a", "b", "c"]);
    world.submit(job(1).on("a").attempts(3));
    world.answer(1, failed("connect"));
    world.answer(1, failed("connect"));
    world.submit(job(2).on("b").attempts(3));
    world.answer(2, refused("status_404"));
    world.submit(job(3).on("c").attempts(2));
    world.answer(3, unavailable("9s"));
    world.answer(3, failed("connect"));
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 a background
    0.000 start #2 b background
    0.000 start #3 c background
    0.000 failed #2 b status_404
    0.000 report #2 failed, inconclusive
    0.000 closed c until 9.000
    0.475 start #1 a background
    1.958 start #1 a background
    2.958 done #1 a
    2.958 report #1 done, all
    9.000 start #3 c background
    9.000 failed #3 c connect
    9.000 report #3 failed, inconclusive
    ");
}

#[test]
fn b5_each_hop_and_each_retry_is_a_request_of_its_own_charged_to_its_own_lane() {
    let mut world = World::new().lane("short", every("5s")).lane("cdn", every("7s"));
    world.submit(job(1).on("short"));
    world.submit(job(2).on("short"));
    world.answer_on(1, "short", moved("cdn"));
    world.answer_on(1, "cdn", unavailable("2s"));
    insta::assert_snapshot!(world.run_for("20s"), @"
    0.000 start #1 short background
    0.000 moved #1 short to cdn
    0.000 start #1 cdn background
    0.000 closed cdn until 2.000
    5.000 start #2 short background
    6.000 done #2 short
    6.000 report #2 done, all
    7.000 start #1 cdn background
    8.000 done #1 cdn
    8.000 report #1 done, all
    ");
}

#[test]
fn c1_a_cache_hit_settles_without_a_request() {
    let mut world = lanes(&["crossref", "arxiv"]);
    world.submit(job(1).on("crossref").cache_key("title"));
    world.run_for("2s");
    world.submit(job(2).on("crossref").on("arxiv").cache_key("title").first_answer());
    insta::assert_snapshot!(world.run_for("2s"), @"
    0.000 start #1 crossref background
    1.000 done #1 crossref
    1.000 report #1 done, all
    2.000 done #2 crossref from the cache
    2.000 skipped #2 arxiv early_exit
    2.000 report #2 done, conclusive
    ");
}

#[test]
fn c2_calls_with_the_same_cache_key_make_one_request_and_empty_outcomes_live_a_day() {
    let mut world = lanes(&["crossref"]).settings(|settings| settings.empty_for = Span::days(1));
    world.answer(1, nothing().after("2s"));
    world.submit(job(1).on("crossref").cache_key("title"));
    world.submit(job(2).on("crossref").cache_key("title"));
    world.run_for("1s");
    world.cancel(1);
    world.run_for("23h");
    world.submit(job(3).on("crossref").cache_key("title"));
    world.run_for("2h");
    world.submit(job(4).on("crossref").cache_key("title"));
    insta::assert_snapshot!(world.run_for("5s"), @"
       0.000 start #1 crossref background
       1.000 cancelled #1 crossref
       1.000 report #1 cancelled, inconclusive
       2.000 empty #2 crossref
       2.000 report #2 done, empty
    82801.000 empty #3 crossref from the cache
    82801.000 report #3 done, empty
    90001.000 start #4 crossref background
    90002.000 done #4 crossref
    90002.000 report #4 done, all
    ");
}

#[test]
fn c2_a_found_outcome_is_cached_for_seven_days_and_an_empty_one_for_one() {
    let mut world = lanes(&["crossref"]);
    let asks = |n, key| job(n).on("crossref").cache_key(key);
    world.answer(1, done());
    world.answer(2, nothing());
    world.submit_all(vec![asks(1, "found"), asks(2, "empty")]);
    world.run_for("86399s");
    world.submit_all(vec![asks(3, "found"), asks(4, "empty")]);
    world.run_for("1s");
    world.submit_all(vec![asks(5, "found"), asks(6, "empty")]);
    world.run_for("518399s");
    world.submit(asks(7, "found"));
    world.run_for("1s");
    world.submit(asks(8, "found"));
    let trace = world.run_for("5s");
    assert_eq!(moments(&trace, "start").len(), 4, "{trace}");
    assert_eq!(moments(&trace, "start #6"), ["86400.000"], "{trace}");
    assert_eq!(moments(&trace, "start #8"), ["604800.000"], "{trace}");
}

#[test]
fn c2_a_request_that_was_taken_up_after_a_crash_is_shared_by_calls_with_its_cache_key() {
    let mut world =
        World::new().kind("permit", OnCrash::TakeUp).lane("a", at_once(2)).latency("10s");
    world.submit(job(1).on("a").kind("permit").cache_key("k"));
    world.run_for("1s");
    world.crash_for("100ms");
    world.submit(job(2).on("a").cache_key("k"));
    let trace = world.run_for("20s");
    insta::assert_snapshot!(trace, @r"
       0.000 start #1 a background
       1.000 crash
       1.100 take up #1 a
      10.000 done #1 a
      10.000 report #1 done, all
      10.000 done #2 a
      10.000 report #2 done, all
    ");
}

#[test]
fn c2_an_urgent_call_does_not_wait_in_the_place_of_a_patient_one_with_the_same_cache_key() {
    let mut world = World::new().lane("crossref", every_by_share("60s")).latency("0s");
    for label in 1..=3 {
        world.submit(job(label).on("crossref").cache_key(&label.to_string()));
    }
    world.run_for("1s");
    world.submit(job(4).on("crossref").cache_key("3").as_(Priority::Interactive));
    insta::assert_snapshot!(world.run_for("2m"), @"
     0.000 start #1 crossref background
     0.000 done #1 crossref
     0.000 report #1 done, all
     6.000 start #4 crossref interactive
     6.000 done #4 crossref
     6.000 report #4 done, all
     6.000 done #3 crossref
     6.000 report #3 done, all
    66.000 start #2 crossref background
    66.000 done #2 crossref
    66.000 report #2 done, all
    ");
}

#[test]
fn c2_when_the_urgent_caller_goes_the_patient_one_has_its_place_again() {
    let mut world = World::new().lane("crossref", every("60s")).latency("0s");
    for label in 1..=3 {
        world.submit(job(label).on("crossref").cache_key(&label.to_string()));
    }
    world.run_for("1s");
    world.submit(job(4).on("crossref").cache_key("2").as_(Priority::Interactive));
    world.run_for("1s");
    world.cancel(4);
    insta::assert_snapshot!(world.run_for("3m"), @"
      0.000 start #1 crossref background
      0.000 done #1 crossref
      0.000 report #1 done, all
      2.000 cancelled #4 crossref
      2.000 report #4 cancelled, inconclusive
     60.000 start #2 crossref background
     60.000 done #2 crossref
     60.000 report #2 done, all
    120.000 start #3 crossref background
    120.000 done #3 crossref
    120.000 report #3 done, all
    ");
}

#[test]
fn r1_a_shared_attempt_counts_for_every_call_that_shared_it_and_the_others_go_on() {
    let mut world = World::new().lane("a", at_once(1)).latency("1s");
    for _ in 0..3 {
        world.answer(1, failed("reset").after("1s"));
        world.answer(2, failed("reset").after("1s"));
    }
    world.submit(job(1).on("a").cache_key("q").attempts(1));
    world.submit(job(2).on("a").cache_key("q").attempts(4));
    world.submit(job(3).on("a").cache_key("q").attempts(2));
    let trace = world.run_for("60s");
    let kinds = |what: &str| trace.matches(what).count();
    assert_eq!((kinds("start #1"), kinds("start #2"), kinds("start #3")), (1, 3, 0), "{trace}");
    assert_eq!(moments(&trace, "failed #1"), ["1.000"], "{trace}");
    assert!(trace.contains("failed #3 a reset") && trace.contains("failed #2 a reset"), "{trace}");
}

#[test]
fn j1_calls_that_end_on_the_wire_report_the_attempts_that_were_made() {
    for limits in [every("1s"), Limits::default()] {
        calls_on_the_wire_end(&limits);
    }
}

fn calls_on_the_wire_end(limits: &Limits) {
    let lanes = ["a", "b", "c"].into_iter();
    let mut world = lanes.fold(World::new(), |world, lane| world.lane(lane, limits.clone()));
    world.answer_on(1, "a", hangs("60s"));
    world.answer_on(1, "b", done().after("2s"));
    world.submit(job(1).on("a").on("b").first_answer());
    world.answer(2, hangs("60s"));
    world.submit(job(2).on("b").deadline("5s"));
    world.answer(3, hangs("60s"));
    world.submit(job(3).on("c"));
    world.run_for("8s");
    world.cancel(3);
    world.run_for("1s");
    let made = |label: u64, call: usize| {
        let report = world.report(label);
        (report.calls[call].attempts, report.calls[call].ran.as_millis())
    };
    assert_eq!((made(1, 0), made(2, 0), made(3, 0)), ((1, 2_000), (1, 3_000), (1, 8_000)));
}
