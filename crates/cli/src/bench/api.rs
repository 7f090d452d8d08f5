//! The daemon over HTTP, in a process of its own: submissions, each durable when it is answered, one
//! at a time and in batches, and how soon a job can be looked at meanwhile.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Figure, Target};
use crate::loopback;

const CONNECTIONS: usize = 32;
const SINGLES: usize = 60_000;
const BATCHERS: usize = 8;
const BATCHES: usize = 4_000;
const BATCH: usize = 100;
/// Clients of the event stream that hear nothing.
const LISTENERS: usize = 10_000;
/// Looks at a job come this often.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A lane on which everything waits, and a queue that takes it all.
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
    let daemon = Daemon::start(&directory.path().join("posts"))?;
    // Of its own: what the other one has freed would hide what listeners cost.
    let quiet = Daemon::start(&directory.path().join("listeners"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        post(daemon.address, "/api/v1/lanes/shop/pause", "{}", 200).await?;
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

/// A daemon that ends with the benchmark.
struct Daemon {
    child: Child,
    address: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(directory: &Path) -> anyhow::Result<Daemon> {
        std::fs::create_dir(directory)?;
        let config = directory.join("bench.toml");
        std::fs::write(&config, CONFIG)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--config").arg(config);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "quiet"]);
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let stderr = child.stderr.take().context("it was piped")?;
        let mut line = String::new();
        BufReader::new(stderr).read_line(&mut line)?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(';').next());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("the daemon said: {line}"))?;
        Ok(Daemon { child, address })
    }

    /// Bytes of memory that the daemon has now.
    fn memory(&self) -> anyhow::Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        let pages: u64 = statm.split_whitespace().nth(1).context("a field is missing")?.parse()?;
        Ok(pages * rustix::param::page_size() as u64)
    }

    /// Processor time that the daemon has used.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let mut next = || ticks.next().context("a field is missing")?.context("not a number");
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs_f64((next()? + next()?) as f64 / per_second as f64))
    }
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

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    Instant::now()
}

fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

async fn post(address: SocketAddr, path: &str, body: &str, status: u16) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&request(address, "POST", path, body)).await?;
    let answer = loopback::read(&mut stream).await?;
    ensure!(answer.status == status, "{path}: {} {}", answer.status, answer.body);
    Ok(())
}

/// Posts the same again and again over one connection, until all are posted.
async fn poster(address: SocketAddr, body: Arc<str>, left: Arc<AtomicU64>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = request(address, "POST", "/api/v1/jobs", &body);
    let take =
        || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    while take().is_ok() {
        stream.write_all(&request).await?;
        let answer = loopback::read(&mut stream).await?;
        ensure!(answer.status == 202, "{} {}", answer.status, answer.body);
        ensure!(!answer.body.contains("refused"), "{}", answer.body);
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
        tasks.spawn(poster(daemon.address, body.clone(), left.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok((start.elapsed(), daemon.cpu()?.saturating_sub(cpu)))
}

/// Jobs one at a time, looked at meanwhile.
async fn singles(daemon: &Daemon, jobs: usize) -> anyhow::Result<(Lap, Looks)> {
    let over = Arc::new(AtomicBool::new(false));
    let mut watching = JoinSet::new();
    watching.spawn(look(daemon.address, over.clone()));
    let (wall, cpu) = posters(daemon, CONNECTIONS, JOB.into(), jobs).await?;
    over.store(true, Ordering::Relaxed);
    let looks = watching.join_next().await.context("somebody looks")??;
    Ok((Lap { jobs, wall, cpu }, looks?))
}

async fn batches(daemon: &Daemon, batches: usize) -> anyhow::Result<Lap> {
    let body = format!("[{}]", [JOB; BATCH].join(","));
    let (wall, cpu) = posters(daemon, BATCHERS, body.into(), batches).await?;
    Ok(Lap { jobs: batches * BATCH, wall, cpu })
}

/// Megabytes that so many idle clients of the event stream cost.
async fn listen(daemon: &Daemon, listeners: usize) -> anyhow::Result<f64> {
    crate::serve::all_files();
    let before = daemon.memory()?;
    let request = request(daemon.address, "GET", "/api/v1/events", "");
    let mut open = Vec::with_capacity(listeners);
    for _ in 0..listeners {
        let mut stream = TcpStream::connect(daemon.address).await?;
        stream.write_all(&request).await?;
        open.push(stream);
    }
    for stream in &mut open {
        let mut heard = [0; 512];
        let length = stream.read(&mut heard).await?;
        ensure!(heard[..length].starts_with(b"HTTP/1.1 200"), "no stream");
    }
    let after = daemon.memory()?;
    Ok(after.saturating_sub(before) as f64 / 1e6)
}

/// Looks at the first job again and again.
async fn look(address: SocketAddr, over: Arc<AtomicBool>) -> anyhow::Result<Looks> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = request(address, "GET", "/api/v1/jobs/1", "");
    let mut spans = Vec::new();
    while !over.load(Ordering::Relaxed) || spans.len() < 10 {
        let start = now();
        stream.write_all(&request).await?;
        let answer = loopback::read(&mut stream).await?;
        // The first one may not be there yet.
        if answer.status == 200 {
            spans.push(start.elapsed());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    spans.sort_unstable();
    let at = |share: usize| spans[spans.len() * share / 100];
    Ok(Looks { p50: at(50), p99: at(99) })
}
