//! `paceline job cancel` and `retry`, for each job on its own.

use clap::Args;
use hyper::Method;
use serde_json::Value;

use crate::client::Client;
use crate::exit::Exit;
use crate::follow::worst;
use crate::form::{Form, Format};
use crate::output::{fail, say};
use crate::table::{items, lines};

/// The jobs to cancel or retry.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The ids of the jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn cancel(client: &Client, arguments: &Arguments) -> anyhow::Result<Exit> {
    let (response, exit) = each(client, &arguments.ids, "cancel").await;
    for (id, response) in &response {
        if response["cancelled"] == "caller" {
            say(format_args!(
                "job {id} goes on: other callers joined it, and each of them has to cancel it"
            ));
        } else {
            say(format_args!("job {id} is cancelled"));
        }
    }
    let response = response.into_iter().map(|(_, response)| response).collect();
    if arguments.format.form != Form::Table {
        arguments.format.form.list("jobs", response, |_| String::new())?;
    }
    Ok(exit)
}

pub(super) async fn retry(client: &Client, arguments: &Arguments) -> anyhow::Result<Exit> {
    let (response, exit) = each(client, &arguments.ids, "retry").await;
    let mut fresh = Vec::new();
    for (id, response) in &response {
        for job in items(&response["jobs"]) {
            say(format_args!("job {} retries job {id}", job["job"]));
            fresh.push(job.clone());
        }
    }
    if !client.runs_jobs() && !fresh.is_empty() {
        say("no daemon is running: it waits until you start `paceline serve`");
    }
    let ids = |jobs: &[Value]| lines(jobs.iter().map(|job| &job["job"]));
    arguments.format.form.list("jobs", fresh, ids)?;
    Ok(exit)
}

/// Sends the request for each job. An error of one job does not stop the others.
async fn each(client: &Client, ids: &[u64], verb: &str) -> (Vec<(u64, Value)>, Exit) {
    let (mut done, mut exits) = (Vec::new(), Vec::new());
    for id in ids {
        match client.ask(Method::POST, &format!("/jobs/{id}/{verb}")).await {
            Ok(response) => done.push((*id, response)),
            Err(error) => exits.push(fail(&error)),
        }
    }
    (done, worst(exits))
}
