//! `paceline job add`: jobs handed in, and their reports if those are waited for.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::describe::Arguments;
use super::show::reports;
use crate::daemon::new_token;
use crate::door::Door;
use crate::exit::{Exit, Later};
use crate::follow::{NOBODY, exit_of, signals, tell_why, worst};
use crate::form::Form;
use crate::output::{data, say};
use crate::table::{clock, items, lines, plain, text};

/// One answer is held back for so long at most, so that a lost connection is noticed.
const ROUND: Duration = Duration::from_mins(1);

/// Hands jobs in.
pub(super) async fn add(door: &Door, arguments: &Arguments, jobs: &Bytes) -> anyhow::Result<Exit> {
    let form = arguments.format.form;
    if let Some(wait) = arguments.wait {
        if !door.works() {
            let what = format!("{NOBODY}, or leave out `--wait`; nothing was added");
            return Err(Later(what).into());
        }
        return attend(door, jobs, wait.into(), form).await;
    }
    let told = door.submit(jobs, None).await?;
    let admitted = items(&told["jobs"]);
    let exit = worst(admitted.iter().map(refusal));
    for job in admitted {
        tell(job);
    }
    form.list("jobs", admitted.to_vec(), numbers)?;
    if !door.works() && admitted.iter().any(|job| job["job"].is_u64()) {
        say("nobody runs it until a daemon is started: `paceline serve`");
    }
    Ok(exit)
}

/// Says what became of a job beyond its being accepted.
fn tell(admitted: &Value) {
    let job = &admitted["job"];
    match admitted["admission"].as_str() {
        Some("joined") => say(format_args!("joined job {job}: it is the same work")),
        Some("replaced") => say(format_args!("job {job} waits with the new payload")),
        Some("refused") => {
            let detail = plain(&text(&admitted["problem"]["detail"]));
            let again = &admitted["retry_at"];
            let again = again.is_string().then(|| format!(" (try again at {})", clock(again)));
            say(format_args!("refused: {detail}{}", again.unwrap_or_default()));
        }
        _ => {}
    }
}

fn numbers(admitted: &[Value]) -> String {
    lines(admitted.iter().filter_map(|job| job["job"].as_u64()))
}

fn refusal(admitted: &Value) -> Exit {
    match admitted["problem"]["status"].as_u64() {
        None => Exit::Done,
        Some(429 | 503) => Exit::Deferred,
        Some(400 | 422) => Exit::Usage,
        Some(_) => Exit::Failed,
    }
}

/// Hands jobs in and asks again, as the same request, until all reports are there or time is over.
async fn attend(door: &Door, jobs: &Bytes, wait: Duration, form: Form) -> anyhow::Result<Exit> {
    let mut signals = signals()?;
    let key = new_token()?;
    let until = Instant::now() + wait;
    // The first answer comes soon: then the numbers are known, whatever happens.
    let first = tokio::select! {
        told = door.submit(jobs, Some((&key, wait.min(Duration::from_secs(1))))) => told?,
        () = signals.next() => {
            say("it may have been added: `paceline job ls` shows it");
            return Ok(Exit::Interrupted);
        }
    };
    items(&first["jobs"]).iter().for_each(tell);
    if let Some(waits) = items(&first["jobs"]).iter().find(|job| open(job)) {
        tell_why(door, &waits["job"]).await;
    }
    let mut known = first;
    while items(&known["jobs"]).iter().any(open) {
        known = tokio::select! {
            told = door.submit(jobs, Some((&key, ROUND))) => told?,
            () = tokio::time::sleep_until(until) => break,
            () = signals.next() => {
                finish(items(&known["jobs"]), form)?;
                return Ok(Exit::Interrupted);
            }
        };
    }
    finish(items(&known["jobs"]), form)
}

/// Whether its report is still to come.
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
        say(format_args!("not finished yet: `paceline job wait {left}` goes on waiting"));
    }
    Ok(worst(admitted.iter().map(exit)))
}
