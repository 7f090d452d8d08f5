//! Opening a store with a million waiting jobs: the time until the engine answers, and the memory.

use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use paceline::{Builder, Call, Job, Lane, Outcome, Paceline};

use super::stopwatch::Stopwatch;
use super::{Figure, Target};

/// Jobs that wait, one call each.
const JOBS: usize = 1_000_000;
/// Lanes that they wait on.
const LANES: usize = 1_000;
/// Jobs in one commit while the store is written.
const BATCH: usize = 10_000;
/// Bytes of a payload: a JSON text with its quotes.
const PAYLOAD: usize = 200;

pub(crate) fn measure(scale: usize) -> anyhow::Result<Vec<Figure>> {
    let directory = tempfile::tempdir().context("no directory for a store")?;
    let file = directory.path().join("waiting.db");
    let jobs = JOBS / scale;
    runtime()?.block_on(fill(&file, jobs))?;
    let opened = reopened(&file)?;
    ensure!(opened.jobs == jobs, "{jobs} jobs were accepted, {} came back", opened.jobs);
    let bytes = opened.bytes as f64 / jobs as f64;
    let figure = |metric, value, unit, target| Figure::new("recover", metric, value, unit, target);
    Ok(vec![
        figure("jobs", jobs as f64, "", Target::None),
        figure("open_s", opened.seconds, "s", Target::AtMost(3.0)),
        figure("bytes_per_call", bytes, "B", Target::AtMost(600.0)),
    ])
}

/// The measurements of a process that opened the store.
struct Opened {
    jobs: usize,
    seconds: f64,
    bytes: u64,
}

/// Opens the store in a process of its own: memory that this one used and gave back to its
/// allocator would hide what the jobs need.
fn reopened(file: &Path) -> anyhow::Result<Opened> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(["bench", "recover", "--reopen"]).arg(file).stderr(Stdio::inherit());
    let output = command.output().context("cannot start this program again")?;
    ensure!(output.status.success(), "the process that opens the store failed");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let whole =
        |name: &str| result[name].as_u64().with_context(|| format!("the result has no `{name}`"));
    Ok(Opened {
        jobs: usize::try_from(whole("jobs")?)?,
        seconds: whole("micros")? as f64 / 1e6,
        bytes: whole("bytes")?,
    })
}

/// The measuring half: from opening the file to the end of the first turn, when the engine answers.
/// Returns the JSON that [`reopened`] reads.
pub(crate) fn reopen(file: &Path) -> anyhow::Result<String> {
    runtime()?.block_on(async {
        let builder = engine(file);
        let before = resident()?;
        let watch = Stopwatch::start();
        let pace = builder.start()?;
        let lanes = pace.lanes().await?;
        let micros = watch.lap().wall.as_micros() as u64;
        let bytes = resident()?.saturating_sub(before);
        let jobs: usize = lanes.iter().map(|lane| lane.waiting).sum();
        Ok(serde_json::json!({ "jobs": jobs, "micros": micros, "bytes": bytes }).to_string())
    })
}

/// Submits `jobs` jobs on paused lanes, so that all of them wait.
async fn fill(file: &Path, jobs: usize) -> anyhow::Result<()> {
    let pace = engine(file).start()?;
    for lane in 0..LANES {
        pace.pause(&name(lane)).await?;
    }
    let payload = "x".repeat(PAYLOAD - 2);
    for first in (0..jobs).step_by(BATCH) {
        let batch = first..jobs.min(first + BATCH);
        let batch = batch.map(|job| Job::new("visit", &payload).on([name(job % LANES)]));
        for accepted in pace.submit_all(batch).await {
            accepted?;
        }
    }
    Ok(pace.stop(std::time::Duration::ZERO).await?)
}

fn engine(file: &Path) -> Builder {
    let mut builder = Paceline::open(file)
        .worker("visit", |_: Call| async { Outcome::empty() })
        .settings(|settings| {
            settings.max_waiting = NonZeroU32::MAX;
            settings.lane_waiting = NonZeroU32::MAX;
        });
    for lane in 0..LANES {
        builder = builder.lane(Lane::new(&name(lane)).every("1s").limit("1000/h"));
    }
    builder
}

fn name(lane: usize) -> String {
    format!("host:{lane}.example")
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Bytes of this process in memory: everything, the store's page cache and the program's own
/// pages included.
fn resident() -> anyhow::Result<u64> {
    let statm =
        std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("`statm` has a second field")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
