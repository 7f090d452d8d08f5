//! Follows jobs until they are finished.

use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::Method;
use serde_json::{Value, json};
use tokio::signal::unix::SignalKind;
use tokio::time::Instant;

use crate::client::Client;
use crate::exit::{Exit, TryLater};
use crate::interrupt::Signals;
use crate::output::say;
use crate::table::{clock, items, plain, text};

/// How long a job may wait before the reason is printed.
const SILENCE: Duration = Duration::from_secs(1);

/// Jobs that are waited for at once: a daemon has few connections for the command line.
const AT_ONCE: usize = 8;

/// How soon a job is asked for again.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// How long the last look at unfinished jobs may take.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The reason why a command does not wait.
pub(crate) const NOTHING_RUNS: &str = "no daemon is running: start `paceline serve`";

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All are finished.
    Finished,
    /// The timeout has passed.
    TimeOver,
    /// The user interrupted it.
    Interrupted,
}

/// Jobs as they were last seen, in the order in which they were named.
pub(crate) struct Followed {
    pub(crate) jobs: Vec<Value>,
    pub(crate) end: End,
    /// The first error, if jobs could not be followed to their ends. It does not hide the others.
    pub(crate) error: Option<anyhow::Error>,
}

/// Listens for signals that end the waiting.
pub(crate) fn signals() -> std::io::Result<Signals> {
    Signals::new(&[SignalKind::interrupt(), SignalKind::terminate()])
}

/// Follows jobs until all are finished, or for `within`. A daemon that hangs does not extend it.
pub(crate) async fn follow(
    client: &Client,
    ids: &[u64],
    within: Option<Duration>,
) -> anyhow::Result<Followed> {
    let mut signals = signals()?;
    let mut jobs: Vec<Value> =
        ids.iter().map(|id| json!({ "job": id, "state": "waiting" })).collect();
    // A wait shorter than that gets the reason too.
    let silence = within.map_or(SILENCE, |within| SILENCE.min(within / 2));
    let until = within.and_then(|within| Instant::now().checked_add(within));
    let over = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let mut error = None;
    let end = tokio::select! {
        all = all_finished(client, &mut jobs, silence) => {
            error = all?;
            End::Finished
        }
        () = over => End::TimeOver,
        () = signals.next() => End::Interrupted,
    };
    if end != End::Finished {
        // More jobs than are waited for at once may be finished. A daemon that hangs gets no more time.
        let _ = tokio::time::timeout(LAST_LOOK, look_again(client, &mut jobs)).await;
    }
    Ok(Followed { jobs, end, error })
}

/// Fetches the jobs that were unfinished when last seen.
async fn look_again(client: &Client, jobs: &mut [Value]) {
    for job in jobs.iter_mut().filter(|job| !finished(job)) {
        if let Ok(seen) = client.ask(Method::GET, &format!("/jobs/{}", job["job"])).await {
            *job = seen;
        }
    }
}

/// Resolves when all are finished, or cannot be followed any more: then with the first error.
async fn all_finished(
    client: &Client,
    jobs: &mut [Value],
    silence: Duration,
) -> anyhow::Result<Option<anyhow::Error>> {
    for job in jobs.iter_mut() {
        *job = client.ask(Method::GET, &format!("/jobs/{}", job["job"])).await?;
    }
    if !client.runs_jobs() && !jobs.iter().all(finished) {
        return Err(TryLater(NOTHING_RUNS.to_string()).into());
    }
    let ids = jobs.iter().enumerate().filter(|(_, job)| !finished(job));
    let ids: Vec<(usize, Value)> = ids.map(|(place, job)| (place, job["job"].clone())).collect();
    let Some((_, first)) = ids.first().cloned() else { return Ok(None) };
    // Together, so that no report waits behind a job that takes longer.
    let waits = ids.into_iter().map(async |(place, id)| (place, one_finished(client, &id).await));
    let mut waits = std::pin::pin!(futures_util::stream::iter(waits).buffer_unordered(AT_ONCE));
    let mut silence = std::pin::pin!(tokio::time::sleep(silence));
    let (mut printed, mut error) = (false, None);
    loop {
        tokio::select! {
            waited = waits.next() => match waited {
                Some((place, Ok(job))) => jobs[place] = job,
                Some((_, Err(first))) => error = error.or(Some(stopped(first))),
                None => return Ok(error),
            },
            () = &mut silence, if !printed => {
                printed = true;
                // One reason is enough: that of the first unfinished job.
                print_reasons(client, &first).await;
            }
        }
    }
}

/// A job, as soon as it is finished.
async fn one_finished(client: &Client, id: &Value) -> anyhow::Result<Value> {
    loop {
        let asked_at = Instant::now();
        let job = client.wait_for(id).await?;
        if finished(&job) {
            return Ok(job);
        }
        // A daemon that does not wait is not asked again at full speed.
        tokio::time::sleep_until(asked_at + SHORTEST_WAIT).await;
    }
}

/// A daemon that goes away while a job is followed has stopped.
fn stopped(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<TryLater>() {
        Ok(TryLater(why)) => {
            let goes_on = "unfinished jobs continue when a daemon runs again";
            TryLater(format!("the process that runs the jobs has stopped ({why}): {goes_on}"))
                .into()
        }
        Err(error) => error,
    }
}

/// Prints what a job waits for. An error here does not end the wait.
async fn print_reasons(client: &Client, job: &Value) {
    let response = client.ask(Method::GET, &format!("/jobs/{job}/why")).await.unwrap_or_default();
    for why in items(&response["why"]) {
        let lane = plain(&text(&why["lane"]));
        say(format_args!("job {job} is waiting for the lane `{lane}`: {}", reason(why)));
    }
}

/// Returns `true` if a job, as the API shows it, is finished.
pub(crate) fn finished(job: &Value) -> bool {
    !matches!(job["state"].as_str(), Some("waiting" | "running"))
}

/// The reason why a call waits, in a few words.
pub(crate) fn reason(why: &Value) -> String {
    let until = &why["until"];
    let until = until.is_string().then(|| format!(" until {}", clock(until)));
    let ahead = why["ahead"].as_u64().filter(|ahead| *ahead > 0);
    let ahead = ahead.map(|ahead| format!(", {ahead} ahead"));
    let (until, ahead) = (until.unwrap_or_default(), ahead.unwrap_or_default());
    format!("{}{until}{ahead}", text(&why["reason"]))
}

/// The exit code of a job.
pub(crate) fn exit_of(report: &Value) -> Exit {
    match (report["state"].as_str(), report["answer"].as_str()) {
        (Some("skipped"), _) => Exit::Deferred,
        (Some("done"), answer) if answer != Some("inconclusive") => Exit::Done,
        _ => Exit::Failed,
    }
}

/// The most serious of several exits: a failure counts more than a delay.
pub(crate) fn worst(exits: impl IntoIterator<Item = Exit>) -> Exit {
    let weight = |exit: &Exit| match exit {
        Exit::Done => 0,
        Exit::Deferred => 1,
        Exit::Failed => 2,
        Exit::Usage => 3,
        Exit::Interrupted => 4,
    };
    exits.into_iter().max_by_key(weight).unwrap_or(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_job_is_the_exit_code() {
        let exit = |state: &str, answer: &str| exit_of(&json!({"state": state, "answer": answer}));
        assert_eq!(exit("done", "conclusive"), Exit::Done);
        assert_eq!(exit("done", "empty"), Exit::Done);
        assert_eq!(exit("done", "inconclusive"), Exit::Failed);
        assert_eq!(exit("failed", "inconclusive"), Exit::Failed);
        assert_eq!(exit("cancelled", "inconclusive"), Exit::Failed);
        assert_eq!(exit("skipped", "inconclusive"), Exit::Deferred);
        assert_eq!(worst([Exit::Deferred, Exit::Failed, Exit::Done]), Exit::Failed);
        assert_eq!(worst([]), Exit::Done);
    }
}
