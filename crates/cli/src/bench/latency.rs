//! An idle engine: the time until the worker of a submitted job starts, compared with one bare commit
//! of SQLite in the same run, and how late timers are.

use std::time::{Duration, SystemTime};

use paceline::{Call, Job, Lane, Outcome, Paceline};

use super::bare::Bare;
use super::stopwatch::now;
use super::{Figure, Target};

const ROUNDS: usize = 2_000;
const TIMERS: usize = 1_000;

pub(crate) fn measure(scale: usize) -> anyhow::Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let path = directory.path();
    let (mut starts, mut commits) = runtime.block_on(starts(ROUNDS / scale, path))?;
    let mut late = runtime.block_on(timers(TIMERS / scale, &path.join("timers.db")))?;
    let mut bare = bare_timers(TIMERS / scale);
    let ratio = micros(median(&mut starts)) / micros(median(&mut commits));
    Ok(vec![
        Figure::new("latency", "start_over_commit", ratio, "", Target::AtMost(2.0)),
        Figure::new("latency", "start_p50_us", micros(median(&mut starts)), "us", Target::None),
        Figure::new("latency", "commit_p50_us", micros(median(&mut commits)), "us", Target::None),
        Figure::new("latency", "timer_p50_us", micros(median(&mut late)), "us", Target::None),
        Figure::new(
            "latency",
            "timer_p99_us",
            micros(p99(&mut late)),
            "us",
            Target::AtMost(2_000.0),
        ),
        Figure::new("latency", "bare_timer_p99_us", micros(p99(&mut bare)), "us", Target::None),
    ])
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn median(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn p99(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans[spans.len() * 99 / 100]
}

/// One job at a time, each followed by one bare commit, so that both see the same machine.
async fn starts(
    rounds: usize,
    directory: &std::path::Path,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let pace = Paceline::open(directory.join("starts.db"))
        .lane(Lane::new("lane").in_flight(4))
        .worker("stamp", move |_: Call| {
            let _ = sender.send(now());
            async { Outcome::done(true) }
        })
        .start()?;
    let mut bare = Bare::open(&directory.join("bare.db"))?;
    let (mut starts, mut commits) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let submitted = now();
        let job = pace.submit(Job::new("stamp", "x").on(["lane"])).await?;
        let started = receiver.recv().await.expect("the worker sends its start");
        starts.push(started.saturating_duration_since(submitted));
        job.report().await?;
        commits.push(bare.commit()?);
    }
    pace.stop(Duration::from_secs(5)).await?;
    Ok((starts, commits))
}

/// The lateness of a bare thread that waits for the same moments: the share of the machine.
fn bare_timers(count: usize) -> Vec<Duration> {
    let (_sender, silent) = std::sync::mpsc::channel::<()>();
    let first = now();
    let moments = (1..=count as u64).map(|n| first + Duration::from_millis(5 * n));
    let late = moments.map(|moment| {
        let _ = silent.recv_timeout(moment.saturating_duration_since(now()));
        now().saturating_duration_since(moment)
    });
    late.collect()
}

/// Jobs due at distinct moments of the near future: how late their workers start.
async fn timers(count: usize, path: &std::path::Path) -> anyhow::Result<Vec<Duration>> {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let pace = Paceline::open(path)
        .lane(Lane::new("lane").in_flight(100))
        .worker("stamp", move |call: Call| {
            #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
            let started = SystemTime::now();
            let due = call.payload::<u64>().map(|due| {
                let due = SystemTime::UNIX_EPOCH + Duration::from_micros(due);
                started.duration_since(due).unwrap_or_default()
            });
            let _ = due.map(|late| sender.send(late));
            async { Outcome::done(true) }
        })
        .start()?;
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let first = SystemTime::now() + Duration::from_millis(500);
    let jobs = (0..count).map(|n| {
        // About 5 ms apart, so that each has a turn of its own.
        let due = first + Duration::from_micros(5_000 * n as u64 + 37 * (n as u64 % 50));
        let micros = due.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        Job::new("stamp", &(micros as u64)).on(["lane"]).due(due)
    });
    for job in pace.submit_all(jobs).await {
        job?;
    }
    let mut late = Vec::with_capacity(count);
    while late.len() < count {
        late.push(receiver.recv().await.expect("the worker sends its start"));
    }
    pace.stop(Duration::from_secs(5)).await?;
    Ok(late)
}
