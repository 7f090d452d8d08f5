//! The resource at a path: a file with its validators, or a fixed response.

use std::time::SystemTime;

use super::content::Content;

/// Names and values of header lines. Values are bytes, because some servers send invalid text.
pub(crate) type Headers = Vec<(String, Vec<u8>)>;

/// A file. By default it supports ranges, has a `Content-Length`, and has no validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub(crate) content: Content,
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
    pub(crate) headers: Headers,
    pub(crate) framing: Framing,
    pub(crate) ranges: Ranges,
}

/// How a client recognises the end of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// By `Content-Length`.
    #[default]
    Length,
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// The support of range requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranges {
    Offered,
    Refused,
}

impl File {
    /// Creates a file of these bytes.
    pub fn of(bytes: impl Into<Vec<u8>>) -> File {
        File::with(Content::Kept(bytes.into().into()))
    }

    /// Creates a file of [`content(name, size)`](fn@super::content). Its bytes are computed while they are
    /// sent, so it may be larger than memory.
    pub fn named(name: &str, size: u64) -> File {
        File::with(Content::named(name, size))
    }

    pub(crate) fn with(content: Content) -> File {
        File {
            content,
            etag: None,
            last_modified: None,
            headers: Headers::new(),
            framing: Framing::Length,
            ranges: Ranges::Offered,
        }
    }

    /// Sets the entity tag, as sent: `"\"v1\""`, or `"W/\"v1\""` for a weak one.
    #[must_use]
    pub fn etag(mut self, tag: &str) -> File {
        self.etag = Some(tag.to_string());
        self
    }

    /// Sets `Last-Modified`, as sent.
    #[must_use]
    pub fn last_modified(mut self, date: &str) -> File {
        self.last_modified = Some(date.to_string());
        self
    }

    /// Sets `Last-Modified`.
    #[must_use]
    pub fn modified_at(self, moment: SystemTime) -> File {
        self.last_modified(&httpdate::fmt_http_date(moment))
    }

    /// Adds a header line of any bytes.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> File {
        self.headers.push((name.to_string(), value.as_ref().to_vec()));
        self
    }

    /// Sets how a client recognises the end of the body.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> File {
        self.framing = framing;
        self
    }

    /// Ignores range requests and sends `Accept-Ranges: none`.
    #[must_use]
    pub fn without_ranges(mut self) -> File {
        self.ranges = Ranges::Refused;
        self
    }
}

/// A fixed response, whatever the request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Creates a response without a body.
    pub fn status(status: u16) -> Response {
        Response { status, headers: Headers::new(), body: Vec::new() }
    }

    /// Creates a redirect. `location` may be relative, absolute or invalid.
    pub fn redirect(status: u16, location: impl AsRef<[u8]>) -> Response {
        Response::status(status).header("location", location)
    }

    /// Adds `Retry-After`, in seconds or as a date.
    #[must_use]
    pub fn retry_after(self, when: &str) -> Response {
        self.header("retry-after", when)
    }

    /// Adds a header line of any bytes.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Response {
        self.headers.push((name.to_string(), value.as_ref().to_vec()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Response {
        self.body = bytes.into();
        self
    }
}

/// The resource at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A file.
    File(File),
    /// A fixed response.
    Response(Response),
}

impl From<File> for Resource {
    fn from(file: File) -> Resource {
        Resource::File(file)
    }
}

impl From<Response> for Resource {
    fn from(response: Response) -> Resource {
        Resource::Response(response)
    }
}
