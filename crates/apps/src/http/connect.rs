//! Connecting: addresses, sockets, proxies, TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::header::HeaderValue;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::HttpError;
use super::origin::{Origin, Scheme};
use super::proxy::Proxy;
use super::reach::Reach;

/// The delay before the next address is tried in parallel (RFC 8305).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// Addresses per name that are tried.
const MOST_ADDRESSES: usize = 8;
/// The longest response head of a proxy before its tunnel begins.
const LONGEST_PROXY_HEAD: usize = 16 << 10;

/// A stream to a server, plain or encrypted.
pub(super) type Stream = Box<dyn Wire>;

/// Bytes in both directions.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The negotiated protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A stream that is ready for requests.
pub(super) struct Connected {
    pub(super) stream: Stream,
    pub(super) protocol: Protocol,
    /// The server's address, unless a proxy hides it.
    pub(super) peer: Option<SocketAddr>,
}

/// TLS with the system's root certificates. Made on first use, because reading them takes time.
#[derive(Default)]
pub(super) struct Tls(OnceLock<Result<TlsConnector, String>>);

impl Tls {
    fn connector(&self) -> Result<&TlsConnector, HttpError> {
        let made = self.0.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err("the system trusts no certificates: install `ca-certificates`, or \
                            name a file in SSL_CERT_FILE"
                    .to_string());
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?;
            let mut config = config.with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Ok(TlsConnector::from(Arc::new(config)))
        });
        made.as_ref().map_err(|why| HttpError::Tls(why.clone()))
    }

    async fn wrap(
        &self,
        stream: Stream,
        origin: &Origin,
        peer: Option<SocketAddr>,
    ) -> Result<Connected, HttpError> {
        let name = ServerName::try_from(origin.bare_host().to_string())
            .map_err(|error| HttpError::Tls(error.to_string()))?;
        let stream = self.connector()?.connect(name, stream).await.map_err(tls_error)?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok(Connected { stream: Box::new(stream), protocol, peer })
    }
}

/// An interrupted handshake may be retried; an invalid certificate may not.
fn tls_error(error: io::Error) -> HttpError {
    let inner = error.get_ref();
    if inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some() {
        HttpError::Tls(error.to_string())
    } else {
        HttpError::Connect(error)
    }
}

/// Connects to the server, through its proxy if it has one.
pub(super) async fn connect(
    origin: &Origin,
    proxy: Option<&Proxy>,
    tls: &Tls,
    reach: Reach,
) -> Result<Connected, HttpError> {
    let stream = match proxy {
        None => dial(origin.bare_host(), origin.port, reach).await?,
        Some(proxy) => {
            // The proxy resolves the name.
            if reach == Reach::Public && names_this_network(origin.bare_host()) {
                return Err(HttpError::Private(origin.host.clone()));
            }
            dial(proxy.host(), proxy.port(), Reach::Everywhere).await?
        }
    };
    let peer = stream.peer_addr().ok().filter(|_| proxy.is_none());
    match (origin.scheme, proxy) {
        (Scheme::Http, _) => {
            Ok(Connected { stream: Box::new(stream), protocol: Protocol::Http1, peer })
        }
        (Scheme::Https, None) => tls.wrap(Box::new(stream), origin, peer).await,
        (Scheme::Https, Some(proxy)) => {
            let stream = tunnel(stream, origin, proxy.authorization()).await?;
            tls.wrap(Box::new(stream), origin, peer).await
        }
    }
}

/// Connects to the first of a host's addresses that accepts.
async fn dial(host: &str, port: u16, reach: Reach) -> Result<TcpStream, HttpError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| HttpError::Resolve(host.to_string(), error))?;
    let mut found = found.peekable();
    let any = found.peek().is_some();
    let allowed: Vec<SocketAddr> =
        found.filter(|address| reach.allows(address.ip())).take(MOST_ADDRESSES).collect();
    if any && allowed.is_empty() {
        return Err(HttpError::Private(host.to_string()));
    }
    let mut addresses = allowed.into_iter();
    let mut racing = FuturesUnordered::new();
    let mut failed = None;
    loop {
        if let Some(address) = addresses.next() {
            racing.push(TcpStream::connect(address));
        } else if racing.is_empty() {
            let none = || HttpError::Resolve(host.to_string(), io::ErrorKind::NotFound.into());
            return Err(failed.map_or_else(none, HttpError::Connect));
        }
        let patience =
            if addresses.size_hint().1 == Some(0) { Duration::MAX } else { NEXT_ADDRESS_AFTER };
        match tokio::time::timeout(patience, racing.next()).await {
            Ok(Some(Ok(stream))) => {
                // Requests are small and complete: Nagle's algorithm would only delay them.
                stream.set_nodelay(true).map_err(HttpError::Connect)?;
                return Ok(stream);
            }
            Ok(Some(Err(error))) => failed = Some(error),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Returns `true` if a host names this machine or a private address directly.
fn names_this_network(host: &str) -> bool {
    match host.parse() {
        Ok(address) => !Reach::Public.allows(address),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Asks a proxy for a tunnel to the server.
async fn tunnel(
    mut stream: TcpStream,
    origin: &Origin,
    authorization: Option<&HeaderValue>,
) -> Result<TcpStream, HttpError> {
    let target = format!("{}:{}", origin.host, origin.port);
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n").into_bytes();
    if let Some(value) = authorization {
        head.extend_from_slice(b"proxy-authorization: ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.map_err(HttpError::Connect)?;
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= LONGEST_PROXY_HEAD {
            return Err(HttpError::Proxy("the head of its response is incomplete".to_string()));
        }
        // Byte by byte: the bytes after the head belong to the tunnel.
        answer.push(stream.read_u8().await.map_err(HttpError::Connect)?);
    }
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if status.first() == Some(&b'2') {
        Ok(stream)
    } else if status == b"407" {
        Err(HttpError::ProxyLogin)
    } else {
        let line = String::from_utf8_lossy(&line[..line.len().min(200)]);
        // The text is shown on terminals, which interpret control characters.
        Err(HttpError::Proxy(line.replace(char::is_control, "?")))
    }
}
