//! The file server over HTTP/2, with the faults that HTTP/2 frames allow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::connection::Wire;
use super::fault::Ending;
use super::response::{Action, Delivery, PreparedResponse};
use super::state::{Decision, OpenRequest, Shared};
use crate::request::{Request, Version};

/// The most bytes of a body in one frame.
const PIECE: usize = 16 << 10;

/// Serves the streams of one connection until it ends.
pub(crate) async fn serve_connection(wire: impl Wire + 'static, number: u64, shared: Arc<Shared>) {
    let responder = service_fn(move |request| {
        let shared = shared.clone();
        async move { respond_to(&request, number, &shared).await }
    });
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new());
    // Ignored: hyper has answered a malformed request, and a client that disconnected wants none.
    let _ = http.serve_connection(TokioIo::new(wire), responder).await;
}

/// Responds to one request. An error resets the stream.
async fn respond_to(
    request: &hyper::Request<Incoming>,
    number: u64,
    shared: &Arc<Shared>,
) -> io::Result<hyper::Response<Pieces>> {
    let decision = shared.arrive(&plain(request), number).ok_or_else(cut_off)?;
    let Decision { action, delivery, open } = decision;
    tokio::time::sleep(delivery.latency).await;
    match action {
        Action::Respond(prepared) => response(prepared, &delivery, open),
        Action::Hang => std::future::pending().await,
        Action::Close | Action::Reset | Action::Raw(_) | Action::EndlessHeaders => Err(cut_off()),
    }
}

fn cut_off() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// The request in the form that the rules take.
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
        let joined = plain.headers.entry(name.to_string()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.extend(value.iter().map(|&byte| char::from(byte)));
    }
    plain
}

fn response(
    prepared: PreparedResponse,
    delivery: &Delivery,
    mut open: OpenRequest,
) -> io::Result<hyper::Response<Pieces>> {
    let mut response = hyper::Response::builder().status(prepared.status);
    for (name, value) in &prepared.headers {
        // HTTP/2 forbids these headers: the stream itself marks its end.
        if name != "connection" && name != "transfer-encoding" {
            response = response.header(name, value.as_slice());
        }
    }
    let length = if prepared.bodiless { 0 } else { prepared.length };
    let whole = delivery.cut.map_or(length, |(after, _)| after.min(length));
    let cut = delivery.cut.map(|(_, ending)| ending);
    if whole == 0 && cut.is_none() {
        open.end();
    }
    let body = Pieces { response: prepared, sent: 0, whole, cut, open };
    response.body(body).map_err(|_| cut_off())
}

/// A body that is computed while it is sent.
struct Pieces {
    response: PreparedResponse,
    sent: u64,
    whole: u64,
    cut: Option<Ending>,
    open: OpenRequest,
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
                // Only the end of the stream wakes this task again.
                Some(Ending::Stall) => Poll::Pending,
                Some(Ending::Close | Ending::Reset) => Poll::Ready(Some(Err(cut_off()))),
            };
        }
        let most = usize::try_from(self.whole - self.sent).unwrap_or(usize::MAX).min(PIECE);
        let piece = self.response.content.piece(self.response.first + self.sent, most);
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
