//! Requests for files: redirects, logins, codings, proxies, robots.txt.

use std::io::Write as _;

use paceline_core::Span;
use paceline_mock::files::{Fault, File, Files, Response, Version};
use paceline_mock::proxy::Proxy;

use crate::Place;

#[test]
fn j7_a_redirect_is_charged_to_the_host_it_leads_to() {
    let (first, second, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    for n in 0..6 {
        first.put(&format!("/{n}"), Response::redirect(302, second.url(&format!("/t/{n}"))));
    }
    second.generate("/t/*", 100);
    let lane = format!("[lanes.\"host:{}\"]\nevery = \"100ms\"\nin_flight = 1\n", second.addr());
    std::fs::write(place.path().join("paceline.toml"), lane).expect("written");
    let list = place.list((0..6).map(|n| first.url(&format!("/{n}"))));
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!(place.names(), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!((first.log().len(), second.log().len()), (6, 6));
    let gap = paceline_mock::Limit::Gap(Span::millis(100));
    assert_eq!(second.violations(gap, crate::HELD_UP), []);
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!((first.log().len(), second.log().len()), (6, 6));
}

#[test]
fn requests_have_a_user_agent_with_a_contact() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a", File::of("a"));
    server.put("/b", File::of("b"));
    let contact = ["--contact", "mailto:me@example.org"];
    place.fetch(&[&server.url("/a"), contact[0], contact[1]]).exits(0);
    let agent = server.log()[0].header("user-agent").expect("it says so").to_string();
    assert!(
        agent.starts_with("Paceline/") && agent.ends_with("(+mailto:me@example.org)"),
        "{agent}"
    );
    place.fetch(&[&server.url("/b"), "--user-agent", "me", "--header", "X-Y: z"]).exits(0);
    let entry = &server.log()[1];
    assert_eq!((entry.header("user-agent"), entry.header("x-y")), (Some("me"), Some("z")));
    assert_eq!(entry.header("accept-encoding"), Some("identity"));
}

#[test]
fn secrets_go_to_their_own_host_and_into_no_output() {
    let (home, away, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    home.put("/a", Response::redirect(302, away.url("/b")));
    away.put("/b", Response::status(404));
    let url = home.url("/a").replace("http://", "http://user:tops3cret@");
    let header = "Authorization: Bearer alsos3cret";
    let ended = place.fetch(&[&url, "--header", "Cookie: c=thirds3cret"]).exits(1);
    let basic = home.log()[0].header("authorization").expect("a login").to_string();
    assert!(basic.starts_with("Basic "), "{basic}");
    assert_eq!(home.log()[0].header("cookie"), Some("c=thirds3cret"));
    assert_eq!(away.log()[0].header("authorization"), None);
    assert_eq!(away.log()[0].header("cookie"), None);
    let told = format!("{ended:?}");
    assert!(!told.contains("s3cret"), "{told}");
    let ended = place.fetch(&[&home.url("/a"), "--header", header]).exits(1);
    assert_eq!(home.log()[1].header("authorization"), Some("Bearer alsos3cret"));
    assert_eq!(away.log()[1].header("authorization"), None);
    assert!(!format!("{ended:?}").contains("s3cret"));
    let headers = ["--header", "X-Api-Key: s3cret", "--header", "Accept-Language: bg"];
    place.fetch(&[&[home.url("/a").as_str()], &headers[..]].concat()).exits(1);
    assert_eq!(home.log()[2].header("x-api-key"), Some("s3cret"));
    assert_eq!(away.log()[2].header("x-api-key"), None);
    assert_eq!(away.log()[2].header("accept-language"), Some("bg"));
}

#[test]
fn logins_come_from_netrc_and_cookies_from_a_file() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a", File::of("a"));
    let netrc = "machine 127.0.0.1 login me password hush\n";
    std::fs::write(place.path().join(".netrc"), netrc).expect("written");
    let cookies = "# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t0\tname\tvalue\n";
    std::fs::write(place.path().join("cookies.txt"), cookies).expect("written");
    place.fetch(&[&server.url("/a"), "--netrc", "--cookies", "cookies.txt"]).exits(0);
    let entry = &server.log()[0];
    assert_eq!(entry.header("authorization"), Some("Basic bWU6aHVzaA=="));
    assert_eq!(entry.header("cookie"), Some("name=value"));
}

#[test]
fn the_default_login_of_netrc_goes_only_where_the_user_wanted_to_go() {
    let (home, away, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    home.put("/a", Response::redirect(302, away.url("/b")));
    away.put("/b", File::of("b"));
    let netrc = "default login me password hush\n";
    std::fs::write(place.path().join(".netrc"), netrc).expect("written");
    place.fetch(&[&home.url("/a"), "--netrc"]).exits(0);
    assert_eq!(home.log()[0].header("authorization"), Some("Basic bWU6aHVzaA=="));
    assert_eq!(away.log()[0].header("authorization"), None);
}

#[test]
fn a_login_reaches_every_mirror_that_the_user_named_and_what_an_earlier_run_left() {
    let (first, second, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    second.generate("/f/*", 100);
    let urls = (0..8).map(|n| {
        let path = format!("/f/{n}");
        format!("{}\t{}", first.url(&path), second.url(&path))
    });
    let list = place.list(urls);
    let arguments = ["-i", &list, "--header", "Authorization: Bearer s3cret"];
    let first_run = [&arguments[..], &["--every", "200ms", "--deadline", "700ms"]].concat();
    place.fetch(&first_run).exits(75);
    place.fetch(&arguments).exits(0);
    for entry in first.log().iter().chain(&second.log()) {
        assert_eq!(entry.header("authorization"), Some("Bearer s3cret"), "{entry:?}");
    }
    assert_eq!((first.log().len(), second.log().len()), (8, 8));
}

#[test]
fn codings_are_undone_only_when_asked() {
    let (server, place) = (Files::start(), Place::new());
    let mut coded = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coded.write_all(b"what it was before").expect("in memory");
    let coded = coded.finish().expect("in memory");
    for path in ["/raw.gz", "/text"] {
        server.put(path, File::of(coded.clone()).header("content-encoding", "gzip"));
    }
    place.fetch(&[&server.url("/raw.gz")]).exits(0);
    assert_eq!(std::fs::read(place.file("raw.gz")).expect("there"), coded);
    place.fetch(&[&server.url("/text"), "--decode"]).exits(0);
    assert_eq!(std::fs::read(place.file("text")).expect("there"), b"what it was before");
    assert_eq!(server.log()[1].header("accept-encoding"), Some("gzip, br, zstd"));
}

#[test]
fn proxies_come_from_the_environment() {
    let (server, proxy, place) = (Files::start(), Proxy::start(), Place::new());
    server.put("/a", File::of("by proxy"));
    server.put("/b", File::of("directly"));
    let mut command = place.command(&[&server.url("/a")]);
    command.env("http_proxy", proxy.url());
    crate::Running::of(command.spawn().expect("it runs")).end().exits(0);
    assert_eq!(proxy.log().len(), 1);
    let mut command = place.command(&[&server.url("/b")]);
    command.env("http_proxy", proxy.url()).env("no_proxy", "127.0.0.1");
    crate::Running::of(command.spawn().expect("it runs")).end().exits(0);
    assert_eq!((proxy.log().len(), server.log().len()), (1, 2));
}

#[test]
fn robots_are_asked_once_and_obeyed() {
    let (server, place) = (Files::start(), Place::new());
    let rules = "User-agent: *\nDisallow: /private/\nCrawl-delay: 0.2\n";
    server.put("/robots.txt", File::of(rules));
    server.generate("/f/*", 50);
    server.generate("/private/*", 50);
    let mut urls: Vec<_> = (0..5).map(|n| server.url(&format!("/f/{n}"))).collect();
    urls.push(server.url("/private/x"));
    let list = place.list(urls);
    let ended = place.fetch(&["-i", &list, "--robots"]).exits(1);
    assert_eq!(ended.class(), "robots");
    assert_eq!(place.names(), ["0", "1", "2", "3", "4"]);
    assert_eq!((server.requests("/robots.txt"), server.requests("/private/*")), (1, 0));
    let gap = paceline_mock::Limit::Gap(Span::millis(200));
    assert_eq!(server.violations(gap, crate::HELD_UP), []);
}

#[test]
fn robots_are_followed_to_where_they_have_moved_and_each_request_is_charged_there() {
    let (home, away, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    home.put("/robots.txt", Response::redirect(301, away.url("/moved")));
    away.put("/moved", Response::redirect(308, "/rules"));
    away.put("/rules", File::of("User-agent: paceline\nDisallow: /private/\nCrawl-delay: 0.1\n"));
    away.on("/rules", Fault::Respond(Response::status(503).retry_after("1")).first(1));
    home.generate("/f/*", 50);
    home.generate("/private/*", 50);
    let urls = (0..20).map(|n| home.url(&format!("/{}/{n}", if n < 8 { "f" } else { "private" })));
    let list = place.list(urls);
    let ended = place.fetch(&["-i", &list, "--robots"]).exits(1);
    assert!(ended.of("failed").iter().all(|failed| failed["class"] == "robots"), "{ended:#?}");
    assert_eq!(place.names(), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!((home.requests("/robots.txt"), home.requests("/private/*")), (1, 0));
    assert_eq!(away.log().len(), 3, "one for all: {:?}", away.log());
    let gap = paceline_mock::Limit::Gap(Span::millis(100));
    assert_eq!(home.violations(gap, crate::HELD_UP), []);
}

#[test]
fn a_file_left_on_its_way_to_the_rules_is_not_taken_for_them() {
    let (home, away, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    home.put("/robots.txt", Response::redirect(301, away.url("/rules")));
    away.put("/rules", File::of("User-agent: *\nDisallow:\n"));
    away.on("/rules", Fault::Hang);
    home.put("/a", File::of("what was wanted"));
    place.fetch(&[&home.url("/a"), "--robots", "--deadline", "500ms"]).exits(75);
    away.heal("/rules");
    place.fetch(&[&home.url("/a")]).exits(0);
    assert_eq!(std::fs::read(place.file("a")).expect("there"), b"what was wanted");
}

#[test]
fn robots_that_lead_too_far_are_no_rules() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/robots.txt", Response::redirect(302, "/r1"));
    for n in 1..6 {
        server.put(&format!("/r{n}"), Response::redirect(302, format!("/r{}", n + 1)));
    }
    server.put("/r6", File::of("User-agent: *\nDisallow: /\n"));
    server.put("/a", File::of("a"));
    place.fetch(&[&server.url("/a"), "--robots"]).exits(0);
    assert_eq!((server.requests("/r5"), server.requests("/r6")), (1, 0));
}

#[test]
fn a_rate_of_bytes_holds_over_all_downloads() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 200_000);
    let list = place.list((0..5).map(|n| server.url(&format!("/f/{n}"))));
    let begun = crate::now();
    place.fetch(&["-i", &list, "--limit-rate", "500KiB"]).exits(0);
    let took = begun.elapsed().as_secs_f64();
    assert!((1.5..4.0).contains(&took), "a megabyte at half a one per second took {took} s");
}

#[test]
fn a_slow_head_is_waited_for() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a", File::of("at last"));
    server.on("/a", Fault::SlowHead(400));
    place.fetch(&[&server.url("/a")]).exits(0);
    assert_eq!(std::fs::read(place.file("a")).expect("there"), b"at last");
}

/// A self-signed certificate for 127.0.0.1.
fn certificate(place: &Place) -> (Vec<u8>, Vec<u8>, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).expect("made");
    let file = place.path().join("root.pem");
    std::fs::write(&file, made.cert.pem()).expect("written");
    (made.cert.der().to_vec(), made.signing_key.serialize_der(), file)
}

#[test]
fn https_is_trusted_only_with_a_certificate_and_speaks_http_two_where_it_can() {
    let place = Place::new();
    let (certificate, key, file) = certificate(&place);
    let one = Files::start_tls(&certificate, &key);
    let two = Files::start_tls_http2(&certificate, &key);
    one.generate("/one/*", 70_000);
    two.generate("/two/*", 70_000);
    let mut urls: Vec<_> = (0..20).map(|n| one.url(&format!("/one/a{n}"))).collect();
    urls.extend((0..20).map(|n| two.url(&format!("/two/b{n}"))));
    let list = place.list(urls);
    let ended = place.fetch(&["-i", &list, "--retries", "0"]).exits(1);
    assert!(ended.of("failed").iter().all(|failed| failed["class"] == "tls"), "{ended:#?}");
    assert_eq!((one.log().len(), two.log().len()), (0, 0));
    let before = two.connections();
    let mut command = place.command(&["-i", &list]);
    command.env("SSL_CERT_FILE", &file);
    crate::Running::of(command.spawn().expect("it runs")).end().exits(0);
    for n in 0..20 {
        for (path, name) in
            [(format!("/one/a{n}"), format!("a{n}")), (format!("/two/b{n}"), format!("b{n}"))]
        {
            let found = std::fs::read(place.file(&name)).expect("there");
            assert!(found == paceline_mock::files::content(&path, 70_000), "{name}");
        }
    }
    assert_eq!((one.log().len(), two.log().len()), (20, 20));
    assert!(two.log().iter().all(|entry| entry.version == Version::Http2), "{:?}", two.log()[0]);
    assert!(two.connections() - before <= 4, "a few connections carry them all");
}

#[test]
fn secrets_reach_neither_the_robots_of_others_nor_the_hosts_of_an_earlier_run() {
    let (home, away, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    home.put("/a", Response::redirect(302, away.url("/b")));
    away.put("/b", File::of("b"));
    let secret = ["--header", "Authorization: Bearer s3cret", "--header", "Cookie: s3cret"];
    let mut arguments = vec!["--robots"];
    arguments.extend(secret);
    let url = home.url("/a");
    arguments.push(&url);
    place.fetch(&arguments).exits(0);
    for entry in away.log() {
        assert!(!format!("{:?}", entry.headers).contains("s3cret"), "{entry:?}");
    }
    away.generate("/left/*", 10);
    let list = place.list((0..3).map(|n| away.url(&format!("/left/{n}"))));
    place.fetch(&["-i", &list, "--every", "10s", "--deadline", "1s"]).exits(75);
    home.put("/c", File::of("c"));
    let url = home.url("/c");
    let mut arguments = vec![url.as_str()];
    arguments.extend(secret);
    place.fetch(&arguments).exits(0);
    assert_eq!(away.requests("/left/*"), 1);
    for entry in away.log() {
        assert!(!format!("{:?}", entry.headers).contains("s3cret"), "{entry:?}");
    }
    assert_eq!(home.log_of("/c")[0].header("cookie"), Some("s3cret"));
}

#[test]
fn codings_may_stand_on_several_lines_and_a_file_without_bytes_has_none() {
    let (server, place) = (Files::start(), Place::new());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"what it was before").expect("packed");
    let text = File::of(packed.finish().expect("packed")).header("content-encoding", "identity");
    server.put("/text", text.header("content-encoding", "gzip"));
    server.put("/empty", File::of("").header("content-encoding", "gzip"));
    place.fetch(&[&server.url("/text"), &server.url("/empty"), "--decode"]).exits(0);
    assert_eq!(std::fs::read(place.file("text")).expect("there"), b"what it was before");
    assert_eq!(std::fs::read(place.file("empty")).expect("there"), b"");
}
