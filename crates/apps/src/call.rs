//! Calls as data: the kind `http`, for programs that would not write a worker.
//!
//! A payload says what to ask, the lane says whom: its address, its secrets and whether it may be in
//! a private network are configured and never part of a payload, an answer or an event.

mod ask;
mod expect;
mod places;
mod value;
mod worker;

pub use ask::{Ask, AskError};
pub use expect::{Expect, Sign};
pub use places::{Place, Places};
pub use worker::HttpWorker;

pub(crate) use places::Whom;

/// The kind of these jobs.
pub const HTTP_KIND: &str = "http";
