//! The limit of bytes per second over all downloads.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time by which reads may run ahead. A read beyond it waits.
pub(super) struct ByteRate {
    per_second: Option<u64>,
    /// The moment at which all bytes so far fit the rate.
    paid_until: Mutex<Option<Instant>>,
}

impl ByteRate {
    pub(super) fn new(per_second: Option<u64>) -> ByteRate {
        ByteRate { per_second, paid_until: Mutex::new(None) }
    }

    /// Waits until `bytes` more fit into the rate.
    pub(super) async fn pay(&self, bytes: usize) {
        let Some(per_second) = self.per_second else { return };
        let until = {
            let now = Instant::now();
            let mut paid = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
            let price = Duration::from_secs_f64(bytes as f64 / per_second as f64);
            let until = paid.unwrap_or(now).max(now) + price;
            *paid = Some(until);
            until
        };
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_holds_over_all_downloads() {
        let rate = ByteRate::new(Some(1_000));
        let start = Instant::now();
        let pay = async || {
            for _ in 0..5 {
                rate.pay(500).await;
            }
        };
        tokio::join!(pay(), pay());
        assert_eq!(start.elapsed().as_secs(), 5);
    }
}
