//! Reads a body a little ahead while its request waits for its turn, which is the only way to
//! notice that the client has disconnected. With a body larger than that, it is noticed at its
//! turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as _, Frame, SizeHint};

/// Bytes that are held at most before the turn comes, besides one piece.
const MOST_AHEAD: usize = 16 << 10;

/// The body, shared by the waiting route and the worker that forwards it.
#[derive(Clone)]
pub(super) struct Ahead(Arc<Mutex<Reading>>);

struct Reading {
    body: Body,
    pieces: VecDeque<Frame<Bytes>>,
    /// Bytes of those pieces.
    held: usize,
    /// Whether a worker forwards it: from then on only the worker reads.
    taken: bool,
}

impl Reading {
    /// The next piece of the body itself.
    fn next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    /// Resolves when the client has disconnected.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.taken && self.held < MOST_AHEAD && !self.body.is_end_stream() {
            match self.next(context) {
                Poll::Ready(Some(Ok(piece))) => {
                    self.held += piece.data_ref().map_or(0, Bytes::len);
                    self.pieces.push_back(piece);
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(()),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Pending
    }
}

impl Ahead {
    pub(super) fn new(body: Body) -> Ahead {
        let reading = Reading { body, pieces: VecDeque::new(), held: 0, taken: false };
        Ahead(Arc::new(Mutex::new(reading)))
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a little ahead. Resolves only if the client disconnects before a worker forwards the
    /// body.
    pub(super) async fn left(&self) {
        poll_fn(|context| self.reading().read_ahead(context)).await;
    }
}

impl hyper::body::Body for Ahead {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut reading = self.reading();
        reading.taken = true;
        if let Some(piece) = reading.pieces.pop_front() {
            reading.held -= piece.data_ref().map_or(0, Bytes::len);
            return Poll::Ready(Some(Ok(piece)));
        }
        reading.next(context).map(|piece| piece.map(|piece| piece.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        let reading = self.reading();
        reading.pieces.is_empty() && reading.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let reading = self.reading();
        let (rest, held) = (reading.body.size_hint(), reading.held as u64);
        let mut whole = SizeHint::new();
        // The upper end first: it must not be below the lower one.
        if let Some(upper) = rest.upper() {
            whole.set_upper(upper + held);
        }
        whole.set_lower(rest.lower() + held);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn bytes_read_ahead_come_first_and_count_in_the_length() {
        let pieces = (0..100).map(|n| Ok::<_, io::Error>(Bytes::from(vec![n; 1 << 10])));
        let mut ahead = Ahead::new(Body::from_stream(futures_util::stream::iter(pieces)));
        assert_eq!(ahead.left().now_or_never(), None, "its sender is connected");
        assert_eq!(ahead.reading().held, MOST_AHEAD, "and no more than that");
        assert_eq!((ahead.size_hint().lower(), ahead.size_hint().exact()), (16 << 10, None));
        let first = ahead.frame().await.expect("a piece").expect("whole");
        assert_eq!(first.into_data().expect("data")[0], 0);
        assert_eq!(ahead.left().now_or_never(), None);
        assert_eq!(ahead.reading().held, 15 << 10, "the rest is not read ahead");
        let rest = ahead.collect().await.expect("whole").to_bytes();
        assert_eq!((rest.len(), rest[rest.len() - 1]), (99 << 10, 99));
        let ahead = Ahead::new(Body::from("hello"));
        assert_eq!(ahead.left().now_or_never(), None);
        assert_eq!((ahead.size_hint().exact(), ahead.is_end_stream()), (Some(5), false));
    }

    #[tokio::test]
    async fn the_worker_gets_pieces_that_the_route_waited_for() {
        let (send, pieces) = tokio::sync::mpsc::unbounded_channel();
        let pieces = futures_util::stream::unfold(pieces, |mut pieces| async {
            Some((pieces.recv().await?, pieces))
        });
        let waits = Ahead::new(Body::from_stream(pieces));
        let mut sends = waits.clone();
        // Both poll before the piece comes: the worker is woken.
        let mut left = std::pin::pin!(waits.left());
        assert_eq!(left.as_mut().now_or_never(), None);
        let mut next = std::pin::pin!(sends.frame());
        assert!(next.as_mut().now_or_never().is_none());
        send.send(Ok::<_, io::Error>(Bytes::from("a"))).expect("the body is open");
        let next = tokio::time::timeout(std::time::Duration::from_secs(10), next).await;
        let piece = next.expect("it is told").expect("a piece").expect("whole");
        assert_eq!(piece.into_data().expect("data"), "a");
    }

    #[tokio::test]
    async fn a_client_that_disconnects_is_noticed_unless_a_worker_reads() {
        let pieces = || {
            let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
            Body::from_stream(futures_util::stream::iter([Ok(Bytes::from("a")), Err(gone)]))
        };
        assert_eq!(Ahead::new(pieces()).left().now_or_never(), Some(()));
        let mut sent = Ahead::new(pieces());
        sent.frame().await.expect("a piece").expect("whole");
        assert_eq!(sent.left().now_or_never(), None);
        assert!(sent.frame().await.expect("it is told").is_err());
    }
}
