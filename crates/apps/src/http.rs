//! The one HTTP client: it never sends a request that nobody asked for.

mod client;
mod connect;
mod connection;
mod error;
mod origin;

pub mod announced;
pub mod cookies;
pub mod decode;
pub mod netrc;
pub mod proxy;
pub mod robots;

pub use client::{Client, Patience};
pub use connection::{Connection, Exchange};
pub use error::HttpError;
pub use origin::{Origin, Scheme};

/// The value of an `authorization` header for a name and a password; marked as a secret.
pub fn basic(user: &str, password: &str) -> Option<hyper::header::HeaderValue> {
    let token = data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes());
    let mut value = hyper::header::HeaderValue::try_from(format!("Basic {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
