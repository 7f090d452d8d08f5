//! One HTTP/1 connection: reads requests and writes responses as the faults demand.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::fault::Ending;
use super::file::Framing;
use super::response::{Action, Delivery, PreparedResponse};
use super::state::{Decision, OpenRequest, Shared};
use crate::request::{LARGEST_HEAD, Request};

/// The bytes of a body that are written at once.
const PIECE: usize = 32 << 10;
/// The time between two pieces of a slow body.
const INTERVAL: Duration = Duration::from_millis(20);
/// The time after which a connection without a request is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// A socket, plain or within TLS.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket itself.
    fn socket(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// The next step of a connection after a response.
enum Next {
    Request,
    Close,
    Reset,
}

/// A connection, with bytes that were read ahead.
pub(crate) struct Connection<W> {
    wire: W,
    unread: Vec<u8>,
    number: u64,
    shared: Arc<Shared>,
}

impl<W: Wire> Connection<W> {
    pub(crate) fn new(wire: W, number: u64, shared: Arc<Shared>) -> Connection<W> {
        Connection { wire, unread: Vec::new(), number, shared }
    }

    /// Serves requests until one side closes the connection.
    pub(crate) async fn serve_connection(mut self) {
        let next = loop {
            match self.exchange().await {
                Ok(Next::Request) => {}
                Ok(next) => break next,
                // The client disconnected. Dropping the request has ended it.
                Err(_) => return,
            }
        };
        match next {
            Next::Reset => {
                let _ = self.wire.socket().set_zero_linger();
            }
            _ => {
                let _ = self.wire.shutdown().await;
            }
        }
    }

    async fn exchange(&mut self) -> io::Result<Next> {
        let Some(request) = self.request().await? else { return Ok(Next::Close) };
        let Some(decision) = self.shared.arrive(&request, self.number) else {
            return Ok(Next::Close);
        };
        let Decision { action, delivery, mut open } = decision;
        self.pause(delivery.latency).await?;
        if !delivery.before.is_empty() {
            self.wire.write_all(&delivery.before).await?;
        }
        match action {
            Action::Hang => self.stall().await,
            Action::Close => Ok(Next::Close),
            Action::Reset => Ok(Next::Reset),
            Action::Raw(bytes) => {
                open.end();
                self.wire.write_all(&bytes).await?;
                Ok(Next::Close)
            }
            Action::EndlessHeaders => self.flood().await,
            Action::Respond(response) => {
                let ending = self.send_response(&response, &delivery, &mut open).await?;
                match ending {
                    Some(Ending::Close) => Ok(Next::Close),
                    Some(Ending::Reset) => Ok(Next::Reset),
                    Some(Ending::Stall) => self.stall().await,
                    None if response.closes(&request) => Ok(Next::Close),
                    None => Ok(Next::Request),
                }
            }
        }
    }

    /// Reads the next request and skips its body. Returns `None` if the connection is to be closed.
    async fn request(&mut self) -> io::Result<Option<Request>> {
        let idle_until = Instant::now() + IDLE_TIMEOUT;
        loop {
            match Request::read(&self.unread) {
                Ok(Some((request, length))) => {
                    self.unread.drain(..length);
                    if !request.body_length_fits() {
                        return self.refuse("413 Content Too Large").await;
                    }
                    self.skip(request.body_length() as usize).await?;
                    return Ok(Some(request));
                }
                Ok(None) => {}
                Err(_) => return self.refuse("400 Bad Request").await,
            }
            let read = tokio::time::timeout_at(idle_until, self.wire.read_buf(&mut self.unread));
            match read.await {
                Ok(Ok(n)) if n > 0 => {}
                Ok(Err(error)) => return Err(error),
                _ => return Ok(None),
            }
        }
    }

    async fn refuse(&mut self, status: &str) -> io::Result<Option<Request>> {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        self.wire.write_all(head.as_bytes()).await?;
        Ok(None)
    }

    async fn skip(&mut self, length: usize) -> io::Result<()> {
        while self.unread.len() < length {
            if self.wire.read_buf(&mut self.unread).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.unread.drain(..length);
        Ok(())
    }

    /// Sends a response. Returns how it was cut, if it was.
    async fn send_response(
        &mut self,
        response: &PreparedResponse,
        delivery: &Delivery,
        open: &mut OpenRequest,
    ) -> io::Result<Option<Ending>> {
        let ends_with_head =
            response.bodiless || (response.length == 0 && delivery.ends_with_body(response));
        if ends_with_head {
            open.end();
        }
        self.send_paced(&response.head(), delivery.head_pace).await?;
        if response.bodiless { Ok(None) } else { self.body(response, delivery, open).await }
    }

    async fn body(
        &mut self,
        response: &PreparedResponse,
        delivery: &Delivery,
        open: &mut OpenRequest,
    ) -> io::Result<Option<Ending>> {
        let whole = delivery.cut.map_or(response.length, |(after, _)| after.min(response.length));
        let mut pacer = Pacer::new(delivery.body_pace);
        let mut sent = 0;
        while sent < whole {
            let most = pacer.room().min(usize::try_from(whole - sent).unwrap_or(usize::MAX));
            let piece = response.content.piece(response.first + sent, most);
            sent += piece.len() as u64;
            if sent == whole && delivery.ends_with_body(response) {
                open.end();
            }
            self.send_piece(&piece, response.framing, open).await?;
            if sent < whole {
                self.pause_until(pacer.next(piece.len())).await?;
            }
        }
        if let Some((_, ending)) = delivery.cut {
            self.wire.flush().await?;
            return Ok(Some(ending));
        }
        open.end();
        let last_chunk: &[u8] =
            if response.framing == Framing::Chunked { b"0\r\n\r\n" } else { b"" };
        self.wire.write_all(&[last_chunk, &vec![b'!'; delivery.beyond]].concat()).await?;
        self.wire.flush().await?;
        Ok(None)
    }

    async fn send_piece(
        &mut self,
        piece: &[u8],
        framing: Framing,
        open: &OpenRequest,
    ) -> io::Result<()> {
        open.sends(piece.len());
        let framed = match framing {
            Framing::Chunked => {
                [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
            }
            Framing::Length | Framing::UntilClose => piece.to_vec(),
        };
        let mut written = 0;
        while written < framed.len() {
            match self.wire.write(&framed[written..]).await {
                Ok(n) if n > 0 => written += n,
                broken => {
                    open.kept(piece.len().min(framed.len() - written));
                    return Err(broken.err().unwrap_or(io::ErrorKind::WriteZero.into()));
                }
            }
        }
        Ok(())
    }

    async fn send_paced(&mut self, bytes: &[u8], pace: Option<u32>) -> io::Result<()> {
        let mut pacer = Pacer::new(pace);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(pacer.room().min(rest.len()));
            self.wire.write_all(piece).await?;
            self.wire.flush().await?;
            rest = later;
            self.pause_until(pacer.next(piece.len())).await?;
        }
        Ok(())
    }

    /// Sends header lines until the client disconnects.
    async fn flood(&mut self) -> io::Result<Next> {
        self.wire.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        for line in 0_u64.. {
            self.wire.write_all(format!("x-{line}: endless\r\n").as_bytes()).await?;
        }
        Ok(Next::Close)
    }

    /// Waits until the client disconnects.
    async fn stall(&mut self) -> io::Result<Next> {
        self.wire.flush().await?;
        self.disconnected().await;
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    async fn pause(&mut self, span: Duration) -> io::Result<()> {
        if span.is_zero() { Ok(()) } else { self.pause_until(Some(Instant::now() + span)).await }
    }

    /// Waits, and fails if the client disconnects meanwhile.
    async fn pause_until(&mut self, until: Option<Instant>) -> io::Result<()> {
        let Some(until) = until else { return Ok(()) };
        self.wire.flush().await?;
        tokio::select! {
            () = sleep_until(until) => Ok(()),
            () = self.disconnected() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Returns when the client has closed or reset the connection. Bytes that it sends before are
    /// kept.
    async fn disconnected(&mut self) {
        while self.unread.len() < LARGEST_HEAD {
            match self.wire.read_buf(&mut self.unread).await {
                Ok(n) if n > 0 => {}
                _ => return,
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Paces writes to a number of bytes per second.
struct Pacer {
    pace: Option<u32>,
    next_at: Instant,
}

impl Pacer {
    fn new(pace: Option<u32>) -> Pacer {
        Pacer { pace, next_at: Instant::now() }
    }

    /// The most bytes of the next write.
    fn room(&self) -> usize {
        let per_second = 1_000 / INTERVAL.as_millis() as usize;
        self.pace.map_or(PIECE, |pace| (pace as usize / per_second).clamp(1, PIECE))
    }

    /// When the next write may follow one of `sent` bytes; `None` if at once.
    fn next(&mut self, sent: usize) -> Option<Instant> {
        let pace = self.pace?.max(1);
        self.next_at += Duration::from_secs(1) * sent as u32 / pace;
        Some(self.next_at)
    }
}
