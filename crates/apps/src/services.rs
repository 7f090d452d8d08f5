//! Services: programs and requests that come again, run by rosters.
//!
//! When they run and in what order is decided by the rules in `core`; here is what a run does.

mod worker;

use paceline::{Ended, Paceline};
use serde::{Deserialize, Serialize};

use crate::call::Ask;
use crate::program::end_left;

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

/// The note that holds the process group of a service's last run.
fn child_note(service: &str) -> String {
    format!("service/{service}/child")
}

/// Ends what an earlier process left of services that nobody knows any more: no run of theirs will
/// (S3). Says of which any still ran.
pub async fn end_forgotten(pace: &Paceline, known: &Tasks) -> Result<Vec<String>, Ended> {
    let mut ended = Vec::new();
    for note in pace.notes("service/").await? {
        let name = note.strip_prefix("service/").and_then(|note| note.strip_suffix("/child"));
        if let Some(name) = name.filter(|name| !known.has(name))
            && end_left(pace, &note).await?
        {
            ended.push(name.to_string());
        }
    }
    Ok(ended)
}

/// The note that holds the last output of a service.
pub fn output_note(service: &str) -> String {
    format!("service/{service}/output")
}
