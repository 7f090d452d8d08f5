//! A small forward proxy with a log: who was sent through it, and for what.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paceline_core::{Span, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::listening::Listening;
use crate::request::Request;
use crate::serve::read_clock;

/// Requests that are remembered; a proxy that has seen more closes each connection.
pub const MOST_PASSAGES: usize = 10_000;
/// How long a head may take to come in.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// A running proxy, on a thread of its own. It takes absolute targets and CONNECT.
///
/// It never leaves this machine: a name leads only where [`Proxy::route`] says.
#[derive(Debug)]
pub struct Proxy {
    listening: Listening,
    shared: Arc<Shared>,
}

/// One request that came to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When its head had been read, since the start of the proxy.
    pub at: Time,
    /// Its method.
    pub method: String,
    /// What it asked for: an absolute address, or host and port for CONNECT.
    pub target: String,
    /// Its headers: names in lower case, lines of one name joined with a comma.
    pub headers: BTreeMap<String, String>,
    /// What the proxy itself answered; nothing if it passed a request on.
    pub status: Option<u16>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    routes: BTreeMap<String, SocketAddr>,
    authorization: Option<String>,
    refusal: Option<u16>,
    log: Vec<Passage>,
}

impl Proxy {
    /// Starts on a free port of 127.0.0.1.
    pub fn start() -> Proxy {
        let shared = Arc::new(Shared { started: read_clock(), books: Mutex::default() });
        let kept = shared.clone();
        let listening = Listening::open((Ipv4Addr::LOCALHOST, 0).into(), move |stream| {
            let shared = kept.clone();
            async move {
                // A side that broke off ends the passage; both sockets close with it.
                let _ = converse(stream, &shared).await;
            }
        });
        Proxy { listening: listening.expect("a free port"), shared }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.listening.addr()
    }

    /// Its address as the environment names it.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Leads a host and port, such as `files.example:443`, to a server on this machine.
    pub fn route(&self, authority: &str, to: SocketAddr) {
        self.shared.books().routes.insert(authority.to_string(), to);
    }

    /// Lets only those through who send this `Proxy-Authorization`, such as `Basic dTpw`.
    pub fn require(&self, authorization: &str) {
        self.shared.books().authorization = Some(authorization.to_string());
    }

    /// Answers everything with this status from now on.
    pub fn refuse(&self, status: u16) {
        self.shared.books().refusal = Some(status);
    }

    /// What came, oldest first.
    pub fn log(&self) -> Vec<Passage> {
        self.shared.books().log.clone()
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request; the answer is its place in the log, nothing if that is full.
    fn arrive(&self, request: &Request) -> Option<usize> {
        let mut books = self.books();
        if books.log.len() == MOST_PASSAGES {
            return None;
        }
        let at = Time(Span::from(read_clock().duration_since(self.started)).0);
        let Request { method, target, headers, .. } = request.clone();
        books.log.push(Passage { at, method, target, headers, status: None });
        Some(books.log.len() - 1)
    }

    /// Where a request leads, or the status of its refusal.
    fn way(&self, request: &Request) -> Result<Way, u16> {
        let books = self.books();
        let known = request.header("proxy-authorization");
        if books.authorization.is_some() && books.authorization.as_deref() != known {
            return Err(407);
        }
        if let Some(status) = books.refusal {
            return Err(status);
        }
        let (authority, path) = destination(request).ok_or(400_u16)?;
        let to = books.routes.get(&authority).copied().or_else(|| authority.parse().ok());
        let to = to.filter(|addr| addr.ip().is_loopback()).ok_or(502_u16)?;
        Ok(Way { to, path })
    }
}

struct Way {
    to: SocketAddr,
    /// The target for the server; nothing for a tunnel.
    path: Option<String>,
}

/// Host with port, and the path unless it is a tunnel.
fn destination(request: &Request) -> Option<(String, Option<String>)> {
    if request.method == "CONNECT" {
        return Some((request.target.clone(), None));
    }
    let rest = request.target.strip_prefix("http://")?;
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    // A colon within brackets belongs to an address, not to a port.
    let port_named = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let authority = if port_named { host.to_string() } else { format!("{host}:80") };
    Some((authority, Some(format!("{slash}{path}"))))
}

async fn converse(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some((request, unread)) = read(&mut client).await? else { return Ok(()) };
    let Some(place) = shared.arrive(&request) else { return Ok(()) };
    let connected = match shared.way(&request) {
        Ok(way) => TcpStream::connect(way.to).await.map(|s| (s, way.path)).map_err(|_| 502),
        Err(status) => Err(status),
    };
    let (mut server, path) = match connected {
        Ok(connected) => connected,
        Err(status) => return refuse(&mut client, status, shared, place).await,
    };
    if let Some(path) = path {
        server.write_all(&passed_on(&request, &path)).await?;
    } else {
        shared.books().log[place].status = Some(200);
        client.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await?;
    }
    server.write_all(&unread).await?;
    copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

/// The request and what came behind its head; nothing if there is none to answer.
async fn read(client: &mut TcpStream) -> io::Result<Option<(Request, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        match Request::read(&bytes) {
            Ok(Some((request, length))) => return Ok(Some((request, bytes.split_off(length)))),
            Ok(None) => {}
            Err(_) => {
                client.write_all(&answer(400)).await?;
                return Ok(None);
            }
        }
        match tokio::time::timeout(READ_WITHIN, client.read_buf(&mut bytes)).await {
            Ok(Ok(n)) if n > 0 => {}
            _ => return Ok(None),
        }
    }
}

async fn refuse(
    client: &mut TcpStream,
    status: u16,
    shared: &Shared,
    place: usize,
) -> io::Result<()> {
    shared.books().log[place].status = Some(status);
    client.write_all(&answer(status)).await
}

fn answer(status: u16) -> Vec<u8> {
    let asks = if status == 407 { "proxy-authenticate: Basic realm=\"mock\"\r\n" } else { "" };
    format!("HTTP/1.1 {status} Proxy\r\n{asks}content-length: 0\r\nconnection: close\r\n\r\n")
        .into()
}

/// The request for the server: without what was meant for the proxy, and for this one time.
fn passed_on(request: &Request, path: &str) -> Vec<u8> {
    let mut head = format!("{} {path} HTTP/1.1\r\n", request.method);
    for (name, value) in &request.headers {
        if name != "connection" && name != "keep-alive" && !name.starts_with("proxy-") {
            head.extend([name, ": ", value, "\r\n"]);
        }
    }
    head.push_str("connection: close\r\n\r\n");
    // Heads are read as Latin-1, so each char is the byte it was.
    head.chars().map(|c| c as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, Option<&str>)>) {
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n");
        let (request, _) = Request::read(head.as_bytes()).expect("well-formed").expect("whole");
        let found = destination(&request);
        assert_eq!(found.as_ref().map(|(a, p)| (a.as_str(), p.as_deref())), expected);
    }

    #[test]
    fn a_target_names_where_to_go() {
        check("GET http://a.example/b?c", Some(("a.example:80", Some("/b?c"))));
        check("GET http://a.example:8080?c", Some(("a.example:8080", Some("/?c"))));
        check("GET http://[::1]/", Some(("[::1]:80", Some("/"))));
        check("GET http://[::1]:81/", Some(("[::1]:81", Some("/"))));
        check("CONNECT a.example:443", Some(("a.example:443", None)));
        check("GET /b", None);
    }
}
