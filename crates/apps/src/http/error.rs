//! What keeps a request from its answer, and whether trying again may help.

use std::io;

use paceline::Failure;

use super::proxy::ProxyError;

/// Why there is no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The name leads nowhere.
    #[error("no address for `{0}`: {1}")]
    Resolve(String, io::Error),
    /// The name leads to an address that may not be asked.
    #[error("`{0}` is in a private network, and no lane's `url` allows requests to it")]
    Private(String),
    /// Nobody listens, or the line broke before there was one.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Encryption failed: a wrong certificate, or none that is trusted.
    #[error("the TLS connection failed: {0}")]
    Tls(String),
    /// The proxy refused.
    #[error("the proxy refused: {0}")]
    Proxy(String),
    /// The proxy wants a login.
    #[error("the proxy requires a login: write it as `http://USER:PASSWORD@HOST:PORT`")]
    ProxyLogin,
    /// The environment names a proxy that cannot be used.
    #[error(transparent)]
    NoProxy(#[from] ProxyError),
    /// Too slow; says what for, and how long it was given.
    #[error("{0} took longer than {1:?}")]
    Timeout(&'static str, std::time::Duration),
    /// The line broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The body ended before its announced length.
    #[error("the body ended early, after {0} bytes")]
    Short(u64),
    /// The body is larger than its reader has room for.
    #[error("the body is larger than {0} bytes")]
    Large(usize),
    /// The head of the answer is larger than anybody needs.
    #[error("the response headers are too large")]
    Headers,
    /// What came is not HTTP.
    #[error("the response is not HTTP: {0}")]
    NotHttp(String),
}

impl HttpError {
    /// A short stable name for reports.
    pub fn class(&self) -> &'static str {
        match self {
            HttpError::Resolve(..) => "resolve",
            HttpError::Private(_) => "private",
            HttpError::Connect(_) => "connect",
            HttpError::Tls(_) => "tls",
            HttpError::Proxy(_) | HttpError::ProxyLogin | HttpError::NoProxy(_) => "proxy",
            HttpError::Timeout(..) => "timeout",
            HttpError::Broken(_) => "reset",
            HttpError::Short(_) => "short_body",
            HttpError::Large(_) => "too_large",
            HttpError::Headers => "headers",
            HttpError::NotHttp(_) => "not_http",
        }
    }

    /// Whether it may pass by itself.
    pub fn is_transient(&self) -> bool {
        match self {
            HttpError::Resolve(..)
            | HttpError::Connect(_)
            | HttpError::Proxy(_)
            | HttpError::Timeout(..)
            | HttpError::Broken(_)
            | HttpError::Short(_) => true,
            HttpError::Private(_)
            | HttpError::Tls(_)
            | HttpError::ProxyLogin
            | HttpError::NoProxy(_)
            | HttpError::Large(_)
            | HttpError::Headers
            | HttpError::NotHttp(_) => false,
        }
    }

    /// The same as an outcome of a call.
    pub fn failure(&self) -> Failure {
        let failure = if self.is_transient() {
            Failure::transient(self.class())
        } else {
            Failure::permanent(self.class())
        };
        failure.because(&self.to_string())
    }

    /// What hyper says of a body, in our words. `received` is how much of it had come.
    pub(super) fn of_body(error: &hyper::Error, received: u64) -> HttpError {
        if error.is_incomplete_message() || ended_early(error) {
            HttpError::Short(received)
        } else {
            HttpError::of(error)
        }
    }

    /// What hyper says, in our words.
    pub(super) fn of(error: &hyper::Error) -> HttpError {
        let text = || {
            let cause = std::error::Error::source(error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        };
        if error.is_parse_too_large() {
            HttpError::Headers
        } else if error.is_parse() || error.is_parse_status() {
            HttpError::NotHttp(text())
        } else {
            HttpError::Broken(text())
        }
    }
}

/// Whether the other end closed the connection in order, but before it had sent everything.
fn ended_early(error: &hyper::Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}
