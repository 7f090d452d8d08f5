//! The file server over real sockets, tested by a client that reads raw bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::Duration;

use paceline_core::Span;
use paceline_mock::files::{
    After, Ending, Fault, File, Files, Framing, OnConnect, Response, WAIT_TIMEOUT, content,
};
use paceline_mock::{Limit, Violation};

const MONDAY: &str = "Mon, 01 Jan 2024 00:00:00 GMT";

/// A connection that is used for one request after another.
struct Client(TcpStream);

impl Client {
    fn of(server: &Files) -> Client {
        let stream = TcpStream::connect(server.addr()).expect("listening");
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a span above zero");
        Client(stream)
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("open");
    }

    fn ask(&mut self, path: &str, headers: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n"));
    }

    /// Reads one head byte by byte, so that nothing behind it is consumed.
    fn head(&mut self) -> String {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).expect("a whole head");
            head.push(byte[0]);
        }
        head.into_iter().map(char::from).collect()
    }

    fn get(&mut self, path: &str, headers: &str) -> (String, Vec<u8>) {
        self.ask(path, headers);
        let head = self.head();
        let length = header(&head, "content-length").map_or(0, |n| n.parse().expect("a number"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a whole body");
        (head, body)
    }

    /// Reads until the connection ends, and returns how it ended.
    fn rest(&mut self) -> (String, Option<ErrorKind>) {
        let mut bytes = Vec::new();
        let end = self.0.read_to_end(&mut bytes).err().map(|error| error.kind());
        (bytes.into_iter().map(char::from).collect(), end)
    }

    #[track_caller]
    fn receives_nothing(&mut self) {
        self.0.set_read_timeout(Some(Duration::from_millis(50))).expect("a span above zero");
        let end = self.0.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::WouldBlock));
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).expect("a status").parse().expect("a number")
}

/// Requests `/a` on a new connection and reads to its end.
fn rest_of(server: &Files) -> (String, Option<ErrorKind>) {
    let mut client = Client::of(server);
    client.ask("/a", "");
    client.rest()
}

fn with_file() -> Files {
    let server = Files::start();
    server.put("/a", File::of("0123456789").etag("\"v1\"").last_modified(MONDAY));
    server
}

#[track_caller]
fn check(server: &Files, headers: &str, expected: u16, range: Option<&str>, body: &str) {
    let (head, got) = Client::of(server).get("/a", headers);
    assert_eq!(status(&head), expected);
    assert_eq!(header(&head, "content-range"), range);
    assert_eq!(String::from_utf8_lossy(&got), body);
}

#[test]
fn files_are_sent_whole_in_part_or_not_at_all() {
    let server = with_file();
    check(&server, "", 200, None, "0123456789");
    check(&server, "range: bytes=3-5\r\n", 206, Some("bytes 3-5/10"), "345");
    check(&server, "range: bytes=10-\r\n", 416, Some("bytes */10"), "");
    check(&server, "range: bytes=3-5\r\nif-range: \"v0\"\r\n", 200, None, "0123456789");
    check(&server, "if-none-match: \"v1\"\r\n", 304, None, "");
    check(&server, "if-match: \"v0\"\r\n", 412, None, "");
    server.put("/a", File::of("new").without_ranges());
    check(&server, "range: bytes=3-5\r\n", 200, None, "new");
    server.remove("/a");
    check(&server, "", 404, None, "nothing here\n");
}

#[test]
fn heads_describe_the_file() {
    let server = with_file();
    let mut client = Client::of(&server);
    let (head, _) = client.get("/a", "");
    for (name, value) in [
        ("accept-ranges", "bytes"),
        ("etag", "\"v1\""),
        ("last-modified", MONDAY),
        ("content-length", "10"),
    ] {
        assert_eq!(header(&head, name), Some(value));
    }
    assert!(header(&head, "date").is_some());
    client.send("HEAD /a HTTP/1.1\r\nhost: x\r\n\r\nPOST /a HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(header(&client.head(), "content-length"), Some("10"));
    assert_eq!(status(&client.head()), 405);
    server
        .put("/bare", File::of("").header("content-disposition", b"attachment; filename=\xff\x01"));
    let (head, _) = client.get("/bare", "");
    assert_eq!((header(&head, "etag"), header(&head, "last-modified")), (None, None));
    assert_eq!(header(&head, "content-disposition"), Some("attachment; filename=\u{ff}\u{1}"));
}

#[test]
fn one_connection_carries_many_requests_and_the_log_has_each() {
    let server = with_file();
    server.generate("/f/*", 4096);
    let mut client = Client::of(&server);
    assert_eq!(client.get("/f/1?page=2", "").1, content("/f/1", 4096));
    assert_eq!(client.get("/f/2", "range: bytes=4000-\r\n").1, content("/f/2", 4096)[4000..]);
    client.get("/a", "user-agent: me\r\nconnection: close\r\n");
    assert_eq!(client.rest(), (String::new(), None));
    let mut old = Client::of(&server);
    old.send("GET /a HTTP/1.0\r\n\r\n");
    assert!(old.rest().0.ends_with("connection: close\r\n\r\n0123456789"));

    let log = server.log();
    let logged: Vec<_> =
        log.iter().map(|e| (e.path.as_str(), e.connection, e.sent_bytes)).collect();
    assert_eq!(logged, [("/f/1?page=2", 1, 4096), ("/f/2", 1, 96), ("/a", 1, 10), ("/a", 2, 10)]);
    assert_eq!(log[2].header("user-agent"), Some("me"));
    assert_eq!((log[1].status, log[1].in_flight), (Some(206), 1));
    assert!(log.iter().all(|entry| entry.ended_at >= Some(entry.at)));
    assert_eq!((server.requests("/f/*"), server.connections()), (2, 2));
    assert_eq!(server.most_in_flight(), 1);
    let gap = Limit::Gap(Span::mins(1));
    assert_eq!(server.violations(gap, Span::ZERO).len(), 3);
}

#[test]
fn requests_beyond_the_limit_on_open_ones_are_refused() {
    let server = with_file();
    server.on("*", Fault::AtMost { in_flight: 1, retry_after: Some(7) });
    server.on("/hung", Fault::Hang);
    let mut hung = Client::of(&server);
    hung.ask("/hung", "");
    server.wait_until(|log| log.len() == 1);
    let mut client = Client::of(&server);
    let (head, _) = client.get("/a", "");
    assert_eq!((status(&head), header(&head, "retry-after")), (429, Some("7")));
    let limit = Limit::InFlight(NonZeroU32::MIN);
    let broken = Violation::InFlight { request: 1, open: 2 };
    assert_eq!(server.violations(limit, Span::ZERO), [broken]);
    drop(hung);
    server.wait_until(|log| log[0].ended_at.is_some());
    // A response that has been read has ended, so the next request has room on any connection.
    let mut other = Client::of(&server);
    for _ in 0..100 {
        assert_eq!(status(&client.get("/a", "").0), 200);
        assert_eq!(status(&other.get("/a", "").0), 200);
        assert!(server.log().iter().all(|entry| entry.ended_at.is_some()));
    }
}

#[test]
fn rules_that_run_out_are_a_script() {
    let server = with_file();
    server.generate("/f/*", 3);
    server.on("*", Fault::Respond(Response::status(503).retry_after("1")).first(1));
    server.on("*", Fault::Respond(Response::status(500)).first(2));
    server.on("*", Fault::AddHeader("x-always", b"yes".to_vec()));
    let mut client = Client::of(&server);
    for (path, expected) in
        [("/a", 503), ("/f/1", 503), ("/a", 500), ("/a", 500), ("/f/1", 500), ("/a", 200)]
    {
        let (head, _) = client.get(path, "");
        assert_eq!(status(&head), expected);
        assert_eq!(header(&head, "retry-after").is_some(), expected == 503);
        assert_eq!(header(&head, "x-always"), Some("yes"));
    }
    server.heal("*");
    assert_eq!(header(&client.get("/f/2", "").0, "x-always"), None);
}

#[test]
fn connections_without_a_response() {
    let server = with_file();
    server.on("/a", Fault::Close.first(1));
    server.on("/a", Fault::Reset.first(1));
    server.on("/a", Fault::Raw(b"SSH-2.0-what\r\n".to_vec()).first(1));
    assert_eq!(rest_of(&server), (String::new(), None));
    assert_eq!(rest_of(&server), (String::new(), Some(ErrorKind::ConnectionReset)));
    assert_eq!(rest_of(&server), ("SSH-2.0-what\r\n".to_string(), None));

    server.on_connect(OnConnect::Close);
    assert_eq!(Client::of(&server).rest(), (String::new(), None));
    server.on_connect(OnConnect::Reset);
    assert_eq!(Client::of(&server).rest(), (String::new(), Some(ErrorKind::ConnectionReset)));
    server.on_connect(OnConnect::Silence);
    let mut client = Client::of(&server);
    client.ask("/a", "");
    client.receives_nothing();
    server.on_connect(OnConnect::Serve);
    check(&server, "", 200, None, "0123456789");
}

#[test]
fn bodies_that_are_cut() {
    let server = with_file();
    server.on("/a", Fault::Cut(4, Ending::Close).first(1));
    server.on("/a", Fault::Cut(4, Ending::Reset).first(1));
    server.on("/a", Fault::Cut(99, Ending::Close).and(Fault::Framing(Framing::Chunked)).first(1));
    server.on("/a", Fault::Cut(4, Ending::Stall).first(1));
    for (body, end) in [
        ("content-length: 10|0123", None),
        ("content-length: 10|0123", Some(ErrorKind::ConnectionReset)),
        ("transfer-encoding: chunked|a\r\n0123456789\r\n", None),
    ] {
        let (line, body) = body.split_once('|').expect("two parts");
        let (text, ended) = rest_of(&server);
        assert!(text.contains(line) && text.ends_with(&format!("\r\n\r\n{body}")), "{text}");
        assert_eq!(ended, end);
    }
    let mut client = Client::of(&server);
    client.ask("/a", "");
    client.head();
    client.0.read_exact(&mut [0; 4]).expect("four bytes");
    client.receives_nothing();
    drop(client);
    server.wait_until(|log| log.iter().all(|entry| entry.ended_at.is_some()));
    assert_eq!(server.log().iter().map(|e| e.sent_bytes).collect::<Vec<_>>(), [4, 4, 10, 4]);
}

#[test]
fn bodies_that_are_framed_in_other_ways() {
    let server = with_file();
    server.put("/a", File::of("0123456789").framing(Framing::Chunked));
    let mut client = Client::of(&server);
    client.ask("/a", "connection: close\r\n");
    assert!(client.rest().0.ends_with("\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"));
    server.put("/a", File::of("0123456789").framing(Framing::UntilClose));
    let (text, _) = rest_of(&server);
    assert!(text.ends_with("connection: close\r\n\r\n0123456789"));
    assert!(!text.contains("content-length"));
    server.put("/a", File::of("0123456789"));
    server.on("/a", Fault::Beyond(3));
    let mut client = Client::of(&server);
    client.ask("/a", "connection: close\r\n");
    let text = client.rest().0;
    assert!(text.contains("content-length: 10") && text.ends_with("\r\n\r\n0123456789!!!"));
}

#[test]
fn responses_with_false_headers() {
    let server = with_file();
    server.on("/a", Fault::Header("content-range", b"bytes 5-7/10".to_vec()).first(1));
    server.on("/a", Fault::Part(0, 1).first(1));
    server.on("/a", Fault::Ignore("if-range").first(1));
    server.on("/a", Fault::Ignore("range").first(1));
    server.on("/a", Fault::WithoutHeader("etag").first(1));
    check(&server, "range: bytes=3-5\r\n", 206, Some("bytes 5-7/10"), "345");
    check(&server, "range: bytes=3-5\r\n", 206, Some("bytes 0-1/10"), "01");
    let other = "range: bytes=3-5\r\nif-range: \"v0\"\r\n";
    check(&server, other, 206, Some("bytes 3-5/10"), "345");
    check(&server, "range: bytes=3-5\r\n", 200, None, "0123456789");
    assert_eq!(header(&Client::of(&server).get("/a", "").0, "etag"), None);
}

#[test]
fn responses_without_end() {
    let server = with_file();
    server.on("/a", Fault::EndlessHeaders.first(1));
    server.on("/a", Fault::EndlessBody(Framing::Chunked).first(1));
    server.on("/a", Fault::EndlessBody(Framing::UntilClose).first(1));
    server.on("/a", Fault::EndlessBody(Framing::Length).first(1));
    for told in ["x-0: endless", "transfer-encoding", "connection: close", "18446744073709551615"] {
        let mut client = Client::of(&server);
        client.ask("/a", "");
        let mut bytes = vec![0; 3 << 20];
        client.0.read_exact(&mut bytes).expect("no end");
        assert!(String::from_utf8_lossy(&bytes[..1_000]).contains(told));
    }
    server.wait_until(|log| log.iter().all(|entry| entry.ended_at.is_some()));
    check(&server, "", 200, None, "0123456789");
}

#[test]
fn heads_of_excessive_size() {
    let server = with_file();
    server.on("/a", Fault::LongHeader(1 << 20).first(1));
    server.on("/a", Fault::ManyHeaders(10_000).first(1));
    server.on("/a", Fault::Before(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()).first(1));
    let mut client = Client::of(&server);
    assert_eq!(header(&client.get("/a", "").0, "x-long").map(str::len), Some(1 << 20));
    assert!(client.get("/a", "").0.lines().count() > 10_000);
    client.ask("/a", "");
    assert_eq!(status(&client.head()), 103);
    assert_eq!(status(&client.head()), 200);
}

#[test]
fn slow_responses_take_their_time() {
    let server = Files::start();
    server.generate("/f/*", 1_000);
    let slow = Fault::SlowBody(10_000).and(Fault::SlowHead(2_000));
    server.on("*", slow.and(Fault::Latency(Duration::from_millis(50))));
    let (head, body) = Client::of(&server).get("/f/1", "");
    assert_eq!(body, content("/f/1", 1_000));
    let entry = &server.log()[0];
    let took = entry.ended_at.expect("over").since(entry.at);
    // The last piece of a body waits for nothing after it.
    let least = 50 + head.len() as u64 / 2 + 70;
    assert!(took >= Span::millis(least) && took < Span::secs(10), "{took} of {least} ms");
}

#[test]
fn a_file_changes_under_the_client() {
    let server = with_file();
    server.then("/a", After::Requests(2), File::of("second"));
    server.then("/a", After::Bytes(9), File::of("third").etag("\"v3\""));
    let mut client = Client::of(&server);
    let bodies: Vec<String> =
        (0..5).map(|_| String::from_utf8(client.get("/a", "").1).expect("text")).collect();
    assert_eq!(bodies, ["0123456789", "0123456789", "second", "second", "third"]);
}

#[test]
fn redirects_lead_on_or_around() {
    let (server, other) = (with_file(), Files::start_on("127.0.0.2"));
    server.chain("/r", 3, &other.url("/b"));
    server.chain("/loop", 2, "/loop");
    server.put("/rel", Response::redirect(308, "../x y"));
    let mut client = Client::of(&server);
    let b = other.url("/b");
    for (path, to) in [
        ("/r", "/r/1"),
        ("/r/1", "/r/2"),
        ("/r/2", b.as_str()),
        ("/loop", "/loop/1"),
        ("/loop/1", "/loop"),
        ("/rel", "../x y"),
    ] {
        assert_eq!(header(&client.get(path, "").0, "location"), Some(to));
    }
    assert!(b.starts_with("http://127.0.0.2:"));
}

#[test]
fn malformed_requests_are_answered_and_not_logged() {
    let server = with_file();
    for malformed in ["what is this\r\n\r\n", "GET /a HTTP/1.1\r\n\r\n"] {
        let mut client = Client::of(&server);
        client.send(malformed);
        assert_eq!(status(&client.rest().0), 400);
    }
    let mut client = Client::of(&server);
    client.send("POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!(status(&client.head()), 405);
    client.send("POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n");
    assert_eq!(status(&client.head()), 413);
    assert_eq!(server.log().len(), 1);
}

#[test]
fn a_dropped_server_frees_its_port() {
    let server = with_file();
    let addr = server.addr();
    let mut client = Client::of(&server);
    client.get("/a", "");
    drop(server);
    let refused = TcpStream::connect(addr).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
    assert_eq!(client.rest().0, "");
    let server = Files::start_at(addr).expect("the port is free");
    check(&server, "", 404, None, "nothing here\n");
}
