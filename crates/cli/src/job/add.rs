//! `paceline job add`: submits jobs, and waits for their reports if asked to.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::describe::Arguments;
use super::show::reports;
use crate::client::Client;
use crate::exit::{Exit, TryLater};
use crate::follow::{End, NOTHING_RUNS, exit_of, finished, follow, signals, worst};
use crate::form::Form;
use crate::output::{data, say};
use crate::table::{clock, items, lines, plain, text};

/// Submits jobs.
pub(super) async fn add(
    client: &Client,
    arguments: &Arguments,
    jobs: Bytes,
) -> anyhow::Result<Exit> {
    let form = arguments.format.form;
    if let Some(wait) = arguments.wait {
        if !client.runs_jobs() {
            let what = format!("{NOTHING_RUNS}, or leave out `--wait`; nothing was added");
            return Err(TryLater(what).into());
        }
        return attend(client, jobs, wait.map(Into::into), form).await;
    }
    let response = client.submit(jobs).await?;
    let admitted = items(&response["jobs"]);
    let exit = worst(admitted.iter().map(refusal));
    for job in admitted {
        print_admission(job);
    }
    form.list("jobs", admitted.to_vec(), ids_of)?;
    if !client.runs_jobs() && admitted.iter().any(|job| job["job"].is_u64()) {
        say("no daemon is running: it waits until you start `paceline serve`");
    }
    Ok(exit)
}

/// Says if a job was joined, replaced or refused.
fn print_admission(admitted: &Value) {
    let job = &admitted["job"];
    match admitted["admission"].as_str() {
        Some("joined") => {
            say(format_args!("joined job {job}: it has the same key and is unfinished"));
        }
        Some("replaced") => say(format_args!("job {job} has the new payload")),
        Some("refused") => {
            let detail = plain(&text(&admitted["problem"]["detail"]));
            let again = &admitted["retry_at"];
            let again = again.is_string().then(|| format!(" (try again at {})", clock(again)));
            say(format_args!("refused: {detail}{}", again.unwrap_or_default()));
        }
        _ => {}
    }
}

fn ids_of(admitted: &[Value]) -> String {
    lines(admitted.iter().filter_map(|job| job["job"].as_u64()))
}

fn refusal(admitted: &Value) -> Exit {
    match admitted["problem"]["status"].as_u64() {
        None => Exit::Done,
        Some(429 | 503) => Exit::Deferred,
        Some(400 | 413 | 422) => Exit::Usage,
        Some(_) => Exit::Failed,
    }
}

/// Submits jobs and follows them until all reports are there or the timeout has passed.
async fn attend(
    client: &Client,
    jobs: Bytes,
    wait: Option<Duration>,
    form: Form,
) -> anyhow::Result<Exit> {
    let mut signals = signals()?;
    let until = wait.and_then(|wait| Instant::now().checked_add(wait));
    let response = tokio::select! {
        response = client.submit(jobs) => response?,
        () = signals.next() => {
            say("it may have been added: `paceline job ls --newest` shows it");
            return Ok(Exit::Interrupted);
        }
    };
    let mut admitted = items(&response["jobs"]).to_vec();
    admitted.iter().for_each(print_admission);
    let ids: Vec<u64> =
        admitted.iter().filter(|job| open(job)).filter_map(|job| job["job"].as_u64()).collect();
    let (mut end, mut error) = (End::Finished, None);
    if !ids.is_empty() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let followed = follow(client, &ids, left).await.inspect_err(|_| {
            let ids = lines(&ids).trim_end().replace('\n', " ");
            say(format_args!("added as job {ids}: `paceline job wait {ids}` continues to wait"));
        })?;
        (end, error) = (followed.end, followed.error);
        for report in followed.jobs.into_iter().filter(finished) {
            let same = admitted.iter_mut().filter(|job| job["job"] == report["job"]);
            same.for_each(|job| job["report"] = report.clone());
        }
    }
    let exit = finish(&admitted, form)?;
    if let Some(error) = error {
        return Err(error);
    }
    Ok(if end == End::Interrupted { Exit::Interrupted } else { exit })
}

/// Returns `true` if its report is still to come.
fn open(admitted: &Value) -> bool {
    admitted["job"].is_u64() && admitted["report"].is_null()
}

fn finish(admitted: &[Value], form: Form) -> anyhow::Result<Exit> {
    let report = |job: &Value| match &job["report"] {
        Value::Null => job.clone(),
        report => report.clone(),
    };
    let exit = |job: &Value| match &job["report"] {
        Value::Null if open(job) => Exit::Deferred,
        Value::Null => refusal(job),
        report => exit_of(report),
    };
    if form == Form::Table {
        let there: Vec<Value> =
            admitted.iter().filter(|job| job["report"].is_object()).map(report).collect();
        data(&reports(&there))?;
    } else {
        form.list("jobs", admitted.iter().map(report).collect(), reports)?;
    }
    let left: Vec<String> =
        admitted.iter().filter(|job| open(job)).map(|job| job["job"].to_string()).collect();
    if !left.is_empty() {
        let left = left.join(" ");
        say(format_args!("not finished yet: `paceline job wait {left}` continues to wait"));
    }
    Ok(worst(admitted.iter().map(exit)))
}
