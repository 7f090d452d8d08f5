//! Connections: taken in within bounds, and let go when they stand still.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::server::Server;

/// What comes from outside is bounded.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// How long the head of a request may take, and how long a connection may idle.
    pub head_within: Duration,
    /// How long a client may take to read anything of an answer.
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

/// The largest head of a request, and its lines.
const LARGEST_HEAD: usize = 32 << 10;
const MOST_HEADERS: usize = 100;
/// How long open answers may go on after the end.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);
/// After a failure to take a connection in, such as too many files.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Answers whoever connects, until `over`; then open connections have a moment left.
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
        let (closing, closed) = tokio::sync::watch::channel(());
        let mut over = std::pin::pin!(over);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
                () = &mut over => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no connection was taken in");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Whoever comes when all places are taken is told by the end of the connection.
            let Ok(place) = room.clone().try_acquire_owned() else { continue };
            let (server, closed) = (self.clone(), closed.clone());
            tasks.spawn(async move {
                server.attend(stream, bounds, closed).await;
                drop(place);
            });
        }
        drop((listener, closing));
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LET_GO_WITHIN, all).await;
    }

    /// One connection, to its end.
    async fn attend(
        self,
        stream: TcpStream,
        bounds: Bounds,
        mut closed: tokio::sync::watch::Receiver<()>,
    ) {
        let _ = stream.set_nodelay(true);
        let stream = TokioIo::new(Patient::new(stream, bounds.stalled));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(bounds.head_within)
            .max_buf_size(LARGEST_HEAD)
            .max_headers(MOST_HEADERS);
        let connection = http.serve_connection(stream, TowerToHyperService::new(self.router()));
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            // How a connection ends is its client's business.
            _ = connection.as_mut() => {}
            _ = closed.changed() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

/// A stream that is given up when nothing of it is read for too long.
struct Patient {
    stream: TcpStream,
    stalled: Duration,
    /// Set while the other end reads nothing.
    limit: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, stalled: Duration) -> Patient {
        Patient { stream, stalled, limit: None }
    }

    /// Progress starts the clock anew; standing still runs it down.
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
