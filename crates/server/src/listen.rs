//! Connections: accepted within bounds, and closed when they stall.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tower::Service as _;

use crate::events::Listener;
use crate::server::Server;

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Open connections at most.
    pub connections: usize,
    /// The time limit for the head of a request, and for an idle connection.
    pub head_within: Duration,
    /// The time within which a client must read some bytes of a response.
    pub stalled: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 16_384,
            head_within: Duration::from_secs(30),
            stalled: Duration::from_secs(30),
        }
    }
}

/// The largest head of a request, and the most headers in it.
const LARGEST_HEAD: usize = 32 << 10;
const MOST_HEADERS: usize = 100;
/// The time that open responses have after shutdown begins.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);
/// The pause after an error of `accept`, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Serves connections until `over` resolves; open ones then have a second to finish.
    pub async fn serve(
        self,
        listener: TcpListener,
        bounds: Bounds,
        over: impl Future<Output = ()>,
    ) {
        let mut tasks = JoinSet::new();
        let shared = self.shared.clone();
        tasks.spawn(async move { shared.hub.run(&shared.pace, &shared.meters).await });
        let room = Arc::new(Semaphore::new(bounds.connections));
        let (closing, closed) = watch::channel(());
        let (hand_over, mut handed_over) = mpsc::unbounded_channel();
        let mut over = std::pin::pin!(over);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
                Some(streaming) = handed_over.recv() => {
                    let changes = self.shared.access_changes();
                    tasks.spawn(stream(streaming, closed.clone(), changes));
                    continue;
                }
                () = &mut over => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // At the limit, a new connection is closed at once.
            let Ok(place) = room.clone().try_acquire_owned() else { continue };
            let (server, closed, hand_over) = (self.clone(), closed.clone(), hand_over.clone());
            tasks.spawn(async move {
                if let Some((stream, listener)) = server.attend(stream, bounds, closed).await {
                    let _ = hand_over.send(Streaming { stream, listener, _place: place });
                }
            });
        }
        drop((listener, closing));
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LET_GO_WITHIN, all).await;
    }

    /// Serves one connection, to its end or until it becomes an event stream.
    async fn attend(
        self,
        stream: TcpStream,
        bounds: Bounds,
        mut closed: watch::Receiver<()>,
    ) -> Option<(Patient, Listener)> {
        let _ = stream.set_nodelay(true);
        let stream = TokioIo::new(Patient::new(stream, bounds.stalled));
        let (handover, router) = (Handover::default(), self.router());
        let theirs = handover.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(theirs.clone());
            router.clone().call(request)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(bounds.head_within)
            .max_buf_size(LARGEST_HEAD)
            .max_headers(MOST_HEADERS);
        let mut connection = http.serve_connection(stream, service);
        tokio::select! {
            // Clients may end a connection in any way: no error is reported.
            _ = &mut connection => return None,
            _ = closed.changed() => {
                Pin::new(&mut connection).graceful_shutdown();
                let _ = connection.await;
                return None;
            }
            () = handover.asked() => {}
        }
        let listener = handover.take()?;
        Some((connection.into_parts().io.into_inner(), listener))
    }
}

/// Lets a handler take over its connection. An event stream needs none of the buffers of HTTP, and
/// there may be thousands of them.
#[derive(Clone, Default)]
pub(crate) struct Handover(Arc<(Mutex<Option<Listener>>, Notify)>);

impl Handover {
    /// Takes over the connection and never returns.
    pub(crate) async fn give(&self, listener: Listener) -> std::convert::Infallible {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
        self.0.1.notify_one();
        std::future::pending().await
    }

    async fn asked(&self) {
        self.0.1.notified().await;
    }

    fn take(&self) -> Option<Listener> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection that has become an event stream.
struct Streaming {
    stream: Patient,
    listener: Listener,
    _place: OwnedSemaphorePermit,
}

/// The head of an event stream: it has no length, and ends with its connection.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    cache-control: no-store\r\nconnection: close\r\n\r\n";

/// Sends events until the client disconnects or stalls, the access rules change, or the engine
/// ends.
async fn stream(
    streaming: Streaming,
    mut closed: watch::Receiver<()>,
    mut changes: watch::Receiver<()>,
) {
    let Streaming { mut stream, mut listener, _place } = streaming;
    let tell = async {
        let (mut from, mut to) = tokio::io::split(&mut stream);
        to.write_all(HEAD).await?;
        let mut unasked = [0; 1];
        loop {
            tokio::select! {
                told = listener.next() => match told {
                    Some(told) => to.write_all(&told).await?,
                    None => return io::Result::Ok(()),
                },
                // The client has disconnected, or sends data, which a stream does not expect.
                _ = from.read(&mut unasked) => return Ok(()),
            }
        }
    };
    tokio::select! {
        _ = tell => {}
        _ = closed.changed() => {}
        _ = changes.changed() => {}
    }
    let _ = stream.shutdown().await;
}

/// A socket whose writes fail when the client reads nothing for too long.
struct Patient {
    stream: TcpStream,
    stalled: Duration,
    /// Set while the client reads nothing.
    limit: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, stalled: Duration) -> Patient {
        Patient { stream, stalled, limit: None }
    }

    /// Clears the timer on progress, and runs it while nothing moves.
    fn watch<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.limit = None;
            return done;
        }
        let stalled = self.stalled;
        let limit = self
            .limit
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + stalled)));
        match limit.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(done, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(done, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(done, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
