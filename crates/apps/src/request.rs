//! Calls as data: the kind `http`, for programs that would not write a worker.
//!
//! A payload says what to ask, the lane says destination: its address, its secrets and whether it may be in
//! a private network are configured and never part of a payload, an answer or an event.

mod ask;
mod endpoints;
mod expect;
mod value;
mod worker;

use std::sync::Arc;

use crate::api::Problem;
use crate::kind::Kind;
use crate::tool::Tool;

pub use ask::{Ask, AskError};
pub use endpoints::{Endpoint, Endpoints};
pub use expect::{Expect, Sign};
pub use worker::HttpWorker;

pub(crate) use endpoints::Destination;

/// The kind of these jobs.
pub const HTTP_KIND: &str = "http";

impl Tool for Arc<HttpWorker> {
    fn kinds(&self) -> Vec<Kind> {
        let (worker, checking) = (self.clone(), self.clone());
        let kind = Kind::new(HTTP_KIND, move || (*worker).clone());
        vec![kind.for_callers::<Ask>("HttpPayload", move |payload, lane| {
            let wrong = |error: AskError| Problem::unprocessable(error.to_string()).about(lane);
            checking.check(payload, lane).map_err(wrong)
        })]
    }
}
