//! Follows jobs until they are finished.

use std::time::Duration;

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
    let end = tokio::select! {
        all = all_finished(client, &mut jobs, silence) => all.map(|()| End::Finished)?,
        () = over => End::TimeOver,
        () = signals.next() => End::Interrupted,
    };
    if end != End::Finished {
        // Jobs after the one that was waited for may be finished. A daemon that hangs gets no more time.
        let _ = tokio::time::timeout(LAST_LOOK, look(client, &mut jobs)).await;
    }
    Ok(Followed { jobs, end })
}

/// Fetches the jobs that were unfinished when last seen.
async fn look(client: &Client, jobs: &mut [Value]) -> anyhow::Result<()> {
    for job in jobs.iter_mut().filter(|job| !finished(job)) {
        *job = client.ask(Method::GET, &format!("/jobs/{}", job["job"])).await?;
    }
    Ok(())
}

/// Resolves when all are finished.
async fn all_finished(
    client: &Client,
    jobs: &mut [Value],
    silence: Duration,
) -> anyhow::Result<()> {
    look(client, jobs).await?;
    if !client.runs_jobs() && !jobs.iter().all(finished) {
        return Err(TryLater(NOTHING_RUNS.to_string()).into());
    }
    let mut silence = std::pin::pin!(tokio::time::sleep(silence));
    let mut printed = false;
    for job in jobs {
        let id = job["job"].clone();
        while !finished(job) {
            let mut waiting = std::pin::pin!(client.wait_for(&id));
            let waited = loop {
                tokio::select! {
                    job = &mut waiting => break job,
                    () = &mut silence, if !printed => {
                        printed = true;
                        // One reason is enough: that of the first unfinished job.
                        print_reasons(client, &id).await;
                    }
                }
            };
            *job = waited.map_err(stopped)?;
        }
    }
    Ok(())
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
