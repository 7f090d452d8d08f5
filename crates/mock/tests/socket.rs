//! The mock upstream over real sockets, tested by an independent client.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use paceline_core::Span;
use paceline_mock::{Behaviour, LARGEST_BODY, Mock, Preset};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(addr: SocketAddr) -> Client {
        Client(BufReader::new(TcpStream::connect(addr).await.expect("listening")))
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("open");
    }

    async fn get(&mut self, path: &str) -> (String, String) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await;
        self.response().await
    }

    async fn response(&mut self) -> (String, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).await.expect("open") > 0, "cut off after {head}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |n| n.parse().expect("a number"))];
        self.0.read_exact(&mut body).await.expect("a whole body");
        (head, String::from_utf8(body).expect("text"))
    }
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).expect("a status")
}

#[tokio::test]
async fn requests_beyond_the_window_are_refused_and_counted() {
    let limits = vec!["2/h".parse().expect("a rate")];
    let retry_after = Some(Span::millis(1_500));
    let behaviour = Behaviour { limits, retry_after, ..Behaviour::default() };
    let mock = Mock::start(behaviour).await.expect("a free port");
    let mut client = Client::connect(mock.addr()).await;
    for expected in ["200", "200", "429"] {
        let (head, _) = client.get("/x?apikey=secret").await;
        assert_eq!(status(&head), expected);
        assert_eq!(head.contains("retry-after: 2\r\n"), expected == "429");
    }
    let (_, log) = client.get("/-/log").await;
    assert_eq!(log.lines().count(), 3);
    assert!(log.contains(r#""path":"/x","status":429,"in_flight":1}"#) && !log.contains("secret"));
    let (_, summary) = client.get("/-/summary?tolerance_ms=5").await;
    assert!(summary.starts_with(r#"{"calls":3,"by_status":{"200":2,"429":1},"bans":1,"most"#));
    assert!(summary.contains(r#""limits":[{"limit":"2/h","violations":1}],"tolerance_ms":5,"#));
    assert_eq!(status(&client.get("/-/summary?tolerance_ms=x").await.0), "400");
    assert_eq!(mock.stop().await.calls, 3);
}

#[tokio::test]
async fn a_hung_request_is_open_until_its_client_disconnects() {
    let behaviour = Behaviour { in_flight: NonZeroU32::new(1), ..Preset::Hung.behaviour() };
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let addr = ([127, 0, 0, 1], 0).into();
    let watcher = move |entry: &paceline_mock::LogEntry| arrived.send(entry.status).expect("heard");
    let mock = Mock::start_at(addr, behaviour, watcher).await.expect("a free port");

    let mut hung = Client::connect(mock.addr()).await;
    hung.send(b"GET /one HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(arrivals.recv().await, Some(None));
    let mut other = Client::connect(mock.addr()).await;
    assert_eq!(status(&other.get("/two").await.0), "429");
    assert_eq!(arrivals.recv().await, Some(Some(429)));

    drop(hung);
    while mock.log()[0].ended_at.is_none() {
        tokio::task::yield_now().await;
    }
    other.send(b"GET /three HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(arrivals.recv().await, Some(None));
}

#[tokio::test]
async fn bodies_beyond_the_bound_get_413() {
    let mock = Mock::start(Behaviour::default()).await.expect("a free port");
    let mut client = Client::connect(mock.addr()).await;
    client.send(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello").await;
    assert_eq!(status(&client.response().await.0), "200");
    let head =
        format!("POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", LARGEST_BODY + 1);
    client.send(head.as_bytes()).await;
    assert_eq!(status(&client.response().await.0), "413");

    let mut client = Client::connect(mock.addr()).await;
    client.send(b"POST /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    client.send(format!("{:x}\r\n", LARGEST_BODY + 1).as_bytes()).await;
    client.send(&vec![0; LARGEST_BODY + 1]).await;
    assert_eq!(status(&client.response().await.0), "413");
    let summary = mock.summary();
    assert_eq!(
        summary.by_status.into_iter().collect::<Vec<_>>(),
        [("200".to_string(), 1), ("413".to_string(), 2)]
    );
}

#[tokio::test]
async fn malformed_requests_are_answered_and_not_counted() {
    let mock = Mock::start(Behaviour::default()).await.expect("a free port");
    let mut client = Client::connect(mock.addr()).await;
    client.send(b"\x00\x01 what is this\r\n\r\n").await;
    assert_eq!(status(&client.response().await.0), "400");
    assert_eq!(mock.summary().calls, 0);
}

#[tokio::test]
async fn one_request_in_three_fails() {
    let mock = Mock::start(Preset::Flaky.behaviour()).await.expect("a free port");
    let mut client = Client::connect(mock.addr()).await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(status(&client.get("/").await.0).to_string());
    }
    assert_eq!(seen, ["200", "200", "500", "200", "200", "500"]);
}
