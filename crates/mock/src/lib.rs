//! A rate-limited HTTP service to test clients against. It measures where it counts: at arrival.

mod behaviour;
mod check;
mod gate;
mod log;
mod ratio;
mod serve;

pub use behaviour::{Behaviour, Preset, PresetError};
pub use check::{Arrival, Limit, Violation, violations};
pub use log::{Entry, LimitCount, MOST_ENTRIES, Summary};
pub use ratio::{Ratio, RatioError};
pub use serve::{LARGEST_BODY, MOST_CONNECTIONS, Mock};
