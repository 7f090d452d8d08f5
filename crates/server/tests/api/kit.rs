//! A daemon in the test's own process, a client of bare sockets, and a scripted upstream.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use paceline::{Builder, Lane, Paceline};
use paceline_apps::command::{CommandTask, Commands};
use paceline_apps::http::proxy::Proxies;
use paceline_apps::plain_tools;
use paceline_apps::program::Program;
use paceline_apps::request::{Endpoint, Endpoints, HttpWorker};
use paceline_apps::services::{Services, Tasks};
use paceline_server::{Bounds, Kinds, Server, Terms};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A test that waits for longer has failed.
const FOREVER: Duration = Duration::from_secs(20);

#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        let waited = tokio::time::timeout(FOREVER, future).await;
        waited.unwrap_or_else(|_| panic!("nothing came at {place}"))
    }
}

/// A daemon, and its address.
pub(crate) struct Daemon {
    pub(crate) address: SocketAddr,
    pub(crate) pace: Paceline,
    pub(crate) server: Server,
    _over: oneshot::Sender<()>,
}

/// The parts of a test's daemon.
pub(crate) struct Made {
    pub(crate) builder: Builder,
    pub(crate) endpoints: BTreeMap<String, Endpoint>,
    pub(crate) terms: Terms,
    pub(crate) bounds: Bounds,
}

/// One lane `shop` to an upstream at this address.
pub(crate) fn made(upstream: SocketAddr) -> Made {
    let url = Some(format!("http://{upstream}").parse().expect("an address"));
    let endpoint = Endpoint { url, ..Endpoint::default() };
    Made {
        builder: Paceline::in_memory()
            .lane(Lane::new("shop").in_flight(5))
            .lane(Lane::new("bare"))
            .settings(|settings| {
                settings.pool.step = paceline::Span::ZERO;
                settings.pool.lane_share = paceline::lanes::Portion::from_f64(1.0).expect("a part");
            })
            .keep_events(100),
        endpoints: BTreeMap::from([
            ("shop".to_string(), endpoint),
            ("bare".to_string(), Endpoint::default()),
        ]),
        terms: Terms::default(),
        bounds: Bounds::default(),
    }
}

impl Made {
    pub(crate) async fn start(self) -> Daemon {
        let (endpoints, commands) = (Endpoints::default(), Commands::default());
        endpoints.add(self.endpoints);
        let run = ["sh", "-c", "echo got $PACELINE_INPUT"].map(String::from).to_vec();
        let program = Program { run, directory: ".".into(), without: Vec::new() };
        let task = CommandTask { program, timeout: Duration::from_secs(10), empty: Vec::new() };
        commands.renew(BTreeMap::from([("echo".to_string(), task)]), &[]);
        let http = Arc::new(HttpWorker::new(endpoints, &Proxies::default()));
        let mut tools = plain_tools(&http);
        tools.push(Box::new(commands));
        tools.push(Box::new(Services::new(Tasks::default(), http)));
        let kinds = Kinds::new(tools);
        let builder = kinds.register(self.builder);
        let pace = builder.start().expect("it starts");
        let server = Server::new(pace.clone(), kinds, self.terms);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (over, is_over) = oneshot::channel::<()>();
        let serving = server.clone().serve(listener, self.bounds, async {
            let _ = is_over.await;
        });
        #[expect(clippy::disallowed_methods, reason = "a daemon beside its test")]
        tokio::spawn(serving);
        Daemon { address, pace, server, _over: over }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The `reason` of a problem.
    #[track_caller]
    pub(crate) fn reason(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status, "{self:?}");
        json["reason"].as_str().expect("a reason").to_string()
    }

    /// Checks for a refusal that names the pause and its remedy, and no moment for a retry.
    #[track_caller]
    pub(crate) fn assert_paused(&self, lane: &str) {
        assert_eq!((self.status, &*self.reason()), (429, "paused"), "{self:?}");
        let problem = self.json();
        let remedy =
            format!("the lane `{lane}` is paused: resume it with `paceline lane resume {lane}`");
        assert_eq!((&problem["detail"], &problem["lane"]), (&remedy.into(), &lane.into()));
        assert!(!self.headers.contains_key("retry-after"), "no moment is known: {self:?}");
        assert!(problem["retry_at"].is_null() && problem["wait_ms"].is_null(), "{problem}");
    }
}

impl Daemon {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[], body).await
    }

    /// One request over a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            write!(text, "{name}: {value}\r\n").expect("a string takes everything");
        }
        let said = |name: &str| headers.iter().any(|(said, _)| said.eq_ignore_ascii_case(name));
        if !said("host") {
            write!(text, "host: {}\r\n", self.address).expect("a string takes everything");
        }
        if !said("content-type") {
            text += "content-type: application/json\r\n";
        }
        write!(text, "content-length: {}\r\n\r\n{body}", body.len())
            .expect("a string takes everything");
        self.send(text.as_bytes()).await
    }

    /// Sends these bytes, and returns all bytes until the end of the connection.
    pub(crate) async fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        // The daemon may already have closed the connection.
        let _ = stream.write_all(bytes).await;
        let mut heard = Vec::new();
        let _ = soon(stream.read_to_end(&mut heard)).await;
        parse(&heard)
    }

    /// Submits one job and waits for its report.
    pub(crate) async fn done(&self, body: &str) -> Value {
        let answer = self.ask("POST", "/api/v1/jobs", &[("prefer", "wait=20")], body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["jobs"][0]["report"].clone()
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_string()))
    };
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let chunked = headers.get("transfer-encoding").is_some_and(|it| it == "chunked");
    let text = if chunked { unchunked(body) } else { body.to_string() };
    Answer { status: status.expect("a status"), headers, text }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text += &rest[..size];
        body = rest.get(size + 2..).unwrap_or_default();
    }
    text
}

/// An upstream that responds by a script, one request per connection.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<std::sync::Mutex<Vec<String>>>,
    pub(crate) most_at_once: Arc<AtomicUsize>,
}

impl Upstream {
    /// `answer` gets the whole request; its result is written unchanged.
    pub(crate) async fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (seen, answer) = (Arc::<std::sync::Mutex<Vec<String>>>::default(), Arc::new(answer));
        let (now, most_at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (theirs, most) = (seen.clone(), most_at_once.clone());
        let serving = async move {
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, answer) = (theirs.clone(), answer.clone());
                let (now, most) = (now.clone(), most.clone());
                tasks.spawn(async move {
                    let Some(request) = whole_request(&mut stream).await else { return };
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    seen.lock().expect("no panic").push(request.clone());
                    let reply = answer(&request);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    let _ = stream.write_all(reply.as_bytes()).await;
                });
            }
        };
        #[expect(clippy::disallowed_methods, reason = "an upstream beside its test")]
        tokio::spawn(serving);
        Upstream { address, seen, most_at_once }
    }

    /// An upstream that accepts every request.
    pub(crate) async fn kind() -> Upstream {
        Upstream::start(|_| reply("200 OK", "", "yes")).await
    }

    /// Requests so far, whole.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").clone()
    }
}

async fn whole_request(stream: &mut TcpStream) -> Option<String> {
    let mut heard = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&heard).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
            if (chunked && body.ends_with("0\r\n\r\n"))
                || (!chunked && body.len() >= length.unwrap_or(0))
            {
                return Some(text);
            }
        }
        if stream.read_buf(&mut heard).await.ok()? == 0 {
            return None;
        }
    }
}

pub(crate) fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}
