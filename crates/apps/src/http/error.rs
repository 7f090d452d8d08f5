//! Errors of requests, and whether a retry may help.

use std::io;

use paceline::Failure;

use super::proxy::ProxyError;

/// An error of a request: no response, or an incomplete one.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The name does not resolve.
    #[error("no address for `{0}`: {1}")]
    Resolve(String, io::Error),
    /// The name resolves to an address that requests may not reach.
    #[error("`{0}` is in a private network, and no lane's `url` allows requests to it")]
    Private(String),
    /// The connection was refused, or broke before it was established.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The TLS handshake failed, for example because the certificate is not trusted.
    #[error("the TLS connection failed: {0}")]
    Tls(String),
    /// The proxy refused.
    #[error("the proxy refused: {0}")]
    Proxy(String),
    /// The proxy requires a login.
    #[error("the proxy requires a login: write it as `http://USER:PASSWORD@HOST:PORT`")]
    ProxyLogin,
    /// The environment names an invalid proxy.
    #[error(transparent)]
    NoProxy(#[from] ProxyError),
    /// A timeout, with the step and its time limit.
    #[error("{0} took longer than {1:?}")]
    Timeout(&'static str, std::time::Duration),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The body ended before its announced length.
    #[error("the body ended early, after {0} bytes")]
    Short(u64),
    /// The body is larger than its reader allows.
    #[error("the body is larger than {0} bytes")]
    Large(usize),
    /// The head of the response is too large.
    #[error("the response headers are too large")]
    Headers,
    /// The response is not HTTP.
    #[error("the response is not HTTP: {0}")]
    NotHttp(String),
}

impl HttpError {
    /// The class: a short, stable name for reports.
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

    /// Returns `true` if a retry may help.
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

    /// The error as the failure of a call.
    pub fn failure(&self) -> Failure {
        let failure = if self.is_transient() {
            Failure::transient(self.class())
        } else {
            Failure::permanent(self.class())
        };
        failure.because(&self.to_string())
    }

    /// Converts an error of hyper while reading a body. `received` is the number of bytes so far.
    pub(super) fn of_body(error: &hyper::Error, received: u64) -> HttpError {
        if error.is_incomplete_message() || ended_early(error) {
            HttpError::Short(received)
        } else {
            HttpError::of(error)
        }
    }

    /// Converts an error of hyper.
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

/// Returns `true` if the server closed the connection in order, but before the end of the body.
fn ended_early(error: &hyper::Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}
