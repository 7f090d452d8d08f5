//! Requests as data: the kind `http`, for programs without a worker of their own.
//!
//! A payload describes a request; the lane determines the upstream. The upstream's address, its
//! secrets, and whether it may be in a private network are configured. They are never part of a
//! payload, a report or an event.

mod endpoints;
mod expect;
mod payload;
mod value;
mod worker;

use std::sync::Arc;

use crate::api::Problem;
use crate::kind::Kind;
use crate::tool::Tool;

pub use endpoints::{Endpoint, Endpoints};
pub use expect::{Expect, Sign};
pub use payload::{PayloadError, RequestPayload};
pub use worker::HttpWorker;

pub(crate) use endpoints::Destination;

/// The kind of jobs that make one request.
pub const HTTP_KIND: &str = "http";

impl Tool for Arc<HttpWorker> {
    fn kinds(&self) -> Vec<Kind> {
        let (worker, checking) = (self.clone(), self.clone());
        let kind = Kind::new(HTTP_KIND, move || (*worker).clone());
        vec![kind.for_callers::<RequestPayload>("HttpPayload", move |payload, lane| {
            let wrong = |error: PayloadError| Problem::unprocessable(error.to_string()).about(lane);
            checking.check(payload, lane).map_err(wrong)
        })]
    }
}
