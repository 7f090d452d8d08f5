//! Jobs followed to their ends, by what the daemon tells.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::signal::unix::SignalKind;
use tokio::time::Instant;

use crate::door::{Door, Events};
use crate::exit::{Exit, Later};
use crate::interrupt::Signals;
use crate::output::say;
use crate::table::{clock, items, plain, text};

/// How long a job waits before its user is told why.
const SILENCE: Duration = Duration::from_secs(1);

/// Why nothing is waited for.
pub(crate) const NOBODY: &str = "nobody runs jobs now: start `paceline serve`";

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All are finished.
    Finished,
    /// The time was over.
    TimeOver,
    /// The user had enough.
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

/// Follows jobs until all are finished, or for so long. A daemon that hangs holds up nobody.
pub(crate) async fn follow(
    door: &Door,
    ids: &[u64],
    within: Option<Duration>,
) -> anyhow::Result<Followed> {
    let mut signals = signals()?;
    let mut jobs: Vec<Value> =
        ids.iter().map(|id| json!({ "job": id, "state": "waiting" })).collect();
    // Whoever waits no longer than that hears of it all the same.
    let silence = within.map_or(SILENCE, |within| SILENCE.min(within / 2));
    let until = within.and_then(|within| Instant::now().checked_add(within));
    let over = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let end = tokio::select! {
        all = attended(door, &mut jobs, silence) => all.map(|()| End::Finished)?,
        () = over => End::TimeOver,
        () = signals.next() => End::Interrupted,
    };
    Ok(Followed { jobs, end })
}

/// Resolves when all are finished.
async fn attended(door: &Door, jobs: &mut [Value], silence: Duration) -> anyhow::Result<()> {
    // Listening begins before the first look: no end falls in between.
    let events = door.events().await?;
    for job in jobs.iter_mut() {
        *job = door.ask(Method::GET, &format!("/jobs/{}", job["job"])).await?;
    }
    if jobs.iter().all(finished) {
        return Ok(());
    }
    let Some(mut events) = events else { return Err(Later(NOBODY.to_string()).into()) };
    all_finished(door, &mut events, jobs, silence).await
}

async fn all_finished(
    door: &Door,
    events: &mut Events,
    jobs: &mut [Value],
    silence: Duration,
) -> anyhow::Result<()> {
    let mut silence = std::pin::pin!(tokio::time::sleep(silence));
    let mut told = false;
    while !jobs.iter().all(finished) {
        let event = tokio::select! {
            event = events.next() => event?,
            () = &mut silence, if !told => {
                told = true;
                // With many, the first one stands for all.
                if let Some(job) = jobs.iter().find(|job| !finished(job)) {
                    tell_why(door, &job["job"]).await;
                }
                continue;
            }
        };
        let Some(event) = event else {
            let what = "whoever ran it has stopped: what is unfinished goes on at the next start";
            return Err(Later(what.to_string()).into());
        };
        for job in jobs.iter_mut().filter(|job| !finished(job)) {
            // After `resync` anything may have happened.
            let over = event.name == "finished" && event.data["job"] == job["job"];
            if !over && event.name != "resync" {
                continue;
            }
            *job = match door.ask(Method::GET, &format!("/jobs/{}", job["job"])).await {
                // Whoever ran it has stopped right after it. The event has the gist of the report.
                Err(_) if over => {
                    let id = &job["job"];
                    say(format_args!("its report is kept: `paceline job show {id}` shows it"));
                    event.data.clone()
                }
                asked => asked?,
            };
        }
    }
    Ok(())
}

/// Says what a job waits for. A courtesy: that it cannot be told stops nobody.
async fn tell_why(door: &Door, job: &Value) {
    let told = door.ask(Method::GET, &format!("/jobs/{job}/why")).await.unwrap_or_default();
    for why in items(&told["why"]) {
        let lane = plain(&text(&why["lane"]));
        say(format_args!("job {job} waits on the lane `{lane}`: {}", reason(why)));
    }
}

/// Whether a job as it is shown has its report.
pub(crate) fn finished(job: &Value) -> bool {
    !matches!(job["state"].as_str(), Some("waiting" | "running"))
}

/// What a call waits for, in a few words.
pub(crate) fn reason(why: &Value) -> String {
    let until = &why["until"];
    let until = until.is_string().then(|| format!(" until {}", clock(until)));
    let ahead = why["ahead"].as_u64().filter(|ahead| *ahead > 0);
    let ahead = ahead.map(|ahead| format!(", {ahead} ahead"));
    let (until, ahead) = (until.unwrap_or_default(), ahead.unwrap_or_default());
    format!("{}{until}{ahead}", text(&why["reason"]))
}

/// How to exit after a job came to this.
pub(crate) fn exit_of(report: &Value) -> Exit {
    match (report["state"].as_str(), report["answer"].as_str()) {
        (Some("skipped"), _) => Exit::Deferred,
        (Some("done"), answer) if answer != Some("inconclusive") => Exit::Done,
        _ => Exit::Failed,
    }
}

/// How to exit after several came to these: a failure counts more than a delay.
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
    fn what_a_job_came_to_is_the_exit_code() {
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
