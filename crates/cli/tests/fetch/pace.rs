//! The pace of hosts: limits, throttling, failures, hangs.

use std::time::Duration;

use paceline_core::Span;
use paceline_mock::files::{Fault, Files, OnConnect, Response};

use crate::{Place, check_generated, generated};

#[test]
fn l1_a_host_never_has_more_requests_at_once_than_allowed() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 2_000);
    server.on("*", Fault::Latency(Duration::from_millis(5)));
    server.on("*", Fault::AtMost { in_flight: 4, retry_after: None });
    let list = place.list(generated(&server, "f", 200));
    place.fetch(&["-i", &list, "--per-host", "4"]).exits(0);
    check_generated(&place, "f", 200, 2_000);
    assert!(server.log().iter().all(|entry| entry.status == Some(200)));
    assert_eq!((server.log().len(), server.most_in_flight()), (200, 4));
}

#[test]
fn l7_a_host_that_refuses_gets_fewer_connections_until_it_stops() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 2_000);
    server.on("*", Fault::Latency(Duration::from_millis(20)));
    server.on("*", Fault::AtMost { in_flight: 4, retry_after: None });
    let list = place.list(generated(&server, "f", 200));
    let ended = place.fetch(&["-i", &list, "--per-host", "16", "-j", "16"]).exits(0);
    check_generated(&place, "f", 200, 2_000);
    let refused = server.log().iter().filter(|entry| entry.status == Some(429)).count();
    assert!((1..60).contains(&refused), "{refused} were refused");
    assert_eq!(ended.of("throttled").len(), refused);
}

#[test]
fn l6_retry_after_closes_the_host_and_costs_exactly_one_more_request_each() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 500);
    server.on("*", Fault::Respond(Response::status(503).retry_after("1")).first(1));
    let list = place.list(generated(&server, "f", 200));
    place.fetch(&["-i", &list, "--per-host", "64", "-j", "64"]).exits(0);
    check_generated(&place, "f", 200, 500);
    let log = server.log();
    assert_eq!(log.len(), 400);
    for n in 0..200 {
        let of_one = server.log_of(&format!("/f/{n}"));
        assert_eq!(of_one.len(), 2, "file {n}");
    }
    // No request is sent before the second is over, whichever request was refused.
    for refused in log.iter().filter(|entry| entry.status == Some(503)) {
        let told_at = refused.ended_at.expect("it was answered");
        let early = log.iter().filter(|entry| {
            entry.at > told_at + Span::millis(50) && entry.at < told_at + Span::millis(999)
        });
        // Requests already in flight when the response came are fine; new ones are not.
        assert_eq!(early.count(), 0);
    }
}

#[test]
fn l7_a_dead_host_is_not_asked_for_each_of_its_files() {
    let (server, place) = (Files::start(), Place::new());
    server.on_connect(OnConnect::Reset);
    let list = place.list(generated(&server, "f", 200));
    let ended = place.fetch(&["-i", &list, "--retries", "3", "--max-wait", "5s"]);
    let ended = ended.exits(75);
    assert!(server.connections() < 20, "{} connections", server.connections());
    assert_eq!(ended.summary("deferred") + ended.summary("failed"), 200);
    assert!(ended.stderr.contains("stays closed for"), "{}", ended.stderr);
}

#[test]
fn p5_a_hung_host_delays_no_other_host() {
    let (hung, well, place) = (Files::start_on("127.0.0.2"), Files::start(), Place::new());
    hung.on("*", Fault::Hang);
    well.generate("/f/*", 4_096);
    let mut urls: Vec<String> = (0..50).map(|n| hung.url(&format!("/h{n}"))).collect();
    urls.extend(generated(&well, "f", 1_000));
    let list = place.list(urls);
    let begun = crate::now();
    let running = place.start(&["-i", &list]);
    well.wait_until(|log| log.len() == 1_000 && log.iter().all(|entry| entry.ended_at.is_some()));
    let took = begun.elapsed();
    running.interrupt();
    running.end().exits(130);
    check_generated(&place, "f", 1_000, 4_096);
    assert!(hung.log().len() <= 4, "the hung host has four connections at most");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn l1_gaps_and_rates_hold_at_the_server() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 100);
    let list = place.list(generated(&server, "f", 8));
    place.fetch(&["-i", &list, "--every", "100ms", "--rate", "5/s"]).exits(0);
    let gap = paceline_mock::Limit::Gap(Span::millis(100));
    assert_eq!(server.violations(gap, crate::HELD_UP), []);
    let rate = paceline_mock::Limit::Window("5/s".parse().expect("a rate"));
    assert_eq!(server.violations(rate, crate::HELD_UP), []);
}

#[test]
fn a_lane_of_the_configuration_has_the_last_word_about_its_host() {
    let (slow, free, place) = (Files::start(), Files::start(), Place::new());
    slow.generate("/s/*", 100);
    free.generate("/f/*", 100);
    let lane = format!("[lanes.\"host:{}\"]\nevery = \"150ms\"\n", slow.addr());
    std::fs::write(place.path().join("paceline.toml"), lane).expect("written");
    let mut urls = generated(&slow, "s", 4);
    urls.extend((10..30).map(|n| free.url(&format!("/f/{n}"))));
    let list = place.list(urls);
    place.fetch(&["-i", &list]).exits(0);
    let gap = paceline_mock::Limit::Gap(Span::millis(150));
    assert_eq!(slow.violations(gap, crate::HELD_UP), []);
    assert!(!free.violations(gap, crate::HELD_UP).is_empty());
}

#[test]
fn of_the_configuration_and_the_command_the_stricter_counts() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 100);
    let lane = format!("[lanes.\"host:{}\"]\nevery = \"10ms\"\n", server.addr());
    std::fs::write(place.path().join("paceline.toml"), lane).expect("written");
    let list = place.list(generated(&server, "f", 4));
    place.fetch(&["-i", &list, "--every", "100ms"]).exits(0);
    let gap = paceline_mock::Limit::Gap(Span::millis(100));
    assert_eq!(server.violations(gap, crate::HELD_UP), []);
}

#[test]
fn r1_transient_failures_are_retried_and_final_ones_are_not() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 100);
    server.on("/f/0", Fault::Respond(Response::status(500)).first(2));
    server.on("/f/1", Fault::Reset.first(1));
    server.on("/f/2", Fault::Respond(Response::status(501)));
    server.on("/f/3", Fault::Respond(Response::status(404)));
    server.on("/f/4", Fault::Respond(Response::status(502)));
    let list = place.list(generated(&server, "f", 5));
    // Several may fail in a row by chance: the host must not cool down for that.
    let lane = "[lanes.\"host:*\"]\nfail_after = 50\n";
    std::fs::write(place.path().join("paceline.toml"), lane).expect("written");
    let ended = place.fetch(&["-i", &list, "--retries", "2"]).exits(1);
    let counts: Vec<usize> = (0..5).map(|n| server.requests(&format!("/f/{n}"))).collect();
    assert_eq!(counts, [3, 2, 1, 1, 3]);
    assert_eq!((ended.summary("fetched"), ended.summary("failed")), (2, 3));
    let mut classes: Vec<_> = ended.of("failed").iter().map(|e| e["class"].to_string()).collect();
    classes.sort();
    assert_eq!(classes, ["\"status_404\"", "\"status_501\"", "\"status_502\""]);
}

#[test]
fn a_deadline_leaves_the_rest_for_another_run() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 100);
    let list = place.list(generated(&server, "f", 20));
    let ended = place.fetch(&["-i", &list, "--every", "200ms", "--deadline", "1s"]).exits(75);
    let done = ended.summary("fetched");
    assert!((1..20).contains(&done), "{done}");
    assert_eq!(ended.summary("deferred"), 20 - done);
    place.fetch(&["-i", &list]).exits(0);
    check_generated(&place, "f", 20, 100);
    assert_eq!(server.log().len(), 20);
}

#[test]
fn p5_hung_hosts_delay_no_other_host_with_few_jobs_either() {
    for (hosts, jobs) in [(1, "2"), (1, "4"), (7, "16")] {
        let (well, place) = (Files::start(), Place::new());
        well.generate("/f/*", 1_000);
        let hung: Vec<Files> =
            (0..hosts).map(|n| Files::start_on(&format!("127.0.0.{}", n + 2))).collect();
        let mut urls = Vec::new();
        for host in &hung {
            host.on("*", Fault::Hang);
            urls.extend((0..20).map(|n| host.url(&format!("/h{n}"))));
        }
        urls.extend(generated(&well, "f", 100));
        let list = place.list(urls);
        let running = place.start(&["-i", &list, "-j", jobs]);
        well.wait_until(|log| log.len() == 100 && log.iter().all(|entry| entry.ended_at.is_some()));
        running.interrupt();
        running.end().exits(130);
        check_generated(&place, "f", 100, 1_000);
    }
}

#[test]
fn w1_the_users_own_pace_defers_nothing() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 100);
    let list = place.list(generated(&server, "f", 3));
    let ended = place.fetch(&["-i", &list, "--rate", "2/5m", "--deadline", "2s"]).exits(75);
    assert!(ended.of("deferred").iter().all(|event| event["class"] == "unfinished"), "{ended:#?}");
}
