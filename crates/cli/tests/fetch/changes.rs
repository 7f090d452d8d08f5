//! Files that change between or during runs: never a mixture, never half a file under its name.

use std::time::Duration;

use paceline_mock::files::{After, Ending, Fault, File, Files, Response, content};

use crate::Place;

const SIZE: u64 = 12 << 20;

fn version(name: &str, size: u64) -> File {
    File::named(name, size).etag(&format!("\"{name}\""))
}

#[track_caller]
fn is_version(place: &Place, name: &str, size: u64) {
    let found = std::fs::read(place.file("a.bin")).expect("it is there");
    assert_eq!(found.len() as u64, size);
    assert!(found == content(name, size as usize), "not {name}");
    assert_eq!(place.names(), ["a.bin"]);
}

#[test]
fn a_half_file_is_resumed_where_it_ended() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    server.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close).first(1));
    let ended = place.fetch(&[&server.url("/a.bin")]).exits(0);
    is_version(&place, "v1", SIZE);
    let log = server.log();
    assert_eq!(log.len(), 2);
    let range = log[1].header("range").expect("a range");
    let from: u64 = range
        .strip_prefix("bytes=")
        .and_then(|r| r.strip_suffix('-'))
        .expect("open")
        .parse()
        .expect("a number");
    assert!(from > 0 && from <= SIZE / 2, "{range}");
    assert_eq!(log[1].header("if-range"), Some("\"v1\""));
    assert_eq!(ended.of("done")[0]["how"], "resumed");
    assert_eq!(ended.of("retry")[0]["class"], "short_body");
}

#[test]
fn a_file_that_changed_between_two_runs_is_the_new_one() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    server.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close));
    place.fetch(&[&server.url("/a.bin"), "--retries", "0"]).exits(1);
    assert!(!place.file("a.bin").exists());
    server.heal("/a.bin");
    server.put("/a.bin", version("v2", SIZE + 5));
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    is_version(&place, "v2", SIZE + 5);
}

#[test]
fn a_server_that_ignores_if_range_does_not_get_two_versions_mixed() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    server.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close).first(1));
    server.on("/a.bin", Fault::Ignore("if-range"));
    server.then("/a.bin", After::Requests(1), version("v2", SIZE));
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    is_version(&place, "v2", SIZE);
}

#[test]
fn a_wrong_content_range_is_refused() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    server.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close).first(1));
    server.on("/a.bin", Fault::Part(0, SIZE - 1).first(1));
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    is_version(&place, "v1", SIZE);
}

#[test]
fn without_a_strong_validator_a_file_starts_over() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", File::named("v1", SIZE).etag("W/\"v1\""));
    server.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close).first(1));
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    is_version(&place, "v1", SIZE);
    assert!(server.log().iter().all(|entry| entry.header("range").is_none()));
}

#[test]
fn a_large_file_comes_over_several_connections() {
    let (server, place) = (Files::start(), Place::new());
    let size = 40 << 20;
    server.put("/a.bin", version("v1", size));
    server.on("/a.bin", Fault::Latency(Duration::from_millis(100)));
    let ended = place.fetch(&[&server.url("/a.bin"), "--segments", "4"]).exits(0);
    is_version(&place, "v1", size);
    assert_eq!(server.most_in_flight(), 4);
    let sent: u64 = server.log().iter().map(|entry| entry.sent_bytes).sum();
    assert_eq!((sent, ended.summary("bytes")), (size, size), "each byte once");
}

#[test]
fn a_file_that_changes_during_a_segmented_download_is_the_new_one() {
    let (server, place) = (Files::start(), Place::new());
    let size = 40 << 20;
    server.put("/a.bin", version("v1", size));
    server.then("/a.bin", After::Requests(4), version("v2", size - 7));
    place.fetch(&[&server.url("/a.bin"), "--segments", "4"]).exits(0);
    is_version(&place, "v2", size - 7);
}

#[test]
fn segments_of_a_server_that_ignores_if_range_are_not_mixed_either() {
    let (server, place) = (Files::start(), Place::new());
    let size = 40 << 20;
    server.put("/a.bin", version("v1", size));
    server.on("/a.bin", Fault::Ignore("if-range"));
    server.then("/a.bin", After::Requests(4), version("v2", size));
    place.fetch(&[&server.url("/a.bin"), "--segments", "4"]).exits(0);
    is_version(&place, "v2", size);
}

#[test]
fn small_empty_and_rangeless_files_come_whole_with_segments_too() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/small", version("s", 1_000));
    server.put("/empty", File::of("").etag("\"e\""));
    server.put("/plain", version("p", SIZE).without_ranges());
    server.put("/weak", File::named("w", SIZE).etag("W/\"w\""));
    let list = place.list(["/small", "/empty", "/plain", "/weak"].map(|path| server.url(path)));
    place.fetch(&["-i", &list, "--segments", "4"]).exits(0);
    for (name, of, size) in [("small", "s", 1_000), ("plain", "p", SIZE), ("weak", "w", SIZE)] {
        let found = std::fs::read(place.file(name)).expect("it is there");
        assert!(found == content(of, size as usize), "{name}");
    }
    assert_eq!(std::fs::read(place.file("empty")).expect("it is there"), b"");
}

#[test]
fn a_refresh_asks_and_fetches_only_what_changed() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", 5_000));
    server.put("/b.bin", version("w1", 5_000));
    let list = place.list([server.url("/a.bin"), server.url("/b.bin")]);
    place.fetch(&["-i", &list]).exits(0);
    server.put("/b.bin", version("w2", 6_000));
    let ended = place.fetch(&["-i", &list, "--refresh"]).exits(0);
    assert_eq!((ended.summary("unchanged"), ended.summary("fetched")), (1, 1));
    assert_eq!(server.log().len(), 4);
    assert_eq!(server.log_of("/a.bin")[1].status, Some(304));
    let found = std::fs::read(place.file("b.bin")).expect("it is there");
    assert!(found == content("w2", 6_000));
    let ended = place.fetch(&["-i", &list]).exits(0);
    assert_eq!((ended.summary("there"), server.log().len()), (2, 4));
}

#[test]
fn a_mirror_does_not_go_on_with_the_half_of_another_one() {
    let (first, second, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    first.put("/a.bin", File::named("v1", SIZE).etag("\"1\""));
    first.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close));
    second.put("/a.bin", File::named("v2", SIZE).etag("\"1\""));
    let list = place.list([format!("{}\t{}", first.url("/a.bin"), second.url("/a.bin"))]);
    place.fetch(&["-i", &list, "--retries", "0"]).exits(0);
    is_version(&place, "v2", SIZE);
}

#[test]
fn pieces_must_say_which_version_they_are_and_of_what_length() {
    for fault in [Fault::WithoutHeader("etag"), Fault::Ignore("if-range")] {
        let (server, place) = (Files::start(), Place::new());
        let size = 24 << 20;
        server.put("/a.bin", File::named("v1", size).etag("\"same\""));
        server.on("/a.bin", fault.after(1));
        server.then("/a.bin", After::Requests(1), File::named("v2", size + 9).etag("\"same\""));
        place.fetch(&[&server.url("/a.bin"), "--segments", "4"]).exits(0);
        is_version(&place, "v2", size + 9);
    }
}

#[test]
fn a_rest_that_ends_early_is_not_the_rest() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    server.on("/a.bin", Fault::Cut(SIZE / 2, Ending::Close).first(1));
    let chunked = paceline_mock::files::Framing::Chunked;
    let short = Fault::Framing(chunked).and(Fault::Part(SIZE / 2, SIZE / 2 + 99)).first(1);
    server.on("/a.bin", short);
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    is_version(&place, "v1", SIZE);
}

#[test]
fn a_checksum_holds_for_a_resumed_file_too() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", 200 << 20));
    server.on("/a.bin", Fault::Cut(150 << 20, Ending::Close).first(1));
    let wrong = format!("sha-256={}", "0".repeat(64));
    let ended = place.fetch(&[&server.url("/a.bin"), "--checksum", &wrong]).exits(1);
    assert_eq!(ended.class(), "checksum");
    assert_eq!((server.log().len(), place.names()), (2, Vec::<String>::new()));
}

#[test]
fn pieces_that_are_gone_lead_to_the_next_mirror() {
    let (first, second, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    let size = 24 << 20;
    first.put("/a.bin", version("v1", size));
    first.on("/a.bin", Fault::Respond(paceline_mock::files::Response::status(403)).after(1));
    second.put("/a.bin", version("v2", size));
    let list = place.list([format!("{}\t{}", first.url("/a.bin"), second.url("/a.bin"))]);
    place.fetch(&["-i", &list, "--segments", "4"]).exits(0);
    is_version(&place, "v2", size);
}

#[test]
fn a_failed_refresh_keeps_the_record_of_the_file() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", 5_000));
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    server.remove("/a.bin");
    place.fetch(&[&server.url("/a.bin"), "--refresh"]).exits(1);
    let ended = place.fetch(&[&server.url("/a.bin")]).exits(0);
    assert_eq!((ended.summary("there"), server.log().len()), (1, 2));
    server.put("/a.bin", version("v2", 6_000));
    place.fetch(&[&server.url("/a.bin"), "--refresh"]).exits(0);
    is_version(&place, "v2", 6_000);
}

#[test]
fn a_new_checksum_is_asked_of_an_old_file() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", File::of("hello").etag("\"1\""));
    let hello = "sha-256=2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    place.fetch(&[&server.url("/a.bin")]).exits(0);
    place.fetch(&[&server.url("/a.bin"), "--checksum", hello]).exits(0);
    assert_eq!(server.log().len(), 1);
    let other = "sha-256=486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7";
    server.put("/a.bin", File::of("world").etag("\"2\""));
    place.fetch(&[&server.url("/a.bin"), "--checksum", other]).exits(0);
    assert_eq!(std::fs::read(place.file("a.bin")).expect("there"), b"world");
}

#[test]
fn a_server_in_trouble_does_not_cost_the_pieces_that_are_there() {
    let (server, place) = (Files::start(), Place::new());
    let size = 40 << 20;
    server.put("/a.bin", version("v1", size));
    server.on("/a.bin", Fault::Respond(paceline_mock::files::Response::status(500)).after(6));
    let arguments = [&server.url("/a.bin"), "--segments", "4", "--retries", "0"];
    assert_eq!(place.fetch(&arguments).exits(1).class(), "status_500");
    server.heal("/a.bin");
    place.fetch(&arguments).exits(0);
    is_version(&place, "v1", size);
    let sent: u64 = server.log().iter().map(|entry| entry.sent_bytes).sum();
    assert!(sent < size + (4 << 20), "{sent} bytes were sent for {size}");
}

#[test]
fn servers_behind_one_name_that_call_a_version_differently_give_it_in_one_piece() {
    let (server, place) = (Files::start(), Place::new());
    let size = 24 << 20;
    let named = |n: u64| File::named("v1", size).etag(&format!("\"{}\"", n % 2));
    server.put("/a.bin", named(0));
    for n in 1..20 {
        server.then("/a.bin", After::Requests(1), named(n));
    }
    place.fetch(&[&server.url("/a.bin"), "--segments", "4"]).exits(0);
    is_version(&place, "v1", size);
    assert!(server.log().len() < 10, "{} requests", server.log().len());
}

#[test]
fn a_file_that_is_not_what_the_list_wants_is_not_asked_whether_it_has_changed() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a", File::of("hello!").etag("\"1\""));
    place.fetch(&[&server.url("/a")]).exits(0);
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let list = place.list([format!("{}\n checksum=sha-256={hello}", server.url("/a"))]);
    for _ in 0..2 {
        let ended = place.fetch(&["-i", &list, "--refresh"]).exits(1);
        assert_eq!(ended.class(), "checksum");
    }
    // The file is fetched once the server has it, though an earlier refresh failed.
    server.put("/a", File::of("hello").etag("\"2\""));
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!(std::fs::read(place.file("a")).expect("there"), b"hello");
}

#[test]
fn a_file_that_was_cut_after_a_failed_refresh_is_not_taken_for_the_whole() {
    let (server, place) = (Files::start(), Place::new());
    let url = server.url("/a.bin");
    server.put("/a.bin", version("v1", 1_000));
    place.fetch(&[&url]).exits(0);
    server.on("/a.bin", Fault::Respond(Response::status(404)));
    place.fetch(&[&url, "--refresh"]).exits(1);
    server.heal("/a.bin");
    place.fetch(&[&url]).exits(0);
    assert_eq!(server.log().len(), 2, "it is there still");
    std::fs::write(place.file("a.bin"), "cut").expect("written");
    place.make_old(&["fetch.db", "fetch.db-wal", "named"]);
    assert_eq!(place.fetch(&[&url]).exits(1).class(), "exists");
    assert_eq!(place.fetch(&[&url, "--refresh"]).exits(1).class(), "exists");
    assert_eq!(server.log().len(), 2);
}

#[test]
fn a_file_that_a_killed_refresh_has_replaced_is_fetched_anew() {
    let (server, place) = (Files::start(), Place::new());
    let url = server.url("/a.bin");
    server.put("/a.bin", version("v1", 1_000));
    place.fetch(&[&url]).exits(0);
    server.put("/a.bin", version("v2", 2_000));
    server.on("/a.bin", Fault::Hang.first(1));
    let running = place.start(&[&url, "--refresh"]);
    server.wait_until(|log| log.len() == 2);
    running.kill();
    std::fs::write(place.file("a.bin"), content("v2", 2_000)).expect("as if it had come");
    place.fetch(&[&url]).exits(0);
    is_version(&place, "v2", 2_000);
}

#[test]
fn a_split_file_whose_address_leads_elsewhere_now_starts_over_there() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    server.on("/a.bin", Fault::SlowBody(2 << 20).after(1));
    let arguments = [&server.url("/a.bin"), "--segments", "4"];
    let running = place.start(&arguments);
    server.wait_until(|log| log.len() >= 3);
    running.kill();
    server.heal("/a.bin");
    server.put("/a.bin", Response::redirect(301, "/b.bin"));
    server.put("/b.bin", version("v1", SIZE));
    place.fetch(&arguments).exits(0);
    is_version(&place, "v1", SIZE);
}

#[test]
fn a_part_that_is_longer_than_it_says_is_refused_at_once() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", version("v1", SIZE));
    let head = "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-99/100\r\n\r\n";
    let answer = [head.as_bytes(), &[b'x'; 300]].concat();
    server.on("/a.bin", Fault::Raw(answer));
    let ended = place.fetch(&[&server.url("/a.bin"), "--segments", "2"]).exits(1);
    assert_eq!((ended.class(), server.log().len()), ("range", 1), "{ended:?}");
    assert!(place.names().is_empty());
}

#[test]
fn a_refused_range_that_was_not_requested_is_no_empty_file() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a.bin", Response::status(416).header("content-range", "bytes */0"));
    let ended = place.fetch(&[&server.url("/a.bin")]).exits(1);
    assert_eq!(ended.class(), "status_416");
    assert!(place.names().is_empty());
}
