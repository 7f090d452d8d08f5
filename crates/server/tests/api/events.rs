//! The event stream: durable numbers, clients that reconnect, clients that stall.

use std::time::Duration;

use paceline::Paceline;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::kit::{Daemon, Upstream, made, soon};

const ONE: &str = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"}}"#;

/// A client of the stream.
struct Client {
    stream: TcpStream,
    heard: String,
}

impl Client {
    async fn connect(daemon: &Daemon, after: Option<u64>) -> Client {
        let stream = TcpStream::connect(daemon.address).await.expect("it listens");
        Client::over(stream, daemon, after).await
    }

    async fn over(mut stream: TcpStream, daemon: &Daemon, after: Option<u64>) -> Client {
        let after = after.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let address = daemon.address;
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: {address}\r\n{after}\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        Client { stream, heard: String::new() }
    }

    /// Reads until this text comes, and returns all that was read.
    async fn until(&mut self, words: &str) -> &str {
        while !self.heard.contains(words) {
            let mut bytes = [0; 4096];
            let read = soon(self.stream.read(&mut bytes)).await.expect("it talks");
            assert!(read > 0, "the stream ended after: {}", self.heard);
            self.heard += &String::from_utf8_lossy(&bytes[..read]);
        }
        &self.heard
    }
}

/// The numbers of the events, in order.
fn ids(heard: &str) -> Vec<u64> {
    heard.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
}

#[tokio::test]
async fn events_are_sent_in_order_with_numbers_without_gaps() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let mut client = Client::connect(&daemon, None).await;
    assert!(client.until("event: ready").await.starts_with("HTTP/1.1 200 OK"));
    daemon.done(ONE).await;
    let heard = client.until("event: finished").await;
    assert_eq!(ids(heard), [0, 1, 2, 3, 4]);
    let events: Vec<&str> = heard
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .filter(|name| *name != "lane")
        .collect();
    assert_eq!(events, ["ready", "accepted", "started", "settled", "finished"]);
}

#[tokio::test]
async fn a_client_that_comes_back_gets_missed_events_once() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    daemon.done(ONE).await;
    let mut client = Client::connect(&daemon, Some(2)).await;
    client.until("event: finished").await;
    daemon.done(ONE).await;
    client.until("id: 8\n").await;
    assert_eq!(ids(&client.heard), [3, 4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn a_cursor_that_is_too_old_or_foreign_gets_a_resync() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    // Each job has four events; at least a hundred events are kept.
    let many = format!("[{}]", vec![ONE; 100].join(","));
    daemon.ask("POST", "/api/v1/jobs", &[("prefer", "wait=20")], &many).await;
    let mut old = Client::connect(&daemon, Some(1)).await;
    old.until("event: resync\ndata: {\"last\":400}").await;
    let mut elsewhere = Client::connect(&daemon, Some(1_000_000)).await;
    elsewhere.until("event: resync").await;
    // Both continue from here.
    daemon.done(ONE).await;
    for client in [&mut old, &mut elsewhere] {
        client.until("id: 404\n").await;
        assert_eq!(ids(&client.heard), [400, 401, 402, 403, 404]);
    }
}

#[tokio::test]
async fn numbers_go_on_where_they_were_after_a_restart() {
    let upstream = Upstream::kind().await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let start = || async {
        let mut made = made(upstream.address);
        made.builder = Paceline::open(&path).lane(paceline::Lane::new("shop")).keep_events(100);
        made.start().await
    };
    let daemon = start().await;
    daemon.done(ONE).await;
    daemon.pace.stop(Duration::ZERO).await.expect("it stops");
    drop(daemon);
    let daemon = start().await;
    let mut client = Client::connect(&daemon, Some(3)).await;
    client.until("id: 4\n").await;
    daemon.done(ONE).await;
    client.until("id: 8\n").await;
    assert_eq!(ids(&client.heard), [4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn gauges_have_no_numbers_and_come_at_most_twice_a_second() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let mut client = Client::connect(&daemon, None).await;
    client.until("event: ready").await;
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < Duration::from_millis(1_200) {
        daemon.done(ONE).await;
    }
    client.until("event: lane").await;
    let last = daemon.get("/api/v1/summary").await.json()["events"].clone();
    client.until(&format!("id: {last}\n")).await;
    let gauges = client.heard.matches("event: lane\ndata: {\"name\":\"shop\"").count();
    assert!((1..=4).contains(&gauges), "{gauges}");
    for block in client.heard.split("\n\n").filter(|block| block.contains("event: lane")) {
        assert!(!block.contains("id: "), "{block}");
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_is_dropped_and_delays_no_other() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.bounds.stalled = Duration::from_millis(300);
    made.builder = made.builder.settings(|settings| {
        settings.lane_waiting = std::num::NonZeroU32::new(20_000).expect("above zero");
    });
    let daemon = made.start().await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("a small buffer");
    let stream = socket.connect(daemon.address).await.expect("it listens");
    let mut stuck = Client::over(stream, &daemon, None).await;
    stuck.until("event: ready").await;
    let mut reader = Client::connect(&daemon, None).await;
    reader.until("event: ready").await;
    // Much more than all buffers on the way to the client that does not read.
    daemon.post("/api/v1/lanes/shop/pause", "").await;
    let many = format!("[{}]", vec![ONE; 5_000].join(","));
    for _ in 0..2 {
        assert_eq!(daemon.post("/api/v1/jobs", &many).await.status, 202);
    }
    for job in 1..=10_000 {
        daemon.pace.withdraw(paceline::JobId(job));
    }
    reader.until("id: 30000\n").await;
    // Bytes that were sent before are still read; then the stream ends, and a new one begins with a
    // resync.
    let read_on = async {
        let mut bytes = vec![0; 1 << 16];
        while stuck.stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    soon(read_on).await;
    let mut back = Client::connect(&daemon, Some(10)).await;
    back.until("event: resync").await;
}

#[tokio::test]
async fn a_client_that_goes_on_talking_is_not_listened_to() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let mut client = Client::connect(&daemon, None).await;
    client.until("event: ready").await;
    client.stream.write_all(&[b'x'; 1000]).await.expect("sent");
    let mut rest = Vec::new();
    let _ = soon(client.stream.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn a_stream_ends_when_the_access_rules_change() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    let mut client = Client::connect(&daemon, None).await;
    client.until("event: ready").await;
    daemon.server.set_access(paceline_server::Access::default());
    daemon.done(ONE).await;
    client.until("event: finished").await;
    let sha256 = [7; 32];
    let token = paceline_server::Token {
        name: "one".to_string(),
        sha256,
        role: paceline_apps::api::Role::Read,
    };
    daemon.server.set_access(paceline_server::Access { tokens: vec![token], hosts: Vec::new() });
    let mut rest = Vec::new();
    soon(client.stream.read_to_end(&mut rest)).await.expect("it ends");
    assert_eq!(daemon.get("/api/v1/events").await.status, 401, "and it is not let in again");
}
