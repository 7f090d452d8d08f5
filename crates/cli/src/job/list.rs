//! `paceline job ls`: lists jobs, page after page.

use clap::Args;
use hyper::Method;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::show::{lanes, short, why_of};
use crate::client::Client;
use crate::exit::Exit;
use crate::form::{Form, Format};
use crate::output::say;
use crate::table::{aligned, clock, items, text};

/// The most jobs that the API lists at once.
const LARGEST_PAGE: u64 = 1_000;

/// The most waiting jobs whose reason is fetched.
const MOST_WHYS: usize = 100;

/// The filters of the list.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Only jobs in this state
    #[arg(long, value_parser = ["waiting", "running", "done", "failed", "skipped", "cancelled"])]
    state: Option<String>,
    /// Only jobs with a call on this lane
    #[arg(long, value_name = "NAME")]
    lane: Option<String>,
    /// Only jobs of this kind, like http or command
    #[arg(long)]
    kind: Option<String>,
    /// Only jobs with this key: the unfinished one and the newest finished one
    #[arg(long)]
    key: Option<String>,
    /// Only jobs of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// List the newest first
    #[arg(long)]
    newest: bool,
    /// List at most this many
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    format: Format,
}

impl Arguments {
    fn query(&self, cursor: Option<u64>, left: u64) -> String {
        let mut query = Serializer::new(String::new());
        let filters = [
            ("state", &self.state),
            ("lane", &self.lane),
            ("kind", &self.kind),
            ("key", &self.key),
            ("tenant", &self.tenant),
        ];
        for (name, value) in filters {
            value.as_ref().map(|value| query.append_pair(name, value));
        }
        if self.newest {
            query.append_pair("order", "newest");
        }
        cursor.map(|cursor| query.append_pair("cursor", &cursor.to_string()));
        query.append_pair("limit", &left.min(LARGEST_PAGE).to_string());
        query.finish()
    }
}

pub(super) async fn list(client: &Client, arguments: &Arguments) -> anyhow::Result<Exit> {
    let (mut jobs, mut cursor) = (Vec::new(), None);
    loop {
        let left = arguments.limit - jobs.len() as u64;
        let path = format!("/jobs?{}", arguments.query(cursor, left));
        let mut page = client.ask(Method::GET, &path).await?;
        if let Value::Array(more) = page["jobs"].take() {
            jobs.extend(more);
        }
        jobs.truncate(usize::try_from(arguments.limit).unwrap_or(usize::MAX));
        cursor = page["next"].as_u64();
        if cursor.is_none() || jobs.len() as u64 >= arguments.limit {
            break;
        }
    }
    if arguments.format.form == Form::Table {
        add_whys(client, &mut jobs).await;
    }
    arguments.format.form.list("jobs", jobs, table)?;
    if cursor.is_some() {
        say(format_args!("there may be more jobs: raise `--limit {}`", arguments.limit));
    }
    Ok(Exit::Done)
}

/// Adds the reasons why jobs wait, which the API's list leaves out.
async fn add_whys(client: &Client, jobs: &mut [Value]) {
    for job in jobs.iter_mut().filter(|job| job["state"] == "waiting").take(MOST_WHYS) {
        // A job that was deleted in the meantime waits no longer.
        let response = client.ask(Method::GET, &format!("/jobs/{}/why", job["job"])).await;
        job["why"] = response.map(|mut response| response["why"].take()).unwrap_or_default();
    }
}

fn table(jobs: &[Value]) -> String {
    let head = ["JOB", "STATE", "KIND", "LANES", "ANSWER", "SUBMITTED", "WHY"].map(String::from);
    let mut rows = vec![head];
    for job in jobs {
        rows.push([
            text(&job["job"]),
            text(&job["state"]),
            text(&job["kind"]),
            lanes(items(&job["stages"])),
            text(&job["answer"]),
            clock(&job["submitted_at"]),
            short(&why_of(job)),
        ]);
    }
    aligned(&rows)
}
