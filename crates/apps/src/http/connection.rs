//! One connection, and one exchange over it at a time.
//!
//! The attempt that uses an HTTP/1 connection also drives it; there is no task per connection. So
//! the socket closes as soon as the attempt is dropped (L5), and no wake-up crosses threads per
//! piece. An HTTP/2 connection is shared by exchanges, and has a task.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::HOST;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

use super::body::Upload;
use super::connect::{Connected, Protocol, Stream};
use super::error::HttpError;

/// The largest head of a response, and the largest piece of a body.
const LARGEST_HEAD: usize = 256 << 10;
/// Header lines of a response at most.
const MOST_HEADERS: usize = 200;

/// A server that closes an unused connection within this time refuses connections.
const NEW_FOR: Duration = Duration::from_secs(2);

/// The interval of keep-alive pings on a shared connection, and the time limit for their replies.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_WITHIN: Duration = Duration::from_secs(10);

type Driver = Pin<Box<http1::Connection<TokioIo<Stream>, Upload>>>;

/// A connection that is ready for a request.
pub struct Connection {
    sender: Sender,
    made_at: Instant,
    /// Whether a request was sent over it; shared like the connection.
    is_used: Arc<AtomicBool>,
    /// The server's address, unless a proxy hides it.
    pub peer: Option<SocketAddr>,
}

enum Sender {
    Http1 { sender: http1::SendRequest<Upload>, driver: Driver },
    Http2(http2::SendRequest<Upload>),
}

impl Connection {
    /// Begins HTTP on a new stream.
    pub(super) async fn open(connected: Connected) -> Result<Connection, HttpError> {
        let Connected { stream, protocol, peer } = connected;
        let stream = TokioIo::new(stream);
        let broken = |error| HttpError::of(&error);
        let sender = match protocol {
            Protocol::Http1 => {
                let mut builder = http1::Builder::new();
                builder.max_buf_size(LARGEST_HEAD).max_headers(MOST_HEADERS);
                let (sender, driver) = builder.handshake(stream).await.map_err(broken)?;
                Sender::Http1 { sender, driver: Box::pin(driver) }
            }
            Protocol::Http2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder
                    .timer(TokioTimer::new())
                    .adaptive_window(true)
                    .keep_alive_interval(PING_EVERY)
                    .keep_alive_timeout(PING_WITHIN)
                    .max_header_list_size(LARGEST_HEAD as u32);
                let (sender, driver) = builder.handshake(stream).await.map_err(broken)?;
                #[expect(clippy::disallowed_methods, reason = "exchanges share it")]
                tokio::spawn(driver);
                Sender::Http2(sender)
            }
        };
        Ok(Connection { sender, made_at: Instant::now(), is_used: Arc::default(), peer })
    }

    /// A second handle to the same connection, if the protocol allows it.
    pub(super) fn share(&self) -> Option<Connection> {
        match &self.sender {
            Sender::Http1 { .. } => None,
            Sender::Http2(sender) => {
                let sender = Sender::Http2(sender.clone());
                Some(Connection { sender, is_used: self.is_used.clone(), ..*self })
            }
        }
    }

    /// Returns `true` if it can be reused.
    pub(super) fn is_usable(&self) -> bool {
        match &self.sender {
            Sender::Http1 { sender, .. } => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Returns `true` if a request can still be sent. Checks whether the server has closed it.
    pub(super) async fn is_open(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(self.poll_open(context))).await
    }

    fn poll_open(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.sender {
            Sender::Http1 { sender, driver } => {
                driver.as_mut().poll(context).is_pending() && sender.is_ready()
            }
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Returns `true` if it is new and was never used.
    pub(super) fn is_new(&self) -> bool {
        !self.is_used.load(Ordering::Relaxed) && self.made_at.elapsed() < NEW_FOR
    }

    /// Sends a request, and returns with the head of the response.
    pub async fn send(mut self, request: Request<Upload>) -> Result<Exchange, HttpError> {
        let was_used = self.is_used.swap(true, Ordering::Relaxed);
        let response = match &mut self.sender {
            Sender::Http1 { sender, driver } => {
                let answer = sender.send_request(request);
                tokio::pin!(answer);
                poll_fn(|context| {
                    if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                        return Poll::Ready(answer);
                    }
                    // Errors of the connection are reported through the response.
                    let _ = driver.as_mut().poll(context);
                    answer.as_mut().poll(context)
                })
                .await
            }
            Sender::Http2(sender) => sender.send_request(whole_address(request)?).await,
        };
        let response: Response<Incoming> =
            response.map_err(|error| match HttpError::of(&error) {
                // These may be surplus bytes of an earlier response: no error of this one.
                HttpError::NotHttp(text) if was_used => HttpError::Broken(text),
                error => error,
            })?;
        let (head, body) = response.into_parts();
        Ok(Exchange {
            connection: self,
            status: head.status,
            headers: head.headers,
            body,
            received: 0,
        })
    }
}

/// HTTP/2 has the host in the URL and not in a header.
fn whole_address(mut request: Request<Upload>) -> Result<Request<Upload>, HttpError> {
    let host = request.headers_mut().remove(HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let address = format!("https://{host}{}", request.uri());
    *request.uri_mut() = address.parse().map_err(|_| HttpError::NotHttp(address))?;
    Ok(request)
}

/// A response in transfer: its head, then its body piece by piece.
pub struct Exchange {
    connection: Connection,
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    body: Incoming,
    received: u64,
}

impl Exchange {
    /// The next piece of the body; `None` when it is complete.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            match poll_fn(|context| self.poll_frame(context)).await {
                None => return Ok(None),
                Some(Err(error)) => return Err(HttpError::of_body(&error, self.received)),
                Some(Ok(frame)) => {
                    // Trailers are not needed.
                    if let Ok(piece) = frame.into_data() {
                        self.received += piece.len() as u64;
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        match &mut self.connection.sender {
            Sender::Http1 { driver, .. } => {
                let _ = driver.as_mut().poll(context);
                Pin::new(&mut self.body).poll_frame(context)
            }
            Sender::Http2(_) => Poll::Pending,
        }
    }

    /// The length that the server announced.
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The address of the server, unless a proxy hides it.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.connection.peer
    }

    /// The connection, after the body was read completely, if it is still open.
    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }
}
