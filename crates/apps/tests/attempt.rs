//! The start of an attempt: its stamp, its charge, and connections that are kept.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::{HeaderMap, Method};
use paceline::lanes::Limits;
use paceline::report::CallOutcome;
use paceline::{Call, Job, Lane, Outcome, Paceline, Report, Span, Work, Worker};
use paceline_apps::http::proxy::Proxies;
use paceline_apps::http::{Client, Patience, Upload};
use tokio::net::{TcpSocket, TcpStream};
use url::Url;

/// Longer than a reservation is valid.
const TOO_LONG: Duration = Duration::from_millis(150);

/// Connects to one address, and records when it began.
struct Asking {
    client: Client,
    url: Url,
    dialled: Arc<Mutex<Vec<Instant>>>,
    /// The delay of the first attempt.
    stall: Duration,
}

impl Worker for Asking {
    async fn run(&self, call: Call) -> Work {
        let first = {
            let mut dialled = self.dialled.lock().expect("unbroken");
            dialled.push(now());
            dialled.len() == 1
        };
        if first {
            tokio::time::sleep(self.stall).await;
        }
        let request =
            self.client.request(&self.url, Method::GET, HeaderMap::new(), Upload::Nothing);
        let attempt = self.client.begin(&call, &self.url).await?;
        match attempt.send(request.expect("HTTP can say it")).await {
            Ok(exchange) => Outcome::done(exchange.status.as_u16()),
            Err(error) => Outcome::failed(error.failure()),
        }
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "the test has a clock of its own")]
fn now() -> Instant {
    Instant::now()
}

struct Story {
    pace: Paceline,
    dialled: Arc<Mutex<Vec<Instant>>>,
}

fn story(address: SocketAddr, connect: Duration, stall: Duration, lane: Lane) -> Story {
    let dialled = Arc::default();
    let asking = Asking {
        client: Client::new(Patience { connect, ..Patience::default() }, Proxies::default()),
        url: format!("http://{address}/").parse().expect("an address"),
        dialled: Arc::clone(&dialled),
        stall,
    };
    let pace = Paceline::in_memory().worker("ask", asking).lane(lane).start().expect("it starts");
    Story { pace, dialled }
}

fn closing_after(failures: u32, every: Option<Span>) -> Lane {
    let fail_after = NonZeroU32::new(failures).expect("above zero");
    Lane::with_limits("shop", Limits { every, fail_after, ..Limits::default() })
}

impl Story {
    async fn reports(&self, jobs: usize) -> Vec<Arc<Report>> {
        let jobs = (0..jobs).map(|_| Job::new("ask", &()).on(["shop"]).attempts(1));
        let mut reports = Vec::new();
        for job in self.pace.submit_all(jobs).await {
            let report = job.expect("accepted").report();
            let report = tokio::time::timeout(Duration::from_secs(20), report).await;
            reports.push(report.expect("it ends").expect("a report"));
        }
        reports
    }

    fn dialled(&self) -> Vec<Instant> {
        self.dialled.lock().expect("unbroken").clone()
    }
}

/// The class of a failure, and the attempts that its call was charged.
fn failed(report: &Report) -> (String, u32) {
    let call = &report.calls[0];
    match &call.outcome {
        CallOutcome::Failed(failure) => (failure.class.to_string(), call.attempts),
        other => panic!("not failed but {other:?}"),
    }
}

#[tokio::test]
async fn l4_an_attempt_that_connects_too_late_sends_nothing_and_leaves_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut head, mut bytes) = (Vec::new(), [0; 1_024]);
        while !head.ends_with(b"\r\n\r\n") {
            let length = stream.read(&mut bytes).expect("a request");
            head.extend_from_slice(&bytes[..length]);
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it takes a response");
        listener.set_nonblocking(true).expect("it can");
        (String::from_utf8(head).expect("text"), listener.accept().is_ok())
    });
    let story = story(address, Duration::from_secs(5), TOO_LONG, Lane::new("shop"));
    let report = &story.reports(1).await[0];
    let call = &report.calls[0];
    assert!(matches!(call.outcome, CallOutcome::Done { .. }), "{:?}", call.outcome);
    let (head, another) = server.join().expect("it served");
    assert_eq!(head.matches("GET ").count(), 1, "one request: {head}");
    assert!(!another, "the second attempt has the connection of the first");
    assert_eq!((story.dialled().len(), call.attempts), (2, 1), "the late one costs nothing");
}

#[tokio::test]
async fn l4_a_connect_that_fails_is_charged_and_is_a_failure_of_its_lane() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let lane = closing_after(3, Some(Span::millis(120)));
    let story = story(gone, Duration::from_secs(5), Duration::ZERO, lane);
    for report in story.reports(3).await {
        assert_eq!(failed(&report), ("connect".to_string(), 1));
    }
    let dialled = story.dialled();
    let apart: Vec<_> = dialled.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(apart.iter().all(|apart| *apart >= Duration::from_millis(115)), "{apart:?}");
    let lanes = story.pace.lanes().await.expect("it runs");
    assert!(lanes[0].cooldown_until.is_some(), "three failures close it: {:?}", lanes[0]);
}

#[tokio::test]
async fn l4_a_connect_without_response_fails_its_call_though_each_dial_ends_too_late() {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    // The kernel queues a limited number of connections, and does not respond to others.
    let listener = socket.listen(1).expect("it listens");
    let address = listener.local_addr().expect("bound");
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(TOO_LONG, TcpStream::connect(address)).await {
        waiting.push(stream.expect("it waits"));
        assert!(waiting.len() < 10, "the kernel is to stop answering");
    }
    let story = story(address, TOO_LONG, Duration::ZERO, closing_after(1, None));
    assert_eq!(failed(&story.reports(1).await[0]), ("timeout".to_string(), 1));
    assert_eq!(story.dialled().len(), 2, "the second attempt has the error of the first");
    let lanes = story.pace.lanes().await.expect("it runs");
    assert!(lanes[0].cooldown_until.is_some(), "{:?}", lanes[0]);
}
