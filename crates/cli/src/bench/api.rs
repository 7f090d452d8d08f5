//! The daemon over HTTP, in a process of its own: submissions, single and batched, each durable when it
//! is answered, and the time to read a job meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::daemon::{Daemon, post};
use super::stopwatch::now;
use super::{Figure, Target};
use crate::local::LocalServer;

const CONNECTIONS: usize = 32;
const SINGLES: usize = 60_000;
const BATCHERS: usize = 8;
const BATCHES: usize = 4_000;
const BATCH: usize = 100;
/// Idle clients of the event stream.
const LISTENERS: usize = 10_000;
/// The interval between two reads of a job.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A lane on which all jobs wait, and a queue with room for all of them.
const CONFIG: &str = "\
[store]
path = \"bench.db\"
[queue]
max_waiting = 100000000
lane_waiting = 100000000
[lanes.shop]
url = \"http://127.0.0.1:9\"
";

const JOB: &str = r#"{"kind":"http","lanes":["shop"],"payload":{"path":"/item/1"}}"#;

pub(crate) fn measure(scale: usize) -> anyhow::Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let daemon = Daemon::start(&directory.path().join("posts"), CONFIG)?;
    // A second daemon: memory that the first one has freed would hide the cost of listeners.
    let quiet = Daemon::start(&directory.path().join("listeners"), CONFIG)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        post(&daemon.client(), "/api/v1/lanes/shop/pause", "{}", 200).await?;
        let (singles, looks) = singles(&daemon, SINGLES / scale).await?;
        let batches = batches(&daemon, BATCHES / scale).await?;
        let p99 = looks.p99.as_secs_f64() * 1_000.0;
        let p50 = looks.p50.as_secs_f64() * 1_000.0;
        let rate = |lap: &Lap| lap.jobs as f64 / lap.wall.as_secs_f64();
        let cpu = |lap: &Lap| lap.cpu.as_secs_f64() * 1e6 / lap.jobs as f64;
        let listeners = LISTENERS / scale;
        let listening = listen(&quiet, listeners).await? * (LISTENERS / listeners) as f64;
        let (least, batched) = (Target::AtLeast(3_000.0), Target::AtLeast(20_000.0));
        Ok(vec![
            Figure::new("api", "singles_per_s", rate(&singles), "1/s", least),
            Figure::new("api", "single_cpu_us", cpu(&singles), "us", Target::None),
            Figure::new("api", "batched_per_s", rate(&batches), "1/s", batched),
            Figure::new("api", "batched_cpu_us", cpu(&batches), "us", Target::None),
            Figure::new("api", "get_p50_ms", p50, "ms", Target::None),
            Figure::new("api", "get_p99_ms", p99, "ms", Target::AtMost(10.0)),
            Figure::new("api", "mb_at_10000_listeners", listening, "MB", Target::AtMost(200.0)),
        ])
    })
}

struct Lap {
    jobs: usize,
    wall: Duration,
    cpu: Duration,
}

struct Looks {
    p50: Duration,
    p99: Duration,
}

/// Posts the same body over one connection until all posts are done.
async fn poster(daemon: LocalServer, body: Arc<str>, left: Arc<AtomicU64>) -> anyhow::Result<()> {
    let take =
        || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    while take().is_ok() {
        let response = post(&daemon, "/api/v1/jobs", &body, 202).await?;
        ensure!(!response.body.contains("refused"), "{}", response.body);
    }
    Ok(())
}

async fn posters(
    daemon: &Daemon,
    connections: usize,
    body: Arc<str>,
    posts: usize,
) -> anyhow::Result<(Duration, Duration)> {
    let left = Arc::new(AtomicU64::new(posts as u64));
    let (start, cpu) = (now(), daemon.cpu()?);
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        tasks.spawn(poster(daemon.client(), body.clone(), left.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok((start.elapsed(), daemon.cpu()?.saturating_sub(cpu)))
}

/// Submits jobs one at a time, while a reader fetches a job.
async fn singles(daemon: &Daemon, jobs: usize) -> anyhow::Result<(Lap, Looks)> {
    let over = Arc::new(AtomicBool::new(false));
    let mut watching = JoinSet::new();
    watching.spawn(look(daemon.client(), over.clone()));
    let (wall, cpu) = posters(daemon, CONNECTIONS, JOB.into(), jobs).await?;
    over.store(true, Ordering::Relaxed);
    let looks = watching.join_next().await.context("the reader runs")??;
    Ok((Lap { jobs, wall, cpu }, looks?))
}

async fn batches(daemon: &Daemon, batches: usize) -> anyhow::Result<Lap> {
    let body = format!("[{}]", [JOB; BATCH].join(","));
    let (wall, cpu) = posters(daemon, BATCHERS, body.into(), batches).await?;
    Ok(Lap { jobs: batches * BATCH, wall, cpu })
}

/// The memory that idle clients of the event stream cost, in megabytes.
async fn listen(daemon: &Daemon, listeners: usize) -> anyhow::Result<f64> {
    crate::serve::all_files();
    let before = daemon.memory()?;
    let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    let mut open = Vec::with_capacity(listeners);
    for _ in 0..listeners {
        let mut stream = TcpStream::connect(daemon.address).await?;
        stream.write_all(request.as_bytes()).await?;
        open.push(stream);
    }
    for stream in &mut open {
        let mut head = [0; 512];
        let length = stream.read(&mut head).await?;
        ensure!(head[..length].starts_with(b"HTTP/1.1 200"), "no stream");
    }
    let after = daemon.memory()?;
    Ok(after.saturating_sub(before) as f64 / 1e6)
}

/// Reads the first job again and again.
async fn look(daemon: LocalServer, over: Arc<AtomicBool>) -> anyhow::Result<Looks> {
    let mut spans = Vec::new();
    while !over.load(Ordering::Relaxed) || spans.len() < 10 {
        let start = now();
        let response = daemon.ask(Method::GET, "/api/v1/jobs/1", String::new()).await?;
        // The first one may not be there yet.
        if response.status == 200 {
            spans.push(start.elapsed());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    spans.sort_unstable();
    let at = |share: usize| spans[spans.len() * share / 100];
    Ok(Looks { p50: at(50), p99: at(99) })
}
