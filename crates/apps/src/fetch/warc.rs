//! WARC files: each exchange as it was sent and received, in the format of web archives.
//!
//! **Invariant:** at any moment a crash leaves at most the end of one file torn, and the next
//! [`Writer::open`] removes that end. For this, a file is named in `NAME.cdxj.part` before it is
//! made, is durable before the next one is made, and has index lines only for durable records.

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

/// The default size after which the next file begins: 1 GiB.
pub const DEFAULT_MAX_SIZE: u64 = 1 << 30;

/// The most bytes of a head, a URL or the metadata of an exchange.
pub const MAX_HEAD: usize = 1 << 20;

/// The most bytes of a name, which leaves room for suffixes.
pub const MAX_NAME: usize = 200;

/// The last number of a file: five digits keep the files in order in every listing.
pub const MAX_NUMBER: u32 = 99_999;

/// One request and its response, without the body.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The URL. Its fragment, user and password are not written.
    pub url: &'a Url,
    /// When the request was sent.
    pub at: Timestamp,
    /// The address of the server, unless a proxy hides it.
    pub address: Option<IpAddr>,
    /// The request line and headers as sent. Credentials and cookies are not written.
    pub request_head: &'a [u8],
    /// The status of the response.
    pub status: u16,
    /// The reason phrase.
    pub reason: &'a str,
    /// The headers of the response as received, content coding and transfer coding included.
    pub headers: &'a HeaderMap,
    /// Whether the body is complete.
    pub truncated: Truncated,
    /// Further metadata, such as `fetchTimeMs` and `via`.
    pub metadata: &'a [(&'static str, String)],
}

/// Whether a body is complete, or why it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    /// It is complete.
    No,
    /// It was longer than allowed.
    Length,
    /// It took longer than allowed.
    Time,
    /// The connection ended before it.
    Disconnect,
}

/// Settings of a writer.
pub struct Options {
    /// The size after which the next file begins.
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

/// An error of an archive.
#[derive(Debug, thiserror::Error)]
pub enum WarcError {
    /// The name cannot be used in file names.
    #[error(
        "`{name}` cannot name WARC files: take at most {MAX_NAME} bytes without `/` and control \
         characters, not beginning with `.`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Another process has the same files open.
    #[error("`{path}` is in use: wait until the other process is done, or choose another name")]
    Busy {
        /// The file in use.
        path: PathBuf,
    },
    /// All file numbers are taken.
    #[error("`{name}` already has {MAX_NUMBER} files: choose another name")]
    Full {
        /// The name of the files.
        name: String,
    },
    /// A head, a URL or the metadata is longer than [`MAX_HEAD`].
    #[error("the head of `{url}` takes {length} bytes, more than the {MAX_HEAD} that are kept")]
    HeadTooLong {
        /// The URL, cut if it is the part that is too long.
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
    /// The body changed between two reads, or is shorter than announced.
    #[error(
        "the body of `{url}` changed while it was archived: do not change its file during the run"
    )]
    BodyChanged {
        /// Its address.
        url: String,
    },
    /// An error of the disk.
    #[error("cannot {action} `{path}`")]
    Disk {
        /// The action.
        action: &'static str,
        /// The file.
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
