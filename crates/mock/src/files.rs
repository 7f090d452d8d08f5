//! A file server that misbehaves by script and logs every request.
//!
//! It writes HTTP/1.1 to the socket itself, because no library sends malformed responses. Start one
//! with [`Files::start`], add content with [`Files::put`], and faults with [`Files::on`].
//!
//! ```
//! use paceline_mock::files::{Ending, Fault, File, Files, Response};
//!
//! let server = Files::start();
//! server.put("/a", File::of("hello").etag("\"v1\""));
//! // First 503, then a response that breaks off after two bytes, then the whole file.
//! server.on("/a", Fault::Respond(Response::status(503)).first(1));
//! server.on("/a", Fault::Cut(2, Ending::Reset).first(1));
//! ```

mod connection;
mod content;
mod fault;
mod file;
mod http2;
mod log;
mod protocol;
mod range;
mod response;
mod state;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use paceline_core::Span;

pub use crate::request::Version;
pub use content::content;
pub use fault::{Ending, Fault, MOST_PATHS, Rule};
pub use file::{File, Framing, Resource, Response};
pub use log::{MOST_REQUESTS, RequestRecord};

use crate::check::{Arrival, Limit, Violation, violations};
use crate::server_thread::ServerThread;
use protocol::Protocol;
use state::Shared;

/// The time after which [`Files::wait_until`] panics.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

const LOCALHOST: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// A running file server, on a thread of its own. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Files {
    server: ServerThread,
    scheme: &'static str,
    shared: Arc<Shared>,
}

/// The treatment of a new connection, before anything is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConnect {
    /// The connection is served.
    #[default]
    Serve,
    /// The connection is closed at once.
    Close,
    /// The connection is reset at once.
    Reset,
    /// The connection stays open, and nothing is read or sent.
    Silence,
}

/// When the resource at a path is replaced by the next one. A response that has begun is not
/// affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// After this many requests for it.
    Requests(u64),
    /// After this many bytes of it were sent.
    Bytes(u64),
}

impl Files {
    /// Starts on a free port of 127.0.0.1.
    pub fn start() -> Files {
        Files::start_on("127.0.0.1")
    }

    /// Starts on a free port of a loopback address, such as `127.0.0.2` or `::1`.
    pub fn start_on(ip: &str) -> Files {
        let ip: IpAddr = ip.parse().expect("an address such as `127.0.0.2`");
        Files::start_at((ip, 0).into()).expect("a free port")
    }

    /// Starts at an address, such as that of a server that was dropped.
    pub fn start_at(addr: SocketAddr) -> io::Result<Files> {
        Files::listen(addr, Protocol::Http1)
    }

    /// Starts with TLS and HTTP/1.1 on a free port of 127.0.0.1. Certificate and key (PKCS 8) are
    /// DER.
    pub fn start_tls(certificate: &[u8], key: &[u8]) -> Files {
        let protocol = Protocol::tls(certificate, key, &["http/1.1"]);
        Files::listen(LOCALHOST, protocol).expect("a free port")
    }

    /// Starts with TLS, and with HTTP/2 for clients that offer it.
    ///
    /// Over HTTP/2 a cut body and a response without a valid head reset the stream. Faults about
    /// pace, framing, and bytes before or beyond a response apply to HTTP/1.1 only and are ignored.
    pub fn start_tls_http2(certificate: &[u8], key: &[u8]) -> Files {
        let protocol = Protocol::tls(certificate, key, &["h2", "http/1.1"]);
        Files::listen(LOCALHOST, protocol).expect("a free port")
    }

    /// Starts with HTTP/2 without TLS, for clients with prior knowledge.
    pub fn start_http2() -> Files {
        Files::listen(LOCALHOST, Protocol::Http2).expect("a free port")
    }

    fn listen(addr: SocketAddr, protocol: Protocol) -> io::Result<Files> {
        let shared = Shared::new();
        let scheme = protocol.scheme();
        let of_connections = shared.clone();
        let serve = move |stream| protocol.clone().serve(stream, of_connections.clone());
        Ok(Files { server: ServerThread::open(addr, serve)?, scheme, shared })
    }

    /// The address on which it listens.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// The URL of a path, which must start with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.addr())
    }

    /// Puts a file or a response at a path and replaces the previous one.
    ///
    /// A path with a query matches that query only. A path without a query matches all other
    /// queries.
    pub fn put(&self, path: &str, resource: impl Into<Resource>) {
        self.shared.state().put(path, resource.into());
    }

    /// Queues the next resource of a path. Requests and bytes are counted anew for each resource.
    ///
    /// Panics if nothing was put at the path.
    pub fn then(&self, path: &str, after: After, resource: impl Into<Resource>) {
        self.shared.state().then(path, after, resource.into());
    }

    /// Removes the resource at a path.
    pub fn remove(&self, path: &str) {
        self.shared.state().remove(path);
    }

    /// Serves [`content(path, size)`](fn@content) with a strong entity tag at every path that matches a
    /// pattern.
    pub fn generate(&self, pattern: &str, size: u64) {
        self.shared.state().generate(pattern, size);
    }

    /// Redirects `path` to `end` in `hops` steps. `end` may be `path` itself, for a loop.
    pub fn chain(&self, path: &str, hops: usize, end: &str) {
        let hop = |n: usize| if n == 0 { path.to_string() } else { format!("{path}/{n}") };
        for n in 0..hops {
            let location = if n + 1 == hops { end.to_string() } else { hop(n + 1) };
            self.put(&hop(n), Response::redirect(302, location));
        }
    }

    /// Adds a rule for a path (`/a`), all paths below one (`/f/*`) or every path (`*`).
    ///
    /// Rules without a count all apply. Of the rules with a count ([`Rule::first`],
    /// [`Rule::first_of_all`]), only the first that is not used up applies to a request, so that
    /// several of them are a script.
    pub fn on(&self, pattern: &str, rule: impl Into<Rule>) {
        self.shared.state().add_rule(pattern, rule.into());
    }

    /// Removes all rules of exactly this pattern. Requests that hang already keep hanging.
    pub fn heal(&self, pattern: &str) {
        self.shared.state().heal(pattern);
    }

    /// Changes the treatment of new connections.
    pub fn on_connect(&self, on_connect: OnConnect) {
        self.shared.state().on_connect = on_connect;
    }

    /// The requests so far, oldest first.
    pub fn log(&self) -> Vec<RequestRecord> {
        self.shared.state().log.entries().to_vec()
    }

    /// The requests that match a pattern, oldest first.
    pub fn log_of(&self, pattern: &str) -> Vec<RequestRecord> {
        let state = self.shared.state();
        let entries = state.log.entries().iter();
        entries.filter(|entry| fault::covers(pattern, &entry.path)).cloned().collect()
    }

    /// The number of requests that match a pattern.
    pub fn requests(&self, pattern: &str) -> usize {
        let state = self.shared.state();
        state.log.entries().iter().filter(|entry| fault::covers(pattern, &entry.path)).count()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// The most requests that were open at once.
    pub fn most_in_flight(&self) -> usize {
        let state = self.shared.state();
        state.log.entries().iter().map(|entry| entry.in_flight).max().unwrap_or(0)
    }

    /// The requests that exceeded `limit` by more than `tolerance`.
    pub fn violations(&self, limit: Limit, tolerance: Span) -> Vec<Violation> {
        let state = self.shared.state();
        let arrivals: Vec<Arrival> =
            state.log.entries().iter().map(RequestRecord::arrival).collect();
        violations(&arrivals, limit, tolerance)
    }

    /// Waits until `seen` holds for the log. Panics after [`WAIT_TIMEOUT`].
    #[track_caller]
    pub fn wait_until(&self, seen: impl Fn(&[RequestRecord]) -> bool) {
        let held = self.shared.wait_until(WAIT_TIMEOUT, seen);
        assert!(
            held,
            "the log did not become as expected within {WAIT_TIMEOUT:?}; it is {:#?}",
            self.log()
        );
    }
}
