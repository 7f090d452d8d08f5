//! What stories are told with: limits of lanes, and how services react.

use std::num::NonZeroU32;

use paceline_core::{About, Failure, GAP_SHARE, Limits, Span, Verdict, Window};

use crate::service::Reaction;

/// A span as one writes it.
pub(crate) fn span(text: &str) -> Span {
    text.parse().expect("a span")
}

/// A gap between calls.
pub fn every(gap: &str) -> Limits {
    Limits { every: Some(span(gap)), ..on_the_spot() }
}

/// A gap that is shorter for the more urgent (L2).
pub fn every_by_share(gap: &str) -> Limits {
    Limits { gap_share: GAP_SHARE, ..every(gap) }
}

/// Windows.
pub fn windows(rates: &[&str]) -> Limits {
    let windows = rates.iter().map(|rate| Window::new(rate.parse().expect("a rate"))).collect();
    Limits { windows, ..on_the_spot() }
}

/// So many calls at once.
pub fn at_once(calls: u32) -> Limits {
    Limits { in_flight: NonZeroU32::new(calls).expect("above zero"), ..on_the_spot() }
}

/// Requests arrive when they start: round moments make better stories.
pub fn on_the_spot() -> Limits {
    Limits { slack: Some(Span::ZERO), ..Limits::default() }
}

/// The service answers.
pub fn done() -> Reaction {
    Reaction::new(Verdict::Done { conclusive: true, value: b"1".as_slice().into() })
}

/// The service answers, and it settles nothing.
pub fn hint() -> Reaction {
    Reaction::new(Verdict::Done { conclusive: false, value: b"1".as_slice().into() })
}

/// The service has nothing.
pub fn nothing() -> Reaction {
    Reaction::new(Verdict::Empty)
}

/// The service fails, for now.
pub fn failed(class: &str) -> Reaction {
    failing(Failure::transient(class), None)
}

fn failing(failure: Failure, retry_after: Option<Span>) -> Reaction {
    Reaction::new(Verdict::Failed { failure, retry_after, about: About::Lane })
}

/// The answer is no good, which says something about this call alone.
pub fn spoilt(class: &str) -> Reaction {
    let (failure, about) = (Failure::transient(class), About::Call);
    Reaction::new(Verdict::Failed { failure, retry_after: None, about })
}

/// The service says that it did not process the request.
pub fn not_processed() -> Reaction {
    Reaction::new(Verdict::NotProcessed)
}

/// The service fails and says when to come again.
pub fn unavailable(after: &str) -> Reaction {
    failing(Failure::transient("status_503"), Some(span(after)))
}

/// The service says no, and means it.
pub fn refused(class: &str) -> Reaction {
    failing(Failure::permanent(class), None)
}

/// Too fast: come again after this.
pub fn throttled(after: &str) -> Reaction {
    Reaction::new(Verdict::Throttled { retry_after: Some(span(after)), again: true })
}

/// Too fast, and no word of when.
pub fn throttled_without_a_date() -> Reaction {
    Reaction::new(Verdict::Throttled { retry_after: None, again: true })
}

/// The same, for a call that cannot be made again.
pub fn turned_away() -> Reaction {
    Reaction::new(Verdict::Throttled { retry_after: None, again: false })
}

/// To be asked elsewhere.
pub fn moved(lane: &str) -> Reaction {
    Reaction::new(Verdict::Moved { lane: lane.into(), payload: None })
}

/// The worker panics.
pub fn panics() -> Reaction {
    Reaction::new(Verdict::Lost { failure: Failure::permanent("panic").because("out of bounds") })
}

/// No answer for so long, and on the wire all the time.
pub fn hangs(for_: &str) -> Reaction {
    let mut reaction = done().after(for_);
    reaction.hangs = span(for_);
    reaction
}

/// The moments of the lines of a trace that contain this.
pub fn moments<'a>(trace: &'a str, what: &str) -> Vec<&'a str> {
    let lines = trace.lines().filter(|line| line.contains(what));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}
