//! The service on a socket: HTTP/1.1 with keep-alive, everything about it bounded.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use paceline_core::{Span, Time};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::behaviour::Behaviour;
use crate::gate::{Gate, Reply};
use crate::log::{Log, LogEntry, Summary};

/// Connections at once; more wait to be accepted.
pub const MOST_CONNECTIONS: usize = 1_024;
/// The largest body of a call; beyond it the answer is 413.
pub const LARGEST_BODY: usize = 1 << 20;
/// How long a head or a body may take to come in.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of a head.
const LARGEST_HEAD: usize = 64 << 10;

/// Told about each call in the order of arrival. Arrivals wait for it.
type Watcher = Box<dyn FnMut(&LogEntry) + Send>;

/// A running service. Dropping it closes its socket and its connections.
#[derive(Debug)]
pub struct Mock {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Mock {
    /// Starts on a free port of this machine.
    pub async fn start(behaviour: Behaviour) -> io::Result<Mock> {
        Mock::start_at((Ipv4Addr::LOCALHOST, 0).into(), behaviour, |_| {}).await
    }

    /// Starts on `addr` and tells `watcher` each call as it arrives.
    pub async fn start_at(
        addr: SocketAddr,
        behaviour: Behaviour,
        watcher: impl FnMut(&LogEntry) + Send + 'static,
    ) -> io::Result<Mock> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let books =
            Books { gate: Gate::new(behaviour), log: Log::default(), watcher: Box::new(watcher) };
        let shared = Arc::new(Shared { started: read_clock(), books: Mutex::new(books) });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Ok(Mock { addr, shared, tasks })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of a path, which starts with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// What arrived, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.shared.books().log.entries()
    }

    /// What it comes to, by the behaviour's own tolerance.
    pub fn summary(&self) -> Summary {
        self.shared.summary(None)
    }

    /// Closes the socket and all connections.
    pub async fn stop(mut self) -> Summary {
        self.tasks.shutdown().await;
        self.summary()
    }
}

struct Shared {
    started: Instant,
    books: Mutex<Books>,
}

struct Books {
    gate: Gate,
    log: Log,
    watcher: Watcher,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Shared {
    /// The books stay readable after a watcher panicked: a test that failed still gets its log.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(Span::from(read_clock().duration_since(self.started)).0)
    }

    /// The clock is read under the lock, so that the order of the log is the order of time.
    fn arrive(self: &Arc<Shared>, request: &Request<Incoming>) -> (Reply, Open) {
        let mut guard = self.books();
        let books = &mut *guard;
        let now = self.now();
        let reply = if request.body().size_hint().lower() > LARGEST_BODY as u64 {
            Reply::TooLarge
        } else {
            books.gate.arrive(now, books.log.open())
        };
        let entry = books.log.arrived(now, request.uri().path(), reply.status());
        (books.watcher)(entry);
        let call = entry.call;
        drop(guard);
        (reply, Open { call, shared: self.clone() })
    }

    fn summary(&self, tolerance: Option<Span>) -> Summary {
        let books = self.books();
        let behaviour = books.gate.behaviour();
        let summary = books.log.summary(behaviour, tolerance.unwrap_or(behaviour.tolerance));
        Summary { bans: books.gate.bans(), ..summary }
    }
}

/// A call that is open; it closes however it ends, also when the client hangs up.
struct Open {
    call: u64,
    shared: Arc<Shared>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut books = self.shared.books();
        let now = self.shared.now();
        books.log.ended(self.call, now);
    }
}

#[expect(clippy::disallowed_methods, reason = "the mock measures its clients by its own clock")]
pub(crate) fn read_clock() -> Instant {
    Instant::now()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let slot = room.clone().acquire_owned().await.expect("never closed");
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                connections.spawn(async move {
                    converse(stream, shared).await;
                    drop(slot);
                });
            }
            // Out of file handles, most likely; without a pause this would spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    // Refused only by a socket that is already gone, which the next read reports.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(request, shared).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(READ_WITHIN).max_buf_size(LARGEST_HEAD);
    // A client that breaks off or talks nonsense is its own problem: hyper has answered it.
    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/-/log" => log_response(&shared),
        "/-/summary" => summary_response(&shared, request.uri().query()),
        _ => {
            let (reply, open) = shared.arrive(&request);
            respond(request, reply, &open).await
        }
    }
}

async fn respond(request: Request<Incoming>, reply: Reply, open: &Open) -> Response<Full<Bytes>> {
    if reply != Reply::TooLarge
        && let Err(status) = read_body(request.into_body()).await
    {
        open.shared.books().log.answered(open.call, status.as_u16());
        return cut_off(status);
    }
    let latency = open.shared.books().gate.behaviour().latency;
    match reply {
        Reply::Hang => std::future::pending().await,
        Reply::Refuse(wait) => refusal(wait),
        Reply::TooLarge => cut_off(StatusCode::PAYLOAD_TOO_LARGE),
        Reply::Answer => {
            pause(latency).await;
            text(StatusCode::OK, format!("call {}\n", open.call))
        }
        Reply::Fail => {
            pause(latency).await;
            text(StatusCode::INTERNAL_SERVER_ERROR, "failed, as asked\n".to_string())
        }
    }
}

/// The rest of the body is on its way, so the connection is of no more use.
fn cut_off(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = text(status, "the body is too large or too slow\n".to_string());
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn pause(latency: Span) {
    if latency > Span::ZERO {
        tokio::time::sleep(latency.into()).await;
    }
}

async fn read_body(body: Incoming) -> Result<(), StatusCode> {
    let mut body = Limited::new(body, LARGEST_BODY);
    let whole = async {
        while let Some(frame) = body.frame().await {
            frame.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        }
        Ok(())
    };
    tokio::time::timeout(READ_WITHIN, whole).await.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}

fn refusal(wait: Option<Span>) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::TOO_MANY_REQUESTS, "too many calls\n".to_string());
    if let Some(wait) = wait {
        // Whole seconds, and never too early.
        let seconds = wait.0.div_ceil(1_000_000);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn log_response(shared: &Shared) -> Response<Full<Bytes>> {
    let entries = shared.books().log.entries();
    let mut lines = Vec::new();
    for entry in &entries {
        serde_json::to_writer(&mut lines, entry).expect("an entry is plain data");
        lines.push(b'\n');
    }
    with_type(StatusCode::OK, "application/jsonl", lines)
}

fn summary_response(shared: &Shared, query: Option<&str>) -> Response<Full<Bytes>> {
    let tolerance =
        match query.map(|query| query.strip_prefix("tolerance_ms=").map(str::parse::<u32>)) {
            None => None,
            Some(Some(Ok(ms))) => Some(Span::millis(u64::from(ms))),
            Some(_) => {
                let hint = "the query is `tolerance_ms=N`\n".to_string();
                return text(StatusCode::BAD_REQUEST, hint);
            }
        };
    let mut line = serde_json::to_vec(&shared.summary(tolerance)).expect("plain data");
    line.push(b'\n');
    with_type(StatusCode::OK, "application/json", line)
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    with_type(status, "text/plain", body.into_bytes())
}

fn with_type(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
