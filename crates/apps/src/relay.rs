//! The relay: requests of programs that cannot be changed, forwarded at the pace of their lane.
//!
//! A visit is a job like any other, so it keeps all limits and is written before it is sent; its
//! request and its answer are streams that live in this process only. So a crash ends a visit: it
//! has failed, and its caller knows, because the connection is gone.

mod visit;
mod worker;

pub use visit::{Announced, Answer, Broken, Relay, Visit};
pub use worker::RelayWorker;

/// The kind of these jobs.
pub const RELAY_KIND: &str = "relay";
