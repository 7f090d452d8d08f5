//! Request bodies: none, complete, or streamed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The body of a request.
#[derive(Default)]
pub enum Upload {
    /// No body.
    #[default]
    Nothing,
    /// A complete body, until it is taken.
    Whole(Option<Bytes>),
    /// A stream.
    Coming(Pin<Box<dyn Body<Data = Bytes, Error = io::Error> + Send>>),
}

impl From<Bytes> for Upload {
    fn from(bytes: Bytes) -> Upload {
        if bytes.is_empty() { Upload::Nothing } else { Upload::Whole(Some(bytes)) }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Upload::Nothing => Poll::Ready(None),
            Upload::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Upload::Coming(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Upload::Nothing => true,
            Upload::Whole(bytes) => bytes.is_none(),
            Upload::Coming(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Nothing => SizeHint::with_exact(0),
            Upload::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Upload::Coming(body) => body.size_hint(),
        }
    }
}
