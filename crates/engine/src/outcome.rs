//! Outcomes of attempts, and failures that `?` makes of any error.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use paceline_core::{About, Announced, AttemptResult, Failure, Span, Verdict};
use serde::Serialize;

/// Bytes of a failure's message at most; the rest is cut off.
const LONGEST_MESSAGE: usize = 2_000;
/// Causes of an error that are shown at most.
const MOST_CAUSES: usize = 32;

/// What a worker returns: an outcome, or a failure that `?` made of an error.
pub type Work = Result<Outcome, Failed>;

/// The reservation of this attempt ran out before anything was sent. A worker returns it with `?`:
/// the call keeps its place, and nothing is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was sent: the reservation of this attempt has run out")]
pub struct Late;

/// What an attempt came to.
#[derive(Clone, Debug)]
pub struct Outcome(pub(crate) AttemptResult);

impl Outcome {
    fn of(verdict: Verdict) -> Outcome {
        Outcome(AttemptResult { verdict, announced: None })
    }

    fn found(value: &(impl Serialize + ?Sized), conclusive: bool) -> Work {
        let value = serde_json::to_vec(value);
        let value = value
            .map_err(|error| Failed::of(Failure::permanent("value").because(&error.to_string())))?;
        Ok(Outcome::of(Verdict::Done { conclusive, value: value.into() }))
    }

    /// An answer that settles the question: a job that stops at the first conclusive outcome ends
    /// with it.
    pub fn done(value: impl Serialize) -> Work {
        Outcome::found(&value, true)
    }

    /// An answer that leaves the question open: later stages are asked too.
    pub fn inconclusive(value: impl Serialize) -> Work {
        Outcome::found(&value, false)
    }

    /// The upstream answered that there is nothing.
    pub fn empty() -> Work {
        Ok(Outcome::of(Verdict::Empty))
    }

    /// The upstream refused the request because it came too fast; with the pause that it asked for,
    /// if it named one. The lane closes for that time, or slows down, and the call is made again
    /// without losing an attempt.
    pub fn throttled(retry_after: Option<Duration>) -> Work {
        let retry_after = retry_after.map(Span::from);
        Ok(Outcome::of(Verdict::Throttled { retry_after, again: true }))
    }

    /// As [`Outcome::throttled`], for a call that cannot be made again: it has failed, and its lane
    /// slows down.
    pub fn refused(retry_after: Option<Duration>) -> Work {
        let retry_after = retry_after.map(Span::from);
        Ok(Outcome::of(Verdict::Throttled { retry_after, again: false }))
    }

    /// The attempt failed.
    pub fn failed(failure: Failure) -> Work {
        Err(Failed::of(failure))
    }

    /// The call goes on in another lane, with another payload if one is given.
    pub fn moved(lane: &str, payload: Option<&serde_json::value::RawValue>) -> Work {
        let payload = payload.map(|payload| payload.get().as_bytes().into());
        Ok(Outcome::of(Verdict::Moved { lane: lane.into(), payload }))
    }

    /// Adds what the upstream said about its limits. That may slow the lane down, and never speeds
    /// it up past its own limits.
    #[must_use]
    pub fn announcing(mut self, announced: Announced) -> Outcome {
        self.0.announced = Some(announced);
        self
    }
}

/// Why an attempt failed. `?` makes one of any error: of the standard library's, of a
/// `Box<dyn Error + Send + Sync>`, of an `anyhow::Error`, of a string.
///
/// Such a failure may be retried, has the class `error`, and its message lists the error and its
/// causes, `a: b: c`, up to 2,000 bytes. To say more, return [`Failed::of`] a [`Failure`]. A
/// `Failure` among the causes of an error keeps its class, unless an `anyhow::Error` was made
/// directly of it, without a context: that hides its type.
///
/// ```
/// use paceline::{Call, Failed, Failure, Outcome, Work};
///
/// async fn lookup(call: Call) -> Work {
///     let title: String = call.payload()?;
///     let year: u32 = title.rsplit(' ').next().unwrap_or("").parse()?;
///     if year < 1900 {
///         return Err(Failed::of(Failure::permanent("too_old").because("before 1900")));
///     }
///     Outcome::done(year)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Failed {
    pub(crate) told: Box<AttemptResult>,
    /// The error that `?` made it of.
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failed {
    fn told(verdict: Verdict) -> Failed {
        Failed { told: Box::new(AttemptResult { verdict, announced: None }), cause: None }
    }

    /// A failure as it stands.
    pub fn of(failure: Failure) -> Failed {
        Failed::told(Verdict::Failed { failure, retry_after: None, about: About::Lane })
    }

    /// A failure that says something about this call and nothing about its upstream: a short body
    /// after a complete head, a checksum, a range that does not fit. It is retried as any other;
    /// for its lane the upstream has answered.
    pub fn of_this_call(failure: Failure) -> Failed {
        Failed::told(Verdict::Failed { failure, retry_after: None, about: About::Call })
    }

    /// The upstream says that it did not process the request (HTTP/2: GOAWAY with a lower stream id,
    /// `REFUSED_STREAM`). The call keeps its place and its attempts and is sent again as soon as the
    /// limits allow, at most 20 times; then it is a failure that may be retried.
    pub fn not_processed() -> Failed {
        Failed::told(Verdict::NotProcessed)
    }

    /// A failure that says nothing about the upstream, such as one of this machine: its lane takes
    /// no note of it.
    pub fn lost(failure: Failure) -> Failed {
        Failed::told(Verdict::Lost { failure })
    }

    /// Adds the pause that the upstream asked for: its lane closes for that time.
    #[must_use]
    pub fn retry_after(mut self, span: Duration) -> Failed {
        if let Verdict::Failed { retry_after, .. } = &mut self.told.verdict {
            *retry_after = Some(span.into());
        }
        self
    }

    /// Adds what the upstream said about its limits.
    #[must_use]
    pub fn announcing(mut self, announced: Announced) -> Failed {
        self.told.announced = Some(announced);
        self
    }

    /// The class, the message, and whether the call may be retried; `None` if nothing was sent or
    /// processed.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.told.verdict {
            Verdict::Failed { failure, .. } | Verdict::Lost { failure } => Some(failure),
            _ => None,
        }
    }

    /// The error that `?` made this failure of, with its own causes.
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    /// What the engine is told. An unclassified error of an attempt that was too late to send is
    /// taken for that: `anyhow` hides from [`Failed::from`] which error it was made of.
    pub(crate) fn into_told(self, late: bool) -> AttemptResult {
        let unclassified = self.cause.is_some();
        if late && unclassified {
            return AttemptResult { verdict: Verdict::Unused, announced: None };
        }
        let mut told = *self.told;
        if let Verdict::Failed { failure, .. } | Verdict::Lost { failure } = &mut told.verdict
            && let Some(message) = &mut failure.message
            && message.len() > LONGEST_MESSAGE
        {
            *message = cut(message).into();
        }
        told
    }
}

/// The message, or without one the class.
impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.told.verdict {
            Verdict::Failed { failure, .. } | Verdict::Lost { failure } => failure.fmt(f),
            Verdict::NotProcessed => f.write_str("the upstream did not process the request"),
            _ => Late.fmt(f),
        }
    }
}

// `Failed` itself is no `Error`: this would overlap with `From<T> for T`.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failed {
    fn from(error: E) -> Failed {
        let error: Box<dyn Error + Send + Sync> = error.into();
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return Failed::of(failure.clone());
        }
        if causes(&*error).any(<dyn Error>::is::<Late>) {
            return Failed::told(Verdict::Unused);
        }
        let classified = causes(&*error).find_map(|cause| cause.downcast_ref::<Failure>());
        // An error of an unknown kind may be cured by trying again.
        let failure = classified.cloned().unwrap_or_else(|| Failure::transient("error"));
        let failed = Failed::of(failure.because(&words(&*error)));
        Failed { cause: Some(error.into()), ..failed }
    }
}

/// An error and its causes.
fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + 'a {
    std::iter::successors(Some(error), |&error| error.source()).take(MOST_CAUSES)
}

/// An error and its causes in words: `a: b: c`.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut words = String::new();
    for cause in causes(error) {
        let cause = cause.to_string();
        // Many errors show their source themselves.
        if !words.ends_with(&cause) {
            if !words.is_empty() {
                words.push_str(": ");
            }
            words.push_str(&cause);
        }
        if words.len() > LONGEST_MESSAGE {
            return cut(&words);
        }
    }
    words
}

fn cut(message: &str) -> String {
    let end = message.floor_char_boundary(LONGEST_MESSAGE);
    format!("{}...", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Wrapped(String, #[source] Option<Box<Wrapped>>);

    fn chain(words: &[&str]) -> Wrapped {
        let (first, rest) = words.split_first().expect("an error has words");
        let source = (!rest.is_empty()).then(|| Box::new(chain(rest)));
        Wrapped((*first).to_string(), source)
    }

    fn by<E: Into<Failed>>(error: E) -> Failed {
        error.into()
    }

    #[track_caller]
    fn check(failed: &Failed, class: &str, retryable: bool, shown: &str) {
        let failure = failed.failure().expect("a failure");
        assert_eq!((&*failure.class, failure.retryable), (class, retryable));
        assert_eq!(failed.to_string(), shown);
    }

    #[test]
    fn any_error_becomes_a_failure_that_shows_its_causes() {
        check(&by(chain(&["a", "b", "c"])), "error", true, "a: b: c");
        check(&by(chain(&["a: b", "b"])), "error", true, "a: b");
        let boxed: Box<dyn Error + Send + Sync> = Box::new(chain(&["a", "b"]));
        check(&by(boxed), "error", true, "a: b");
        check(&by("words alone"), "error", true, "words alone");
        let failed = by(anyhow::Error::new(chain(&["b", "c"])).context("a"));
        check(&failed, "error", true, "a: b: c");
        let source = failed.cause().and_then(|cause| cause.source()).expect("the chain is kept");
        assert!(source.is::<Wrapped>());
    }

    #[test]
    fn a_failure_among_the_causes_keeps_its_class() {
        let failure = Failure::permanent("status_404").because("not there");
        check(&by(failure.clone()), "status_404", false, "not there");
        let boxed: Box<dyn Error + Send + Sync> = failure.clone().into();
        check(&by(boxed), "status_404", false, "not there");
        let failed = by(anyhow::Error::new(failure).context("asking for it"));
        check(&failed, "status_404", false, "asking for it: not there");
    }

    #[test]
    fn l4_too_late_is_no_failure_however_it_is_wrapped() {
        #[derive(Debug, thiserror::Error)]
        #[error("wrapped")]
        struct Outer(#[from] Late);
        let bare = anyhow::Error::new(Late);
        for failed in [by(Late), by(Outer(Late)), by(anyhow::Error::new(Late).context("outer"))] {
            assert_eq!(failed.into_told(false).verdict, Verdict::Unused);
        }
        assert_eq!(by(bare).into_told(true).verdict, Verdict::Unused);
        let own = Failed::of(Failure::permanent("own")).into_told(true);
        assert!(matches!(own.verdict, Verdict::Failed { .. }), "a worker's own words count");
    }

    #[test]
    fn messages_are_bounded() {
        let long = "\u{e9}".repeat(LONGEST_MESSAGE);
        let most = LONGEST_MESSAGE + 3;
        for failed in [by(long.clone()), by(chain(&["a", &long])), by(chain(&["ab"; 99]))] {
            assert!(failed.to_string().len() <= most);
        }
        for failed in [Failed::of, Failed::lost] {
            let told = failed(Failure::permanent("x").because(&long)).into_told(false);
            let (Verdict::Failed { failure, .. } | Verdict::Lost { failure }) = told.verdict else {
                panic!("a failure");
            };
            let message = failure.message.expect("a message");
            assert!(message.ends_with("...") && message.len() <= most);
        }
    }
}
