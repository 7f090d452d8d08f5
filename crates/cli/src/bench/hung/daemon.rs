//! A daemon in a process of its own, with lanes whose upstream never answers, and clients that request
//! permits and relay requests on idle lanes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::Method;
use paceline_mock::{Behaviour, Mock, Preset};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{DAEMON, GIVE_UP, IDLE, IN_FLIGHT, Load, Spans, figures_of, median};
use crate::bench::bare::Bare;
use crate::bench::daemon::{Daemon, post};
use crate::bench::stopwatch::now;
use crate::bench::{Figure, Target};
use crate::local::{LocalServer, Response};

/// The requests of each client, and the time between them. Each idle lane has a client for permits and
/// one for the relay.
const REQUESTS: usize = 20;
const APART: Duration = Duration::from_millis(100);
/// How often the upstream's log is read until every lane hangs.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The measurements of one run.
pub(super) struct Run {
    /// From request to grant.
    permits: Spans,
    /// From request to the upstream's response.
    relayed: Spans,
    /// Bare commits meanwhile: a permit and a relayed request are charged durably first.
    commits: Spans,
    /// Processor time of the daemon.
    cpu: Duration,
}

pub(super) async fn run(load: Load) -> anyhow::Result<Run> {
    let dead = Mock::start(Preset::Hung.behaviour()).await.context("no port for an upstream")?;
    let prompt = Mock::start(Behaviour::default()).await.context("no port for an upstream")?;
    let directory = tempfile::tempdir().context("no directory for a store")?;
    let daemon = Daemon::start(&directory.path().join("daemon"), &config(load, &dead, &prompt))?;
    hang(&daemon.client(), load, &dead).await?;
    let cpu = daemon.cpu()?;
    let (mut permits, mut relays, mut disk) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let requests = REQUESTS / load.scale;
    for lane in 0..IDLE {
        // The clients start at different moments.
        let after = APART * u32::try_from(lane)? / u32::try_from(IDLE)?;
        permits.spawn(ask_permits(daemon.client(), lane, after, requests));
        relays.spawn(ask_relay(daemon.client(), lane, after + APART / 2, requests));
    }
    disk.spawn(commit(Bare::open(&directory.path().join("bare.db"))?, requests));
    let (permits, relayed) = (joined(permits).await?, joined(relays).await?);
    let commits = joined(disk).await?;
    let cpu = daemon.cpu()?.saturating_sub(cpu);
    ensure!(paths(&dead).len() == load.hung, "a call reached the wrong upstream");
    Ok(Run { permits, relayed, commits, cpu })
}

fn config(load: Load, dead: &Mock, prompt: &Mock) -> String {
    let (dead, prompt) = (dead.url(""), prompt.url(""));
    let mut text = "[store]\npath = 'hung.db'\n".to_string();
    let mut lane = |name: String, rules: &str| {
        writeln!(text, "[lanes.{name}]\n{rules}").expect("a string takes everything");
    };
    for name in load.hung_lanes() {
        lane(name, &format!("url = '{dead}'\nin_flight = {IN_FLIGHT}\ntimeout = '10m'"));
    }
    for number in 0..IDLE {
        lane(format!("permit-{number}"), "every = '50ms'");
        lane(format!("relay-{number}"), &format!("url = '{prompt}'\nevery = '50ms'"));
    }
    text
}

/// Submits jobs that hang, and waits until every lane hangs.
async fn hang(daemon: &LocalServer, load: Load, dead: &Mock) -> anyhow::Result<()> {
    for lane in load.hung_lanes() {
        let job = format!(r#"{{"kind":"http","lanes":["{lane}"],"payload":{{"path":"/{lane}"}}}}"#);
        let jobs = vec![job; load.calls_each].join(",");
        post(daemon, "/api/v1/jobs", &format!("[{jobs}]"), 202).await?;
    }
    let all_hang = async {
        while paths(dead).len() < load.hung {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    timeout(GIVE_UP, all_hang).await.context("a hung lane did not start")
}

/// The paths that were requested from an upstream.
fn paths(upstream: &Mock) -> BTreeSet<String> {
    upstream.log().into_iter().map(|entry| entry.path).collect()
}

async fn joined(mut tasks: JoinSet<anyhow::Result<Vec<Duration>>>) -> anyhow::Result<Spans> {
    let mut spans = Spans::default();
    while let Some(done) = tasks.join_next().await {
        spans.0.extend(done??);
    }
    Ok(spans)
}

/// Sends one request. Returns its response and the time it took.
async fn ask(
    daemon: &LocalServer,
    method: Method,
    path: &str,
    body: &str,
    status: u16,
) -> anyhow::Result<(Response, Duration)> {
    let start = now();
    let response = timeout(GIVE_UP, daemon.ask(method, path, body.to_string())).await;
    let took = start.elapsed();
    let response = response.with_context(|| format!("{path} was not answered"))??;
    ensure!(response.status == status, "{path}: {} {}", response.status, response.body);
    Ok((response, took))
}

/// Requests permits on one lane, and settles each.
async fn ask_permits(
    daemon: LocalServer,
    lane: usize,
    after: Duration,
    requests: usize,
) -> anyhow::Result<Vec<Duration>> {
    let path = format!("/api/v1/lanes/permit-{lane}/permits");
    let mut tick = ticking(after);
    let mut spans = Vec::with_capacity(requests);
    for _ in 0..requests {
        tick.tick().await;
        let (granted, took) = ask(&daemon, Method::POST, &path, "{}", 201).await?;
        spans.push(took);
        let granted: serde_json::Value = serde_json::from_str(&granted.body)?;
        let settle = format!("/api/v1/permits/{}/settle", granted["permit"]);
        ask(&daemon, Method::POST, &settle, r#"{"status":200}"#, 200).await?;
    }
    Ok(spans)
}

/// Relays requests to one lane.
async fn ask_relay(
    daemon: LocalServer,
    lane: usize,
    after: Duration,
    requests: usize,
) -> anyhow::Result<Vec<Duration>> {
    let path = format!("/to/relay-{lane}/");
    let mut tick = ticking(after);
    let mut spans = Vec::with_capacity(requests);
    for _ in 0..requests {
        tick.tick().await;
        spans.push(ask(&daemon, Method::GET, &path, "", 200).await?.1);
    }
    Ok(spans)
}

fn ticking(after: Duration) -> tokio::time::Interval {
    tokio::time::interval_at(tokio::time::Instant::now() + after, APART)
}

/// Makes a bare commit as often as each client sends a request.
async fn commit(mut disk: Bare, commits: usize) -> anyhow::Result<Vec<Duration>> {
    let mut tick = ticking(APART / 3);
    let mut spans = Vec::with_capacity(commits);
    for _ in 0..commits {
        tick.tick().await;
        spans.push(tokio::task::block_in_place(|| disk.commit())?);
    }
    Ok(spans)
}

pub(super) fn figures(hung: usize, runs: &mut [Run]) -> anyhow::Result<Vec<Figure>> {
    let cpu = median(runs, |run| {
        let requests = run.permits.0.len() + run.relayed.0.len();
        Ok(run.cpu.as_secs_f64() * 1e6 / requests as f64)
    })?;
    let mut figures = figures_of("permit", hung, runs, |run| &mut run.permits, DAEMON)?.to_vec();
    figures.extend(figures_of("relay", hung, runs, |run| &mut run.relayed, DAEMON)?);
    figures.extend(figures_of("commit", hung, runs, |run| &mut run.commits, Target::None)?);
    figures.push(Figure::new("hung", format!("daemon_{hung}_cpu_us"), cpu, "us", Target::None));
    Ok(figures)
}
