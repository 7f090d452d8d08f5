//! The relay: requests of programs that cannot be changed, at the pace of their lane.

use std::sync::atomic::Ordering;
use std::time::Duration;

use paceline::Lane;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{Upstream, made, reply, soon};

#[tokio::test]
async fn a_request_goes_through_with_its_method_path_headers_and_body() {
    let upstream =
        Upstream::start(|_| reply("201 Created", "x-mine: 1\r\nset-cookie: a=b\r\n", "made")).await;
    let daemon = made(upstream.address).start().await;
    let headers =
        [("authorization", "Bearer upstream"), ("x-a", "b"), ("paceline-priority", "interactive")];
    let answer = daemon.ask("PATCH", "/to/shop/a%20b/c?d=e%2F", &headers, "{\"n\":1}").await;
    assert_eq!((answer.status, &*answer.text), (201, "made"));
    assert_eq!((&*answer.headers["x-mine"], &*answer.headers["set-cookie"]), ("1", "a=b"));
    assert!(answer.headers["server-timing"].starts_with("queue;dur="), "{answer:?}");
    let seen = upstream.seen().remove(0);
    assert!(seen.starts_with("PATCH /a%20b/c?d=e%2F HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("authorization: Bearer upstream\r\n") && seen.contains("x-a: b\r\n"));
    assert!(seen.contains(&format!("host: {}\r\n", upstream.address)));
    assert!(seen.ends_with("\r\n\r\n{\"n\":1}"), "{seen}");
    assert!(!seen.to_ascii_lowercase().contains("paceline-priority"), "{seen}");
}

#[tokio::test]
async fn l1_relayed_requests_keep_the_limits_of_their_lane() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    let endpoint = made.endpoints["shop"].clone();
    made.endpoints.insert("slow".to_string(), endpoint);
    made.builder = made.builder.lane(Lane::new("slow").in_flight(2));
    let daemon = made.start().await;
    let all = (0..20).map(|_| daemon.get("/to/slow/x"));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(upstream.most_at_once.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn it_decides_on_arrival_whether_the_wait_fits_the_budget() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    let endpoint = made.endpoints["shop"].clone();
    made.endpoints.insert("slow".to_string(), endpoint);
    made.builder = made.builder.lane(Lane::new("slow").every("2s").in_flight(9));
    let daemon = made.start().await;
    assert_eq!(daemon.get("/to/slow/1").await.status, 200);
    let begin = tokio::time::Instant::now();
    let refused = daemon.ask("GET", "/to/slow/2", &[("paceline-max-wait", "500ms")], "").await;
    assert!(begin.elapsed() < Duration::from_millis(400), "at once");
    assert_eq!((refused.status, &*refused.reason()), (429, "start_within"));
    assert!(refused.headers["retry-after"].parse::<u64>().expect("seconds") <= 2);
    assert_eq!(daemon.get("/to/slow/3").await.status, 200, "the usual budget is 30 s");
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test]
async fn w1_a_request_to_a_paused_lane_is_refused_at_once_and_names_the_remedy() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.post("/api/v1/lanes/shop/pause", "{}").await;
    daemon.get("/to/shop/1").await.assert_paused("shop");
    let patient = daemon.ask("POST", "/to/shop/2", &[("paceline-max-wait", "10m")], "{}").await;
    patient.assert_paused("shop");
    daemon.post("/api/v1/lanes/shop/resume", "{}").await;
    assert_eq!(daemon.get("/to/shop/3").await.status, 200);
    assert_eq!(upstream.seen().len(), 1, "nothing was sent while it was paused");
}

#[tokio::test]
async fn w1_a_request_whose_lane_is_paused_while_it_waits_is_refused_for_the_pause() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    let endpoint = made.endpoints["shop"].clone();
    made.endpoints.insert("one".to_string(), endpoint);
    made.builder = made.builder.lane(Lane::new("one"));
    let daemon = made.start().await;
    assert_eq!(daemon.post("/api/v1/lanes/one/permits", "{}").await.status, 201);
    let waiting = daemon.ask("GET", "/to/one/", &[("paceline-max-wait", "2s")], "");
    let paused = async {
        while daemon.get("/api/v1/lanes/one").await.json()["waiting"] != 1 {}
        daemon.post("/api/v1/lanes/one/pause", "{}").await
    };
    let (answer, _) = soon(futures_util::future::join(waiting, paused)).await;
    answer.assert_paused("one");
    assert!(upstream.seen().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn l6_a_refusal_is_forwarded_and_closes_the_lane() {
    let upstream =
        Upstream::start(|_| reply("429 Too Many Requests", "retry-after: 30\r\n", "no")).await;
    let daemon = made(upstream.address).start().await;
    let answer = daemon.get("/to/shop/").await;
    assert_eq!((answer.status, &*answer.text, &*answer.headers["retry-after"]), (429, "no", "30"));
    let lane = async {
        while daemon.get("/api/v1/lanes/shop").await.json()["why_closed"] != "cooldown" {}
    };
    soon(lane).await;
    let next = daemon.ask("GET", "/to/shop/", &[("paceline-max-wait", "1s")], "").await;
    assert_eq!((next.status, &*next.reason(), upstream.seen().len()), (429, "start_within", 1));
}

#[tokio::test]
async fn it_is_no_open_proxy() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    assert_eq!(daemon.get("/to/none/x").await.reason(), "unknown_lane");
    assert_eq!(daemon.get("/to/bare/x").await.reason(), "unknown_lane", "a lane without a url");
    assert_eq!(daemon.get("/to/shop/http://evil.example/").await.status, 200);
    assert!(
        upstream.seen()[0].starts_with("GET /http://evil.example/ "),
        "below the url of its lane"
    );
    assert_eq!(daemon.ask("TRACE", "/to/shop/", &[], "").await.status, 405, "no echo of secrets");
    let wrong = daemon.ask("GET", "/to/shop/", &[("paceline-priority", "mine")], "").await;
    assert_eq!(wrong.status, 422);
    let wrong = daemon.ask("GET", "/to/shop/", &[("paceline-max-wait", "1y")], "").await;
    assert_eq!(wrong.status, 422);
}

#[tokio::test]
async fn an_upstream_that_does_not_respond_is_502_or_504() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut made = made(address);
    if let Some(place) = made.endpoints.get_mut("shop") {
        place.timeout = Some(Duration::from_millis(200));
    }
    let daemon = made.start().await;
    let silent = daemon.get("/to/shop/").await;
    assert_eq!((silent.status, &*silent.reason()), (504, "timeout"));
    drop(listener);
    let refused = daemon.get("/to/shop/").await;
    assert_eq!((refused.status, &*refused.reason()), (502, "failed"));
}

/// An upstream that the test controls: one connection, byte by byte.
async fn by_hand() -> (TcpListener, crate::kit::Daemon) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let daemon = made(listener.local_addr().expect("bound")).start().await;
    (listener, daemon)
}

async fn read_until(stream: &mut TcpStream, words: &str) -> String {
    let mut heard = String::new();
    while !heard.contains(words) {
        let mut bytes = [0; 4096];
        let read = soon(stream.read(&mut bytes)).await.expect("it talks");
        assert!(read > 0, "it ended after: {heard}");
        heard += &String::from_utf8_lossy(&bytes[..read]);
    }
    heard
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let (listener, daemon) = by_hand().await;
    let mut client = TcpStream::connect(daemon.address).await.expect("it listens");
    let head = format!(
        "POST /to/shop/up HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        daemon.address
    );
    client.write_all(head.as_bytes()).await.expect("sent");
    client.write_all(b"5\r\nfirst\r\n").await.expect("sent");
    let (mut upstream, _) = soon(listener.accept()).await.expect("a visit");
    // The first piece arrives before the client has sent the second.
    read_until(&mut upstream, "first").await;
    client.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.expect("sent");
    read_until(&mut upstream, "second").await;
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
    upstream.write_all(head).await.expect("sent");
    read_until(&mut client, "one").await;
    upstream.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.expect("sent");
    read_until(&mut client, "two").await;
}

#[tokio::test]
async fn l5_a_client_that_leaves_ends_the_request_and_frees_the_slot() {
    let (listener, daemon) = by_hand().await;
    let mut client = TcpStream::connect(daemon.address).await.expect("it listens");
    let head = format!("GET /to/shop/slow HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    client.write_all(head.as_bytes()).await.expect("sent");
    let (mut upstream, _) = soon(listener.accept()).await.expect("a visit");
    read_until(&mut upstream, "\r\n\r\n").await;
    drop(client);
    let mut rest = Vec::new();
    let _ = soon(upstream.read_to_end(&mut rest)).await;
    let free = async { while daemon.get("/api/v1/lanes/shop").await.json()["in_flight"] != 0 {} };
    soon(free).await;
    // Cancelled by its route, or failed by its worker for lack of a client, whichever comes first.
    let job = daemon.get("/api/v1/jobs/1").await.json();
    let gone = job["state"] == "cancelled" || job["calls"][0]["class"] == "gone";
    assert!(gone, "{job}");
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_is_noticed_after_any_part_of_its_body() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    let endpoint = made.endpoints["shop"].clone();
    made.endpoints.insert("one".to_string(), endpoint);
    made.builder = made.builder.lane(Lane::new("one"));
    let daemon = made.start().await;
    let held = daemon.post("/api/v1/lanes/one/permits", "{}").await.json()["permit"].clone();
    let waiting = async |wanted: u64| {
        while daemon.get("/api/v1/lanes/one").await.json()["waiting"] != wanted {}
    };
    // Nothing, a part, all of it.
    for body in ["", "half", "all of it."] {
        let mut client = TcpStream::connect(daemon.address).await.expect("it listens");
        let head = format!(
            "POST /to/one/ HTTP/1.1\r\nhost: {}\r\ncontent-length: 10\r\n\r\n{body}",
            daemon.address
        );
        client.write_all(head.as_bytes()).await.expect("sent");
        soon(waiting(1)).await;
        drop(client);
        soon(waiting(0)).await;
    }
    daemon.post(&format!("/api/v1/permits/{held}/settle"), "{}").await;
    let answer = daemon.ask("POST", "/to/one/", &[], "0123456789").await;
    assert_eq!(answer.status, 200);
    let seen = upstream.seen();
    assert_eq!(seen.len(), 1, "nothing was sent for those who had left");
    assert!(seen[0].contains("content-length: 10\r\n"), "{}", seen[0]);
}

#[tokio::test]
async fn a_redirect_below_the_url_of_the_lane_leads_through_the_relay_again() {
    let check = async |location: &'static str, expected: &str| {
        let head = format!("location: {location}\r\n");
        let upstream = Upstream::start(move |_| reply("302 Found", &head, "")).await;
        let mut made = made(upstream.address);
        if let Some(place) = made.endpoints.get_mut("shop") {
            place.url = Some(format!("http://{}/api/", upstream.address).parse().expect("a url"));
        }
        let daemon = made.start().await;
        let answer = daemon.get("/to/shop/v1/a").await;
        let expected = expected.replace("HOST", &upstream.address.to_string());
        assert_eq!((answer.status, &*answer.headers["location"]), (302, &*expected), "{location}");
    };
    check("b?c=d", "/to/shop/v1/b?c=d").await;
    check("/api/v2#e", "/to/shop/v2#e").await;
    check("/login", "http://HOST/login").await;
    check("../../out", "http://HOST/out").await;
    check("https://elsewhere.example/x", "https://elsewhere.example/x").await;
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_cut_off_for_the_client_too() {
    let (listener, daemon) = by_hand().await;
    let mut client = TcpStream::connect(daemon.address).await.expect("it listens");
    let head = format!("GET /to/shop/ HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    client.write_all(head.as_bytes()).await.expect("sent");
    let (mut upstream, _) = soon(listener.accept()).await.expect("a visit");
    read_until(&mut upstream, "\r\n\r\n").await;
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    upstream.write_all(half).await.expect("sent");
    let heard = read_until(&mut client, "half").await;
    assert!(heard.contains("content-length: 100\r\n"), "{heard}");
    drop(upstream);
    let mut rest = Vec::new();
    let _ = soon(client.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "the end of the connection, and not of the answer: {rest:?}");
}
