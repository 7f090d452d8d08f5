//! WARC files: each exchange as it went over the wire, in files that archives and their readers know.
//!
//! **Invariant:** at any moment a crash leaves at most the end of one file torn, and the next
//! [`Writer::open`] takes that end away. To this end a file is named in `NAME.cdxj.part` before it
//! is made, is durable before the next one is made, and has index lines only for what is durable.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use hyper::HeaderMap;
use jiff::Timestamp;
use url::Url;

mod files;
mod head;
mod index;
mod line;
mod lines;
mod record;
mod repair;
mod segment;
mod sort;
mod surt;
mod writer;

pub use self::files::is_own;
pub use self::surt::surt;
pub use self::writer::{Writer, check_name};

/// The size past which the next file begins, unless told otherwise: 1 GiB.
pub const DEFAULT_MAX_SIZE: u64 = 1 << 30;

/// The most bytes that a head, an address or the metadata of an exchange may take.
pub const MAX_HEAD: usize = 1 << 20;

/// The most bytes of a name, so that what is added to it still makes a file name.
pub const MAX_NAME: usize = 200;

/// The last number of a file: five digits keep the files in order in every listing.
pub const MAX_NUMBER: u32 = 99_999;

/// One request and what came back, but for the body.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The address; its fragment, name and password stay out of the file.
    pub url: &'a Url,
    /// When the request was sent.
    pub at: Timestamp,
    /// The address of the server, where no proxy hides it.
    pub address: Option<IpAddr>,
    /// The request line and headers as sent; credentials and cookies stay out of the file.
    pub request_head: &'a [u8],
    /// The status of the response.
    pub status: u16,
    /// The words after the status.
    pub reason: &'a str,
    /// The headers of the response as they came, content coding and transfer coding included.
    pub headers: &'a HeaderMap,
    /// Whether the body is all there.
    pub truncated: Truncated,
    /// What else is known: `fetchTimeMs`, `via` and the like.
    pub metadata: &'a [(&'static str, String)],
}

/// Whether a body is all there, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    /// It is.
    No,
    /// It was longer than allowed.
    Length,
    /// It took longer than allowed.
    Time,
    /// The connection ended before it.
    Disconnect,
}

/// How files are written.
pub struct Options {
    /// The size past which the next file begins.
    pub max_size: u64,
    /// Sixteen random bytes for each record's id.
    pub random: Box<dyn FnMut() -> [u8; 16] + Send>,
}

impl Options {
    /// Files of [`DEFAULT_MAX_SIZE`].
    pub fn new(random: impl FnMut() -> [u8; 16] + Send + 'static) -> Options {
        Options { max_size: DEFAULT_MAX_SIZE, random: Box::new(random) }
    }
}

/// Why an exchange is not in the files.
#[derive(Debug, thiserror::Error)]
pub enum WarcError {
    /// The name makes no file name.
    #[error(
        "`{name}` cannot name WARC files: take at most {MAX_NAME} bytes without `/` and control \
         characters, not beginning with `.`"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// Another process has the same files open.
    #[error("`{path}` is in use: wait until the other process is done, or choose another name")]
    Busy {
        /// The file that both want.
        path: PathBuf,
    },
    /// All numbers are taken.
    #[error("`{name}` already has {MAX_NUMBER} files: choose another name")]
    Full {
        /// The name of the files.
        name: String,
    },
    /// A head, an address or the metadata is longer than [`MAX_HEAD`].
    #[error("the head of `{url}` takes {length} bytes, more than the {MAX_HEAD} that are kept")]
    HeadTooLong {
        /// Its address, cut if it is the address that is too long.
        url: String,
        /// Its length.
        length: usize,
    },
    /// The body could not be read.
    #[error("cannot read the body of `{url}`")]
    Body {
        /// Its address.
        url: String,
        /// Why.
        source: io::Error,
    },
    /// The body was another one when it was read again, or shorter than told.
    #[error(
        "the body of `{url}` changed while it was archived: do not change its file during the run"
    )]
    BodyChanged {
        /// Its address.
        url: String,
    },
    /// The disk refused.
    #[error("cannot {action} `{path}`")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl WarcError {
    fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WarcError {
        move |source| WarcError::Disk { action, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests;
