//! The one HTTP client. It sends only requests that its caller makes: no retries, no redirects.

mod attempt;
mod body;
mod client;
mod connect;
mod connection;
mod error;
mod origin;
mod reach;
mod redirect;
mod refusal;
mod request;

pub mod announced;
pub mod cookies;
pub mod decode;
pub mod netrc;
pub mod proxy;
pub mod robots;

use data_encoding::BASE64;
use hyper::header::HeaderValue;

pub use attempt::{Attempt, NotSent};
pub use body::Upload;
pub use client::{Client, Patience};
pub use connection::{Connection, Exchange};
pub use error::HttpError;
pub use origin::{Origin, Scheme};
pub use reach::{Reach, is_public};
pub use redirect::{RedirectError, is_redirect, led_to};
pub use refusal::{Refusal, announcing, is_transient, refusal};
pub use request::AGENT;

/// A login as HTTP sends it (RFC 7617), marked as sensitive.
pub(crate) fn basic(name: &[u8], password: &[u8]) -> HeaderValue {
    let text = format!("Basic {}", BASE64.encode(&[name, b":", password].concat()));
    let mut value = HeaderValue::from_str(&text).expect("base64 is plain text");
    value.set_sensitive(true);
    value
}
