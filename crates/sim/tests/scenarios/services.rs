//! Services and rosters (S1 to S3).

use paceline_core::{Cron, RosterTerms, Span, When};
use paceline_sim::*;

fn every_so(span: &str) -> When {
    When::Every(span.parse::<Span>().expect("a span"))
}

fn cron(text: &str) -> When {
    When::Cron(Cron::new(text, paceline::services::TimeZone::UTC).expect("a cron expression"))
}

/// The moments at which services start, with their names.
fn starts(trace: &str) -> Vec<String> {
    let starts = trace.lines().filter(|line| line.contains(" start "));
    let word = |line: &str, place: usize| line.split_whitespace().nth(place).map(str::to_string);
    let start = |line: &str| {
        Some(format!("{} {}", word(line, 0)?, word(line, 3)?.trim_start_matches("service:")))
    };
    starts.filter_map(start).collect()
}

#[test]
fn s1_hourly_and_daily_services_of_one_roster_each_keep_their_own_interval() {
    let mut world = World::new()
        .service("hourly", every_so("1h"))
        .service("daily", every_so("24h"))
        .roster("all", "1h", &["hourly", "daily"]);
    let trace = world.run_for("49h");
    let count = |name: &str| starts(&trace).iter().filter(|start| start.ends_with(name)).count();
    // The hour runs from the end of one cycle to the next check.
    assert_eq!((count("hourly"), count("daily")), (49, 3), "{trace}");
}

#[test]
fn s2_a_roster_of_three_runs_all_three_in_order() {
    let mut world = World::new()
        .service("a", every_so("1h"))
        .service("b", every_so("1h"))
        .service("c", every_so("1h"))
        .roster("nightly", "1h", &["c", "a", "b"]);
    assert_eq!(starts(&world.run_for("10s")), ["0.000 c", "1.000 a", "2.000 b"]);
    assert_eq!(
        world.rosters(),
        ["nightly: runs nothing, left [], results [c done, a done, b done]"]
    );
}

#[test]
fn s2_after_a_crash_the_cycle_goes_on_and_repeats_no_finished_service() {
    let mut world = World::new()
        .service("a", every_so("1h"))
        .service("b", every_so("1h"))
        .service("c", every_so("1h"))
        .roster("nightly", "1h", &["a", "b", "c"]);
    world.run_for("2500ms");
    world.crash_for("10m");
    assert_eq!(starts(&world.run_for("30m")), ["0.000 a", "1.000 b", "2.000 c", "602.500 c"]);
    assert_eq!(
        world.rosters(),
        ["nightly: runs nothing, left [], results [a done, b done, c done]"]
    );
}

#[test]
fn s2_a_service_that_fails_hangs_or_is_removed_does_not_stop_its_roster_nor_others() {
    let mut world = World::new()
        .service("fails", every_so("1h"))
        .service("hangs", every_so("1h"))
        .service("works", every_so("1h"))
        .service("other", every_so("1h"))
        .roster("nightly", "1h", &["fails", "gone", "hangs", "works"])
        .roster("elsewhere", "1h", &["other"]);
    world.run_comes_to("fails", refused("exit code 1"));
    world.run_comes_to("hangs", hangs("20s"));
    let trace = world.run_for("1m");
    assert_eq!(starts(&trace), ["0.000 other", "0.000 fails", "0.000 hangs", "20.000 works"]);
    assert_eq!(
        world.rosters(),
        [
            "elsewhere: runs nothing, left [], results [other done]",
            "nightly: runs nothing, left [], results [fails failed, gone failed, hangs done, works done]",
        ]
    );
}

#[test]
fn s1_a_failure_is_no_success_and_is_tried_at_the_next_check() {
    let mut world = World::new().service("a", every_so("24h")).roster("all", "10m", &["a"]);
    world.run_comes_to("a", refused("exit code 1"));
    assert_eq!(starts(&world.run_for("1h")), ["0.000 a", "600.000 a"]);
}

#[test]
fn s3_a_check_with_no_service_due_arms_the_next_check() {
    let mut world = World::new().service("a", every_so("1h")).roster("all", "7m", &["a"]);
    assert_eq!(starts(&world.run_for("3h")), ["0.000 a", "3781.000 a", "7562.000 a"]);
}

#[test]
fn s3_two_rosters_that_share_a_service_run_it_once() {
    let mut world = World::new()
        .service("a", every_so("1h"))
        .service("b", every_so("1h"))
        .service("shared", every_so("1h"))
        .roster("one", "1h", &["a", "shared"])
        .roster("two", "1h", &["shared", "b"]);
    assert_eq!(starts(&world.run_for("30m")), ["0.000 a", "0.000 shared", "1.000 b"]);
    assert_eq!(
        world.rosters(),
        [
            "one: runs nothing, left [], results [a done]",
            "two: runs nothing, left [], results [shared done, b done]",
        ]
    );
}

#[test]
fn s3_a_machine_asleep_for_three_days_runs_each_due_service_once() {
    let mut world = World::new()
        .service("hourly", every_so("1h"))
        .service("daily", cron("0 3 * * *"))
        .roster("all", "1h", &["hourly", "daily"]);
    world.run_for("30m");
    world.step_wall("72h");
    let before = starts(&world.run_for("0s")).len();
    let all = starts(&world.run_for("50m"));
    // A machine that slept sees the time at its next turn.
    assert_eq!(all[before..], ["2400.000 hourly", "2401.000 daily"]);
}

#[test]
fn s3_a_run_by_hand_joins_one_that_is_under_way_and_needs_not_be_due() {
    let mut world = World::new().service("a", every_so("1h")).service("b", every_so("1h")).roster(
        "all",
        "1h",
        &["a", "b"],
    );
    world.run_for("500ms");
    world.run_service("a");
    world.run_for("10m");
    world.run_service("a");
    assert_eq!(starts(&world.run_for("20m")), ["0.000 a", "1.000 b", "600.500 a"]);
}

#[test]
fn s1_a_cron_service_is_run_at_its_moment_and_not_only_at_a_check() {
    let mut world = World::new().service("a", cron("30 * * * *")).roster("all", "24h", &["a"]);
    // The world begins at 13:46:40.
    assert_eq!(
        starts(&world.run_for("4h")),
        ["2600.000 a", "6200.000 a", "9800.000 a", "13400.000 a"]
    );
}

#[test]
fn s2_a_roster_may_change_while_it_runs() {
    let mut world = World::new()
        .service("a", every_so("1h"))
        .service("b", every_so("1h"))
        .service("c", every_so("1h"))
        .roster("all", "1h", &["a", "b", "c"]);
    world.run_for("500ms");
    world.restart_with(|setup| setup.rosters[0].services = vec!["c".into()]);
    assert_eq!(starts(&world.run_for("30m")), ["0.000 a", "0.500 a", "1.500 c"]);
}

#[test]
fn s3_a_service_whose_lane_stays_closed_is_skipped_until_the_next_check() {
    let mut world = World::new()
        .lane("shop", every("1h"))
        .service("a", every_so("1m"))
        .service("b", every_so("1h"))
        .roster("all", "10m", &["a", "b"]);
    world = world.service_on("a", "shop");
    assert_eq!(starts(&world.run_for("25m")), ["0.000 shop", "1.000 b"]);
    assert_eq!(world.rosters(), ["all: runs nothing, left [], results [a skipped]"]);
}

#[test]
fn s2_a_roster_goes_on_after_a_stop_during_which_its_run_ended() {
    let mut world = World::new().service("a", every_so("1h")).service("b", every_so("1h")).roster(
        "all",
        "1h",
        &["a", "b"],
    );
    world.run_for("500ms");
    world.stop_for("10s");
    assert_eq!(starts(&world.run_for("30m")), ["0.000 a", "10.600 b"]);
    assert_eq!(world.rosters(), ["all: runs nothing, left [], results [a done, b done]"]);
}

#[test]
fn s2_a_roster_goes_on_after_another_process_ended_its_run() {
    let mut world = World::new().service("a", every_so("1h")).service("b", every_so("1h")).roster(
        "all",
        "1h",
        &["a", "b"],
    );
    world.run_for("500ms");
    // A process that runs one service by hand has no rosters, but takes up the run.
    world.restart_with(|setup| setup.rosters.clear());
    world.run_for("10s");
    world.restart_with(|setup| {
        let services = vec!["a".into(), "b".into()];
        let check = Span::hours(1);
        setup.rosters.push(RosterTerms { name: "all".into(), check, services });
    });
    assert_eq!(starts(&world.run_for("30m")), ["0.000 a", "0.500 a", "10.500 b"]);
}
