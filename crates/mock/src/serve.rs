//! The mock upstream on a socket: HTTP/1.1 with keep-alive, with bounds on everything a client
//! sends.

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
use crate::gate::{Decision, Gate};
use crate::log::{Log, LogEntry, Summary};

/// The most connections at once. Further ones wait to be accepted.
pub const MOST_CONNECTIONS: usize = 1_024;
/// The most bytes of a request body. A larger one gets 413.
pub const LARGEST_BODY: usize = 1 << 20;
/// The time limit for reading a head or a body.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// The most bytes of a head.
const LARGEST_HEAD: usize = 64 << 10;

/// Called with each request in the order of arrival. The next request waits until it returns.
type Watcher = Box<dyn FnMut(&LogEntry) + Send>;

/// A running mock upstream. Dropping it closes its socket and its connections.
#[derive(Debug)]
pub struct Mock {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Mock {
    /// Starts on a free port of 127.0.0.1.
    pub async fn start(behaviour: Behaviour) -> io::Result<Mock> {
        Mock::start_at((Ipv4Addr::LOCALHOST, 0).into(), behaviour, |_| {}).await
    }

    /// Starts on `addr` and passes each request to `watcher` as it arrives.
    pub async fn start_at(
        addr: SocketAddr,
        behaviour: Behaviour,
        watcher: impl FnMut(&LogEntry) + Send + 'static,
    ) -> io::Result<Mock> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let state =
            State { gate: Gate::new(behaviour), log: Log::default(), watcher: Box::new(watcher) };
        let shared = Arc::new(Shared { started: read_clock(), state: Mutex::new(state) });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Ok(Mock { addr, shared, tasks })
    }

    /// The address on which it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a path, which must start with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// The requests so far, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.shared.state().log.entries()
    }

    /// The totals, judged by the tolerance of the behaviour.
    pub fn summary(&self) -> Summary {
        self.shared.summary(None)
    }

    /// Closes the socket and all connections, and returns the totals.
    pub async fn stop(mut self) -> Summary {
        self.tasks.shutdown().await;
        self.summary()
    }
}

struct Shared {
    started: Instant,
    state: Mutex<State>,
}

struct State {
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
    /// The state stays readable after a watcher panicked, so that a failed test still gets its log.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(Span::from(read_clock().duration_since(self.started)).0)
    }

    /// The clock is read under the lock, so that the order of the log is the order of time.
    fn arrive(self: &Arc<Shared>, request: &Request<Incoming>) -> (Decision, OpenRequest) {
        let mut guard = self.state();
        let state = &mut *guard;
        let now = self.now();
        let decision = if request.body().size_hint().lower() > LARGEST_BODY as u64 {
            Decision::TooLarge
        } else {
            state.gate.arrive(now, state.log.open())
        };
        let entry = state.log.arrived(now, request.uri().path(), decision.status());
        (state.watcher)(entry);
        let call = entry.call;
        drop(guard);
        (decision, OpenRequest { call, shared: self.clone() })
    }

    fn summary(&self, tolerance: Option<Span>) -> Summary {
        let state = self.state();
        let behaviour = state.gate.behaviour();
        let summary = state.log.summary(behaviour, tolerance.unwrap_or(behaviour.tolerance));
        Summary { bans: state.gate.bans(), ..summary }
    }
}

/// A request that is open. Dropping it ends it, also when the client disconnects.
struct OpenRequest {
    call: u64,
    shared: Arc<Shared>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let now = self.shared.now();
        state.log.ended(self.call, now);
    }
}

#[expect(clippy::disallowed_methods, reason = "the mock measures its clients by its own clock")]
pub(crate) fn read_clock() -> Instant {
    Instant::now()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let slot = slots.clone().acquire_owned().await.expect("never closed");
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                connections.spawn(async move {
                    serve_connection(stream, shared).await;
                    drop(slot);
                });
            }
            // Most likely out of file descriptors. Without a pause the loop would spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<Shared>) {
    // Fails only on a socket that is already closed, which the next read reports.
    let _ = stream.set_nodelay(true);
    let responder = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(respond_to(request, shared).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(READ_WITHIN).max_buf_size(LARGEST_HEAD);
    // Ignored: hyper has answered a malformed request, and a client that disconnected wants none.
    let _ = http.serve_connection(TokioIo::new(stream), responder).await;
}

async fn respond_to(request: Request<Incoming>, shared: Arc<Shared>) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/-/log" => log_response(&shared),
        "/-/summary" => summary_response(&shared, request.uri().query()),
        _ => {
            let (decision, open) = shared.arrive(&request);
            respond(request, decision, &open).await
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    decision: Decision,
    open: &OpenRequest,
) -> Response<Full<Bytes>> {
    if decision != Decision::TooLarge
        && let Err(status) = read_body(request.into_body()).await
    {
        open.shared.state().log.answered(open.call, status.as_u16());
        return cut_off(status);
    }
    let latency = open.shared.state().gate.behaviour().latency;
    match decision {
        Decision::Hang => std::future::pending().await,
        Decision::Refuse(wait) => refusal(wait),
        Decision::TooLarge => cut_off(StatusCode::PAYLOAD_TOO_LARGE),
        Decision::Succeed => {
            pause(latency).await;
            text(StatusCode::OK, format!("call {}\n", open.call))
        }
        Decision::Fail => {
            pause(latency).await;
            text(StatusCode::INTERNAL_SERVER_ERROR, "failed, as asked\n".to_string())
        }
    }
}

/// The rest of the body is still in transit, so the connection cannot be reused.
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
    let read = async {
        while let Some(frame) = body.frame().await {
            frame.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        }
        Ok(())
    };
    tokio::time::timeout(READ_WITHIN, read).await.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}

fn refusal(wait: Option<Span>) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::TOO_MANY_REQUESTS, "too many requests\n".to_string());
    if let Some(wait) = wait {
        // Whole seconds, rounded up: never too early.
        let seconds = wait.0.div_ceil(1_000_000);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn log_response(shared: &Shared) -> Response<Full<Bytes>> {
    let entries = shared.state().log.entries();
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
