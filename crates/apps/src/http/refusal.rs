//! Refusals: error statuses, and whether to retry, wait or give up.

use std::time::Duration;

use hyper::StatusCode;
use paceline::workers::Announced;
use paceline::{Failed, Failure, Outcome, Work};

/// The verdict on an error status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Throttled, with the wait that the server asked for, if any.
    Throttled(Option<Duration>),
    /// Failed, with the wait that the server asked for, if any.
    Failed(Failure, Option<Duration>),
}

impl Refusal {
    /// The verdict for the engine: a throttled call keeps its place and its attempts.
    pub fn into_work(self) -> Work {
        match self {
            Refusal::Throttled(wait) => Outcome::throttled(wait),
            Refusal::Failed(failure, Some(wait)) => Err(Failed::of(failure).retry_after(wait)),
            Refusal::Failed(failure, None) => Outcome::failed(failure),
        }
    }
}

/// Adds the limits that the upstream announced to a verdict.
pub fn announcing(work: Work, announced: Option<Announced>) -> Work {
    let Some(announced) = announced else { return work };
    match work {
        Ok(outcome) => Ok(outcome.announcing(announced)),
        Err(failed) => Err(failed.announcing(announced)),
    }
}

/// The verdict on an error status.
pub fn refusal(status: StatusCode, retry_after: Option<Duration>) -> Refusal {
    // A wait of zero names no time: the engine's own backoff applies.
    let retry_after = retry_after.filter(|wait| !wait.is_zero());
    let unavailable = status == StatusCode::SERVICE_UNAVAILABLE && retry_after.is_some();
    if unavailable || status == StatusCode::TOO_MANY_REQUESTS {
        return Refusal::Throttled(retry_after);
    }
    let class = format!("status_{}", status.as_u16());
    let reason = status.canonical_reason().unwrap_or("a status without a name");
    let failure =
        if is_transient(status) { Failure::transient(&class) } else { Failure::permanent(&class) };
    let failure = failure.because(&format!("{} {reason}", status.as_u16()));
    Refusal::Failed(failure, retry_after.filter(|_| is_transient(status)))
}

/// Returns `true` if a retry may bring another response.
pub fn is_transient(status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 425 | 429 => true,
        501 | 505 => false,
        code => (500..600).contains(&code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_only_what_may_pass_is_transient() {
        for code in [408, 425, 429, 500, 502, 503, 504, 507, 520, 599] {
            assert!(is_transient(StatusCode::from_u16(code).expect("a status")), "{code}");
        }
        for code in [400, 401, 403, 404, 410, 416, 418, 451, 501, 505] {
            assert!(!is_transient(StatusCode::from_u16(code).expect("a status")), "{code}");
        }
    }

    #[test]
    fn l6_too_many_requests_throttle_and_so_does_a_503_with_retry_after() {
        let second = Some(Duration::from_secs(1));
        let of = |code, wait| refusal(StatusCode::from_u16(code).expect("a status"), wait);
        assert_eq!(of(429, None), Refusal::Throttled(None));
        assert_eq!(of(429, second), Refusal::Throttled(second));
        assert_eq!(of(503, second), Refusal::Throttled(second));
        assert_eq!(of(429, Some(Duration::ZERO)), Refusal::Throttled(None));
        assert!(matches!(of(503, None), Refusal::Failed(failure, None) if failure.retryable));
        assert!(matches!(of(500, second), Refusal::Failed(failure, Some(_)) if failure.retryable));
        assert!(matches!(of(404, second), Refusal::Failed(failure, None) if !failure.retryable));
    }
}
