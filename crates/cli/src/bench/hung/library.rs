//! The library over SQLite with its default pool: from the return of `submit` to the start of the worker.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use paceline::{Builder, Call, Job, Lane, Outcome, Paceline, Work};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::{GIVE_UP, IDLE, IN_FLIGHT, LIBRARY, Load, Spans, figures_of, median};
use crate::bench::stopwatch::{Lap, Stopwatch, now};
use crate::bench::{Figure, Target};

/// The measured calls of one run, over all idle lanes, and the time between them.
const CALLS: usize = 100;
const APART: Duration = Duration::from_millis(50);

/// The measurements of one run.
pub(super) struct Run {
    /// From the return of `submit` to the start of the worker; zero if the worker was first.
    returned: Spans,
    /// From the call of `submit`, which includes the commit that makes the job durable.
    called: Spans,
    calls: usize,
    lap: Lap,
}

pub(super) async fn run(load: Load) -> anyhow::Result<Run> {
    let directory = tempfile::tempdir().context("no directory for a store")?;
    let (sender, mut receiver) = unbounded_channel();
    let (hangs, hung) = unbounded_channel();
    let pace = engine(&directory.path().join("hung.db"), load, hangs, sender).start()?;
    for lane in load.hung_lanes() {
        let jobs = (0..load.calls_each).map(|_| Job::new("hang", &()).on([&lane]));
        for accepted in pace.submit_all(jobs).await {
            accepted?;
        }
    }
    timeout(GIVE_UP, all_hang(load, hung)).await.context("a hung lane did not start")??;
    let calls = CALLS / load.scale;
    let watch = Stopwatch::start();
    let submitted = submit(&pace, calls).await?;
    let started = timeout(GIVE_UP, starts(calls, &mut receiver))
        .await
        .context("a call on an idle lane did not start")??;
    let lap = watch.lap();
    let lanes = pace.lanes().await?;
    let hanging = lanes.iter().filter(|lane| lane.name.starts_with("hung-") && lane.in_flight > 0);
    ensure!(hanging.count() == load.hung, "a hung lane had stopped hanging");
    pace.stop(Duration::ZERO).await?;
    let spans = |from: fn(&Submitted) -> Instant| {
        let pairs = started.iter().zip(&submitted);
        Spans(pairs.map(|(at, job)| at.saturating_duration_since(from(job))).collect())
    };
    Ok(Run { returned: spans(|job| job.returned), called: spans(|job| job.called), calls, lap })
}

fn engine(
    file: &Path,
    load: Load,
    hangs: UnboundedSender<String>,
    sender: UnboundedSender<(usize, Instant)>,
) -> Builder {
    let mut builder = Paceline::open(file)
        .worker("hang", move |call: Call| {
            let _ = hangs.send(call.lane().to_string());
            std::future::pending::<Work>()
        })
        .worker("stamp", move |call: Call| {
            let at = now();
            let sent = call.payload().map(|number| sender.send((number, at)));
            async { sent.map_or_else(Err, |_| Outcome::done(true)) }
        });
    for lane in load.hung_lanes() {
        builder = builder.lane(Lane::new(&lane).in_flight(IN_FLIGHT));
    }
    // The gap is always over when the next call comes. With a gap, a reservation is synced before the
    // call starts.
    (0..IDLE).fold(builder, |builder, lane| builder.lane(Lane::new(&idle(lane)).every("50ms")))
}

fn idle(lane: usize) -> String {
    format!("idle-{lane}")
}

/// Resolves when every hung lane runs something.
async fn all_hang(load: Load, mut hung: UnboundedReceiver<String>) -> anyhow::Result<()> {
    let mut lanes = BTreeSet::new();
    while lanes.len() < load.hung {
        lanes.insert(hung.recv().await.context("the engine has ended")?);
    }
    Ok(())
}

/// The moments of one submission.
struct Submitted {
    called: Instant,
    returned: Instant,
}

/// Submits at fixed intervals, without waiting for the calls.
async fn submit(pace: &Paceline, calls: usize) -> anyhow::Result<Vec<Submitted>> {
    let mut tick = tokio::time::interval(APART);
    let mut submitted = Vec::with_capacity(calls);
    for number in 0..calls {
        tick.tick().await;
        let called = now();
        pace.submit(Job::new("stamp", &number).on([idle(number % IDLE)])).await?;
        submitted.push(Submitted { called, returned: now() });
    }
    Ok(submitted)
}

/// The start of each call, by number.
async fn starts(
    calls: usize,
    receiver: &mut UnboundedReceiver<(usize, Instant)>,
) -> anyhow::Result<Vec<Instant>> {
    let mut started = vec![None; calls];
    for _ in 0..calls {
        let (number, at) = receiver.recv().await.context("the engine has ended")?;
        started[number] = Some(at);
    }
    started.into_iter().map(|at| at.context("a call started twice")).collect()
}

pub(super) fn figures(hung: usize, runs: &mut [Run]) -> anyhow::Result<Vec<Figure>> {
    let figure = |what: &str, value, unit| {
        Figure::new("hung", format!("library_{hung}_{what}"), value, unit, Target::None)
    };
    let called = median(runs, |run| run.called.percentile(99))?;
    let cpu = median(runs, |run| Ok(run.lap.cpu.as_secs_f64() * 1e6 / run.calls as f64))?;
    let mut figures = figures_of("library", hung, runs, |run| &mut run.returned, LIBRARY)?.to_vec();
    figures.push(figure("call_p99_ms", called, "ms"));
    figures.push(figure("cpu_us", cpu, "us"));
    Ok(figures)
}
