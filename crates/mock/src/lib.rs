//! Servers to test clients against: one keeps limits, one misbehaves. They measure where it counts: at arrival.

mod behaviour;
mod check;
pub mod files;
mod gate;
mod listening;
mod log;
pub mod proxy;
mod ratio;
mod request;
mod serve;

pub use behaviour::{Behaviour, Preset, PresetError};
pub use check::{Arrival, Limit, Violation, violations};
pub use log::{LimitCount, LogEntry, MOST_ENTRIES, Summary};
pub use ratio::{Ratio, RatioError};
pub use serve::{LARGEST_BODY, MOST_CONNECTIONS, Mock};
