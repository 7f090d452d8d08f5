//! `paceline services run`: runs rosters in the foreground, or one service now.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::Method;
use paceline::report::JobState;
use paceline::services::ServiceStatus;
use paceline::{Event, Following, JobId, NotSubmitted, Paceline, Report};
use serde_json::json;
use tokio::signal::unix::SignalKind;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{known, no_service, services};
use crate::client::{Client, StoreOwner, part, start_or_ask};
use crate::config::Config;
use crate::engine::{Engine, Purpose, start, start_with};
use crate::exit::Usage;
use crate::exit::{Exit, TryLater};
use crate::follow::{End, exit_of, follow};
use crate::form::Form;
use crate::interrupt::Signals;
use crate::job::why_of;
use crate::output::{data, say};
use crate::serve::{OwnPort, log_warnings};
use crate::table::plain;

/// How long running services may take to finish after Ctrl-C.
const GRACE: Duration = Duration::from_secs(30);
/// How long a run waits before its reason is printed.
const SILENCE: Duration = Duration::from_secs(1);

fn signals() -> std::io::Result<Signals> {
    // A closed terminal must not leave programs running.
    Signals::new(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
}

/// Lets running services finish. A second signal ends them at once, programs included.
async fn stop(pace: &Paceline, mut signals: Signals) -> anyhow::Result<()> {
    say("waiting for running services to finish; a second signal ends them at once");
    tokio::select! {
        stopped = pace.stop(GRACE) => stopped?,
        () = signals.next() => pace.stop(Duration::ZERO).await?,
    }
    Ok(())
}

/// Starts an engine that runs the rosters, and listens to it from before the first run begins.
async fn start_rosters(config: &Config) -> anyhow::Result<(Engine, Receiver<Event>)> {
    if config.tools.services.rosters.is_empty() {
        let what = "no roster is configured: add `[rosters.NAME]` with a list of services";
        return Err(Usage(what.to_string()).into());
    }
    for service in &config.tools.services.services {
        if !config
            .tools
            .services
            .rosters
            .iter()
            .any(|roster| roster.services.contains(&service.name))
        {
            let name = &service.name;
            say(format_args!(
                "`{name}` is on no roster: only `paceline services run {name}` runs it"
            ));
        }
    }
    let mut events = None;
    let engine = start_with(config, Purpose::Rosters, |builder| {
        events = Some(builder.events());
        builder.keep_events(u64::from(config.server.keep_events))
    });
    let engine = engine.await?;
    Ok((engine, events.expect("the engine was built")))
}

/// Runs all rosters until a signal stops it.
pub(super) async fn rosters(config: &Config, form: Form) -> anyhow::Result<Exit> {
    log_warnings();
    let (engine, events) = match start_or_ask(config, start_rosters(config)).await? {
        StoreOwner::This(started) => started,
        StoreOwner::Other(_) => {
            let what = "another process runs the rosters of this store: `paceline services status` \
                        shows them";
            return Err(TryLater(what.to_string()).into());
        }
    };
    let pace = &engine.pace;
    let port = OwnPort::open(config, &engine).await;
    let failed = |error| say(format_args!("other commands cannot reach this process: {error:#}"));
    let mut port = port.map_err(failed).ok();
    let mut signals = signals()?;
    let (rosters, services) =
        (config.tools.services.rosters.len(), config.tools.services.services.len());
    say(format_args!("rosters: {rosters}, services: {services}; Ctrl-C stops"));
    let finished = tokio::select! {
        () = signals.next() => None,
        ended = pace.ended() => return Err(ended.into()),
        printing = print_runs(pace, events, form) => Some(printing),
    };
    if let Some(port) = &mut port {
        port.withdraw();
    }
    if let Some(printing) = finished {
        // Its output is no longer read, so no program is left running for it.
        pace.stop(Duration::ZERO).await?;
        return printing.map(|()| Exit::Failed);
    }
    stop(pace, signals).await?;
    if let Some(port) = port {
        port.close().await;
    }
    say("stopped; the next start continues with the rest");
    Ok(Exit::Interrupted)
}

/// Prints a line for every run that begins or ends.
async fn print_runs(
    pace: &Paceline,
    mut events: Receiver<Event>,
    form: Form,
) -> anyhow::Result<()> {
    loop {
        match events.recv().await {
            Ok(Event::Started(call, _)) => {
                if let Some(service) = running(pace, call.job).await? {
                    let name = &service.record.name;
                    line(form, name, "running", None, call.job)?;
                }
            }
            Ok(Event::Finished(report)) => over(pace, &report, form).await?,
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => {
                say(format_args!("{missed} events were missed and are not shown"));
            }
            Err(RecvError::Closed) => std::future::pending::<()>().await,
        }
    }
}

/// The service that a job runs, or ran just now: a short run is over before this asks.
async fn running(pace: &Paceline, job: JobId) -> anyhow::Result<Option<ServiceStatus>> {
    let runs = |service: &ServiceStatus| {
        let last = service.record.last.as_ref().map(|last| last.job);
        service.running == Some(job) || last == Some(job)
    };
    Ok(pace.services().await?.into_iter().find(runs))
}

async fn over(pace: &Paceline, report: &Report, form: Form) -> anyhow::Result<()> {
    for service in pace.services().await? {
        let last = service.record.last.filter(|last| last.job == report.job);
        if let Some(last) = last {
            let state = word(last.result.state);
            line(form, &service.record.name, &state, last.result.why.as_deref(), last.job)?;
        }
    }
    Ok(())
}

fn word(state: JobState) -> String {
    format!("{state:?}").to_lowercase()
}

fn line(
    form: Form,
    service: &str,
    state: &str,
    why: Option<&str>,
    job: JobId,
) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now();
    match form {
        Form::Table => {
            let clock = now.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
            let why = why.map(|why| format!(": {}", plain(why))).unwrap_or_default();
            data(&format!("{clock}  {service}  {state}{why}\n"))?;
        }
        Form::Json | Form::Jsonl => {
            let at = format!("{now:.3}");
            let event = json!({
                "at": at, "service": service, "state": state, "why": why, "job": job,
            });
            data(&format!("{event}\n"))?;
        }
    }
    Ok(())
}

/// Has the process that owns the store run one service now, and waits for it.
async fn asked(client: &Client, name: &str, form: Form) -> anyhow::Result<Exit> {
    known(&services(client).await?, name)?;
    let response = client.ask(Method::POST, &format!("/services/{}/run", part(name))).await?;
    let job = response["job"].as_u64().context("the response names no job")?;
    let followed = follow(client, &[job], None).await?;
    if let Some(error) = followed.error {
        return Err(error);
    }
    let report = &followed.jobs[0];
    if followed.end != End::Finished {
        say(format_args!(
            "`{name}` continues as job {job}: `paceline job wait {job}` waits for it"
        ));
        return Ok(Exit::Interrupted);
    }
    let why = Some(why_of(report)).filter(|why| why != "-");
    line(form, name, report["state"].as_str().unwrap_or_default(), why.as_deref(), JobId(job))?;
    Ok(exit_of(report))
}

/// Runs one service now, even if it is not due.
pub(super) async fn one(config: &Config, name: &str, form: Form) -> anyhow::Result<Exit> {
    let started = async {
        if config.tools.services.services.iter().all(|service| service.name != name) {
            let names = config.tools.services.services.iter().map(|service| service.name.as_str());
            return Err(no_service(name, names));
        }
        start(config, Purpose::Calls).await
    };
    let pace = match start_or_ask(config, started).await? {
        StoreOwner::This(pace) => pace,
        StoreOwner::Other(client) => return asked(&client, name, form).await,
    };
    let mut signals = signals()?;
    let finished = tokio::select! {
        exit = run_one(&pace, name, form) => Some(exit),
        () = signals.next() => None,
    };
    let Some(exit) = finished else {
        stop(&pace, signals).await?;
        say(format_args!("stopped; if `{name}` did not finish, it continues at the next start"));
        return Ok(Exit::Interrupted);
    };
    // Jobs that an earlier process left unfinished were resumed too.
    let others = pace.summary().await?.running;
    if others > 0 {
        say(format_args!(
            "calls of earlier jobs still run: {others}; Ctrl-C stops the wait for them"
        ));
    }
    tokio::select! {
        stopped = pace.stop(Duration::MAX) => stopped?,
        () = signals.next() => {
            stop(&pace, signals).await?;
            return Ok(Exit::Interrupted);
        }
    }
    exit
}

async fn run_one(pace: &Paceline, name: &str, form: Form) -> anyhow::Result<Exit> {
    let following = match pace.run_service(name).await {
        Ok(following) => following,
        Err(NotSubmitted::Full { .. }) => {
            return Err(TryLater("the queue is full: try again later".to_string()).into());
        }
        Err(error) => return Err(error).with_context(|| format!("`{name}` was not run")),
    };
    let report = attended(pace, following).await?;
    over(pace, &report, form).await?;
    Ok(exit_of(&serde_json::to_value(&*report)?))
}

/// The report of a run. If it does not begin soon, prints what it waits for.
async fn attended(pace: &Paceline, following: Following) -> anyhow::Result<Arc<Report>> {
    let job = following.id();
    let mut report = std::pin::pin!(following.report());
    if let Ok(report) = tokio::time::timeout(SILENCE, &mut report).await {
        return Ok(report?);
    }
    for (_, why) in pace.why(job).await? {
        let until =
            why.until.map(|until| format!(" for {} more", paceline::Span::from(pace.until(until))));
        let until = until.unwrap_or_default();
        say(format_args!("waiting for the lane `{}`: {}{until}", why.lane, why.reason.name()));
    }
    Ok(report.await?)
}
