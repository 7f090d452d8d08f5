//! A forward proxy with a log of its requests.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paceline_core::{Span, Time};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::request::Request;
use crate::serve::read_clock;
use crate::server_thread::ServerThread;

/// The most requests that the log keeps. Beyond it the proxy closes each connection.
pub const MOST_REQUESTS: usize = 10_000;
/// The time limit for reading a head.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// A running proxy, on a thread of its own. It accepts absolute targets and CONNECT.
///
/// It connects only to loopback addresses: a name resolves only by [`Proxy::route`].
#[derive(Debug)]
pub struct Proxy {
    server: ServerThread,
    shared: Arc<Shared>,
}

/// One request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedRequest {
    /// When the head had been read, since the proxy started.
    pub at: Time,
    /// The method.
    pub method: String,
    /// The request target: an absolute URL, or host and port for CONNECT.
    pub target: String,
    /// The headers: names in lower case, lines of one name joined with a comma.
    pub headers: BTreeMap<String, String>,
    /// The status that the proxy itself sent; `None` if it forwarded the request.
    pub status: Option<u16>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    routes: BTreeMap<String, SocketAddr>,
    authorization: Option<String>,
    refusal: Option<u16>,
    log: Vec<ProxiedRequest>,
}

impl Proxy {
    /// Starts on a free port of 127.0.0.1.
    pub fn start() -> Proxy {
        let shared = Arc::new(Shared { started: read_clock(), state: Mutex::default() });
        let kept = shared.clone();
        let server = ServerThread::open((Ipv4Addr::LOCALHOST, 0).into(), move |stream| {
            let shared = kept.clone();
            async move {
                // If one side disconnects, both sockets close.
                let _ = serve_connection(stream, &shared).await;
            }
        });
        Proxy { server: server.expect("a free port"), shared }
    }

    /// The address on which it listens.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Its URL, as `http_proxy` takes it.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Routes a host and port, such as `files.example:443`, to a server on this machine.
    pub fn route(&self, authority: &str, to: SocketAddr) {
        self.shared.state().routes.insert(authority.to_string(), to);
    }

    /// Answers 407 unless the client sends this `Proxy-Authorization`, such as `Basic dTpw`.
    pub fn require(&self, authorization: &str) {
        self.shared.state().authorization = Some(authorization.to_string());
    }

    /// Answers every request with this status from now on.
    pub fn refuse(&self, status: u16) {
        self.shared.state().refusal = Some(status);
    }

    /// The requests so far, oldest first.
    pub fn log(&self) -> Vec<ProxiedRequest> {
        self.shared.state().log.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a request and returns its index, or `None` if the log is full.
    fn arrive(&self, request: &Request) -> Option<usize> {
        let mut state = self.state();
        if state.log.len() == MOST_REQUESTS {
            return None;
        }
        let at = Time(Span::from(read_clock().duration_since(self.started)).0);
        let Request { method, target, headers, .. } = request.clone();
        state.log.push(ProxiedRequest { at, method, target, headers, status: None });
        Some(state.log.len() - 1)
    }

    /// Returns the route of a request, or the status of its refusal.
    fn route_of(&self, request: &Request) -> Result<Route, u16> {
        let state = self.state();
        let sent = request.header("proxy-authorization");
        if state.authorization.is_some() && state.authorization.as_deref() != sent {
            return Err(407);
        }
        if let Some(status) = state.refusal {
            return Err(status);
        }
        let (authority, path) = destination(request).ok_or(400_u16)?;
        let to = state.routes.get(&authority).copied().or_else(|| authority.parse().ok());
        let to = to.filter(|addr| addr.ip().is_loopback()).ok_or(502_u16)?;
        Ok(Route { to, path })
    }
}

struct Route {
    to: SocketAddr,
    /// The target for the server; `None` for a tunnel.
    path: Option<String>,
}

/// Returns host with port, and the path unless it is a tunnel.
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

async fn serve_connection(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some((request, unread)) = read(&mut client).await? else { return Ok(()) };
    let Some(index) = shared.arrive(&request) else { return Ok(()) };
    let connected = match shared.route_of(&request) {
        Ok(route) => TcpStream::connect(route.to).await.map(|s| (s, route.path)).map_err(|_| 502),
        Err(status) => Err(status),
    };
    let (mut server, path) = match connected {
        Ok(connected) => connected,
        Err(status) => return refuse(&mut client, status, shared, index).await,
    };
    if let Some(path) = path {
        server.write_all(&forwarded(&request, &path)).await?;
    } else {
        shared.state().log[index].status = Some(200);
        client.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await?;
    }
    server.write_all(&unread).await?;
    copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

/// Reads a request. Returns it with the bytes behind its head, or `None` if the client sent none
/// that can be forwarded.
async fn read(client: &mut TcpStream) -> io::Result<Option<(Request, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        match Request::read(&bytes) {
            Ok(Some((request, length))) => return Ok(Some((request, bytes.split_off(length)))),
            Ok(None) => {}
            Err(_) => {
                client.write_all(&response(400)).await?;
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
    index: usize,
) -> io::Result<()> {
    shared.state().log[index].status = Some(status);
    client.write_all(&response(status)).await
}

fn response(status: u16) -> Vec<u8> {
    let challenge = if status == 407 { "proxy-authenticate: Basic realm=\"mock\"\r\n" } else { "" };
    format!("HTTP/1.1 {status} Proxy\r\n{challenge}content-length: 0\r\nconnection: close\r\n\r\n")
        .into()
}

/// The request for the server: without the headers for the proxy, on a connection that is not
/// reused.
fn forwarded(request: &Request, path: &str) -> Vec<u8> {
    let mut head = format!("{} {path} HTTP/1.1\r\n", request.method);
    for (name, value) in &request.headers {
        if name != "connection" && name != "keep-alive" && !name.starts_with("proxy-") {
            head.extend([name, ": ", value, "\r\n"]);
        }
    }
    head.push_str("connection: close\r\n\r\n");
    // Heads are read as Latin-1, so each char is one byte.
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
    fn a_target_names_host_port_and_path() {
        check("GET http://a.example/b?c", Some(("a.example:80", Some("/b?c"))));
        check("GET http://a.example:8080?c", Some(("a.example:8080", Some("/?c"))));
        check("GET http://[::1]/", Some(("[::1]:80", Some("/"))));
        check("GET http://[::1]:81/", Some(("[::1]:81", Some("/"))));
        check("CONNECT a.example:443", Some(("a.example:443", None)));
        check("GET /b", None);
    }
}
