//! Jobs through SQLite: submitted from many tasks, acknowledged when durable, run by a trivial worker,
//! reported. For comparison, the same run makes the same writes directly to SQLite.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use paceline::{Call, Job, Lane, Outcome, Paceline};
use paceline_core::{
    Answer, AttemptId, Blob, CallId, CallReport, JobId, JobRecord, JobSpec, JobState, LaneId,
    LaneRecord, Priority, Report, Reservation, Span, Stamp, Terms, Time, Write,
};
use paceline_store::{Sqlite, Store};

use super::stopwatch::{Lap, Stopwatch};
use super::{Figure, Target};

const JOBS: usize = 300_000;
const LANES: usize = 64;
const TASKS: usize = 256;
const POOL: u32 = 256;

pub(crate) fn measure(scale: usize) -> anyhow::Result<Vec<Figure>> {
    let jobs = JOBS / scale;
    let directory = tempfile::tempdir()?;
    let (lap, turns) = engine(jobs, &directory.path().join("engine.db"))?;
    let batch = (jobs / turns.max(1)).max(1);
    let raw = raw(jobs, batch, &directory.path().join("raw.db"))?;
    let rate = |lap: Lap| jobs as f64 / lap.wall.as_secs_f64();
    let cpu = lap.cpu.as_secs_f64() * 1e6 / jobs as f64;
    let share = rate(lap) / rate(raw);
    Ok(vec![
        Figure::new("durable", "jobs_per_s", rate(lap), "1/s", Target::AtLeast(30_000.0)),
        Figure::new("durable", "cpu_us_per_job", cpu, "us", Target::AtMost(30.0)),
        Figure::new("durable", "share_of_raw_sqlite", share, "", Target::AtLeast(0.25)),
        Figure::new("durable", "raw_jobs_per_s", rate(raw), "1/s", Target::None),
        Figure::new("durable", "jobs_per_commit", batch as f64, "", Target::None),
    ])
}

fn payload() -> String {
    // 200 bytes of JSON, quotes included.
    "x".repeat(198)
}

/// Runs all jobs through the engine. Returns the time and the number of commits.
fn engine(jobs: usize, path: &Path) -> anyhow::Result<(Lap, usize)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async move {
        let mut builder = Paceline::open(path)
            .worker("trivial", |_: Call| async move { Outcome::done(true) })
            .workers(POOL, POOL)
            .settings(|settings| {
                settings.max_waiting = NonZeroU32::MAX;
                settings.lane_waiting = NonZeroU32::MAX;
            });
        for lane in 0..LANES {
            builder = builder.lane(Lane::new(&format!("lane-{lane}")).in_flight(POOL));
        }
        let pace = builder.start()?;
        let next = Arc::new(AtomicUsize::new(0));
        let payload = payload();
        let lanes: Arc<Vec<String>> =
            Arc::new((0..LANES).map(|lane| format!("lane-{lane}")).collect());
        let before = pace.commits();
        let watch = Stopwatch::start();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            let (pace, next, payload, lanes) =
                (pace.clone(), next.clone(), payload.clone(), lanes.clone());
            tasks.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= jobs {
                        return Ok::<_, anyhow::Error>(());
                    }
                    let job = Job::new("trivial", &payload).on([&lanes[n % LANES]]);
                    // Acknowledged when durable, and then its report.
                    let report = pace.submit(job).await?.report().await?;
                    anyhow::ensure!(report.state == JobState::Done, "job {n} was not done");
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        let lap = watch.lap();
        let commits = pace.commits() - before;
        pace.stop(std::time::Duration::from_secs(5)).await?;
        Ok((lap, usize::try_from(commits)?))
    })
}

/// Makes the same writes to the same tables, directly in the store. Each commit accepts and reserves
/// one batch and finishes the previous one, as the commits of the engine do.
fn raw(jobs: usize, batch: usize, path: &Path) -> anyhow::Result<Lap> {
    let mut store = Sqlite::open(path)?;
    let payload: Blob = serde_json::to_vec(&payload())?.into();
    let lanes: Vec<Arc<str>> = (0..LANES).map(|lane| format!("lane-{lane}").into()).collect();
    let records = lanes.iter().zip(1..).map(|(name, id)| {
        Write::Lane(LaneRecord { id: LaneId(id), name: name.clone(), ..LaneRecord::default() })
    });
    store.commit(&Stamp::default(), &records.collect::<Vec<_>>())?;
    let watch = Stopwatch::start();
    let mut writes = Vec::new();
    for first in (0..jobs + batch).step_by(batch) {
        writes.clear();
        for n in (first.saturating_sub(batch)..first).filter(|&n| n < jobs) {
            writes.extend(finished(n, Time(first as u64), &lanes));
        }
        for n in (first..first + batch).filter(|&n| n < jobs) {
            writes.extend(accepted(n, &lanes, &payload));
        }
        store.commit(&Stamp::default(), &writes)?;
    }
    Ok(watch.lap())
}

fn accepted(n: usize, lanes: &[Arc<str>], payload: &Blob) -> [Write; 2] {
    let id = JobId(n as u64 + 1);
    let mut spec = JobSpec::new("trivial", &[]);
    spec.stages[0].push(lanes[n % LANES].clone());
    let terms = Terms::default();
    let record = JobRecord { id, submitted_at: Time(n as u64), terms, spec: Arc::new(spec) };
    let reservation = Reservation {
        lane: LaneId((n % LANES) as u64 + 1),
        attempt: AttemptId(n as u64 + 1),
        call: CallId { job: id, index: 0 },
        priority: Priority::Background,
        cost: 1,
        at: Time(n as u64),
        ended_at: None,
    };
    [Write::Job(record, payload.clone()), Write::Reserve(reservation)]
}

fn finished(n: usize, finished_at: Time, lanes: &[Arc<str>]) -> [Write; 2] {
    let value = b"true".as_slice().into();
    let call = CallReport {
        lane: lanes[n % LANES].clone(),
        outcome: paceline_core::Outcome::Done { conclusive: true, value },
        attempts: 1,
        waited: Span::ZERO,
        ran: Span::micros(10),
        cached: false,
    };
    let report = Report {
        job: JobId(n as u64 + 1),
        state: JobState::Done,
        answer: Answer::All,
        finished_at,
        calls: vec![call],
        partial: false,
    };
    let release = Write::Release(LaneId((n % LANES) as u64 + 1), AttemptId(n as u64 + 1));
    [Write::Finish(Arc::new(report)), release]
}
