//! Services: programs and requests that come again, run by rosters.
//!
//! When they run and in what order is decided by the rules in `core`; here is what a run does.

mod worker;

use serde::{Deserialize, Serialize};

use crate::request::Ask;

pub use worker::{Act, ServiceWorker, Task, Tasks};

/// What the job of a run carries.
#[derive(Debug, Deserialize, Serialize)]
pub struct Payload {
    /// Which service.
    pub service: String,
    /// What to ask instead of its own question, after a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

/// The note that holds the last output of a service.
pub fn output_note(service: &str) -> String {
    format!("service/{service}/output")
}
