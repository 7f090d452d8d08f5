//! Bad input: each kind gets its status, and no other request is lost or delayed.

use std::time::Duration;

use paceline_apps::api::Role;
use paceline_server::{Access, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::{Upstream, made, soon};

const ONE: &str = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"}}"#;

#[tokio::test]
async fn malformed_bodies_are_refused_with_line_and_column() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("nonsense", 400),
        ("\u{0}", 400),
        ("[{\"kind\":\"http\"},", 400),
        ("3", 422),
        ("{}", 422),
        ("[3]", 422),
        (r#"{"kind":"http"}"#, 422),
        (r#"{"kind":"http","lanes":[]}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"stages":[["shop"]]}"#, 422),
        (r#"{"kind":"http","lanes":["shop","shop"],"payload":{"path":"/"}}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"},"attempts":0}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"},"attempts":70000}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"},"colour":"red"}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"},"priority":"mine"}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/"},"deadline":"999999999h"}"#, 422),
        (r#"{"kind":"http","lanes":["shop"],"payload":{"url":"http://127.0.0.1:1/"}}"#, 422),
        (
            r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/","headers":{"host":"evil"}}}"#,
            422,
        ),
    ] {
        let answer = daemon.post("/api/v1/jobs", body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(!answer.reason().is_empty());
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(daemon.post("/api/v1/jobs", &deep).await.status, 422);
    let payload = format!(r#"{{"kind":"http","lanes":["shop"],"payload":{deep}}}"#);
    assert_eq!(daemon.post("/api/v1/jobs", &payload).await.status, 422);
    assert_eq!(daemon.get("/api/v1/summary").await.json()["accepted"], 0);
}

#[tokio::test]
async fn wrong_type_size_and_missing_bodies_have_statuses_of_their_own() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.terms.max_body = 10_000;
    let daemon = made.start().await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(daemon.ask("POST", "/api/v1/jobs", &form, ONE).await.reason(), "not_json");
    let large = daemon.post("/api/v1/jobs", &" ".repeat(10_001)).await;
    assert_eq!((large.status, &*large.reason()), (413, "too_large"));
    for path in
        ["/", "/api/v1", "/api/v1/", "/api/v1/none", "/api/v1/jobs/", "/api/v2/jobs", "/to", "/%ff"]
    {
        assert_eq!(daemon.get(path).await.status, 404, "{path}");
    }
    for path in [
        "/api/v1/jobs/x",
        "/api/v1/jobs/-1",
        "/api/v1/jobs/99999999999999999999",
        "/api/v1/jobs/1.5",
    ] {
        assert_eq!(daemon.get(path).await.status, 400, "{path}");
    }
    for (method, path) in
        [("DELETE", "/api/v1/jobs"), ("PUT", "/api/v1/jobs/1"), ("POST", "/livez")]
    {
        assert_eq!(daemon.ask(method, path, &[], "").await.reason(), "method", "{method} {path}");
    }
    let last = daemon.ask("GET", "/api/v1/events", &[("last-event-id", "x")], "").await;
    assert_eq!(last.status, 400);
}

#[tokio::test]
async fn bytes_that_are_no_request_end_their_connection() {
    let upstream = Upstream::kind().await;
    let daemon = made(upstream.address).start().await;
    assert_eq!(daemon.send(b"nonsense\r\n\r\n").await.status, 400);
    let mut long = b"GET / HTTP/1.1\r\nhost: localhost\r\n".to_vec();
    long.extend_from_slice(format!("x: {}\r\n\r\n", "y".repeat(64 << 10)).as_bytes());
    assert_eq!(daemon.send(&long).await.status, 431);
    let many = "x-many: y\r\n".repeat(200);
    let many = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{many}\r\n");
    assert_eq!(daemon.send(many.as_bytes()).await.status, 431);
    assert_eq!(daemon.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_slow_client_is_disconnected_and_delays_no_other() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    made.bounds.head_within = Duration::from_millis(200);
    made.bounds.connections = 3;
    let daemon = made.start().await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(daemon.address).await.expect("it listens");
        stream.write_all(b"GET /livez HTT").await.expect("sent");
        slow.push(stream);
    }
    // At the limit of connections, the next one is closed at once.
    let mut fourth = TcpStream::connect(daemon.address).await.expect("it listens");
    let mut heard = Vec::new();
    let _ = soon(fourth.read_to_end(&mut heard)).await;
    assert_eq!(heard, b"");
    for stream in &mut slow {
        let mut heard = Vec::new();
        let _ = soon(stream.read_to_end(&mut heard)).await;
    }
    assert_eq!(daemon.get("/livez").await.status, 200);
}

#[tokio::test]
async fn tokens_names_and_sites_are_checked_on_every_path() {
    let upstream = Upstream::kind().await;
    let mut made = made(upstream.address);
    let sha256 = |token: &str| {
        let hex = paceline_server::digest(token);
        let bytes: Vec<u8> = (0..64)
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
            .collect();
        bytes.try_into().expect("32 bytes")
    };
    let token = |name: &str, role| Token { name: name.to_string(), sha256: sha256(name), role };
    made.terms.access = Access {
        tokens: vec![token("reader", Role::Read), token("worker", Role::Operate)],
        hosts: Vec::new(),
    };
    let daemon = made.start().await;
    for path in ["/api/v1/jobs", "/metrics", "/to/shop/", "/api/v1/events", "/none"] {
        let answer = daemon.get(path).await;
        assert_eq!(
            (answer.status, &*answer.headers["www-authenticate"]),
            (401, "Bearer"),
            "{path}"
        );
        let wrong = daemon.ask("GET", path, &[("authorization", "Bearer unknown")], "").await;
        assert_eq!(wrong.reason(), "token", "{path}");
        let host = [("host", "evil.example"), ("authorization", "Bearer reader")];
        assert_eq!(daemon.ask("GET", path, &host, "").await.reason(), "host", "{path}");
        let site = [("origin", "http://evil.example"), ("authorization", "Bearer reader")];
        assert_eq!(daemon.ask("GET", path, &site, "").await.reason(), "cross_site", "{path}");
    }
    for probe in ["/livez", "/readyz"] {
        assert_eq!(daemon.get(probe).await.status, 200, "{probe}");
        let host = [("host", "evil.example")];
        assert_eq!(daemon.ask("GET", probe, &host, "").await.reason(), "host", "{probe}");
    }
    let reader = [("authorization", "Bearer reader")];
    assert_eq!(daemon.ask("GET", "/api/v1/jobs", &reader, "").await.status, 200);
    assert_eq!(daemon.ask("POST", "/api/v1/jobs", &reader, ONE).await.reason(), "role");
    let worker = [("paceline-token", "worker"), ("authorization", "Bearer upstream")];
    assert_eq!(daemon.ask("GET", "/to/shop/", &worker, "").await.status, 200);
    let seen = upstream.seen().remove(0);
    assert!(seen.contains("authorization: Bearer upstream"), "{seen}");
    assert!(!seen.contains("worker"), "the daemon's token is not forwarded: {seen}");
    let basic = [("authorization", "Basic d29ya2VyOg==")];
    assert_eq!(daemon.ask("GET", "/to/shop/", &basic, "").await.status, 200);
    assert!(!upstream.seen()[1].to_ascii_lowercase().contains("authorization"), "nor in this form");
}
