//! A file server that misbehaves as a script says, and keeps an honest log of it.
//!
//! It speaks HTTP/1.1 over the socket itself, because no library would send what it has to send.

mod connection;
mod content;
mod fault;
mod file;
mod http2;
mod log;
mod protocol;
mod range;
mod reply;
mod shelf;

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
use crate::listening::Listening;
use protocol::Protocol;
use shelf::Shelf;

/// How long [`Files::wait_until`] waits before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

const LOCALHOST: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// A running file server, on a thread of its own. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Files {
    listening: Listening,
    scheme: &'static str,
    shelf: Arc<Shelf>,
}

/// What happens to a new connection, before anything is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Welcome {
    /// Its requests are answered.
    #[default]
    Serve,
    /// It is closed at once.
    Close,
    /// It is reset at once.
    Reset,
    /// It stays open, and nothing is read or answered.
    Silence,
}

/// When what stands at a path gives way to what comes next. Answers on their way keep what they had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// After so many requests for it.
    Requests(u64),
    /// After so many bytes were sent of it.
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

    /// Starts at an address, which may be that of a server that was dropped.
    pub fn start_at(addr: SocketAddr) -> io::Result<Files> {
        Files::listen(addr, Protocol::Http1)
    }

    /// Starts with TLS and HTTP/1.1 on a free port of 127.0.0.1. Certificate and key (PKCS 8) are DER.
    pub fn start_tls(certificate: &[u8], key: &[u8]) -> Files {
        let protocol = Protocol::tls(certificate, key, &["http/1.1"]);
        Files::listen(LOCALHOST, protocol).expect("a free port")
    }

    /// The same, with HTTP/2 for those who offer it.
    ///
    /// There a body is cut by a reset of its stream, and so is what has no proper head. Paces, framing
    /// and bytes before or beyond an answer are HTTP/1.1's alone and count for nothing.
    pub fn start_tls_http2(certificate: &[u8], key: &[u8]) -> Files {
        let protocol = Protocol::tls(certificate, key, &["h2", "http/1.1"]);
        Files::listen(LOCALHOST, protocol).expect("a free port")
    }

    /// Starts with HTTP/2 alone, for those who know it beforehand.
    pub fn start_http2() -> Files {
        Files::listen(LOCALHOST, Protocol::Http2).expect("a free port")
    }

    fn listen(addr: SocketAddr, protocol: Protocol) -> io::Result<Files> {
        let shelf = Shelf::new();
        let shared = shelf.clone();
        let scheme = protocol.scheme();
        let converse = move |stream| protocol.clone().serve(stream, shared.clone());
        Ok(Files { listening: Listening::open(addr, converse)?, scheme, shelf })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.listening.addr()
    }

    /// The address of a path, which starts with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.addr())
    }

    /// Puts a file or an answer at a path, in place of what stood there.
    ///
    /// A path with a query stands for that query alone, one without for all others.
    pub fn put(&self, path: &str, resource: impl Into<Resource>) {
        self.shelf.books().put(path, resource.into());
    }

    /// Queues what follows at a path; counts start anew with each that came.
    pub fn then(&self, path: &str, after: After, resource: impl Into<Resource>) {
        self.shelf.books().then(path, after, resource.into());
    }

    /// Takes away what stands at a path.
    pub fn remove(&self, path: &str) {
        self.shelf.books().remove(path);
    }

    /// Answers every path under a pattern with [`content`]`(path, size)` and a strong tag.
    pub fn generate(&self, pattern: &str, size: u64) {
        self.shelf.books().generate(pattern, size);
    }

    /// Redirects `path` through `hops` answers to `end`, which may be `path` itself for a loop.
    pub fn chain(&self, path: &str, hops: usize, end: &str) {
        let hop = |n: usize| if n == 0 { path.to_string() } else { format!("{path}/{n}") };
        for n in 0..hops {
            let location = if n + 1 == hops { end.to_string() } else { hop(n + 1) };
            self.put(&hop(n), Response::redirect(302, location));
        }
    }

    /// Misbehaves for a path (`/a`), all paths below one (`/f/*`) or all (`*`).
    ///
    /// Rules that always hold add up. Of rules that run out, a request meets only the first that has
    /// turns left: told one after the other, they are a script.
    pub fn on(&self, pattern: &str, rule: impl Into<Rule>) {
        self.shelf.books().post(pattern, rule.into());
    }

    /// Forgets all rules told for exactly this pattern. Requests that hang go on hanging.
    pub fn heal(&self, pattern: &str) {
        self.shelf.books().heal(pattern);
    }

    /// Changes what happens to new connections.
    pub fn welcome(&self, welcome: Welcome) {
        self.shelf.books().welcome = welcome;
    }

    /// What arrived, oldest first.
    pub fn log(&self) -> Vec<RequestRecord> {
        self.shelf.books().log.entries().to_vec()
    }

    /// What arrived under a pattern, oldest first.
    pub fn log_of(&self, pattern: &str) -> Vec<RequestRecord> {
        let books = self.shelf.books();
        let entries = books.log.entries().iter();
        entries.filter(|entry| fault::covers(pattern, &entry.path)).cloned().collect()
    }

    /// How many requests came under a pattern.
    pub fn requests(&self, pattern: &str) -> usize {
        let books = self.shelf.books();
        books.log.entries().iter().filter(|entry| fault::covers(pattern, &entry.path)).count()
    }

    /// How many connections were made.
    pub fn connections(&self) -> u64 {
        self.shelf.books().connections
    }

    /// The most requests that were open at once.
    pub fn most_in_flight(&self) -> usize {
        let books = self.shelf.books();
        books.log.entries().iter().map(|entry| entry.in_flight).max().unwrap_or(0)
    }

    /// The requests that broke `limit` by more than `tolerance`.
    pub fn violations(&self, limit: Limit, tolerance: Span) -> Vec<Violation> {
        let books = self.shelf.books();
        let arrivals: Vec<Arrival> =
            books.log.entries().iter().map(RequestRecord::arrival).collect();
        violations(&arrivals, limit, tolerance)
    }

    /// Waits until `seen` holds for the log; panics after [`PATIENCE`].
    #[track_caller]
    pub fn wait_until(&self, seen: impl Fn(&[RequestRecord]) -> bool) {
        let came = self.shelf.wait_until(PATIENCE, seen);
        assert!(came, "waited {PATIENCE:?} in vain; the log is {:#?}", self.log());
    }
}
