//! The vocabulary of scenarios: limits of lanes, and responses of upstreams.

use std::num::NonZeroU32;

use paceline_core::{About, Failure, GAP_SHARE, Limits, Span, Verdict, Window};

use crate::upstream::Response;

/// Parses a span.
pub(crate) fn span(text: &str) -> Span {
    text.parse().expect("a span")
}

/// A gap between calls.
pub fn every(gap: &str) -> Limits {
    Limits { every: Some(span(gap)), ..on_the_spot() }
}

/// A gap that is shorter for more urgent calls (L2).
pub fn every_by_share(gap: &str) -> Limits {
    Limits { gap_share: GAP_SHARE, ..every(gap) }
}

/// Sliding windows, such as `20/10s`.
pub fn windows(rates: &[&str]) -> Limits {
    let windows = rates.iter().map(|rate| Window::new(rate.parse().expect("a rate"))).collect();
    Limits { windows, ..on_the_spot() }
}

/// At most this many calls at once.
pub fn at_once(calls: u32) -> Limits {
    Limits { in_flight: NonZeroU32::new(calls).expect("above zero"), ..on_the_spot() }
}

/// Requests arrive when they start, so that scenarios have round moments.
pub fn on_the_spot() -> Limits {
    Limits { slack: Some(Span::ZERO), ..Limits::default() }
}

/// The upstream responds with a result.
pub fn done() -> Response {
    Response::new(Verdict::Done { conclusive: true, value: b"1".as_slice().into() })
}

/// The upstream responds with a result that is not conclusive.
pub fn hint() -> Response {
    Response::new(Verdict::Done { conclusive: false, value: b"1".as_slice().into() })
}

/// The upstream has no result.
pub fn nothing() -> Response {
    Response::new(Verdict::Empty)
}

/// The upstream fails, and a retry may succeed.
pub fn failed(class: &str) -> Response {
    failing(Failure::transient(class), None)
}

fn failing(failure: Failure, retry_after: Option<Span>) -> Response {
    Response::new(Verdict::Failed { failure, retry_after, about: About::Lane })
}

/// The response is unusable, which concerns this call alone.
pub fn spoilt(class: &str) -> Response {
    let (failure, about) = (Failure::transient(class), About::Call);
    Response::new(Verdict::Failed { failure, retry_after: None, about })
}

/// The upstream reports that it did not process the request.
pub fn not_processed() -> Response {
    Response::new(Verdict::NotProcessed)
}

/// The upstream fails, with `Retry-After`.
pub fn unavailable(after: &str) -> Response {
    failing(Failure::transient("status_503"), Some(span(after)))
}

/// The upstream refuses for good.
pub fn refused(class: &str) -> Response {
    failing(Failure::permanent(class), None)
}

/// The upstream throttles, with `Retry-After`.
pub fn throttled(after: &str) -> Response {
    Response::new(Verdict::Throttled { retry_after: Some(span(after)), again: true })
}

/// The upstream throttles, without `Retry-After`.
pub fn throttled_without_a_date() -> Response {
    Response::new(Verdict::Throttled { retry_after: None, again: true })
}

/// The upstream throttles a call that cannot be repeated.
pub fn turned_away() -> Response {
    Response::new(Verdict::Throttled { retry_after: None, again: false })
}

/// The upstream redirects to another lane.
pub fn moved(lane: &str) -> Response {
    Response::new(Verdict::Moved { lane: lane.into(), payload: None })
}

/// The worker panics.
pub fn panics() -> Response {
    Response::new(Verdict::Lost { failure: Failure::permanent("panic").because("out of bounds") })
}

/// The upstream responds after this long, and the request stays on the wire until then.
pub fn hangs(for_: &str) -> Response {
    let mut response = done().after(for_);
    response.hangs = span(for_);
    response
}

/// The moments of the lines of a trace that contain `what`.
pub fn moments<'a>(trace: &'a str, what: &str) -> Vec<&'a str> {
    let lines = trace.lines().filter(|line| line.contains(what));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}
