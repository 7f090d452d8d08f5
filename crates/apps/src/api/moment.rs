//! Moments as the API shows them.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use paceline::Time;

/// A moment for programs: RFC 3339 in UTC, to the millisecond.
pub fn stamp(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::MAX);
    format!("{at:.3}")
}

/// A moment that already is the wall clock's.
pub fn wall(at: Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.0)
}
