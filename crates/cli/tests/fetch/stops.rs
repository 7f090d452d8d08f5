//! Ctrl-C, kill -9, and resuming afterwards.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use paceline_core::Span;
use paceline_mock::files::{Fault, Files, content};

use crate::{Place, Running, check_generated, generated, interrupt};

#[test]
fn b1_a_second_run_makes_no_request_and_changes_no_name() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 3_000);
    server.generate("/g/*", 3_000);
    let mut urls = generated(&server, "f", 100);
    urls.extend(generated(&server, "g", 100));
    let list = place.list(urls);
    place.fetch(&["-i", &list]).exits(0);
    let names = place.names();
    assert_eq!((names.len(), server.log().len()), (200, 200));
    let ended = place.fetch(&["-i", &list]).exits(0);
    assert_eq!(server.log().len(), 200);
    assert_eq!(ended.summary("there"), 200);
    assert_eq!(place.names(), names);
}

#[test]
fn a_removed_file_is_fetched_again() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 300);
    let list = place.list(generated(&server, "f", 3));
    place.fetch(&["-i", &list]).exits(0);
    std::fs::remove_file(place.file("1")).expect("it was there");
    place.fetch(&["-i", &list]).exits(0);
    check_generated(&place, "f", 3, 300);
    assert_eq!(server.log().len(), 4);
}

#[test]
fn b3_an_interrupted_run_says_how_to_continue_and_the_next_one_does() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 1 << 20);
    server.on("*", Fault::SlowBody(2 << 20));
    let list = place.list(generated(&server, "f", 12));
    let running = place.start(&["-i", &list]);
    server.wait_until(|log| log.len() >= 5);
    running.interrupt();
    let ended = running.end().exits(130);
    assert!(ended.stderr.contains("run the same command again to continue"), "{}", ended.stderr);
    assert!(ended.summary("parked") > 0);
    server.heal("*");
    place.fetch(&["-i", &list]).exits(0);
    check_generated(&place, "f", 12, 1 << 20);
}

#[test]
fn b3_a_second_interruption_ends_it_at_once() {
    let (server, place) = (Files::start(), Place::new());
    server.on("*", Fault::Hang);
    let mut child = place.command(&[&server.url("/f")]).spawn().expect("it runs");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    server.wait_until(|log| log.len() == 1);
    let begun = crate::now();
    interrupt(&child);
    let told = stderr
        .lines()
        .map(|line| line.expect("text"))
        .find(|line| line.contains("a second signal"));
    assert!(told.is_some(), "it says that it was heard");
    interrupt(&child);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn b1_kill_nine_loses_nothing_and_repeats_nothing_finished() {
    kills(200, 20_000, 8);
    kills(40, 300_000, 8);
}

#[test]
fn b1_fifty_kills_over_two_thousand_files() {
    kills(2_000, 20_000, 50);
}

fn kills(files: usize, size: usize, kills: usize) {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", size as u64);
    server.on("*", Fault::Latency(Duration::from_millis(2)));
    let list = place.list(generated(&server, "f", files));
    let arguments = ["-i", &list, "--per-host", "4"];
    let mut complete = BTreeSet::new();
    let mut again = Vec::new();
    for round in 1..=kills {
        let running: Running = place.start(&arguments);
        let goal = files * round / (kills + 1);
        server.wait_until(|log| log.len() >= goal);
        running.kill();
        let before = server.log().len();
        // A file that has its final name now must not be requested again.
        complete.extend(place.names().into_iter().filter(|name| !name.starts_with('.')));
        again.push((before, complete.clone()));
    }
    place.fetch(&arguments).exits(0);
    check_generated(&place, "f", files, size);
    let log = server.log();
    for (before, complete) in &again {
        for entry in &log[*before..] {
            let name = entry.path.rsplit('/').next().expect("a name");
            assert!(!complete.contains(name), "{name} was complete and was fetched again");
        }
    }
    let four = paceline_mock::Limit::InFlight("4".parse().expect("a number"));
    assert_eq!(server.violations(four, Span::ZERO), []);
    assert_eq!(place.names().len(), files, "nothing is left behind");
}

#[test]
fn b1_a_killed_segmented_download_is_resumed() {
    let (server, place) = (Files::start(), Place::new());
    let size = 64 << 20;
    server.generate("/f/*", size);
    server.on("*", Fault::SlowBody(40 << 20));
    let arguments = [&server.url("/f/0"), "--segments", "4"];
    for _ in 0..3 {
        let before = server.log().len();
        let running = place.start(&arguments);
        server.wait_until(|log| log.len() >= before + 5);
        running.kill();
    }
    place.fetch(&arguments).exits(0);
    let found = std::fs::read(place.file("0")).expect("it is there");
    assert!(found == content("/f/0", size as usize));
    let sent: u64 = server.log().iter().map(|entry| entry.sent_bytes).sum();
    assert!(sent < 3 * size, "{sent} bytes were sent for {size}");
    assert_eq!(place.names(), ["0"]);
}
