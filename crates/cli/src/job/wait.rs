//! `paceline job wait`: waits until jobs are finished, and prints their reports.

use std::time::Duration;

use serde_json::Value;

use super::show::reports;
use crate::client::Client;
use crate::exit::Exit;
use crate::follow::{End, exit_of, finished, follow, worst};
use crate::form::Form;
use crate::output::say;

pub(super) async fn wait(
    client: &Client,
    ids: &[u64],
    within: Option<Duration>,
    form: Form,
) -> anyhow::Result<Exit> {
    let followed = follow(client, ids, within).await?;
    let (over, left): (Vec<Value>, Vec<Value>) = followed.jobs.into_iter().partition(finished);
    let exit = worst(over.iter().map(exit_of));
    if !over.is_empty() {
        form.list("jobs", over, reports)?;
    }
    let left: Vec<String> = left.iter().map(|job| job["job"].to_string()).collect();
    if !left.is_empty() {
        let left = left.join(" ");
        say(format_args!("not finished yet: `paceline job wait {left}` continues to wait"));
    }
    if let Some(error) = followed.error {
        return Err(error);
    }
    Ok(match followed.end {
        End::Finished => exit,
        End::TimeOver => worst([exit, Exit::Deferred]),
        End::Interrupted => Exit::Interrupted,
    })
}
