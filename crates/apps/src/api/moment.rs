//! Moments as the API shows them.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use paceline::Time;

/// A moment as RFC 3339 in UTC, to the millisecond.
pub fn stamp(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::MAX);
    format!("{at:.3}")
}

/// Converts a moment that is counted on the wall clock.
pub fn wall(at: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.0)
}
