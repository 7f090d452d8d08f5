//! The same files over HTTP/2, as far as its frames can misbehave.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::connection::Wire;
use super::fault::Ending;
use super::reply::{Deed, Manner, Reply};
use super::shelf::{Decision, Open, Shelf};
use crate::request::{Request, Version};

/// Bytes of a body in one frame.
const PIECE: usize = 16 << 10;

/// Answers the streams of one connection until it ends.
pub(crate) async fn converse(wire: impl Wire + 'static, number: u64, shelf: Arc<Shelf>) {
    let answer = service_fn(move |request| {
        let shelf = shelf.clone();
        async move { answer(&request, number, &shelf).await }
    });
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new());
    // A client that breaks off or talks nonsense is its own problem: hyper has told it.
    let _ = http.serve_connection(TokioIo::new(wire), answer).await;
}

/// An error resets the stream.
async fn answer(
    request: &hyper::Request<Incoming>,
    number: u64,
    shelf: &Arc<Shelf>,
) -> io::Result<hyper::Response<Pieces>> {
    let decision = shelf.arrive(&plain(request), number).ok_or_else(cut_off)?;
    let Decision { deed, manner, open } = decision;
    tokio::time::sleep(manner.latency).await;
    match deed {
        Deed::Reply(reply) => response(reply, &manner, open),
        Deed::Hang => std::future::pending().await,
        Deed::Close | Deed::Reset | Deed::Raw(_) | Deed::EndlessHeaders => Err(cut_off()),
    }
}

fn cut_off() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// The request as the rules read it.
fn plain(request: &hyper::Request<Incoming>) -> Request {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut plain = Request {
        method: request.method().to_string(),
        target: target.to_string(),
        version: Version::Http2,
        headers: std::collections::BTreeMap::new(),
    };
    let authority = request.uri().authority().map(|host| ("host", host.as_str().as_bytes()));
    let lines = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    for (name, value) in authority.into_iter().chain(lines) {
        let known = plain.headers.entry(name.to_string()).or_default();
        if !known.is_empty() {
            known.push_str(", ");
        }
        known.extend(value.iter().map(|&byte| char::from(byte)));
    }
    plain
}

fn response(reply: Reply, manner: &Manner, mut open: Open) -> io::Result<hyper::Response<Pieces>> {
    let mut response = hyper::Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        // HTTP/2 has no such headers: the stream itself tells its end.
        if name != "connection" && name != "transfer-encoding" {
            response = response.header(name, value.as_slice());
        }
    }
    let length = if reply.bodiless { 0 } else { reply.length };
    let whole = manner.cut.map_or(length, |(after, _)| after.min(length));
    let cut = manner.cut.map(|(_, ending)| ending);
    if whole == 0 && cut.is_none() {
        open.end();
    }
    let body = Pieces { reply, sent: 0, whole, cut, open };
    response.body(body).map_err(|_| cut_off())
}

/// A body that is made while it is sent.
struct Pieces {
    reply: Reply,
    sent: u64,
    whole: u64,
    cut: Option<Ending>,
    open: Open,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.sent == self.whole {
            return match self.cut {
                None => Poll::Ready(None),
                // Nothing wakes this again but the end of the stream.
                Some(Ending::Stall) => Poll::Pending,
                Some(Ending::Close | Ending::Reset) => Poll::Ready(Some(Err(cut_off()))),
            };
        }
        let most = usize::try_from(self.whole - self.sent).unwrap_or(usize::MAX).min(PIECE);
        let piece = self.reply.content.piece(self.reply.first + self.sent, most);
        self.sent += piece.len() as u64;
        self.open.sends(piece.len());
        if self.is_end_stream() {
            self.open.end();
        }
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.whole && self.cut.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.cut {
            None => SizeHint::with_exact(self.whole - self.sent),
            Some(_) => SizeHint::default(),
        }
    }
}
