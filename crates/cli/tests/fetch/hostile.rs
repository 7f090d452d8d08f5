//! Hostile servers: each gets a clear failure, writes nothing outside the directory, and cannot exhaust
//! memory.

use std::io::Write as _;

use paceline_mock::files::{Fault, File, Files, Framing, Response};

use crate::{Ended, Place};

/// The most memory of a run against a hostile server.
const MOST_MEMORY: u64 = 150 << 20;

/// Fetches `/x` from a server prepared like this; the run fails with this class, leaves nothing
/// behind and stays small.
#[track_caller]
fn check(prepare: impl Fn(&Files), arguments: &[&str], class: &str) -> Ended {
    let (server, place) = (Files::start(), Place::new());
    prepare(&server);
    let mut all = vec!["--retries", "0", "--idle-timeout", "5s", "--first-byte-timeout", "5s"];
    all.extend(arguments);
    let url = server.url("/x");
    all.push(&url);
    let ended = place.fetch(&all);
    assert_eq!(ended.class(), class, "{ended:#?}");
    assert!(ended.summary("peak_memory") < MOST_MEMORY, "{ended:#?}");
    assert_eq!(place.names(), Vec::<String>::new());
    ended.exits(1)
}

#[test]
fn endless_headers() {
    check(|server| server.on("/x", Fault::EndlessHeaders), &[], "headers");
}

#[test]
fn headers_that_are_too_long_or_too_many() {
    let file = |server: &Files| server.put("/x", File::of("x"));
    check(
        |s| {
            file(s);
            s.on("/x", Fault::LongHeader(1 << 20));
        },
        &[],
        "headers",
    );
    check(
        |s| {
            file(s);
            s.on("/x", Fault::ManyHeaders(10_000));
        },
        &[],
        "headers",
    );
}

#[test]
fn an_endless_body_ends_at_the_largest_size() {
    for framing in [Framing::Chunked, Framing::UntilClose] {
        let endless = |server: &Files| {
            server.put("/x", File::of("x"));
            server.on("/x", Fault::EndlessBody(framing));
        };
        let ended = check(endless, &["--max-size", "20MiB"], "too_large");
        assert!(ended.stderr.contains("--max-size"), "{}", ended.stderr);
    }
}

#[test]
fn a_length_that_no_disk_holds_is_refused_before_the_first_byte() {
    let vast = |server: &Files| {
        server.put("/x", File::of("x"));
        server.on("/x", Fault::Header("content-length", b"9000000000000000".to_vec()));
    };
    check(vast, &[], "too_large");
}

#[test]
fn a_length_that_promises_more_than_comes() {
    let short = |server: &Files| {
        server.put("/x", File::named("x", 10_000));
        server.on("/x", Fault::Cut(5_000, paceline_mock::files::Ending::Close));
    };
    check(short, &[], "short_body");
    let chunked = |server: &Files| {
        server.put("/x", File::named("x", 10_000).framing(Framing::Chunked));
        server.on("/x", Fault::Cut(5_000, paceline_mock::files::Ending::Close));
    };
    check(chunked, &[], "short_body");
}

#[test]
fn a_body_that_stalls_is_given_up() {
    let stalls = |server: &Files| {
        server.put("/x", File::named("x", 10_000));
        server.on("/x", Fault::Cut(5_000, paceline_mock::files::Ending::Stall));
    };
    check(stalls, &["--idle-timeout", "300ms"], "timeout");
    check(|server| server.on("/x", Fault::Hang), &["--first-byte-timeout", "300ms"], "timeout");
    check(|server| server.on("/x", Fault::Hang), &["--timeout", "300ms"], "timeout");
}

#[test]
fn bytes_beyond_the_announced_length_are_not_the_files() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/x", File::named("x", 10_000));
    server.on("/x", Fault::Beyond(5_000));
    server.put("/y", File::of("another"));
    place.fetch(&[&server.url("/x"), &server.url("/y"), "--per-host", "1"]).exits(0);
    assert_eq!(std::fs::read(place.file("x")).expect("there").len(), 10_000);
    assert_eq!(std::fs::read(place.file("y")).expect("there"), b"another");
}

#[test]
fn bytes_that_come_behind_an_answer_are_not_held_against_the_next_file() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/x", File::of("x"));
    server.put("/y", File::of("another"));
    server.on("/y", Fault::Raw(vec![b'x'; 5_000]).first(1));
    let ended = place.fetch(&[&server.url("/x"), &server.url("/y"), "--per-host", "1"]).exits(0);
    let log = server.log();
    assert_eq!(log[0].connection, log[1].connection, "the rest of x is the beginning of y");
    assert_eq!((log.len(), ended.of("retry")[0]["class"].as_str()), (3, Some("reset")));
    assert_eq!(std::fs::read(place.file("y")).expect("there"), b"another");
}

#[test]
fn redirects_have_an_end() {
    let ended = check(|server| server.chain("/x", 3, "/x"), &[], "redirect_loop");
    assert!(ended.stderr.contains("redirect loop"), "{}", ended.stderr);
    check(|server| server.chain("/x", 12, "/end"), &[], "redirects");
    check(
        |server| server.put("/x", Response::redirect(302, "file:///etc/passwd")),
        &[],
        "redirect",
    );
    check(|server| server.put("/x", Response::status(302)), &[], "redirect");
}

#[test]
fn a_partial_response_that_was_not_requested_is_an_error() {
    let partial = |server: &Files| {
        server.put("/x", File::named("x", 10_000));
        server.on("/x", Fault::Part(0, 99));
    };
    check(partial, &[], "range");
}

#[test]
fn what_is_not_http() {
    check(|s| s.on("/x", Fault::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec())), &[], "not_http");
    check(|s| s.on("/x", Fault::Raw(b"HTTP/1.1 200\0OK\r\n\r\n".to_vec())), &[], "not_http");
}

#[test]
fn names_that_want_to_leave_the_directory_stay_in_it() {
    let (server, place) = (Files::start(), Place::new());
    let outside = place.path().join("outside");
    std::fs::create_dir(&outside).expect("made");
    let long = "n".repeat(5_000);
    let odd: [&[u8]; 9] = [
        b"attachment; filename=\"../../x\"",
        b"attachment; filename=\"/etc/passwd\"",
        b"attachment; filename=\"..\"",
        b"attachment; filename=\".paceline\"",
        b"attachment; filename*=UTF-8''..%2F..%2Foutside%2Fx",
        b"attachment; filename*=UTF-8''a%00b",
        b"attachment; filename=\"CON\"",
        b"attachment; filename=\"\xff\xfe\"",
        b"attachment",
    ];
    let mut urls = Vec::new();
    for (n, value) in odd.into_iter().enumerate() {
        let path = format!("/odd{n}");
        server.put(&path, File::of(format!("odd {n}")).header("content-disposition", value));
        urls.push(server.url(&path));
    }
    let path = format!("/{long}");
    server.put(&path, File::of("long"));
    urls.push(server.url(&path));
    for path in ["/..%2f..%2foutside%2fx", "/%2e%2e/%2e%2e/x", "/a%00b", "/con.txt"] {
        server.put(path, File::of("odd path"));
        urls.push(server.url(path));
    }
    server.put("/x", File::of("plain"));
    let list = place.list(urls);
    place.fetch(&["-i", &list, "--content-disposition"]).exits(0);
    assert_eq!(std::fs::read_dir(&outside).expect("there").count(), 0);
    let top: Vec<_> = std::fs::read_dir(place.path()).expect("there").collect();
    assert_eq!(top.len(), 3, "files, list.txt and outside: {top:?}");
    let names = place.names();
    assert_eq!(names.len(), 14, "{names:#?}");
    for name in names {
        assert!(name.len() <= 200 && !name.contains('/') && !name.starts_with('.'), "{name}");
    }
}

#[test]
fn a_link_below_the_directory_leads_nowhere() {
    let (server, place) = (Files::start(), Place::new());
    let outside = place.path().join("outside");
    std::fs::create_dir_all(place.path().join("files")).expect("made");
    std::fs::create_dir(&outside).expect("made");
    std::os::unix::fs::symlink(&outside, place.file("link")).expect("a link");
    server.put("/x", File::of("x"));
    let list = place.list([server.url("/x"), "  dir=link".to_string()]);
    place.fetch(&["-i", &list]).exits(1);
    let list = place.list([server.url("/x"), "  dir=../outside".to_string()]);
    place.fetch(&["-i", &list]).exits(1);
    assert_eq!(std::fs::read_dir(&outside).expect("there").count(), 0);
}

#[test]
fn a_bomb_does_not_go_off() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..1_000 {
        bomb.write_all(&zeros).expect("in memory");
    }
    let bomb = bomb.finish().expect("in memory");
    let serve = |server: &Files| {
        server.put("/x", File::of(bomb.clone()).header("content-encoding", "gzip"));
    };
    let ended = check(serve, &["--decode", "--max-size", "100MiB"], "decode");
    assert_eq!(ended.summary("fetched"), 0);
    check(serve, &["--decode"], "decode");
}

#[test]
fn a_coding_that_is_broken_or_unknown_is_no_file() {
    let coded = |coding: &'static str| {
        move |server: &Files| {
            server.put("/x", File::of("not compressed").header("content-encoding", coding));
        }
    };
    check(coded("gzip"), &["--decode"], "decode");
    check(coded("br"), &["--decode"], "decode");
    check(coded("zstd"), &["--decode"], "decode");
    check(coded("magic"), &["--decode"], "decode");
}
