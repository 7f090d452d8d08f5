//! Upstreams to test clients against: [`Mock`] enforces rate limits, [`files::Files`] serves files
//! and misbehaves by script, [`proxy::Proxy`] forwards requests. Each logs every request at its
//! arrival, and [`violations`](violations()) finds the requests in a log that exceeded a limit.

mod behaviour;
mod check;
pub mod files;
mod gate;
mod log;
pub mod proxy;
mod ratio;
mod request;
mod serve;
mod server_thread;

pub use behaviour::{Behaviour, Preset, PresetError};
pub use check::{Arrival, Limit, Violation, violations};
pub use log::{LimitCount, LogEntry, MOST_ENTRIES, Summary};
pub use ratio::{Ratio, RatioError};
pub use serve::{LARGEST_BODY, MOST_CONNECTIONS, Mock};
