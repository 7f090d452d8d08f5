//! The wait before a retry (R1).

use crate::job::Retry;
use crate::time::Span;

/// The wait before attempt number `done + 1`: exponential with full jitter. `roll` is the random
/// number, from anywhere in its range.
pub fn backoff(retry: &Retry, done: u16, roll: u64) -> Span {
    let doublings = u32::from(done.saturating_sub(1)).min(32);
    let bound = Span(retry.backoff.0.saturating_mul(1 << doublings)).min(retry.backoff_max);
    // The high half of a product spreads the roll evenly over 0..=bound.
    Span(((u128::from(roll) * (u128::from(bound.0) + 1)) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r1_the_bound_doubles_up_to_its_maximum() {
        let retry = Retry { backoff_max: Span::secs(5), ..Retry::default() };
        let bounds = [1, 2, 3, 4, 60_000].map(|done| backoff(&retry, done, u64::MAX));
        assert_eq!(bounds, [1, 2, 4, 5, 5].map(Span::secs));
    }

    proptest! {
        #[test]
        fn r1_the_jitter_is_full(done in 1..10u16, roll: u64) {
            let retry = Retry::default();
            prop_assert_eq!(backoff(&retry, done, 0), Span::ZERO);
            prop_assert!(backoff(&retry, done, roll) <= backoff(&retry, done, u64::MAX));
        }
    }
}
