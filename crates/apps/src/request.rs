//! Calls as data: the kind `http`, for programs that would not write a worker.
//!
//! A payload says what to ask, the lane says destination: its address, its secrets and whether it may be in
//! a private network are configured and never part of a payload, an answer or an event.

mod ask;
mod endpoints;
mod expect;
mod value;
mod worker;

pub use ask::{Ask, AskError};
pub use endpoints::{Endpoint, Endpoints};
pub use expect::{Expect, Sign};
pub use worker::HttpWorker;

pub(crate) use endpoints::Destination;

/// The kind of these jobs.
pub const HTTP_KIND: &str = "http";
