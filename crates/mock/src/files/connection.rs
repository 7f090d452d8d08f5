//! One connection: requests in, answers out, byte by byte as the script wants them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::fault::Ending;
use super::file::Framing;
use super::reply::{Deed, Manner, Reply};
use super::shelf::{Decision, Open, Shelf};
use crate::request::{LARGEST_HEAD, Request};

/// Bytes of a body that are sent at once.
const PIECE: usize = 32 << 10;
/// How often a slow body moves.
const BEAT: Duration = Duration::from_millis(20);
/// How long a connection may be silent before a request.
const IDLE: Duration = Duration::from_mins(1);

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

/// What becomes of a connection after an answer.
enum Next {
    Request,
    Close,
    Reset,
}

/// A connection and what was read of it ahead.
pub(crate) struct Connection<W> {
    wire: W,
    unread: Vec<u8>,
    number: u64,
    shelf: Arc<Shelf>,
}

impl<W: Wire> Connection<W> {
    pub(crate) fn new(wire: W, number: u64, shelf: Arc<Shelf>) -> Connection<W> {
        Connection { wire, unread: Vec::new(), number, shelf }
    }

    /// Answers until one side has enough.
    pub(crate) async fn converse(mut self) {
        let next = loop {
            match self.exchange().await {
                Ok(Next::Request) => {}
                Ok(next) => break next,
                // The client is gone; what was open has ended with it.
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
        let Some(decision) = self.shelf.arrive(&request, self.number) else {
            return Ok(Next::Close);
        };
        let Decision { deed, manner, mut open } = decision;
        self.pause(manner.latency).await?;
        if !manner.before.is_empty() {
            self.wire.write_all(&manner.before).await?;
        }
        match deed {
            Deed::Hang => self.stall().await,
            Deed::Close => Ok(Next::Close),
            Deed::Reset => Ok(Next::Reset),
            Deed::Raw(bytes) => {
                open.end();
                self.wire.write_all(&bytes).await?;
                Ok(Next::Close)
            }
            Deed::EndlessHeaders => self.flood().await,
            Deed::Reply(reply) => {
                let ending = self.reply(&reply, &manner, &mut open).await?;
                match ending {
                    Some(Ending::Close) => Ok(Next::Close),
                    Some(Ending::Reset) => Ok(Next::Reset),
                    Some(Ending::Stall) => self.stall().await,
                    None if reply.closes(&request) => Ok(Next::Close),
                    None => Ok(Next::Request),
                }
            }
        }
    }

    /// The next request, without its body; nothing at an orderly end.
    async fn request(&mut self) -> io::Result<Option<Request>> {
        let idle_until = Instant::now() + IDLE;
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

    /// Sends an answer; the answer here is how it was cut, if it was.
    async fn reply(
        &mut self,
        reply: &Reply,
        manner: &Manner,
        open: &mut Open,
    ) -> io::Result<Option<Ending>> {
        let ends_with_head = reply.bodiless || (reply.length == 0 && manner.tells_end(reply));
        if ends_with_head {
            open.end();
        }
        self.send_paced(&reply.head(), manner.head_pace).await?;
        if reply.bodiless { Ok(None) } else { self.body(reply, manner, open).await }
    }

    async fn body(
        &mut self,
        reply: &Reply,
        manner: &Manner,
        open: &mut Open,
    ) -> io::Result<Option<Ending>> {
        let whole = manner.cut.map_or(reply.length, |(after, _)| after.min(reply.length));
        let mut clock = Clock::new(manner.body_pace);
        let mut sent = 0;
        while sent < whole {
            let most = clock.room().min(usize::try_from(whole - sent).unwrap_or(usize::MAX));
            let piece = reply.content.piece(reply.first + sent, most);
            sent += piece.len() as u64;
            if sent == whole && manner.tells_end(reply) {
                open.end();
            }
            self.send_piece(&piece, reply.framing, open).await?;
            if sent < whole {
                self.pause_until(clock.next(piece.len())).await?;
            }
        }
        if let Some((_, ending)) = manner.cut {
            self.wire.flush().await?;
            return Ok(Some(ending));
        }
        open.end();
        let last_chunk: &[u8] = if reply.framing == Framing::Chunked { b"0\r\n\r\n" } else { b"" };
        self.wire.write_all(&[last_chunk, &vec![b'!'; manner.beyond]].concat()).await?;
        self.wire.flush().await?;
        Ok(None)
    }

    async fn send_piece(&mut self, piece: &[u8], framing: Framing, open: &Open) -> io::Result<()> {
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
        let mut clock = Clock::new(pace);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(clock.room().min(rest.len()));
            self.wire.write_all(piece).await?;
            self.wire.flush().await?;
            rest = later;
            self.pause_until(clock.next(piece.len())).await?;
        }
        Ok(())
    }

    /// Header lines until the client has had enough.
    async fn flood(&mut self) -> io::Result<Next> {
        self.wire.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        for line in 0_u64.. {
            self.wire.write_all(format!("x-{line}: endless\r\n").as_bytes()).await?;
        }
        Ok(Next::Close)
    }

    /// Waits for ever, that is until the client is gone.
    async fn stall(&mut self) -> io::Result<Next> {
        self.wire.flush().await?;
        self.gone().await;
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    async fn pause(&mut self, span: Duration) -> io::Result<()> {
        if span.is_zero() { Ok(()) } else { self.pause_until(Some(Instant::now() + span)).await }
    }

    /// Waits, unless the client goes away meanwhile.
    async fn pause_until(&mut self, until: Option<Instant>) -> io::Result<()> {
        let Some(until) = until else { return Ok(()) };
        self.wire.flush().await?;
        tokio::select! {
            () = sleep_until(until) => Ok(()),
            () = self.gone() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Comes back when the client has closed or broken the connection. What it still says is kept.
    async fn gone(&mut self) {
        while self.unread.len() < LARGEST_HEAD {
            match self.wire.read_buf(&mut self.unread).await {
                Ok(n) if n > 0 => {}
                _ => return,
            }
        }
        std::future::pending::<()>().await;
    }
}

/// How fast bytes may go.
struct Clock {
    pace: Option<u32>,
    next_at: Instant,
}

impl Clock {
    fn new(pace: Option<u32>) -> Clock {
        Clock { pace, next_at: Instant::now() }
    }

    /// How many bytes go at once.
    fn room(&self) -> usize {
        let beats = 1_000 / BEAT.as_millis() as usize;
        self.pace.map_or(PIECE, |pace| (pace as usize / beats).clamp(1, PIECE))
    }

    /// When the next bytes may follow `sent` ones; nothing if at once.
    fn next(&mut self, sent: usize) -> Option<Instant> {
        let pace = self.pace?.max(1);
        self.next_at += Duration::from_secs(1) * sent as u32 / pace;
        Some(self.next_at)
    }
}
