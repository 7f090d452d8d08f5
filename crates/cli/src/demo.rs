//! `paceline demo`: searches that fan out over built-in services with limits, in twenty seconds.

mod screen;
mod services;
mod table;

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use paceline::{Answer, CallId, CallOutcome, Following, Job, Paceline, Report, Skip};
use tokio::task::JoinSet;

use crate::bench::stopwatch::Stopwatch;
use crate::exit::Exit;
use crate::output::{data, say};
use screen::{Progress, Screen};
use services::{STAGES, Services};

/// Searches at the start.
const SEARCHES: u32 = 36;
/// How many of them are asked again at the end.
const AGAIN: u32 = 8;
/// What the urgent search looks for: no other does.
const URGENT: u32 = 99;
/// When the urgent search comes.
const URGENT_AFTER: Duration = Duration::from_millis(1_500);
/// How often progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// Runs to its end, or until Ctrl-C.
pub fn run() -> anyhow::Result<Exit> {
    // The services have a thread of their own: they are somebody else's.
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let services = elsewhere.block_on(Services::start())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Some(story) = runtime.block_on(tell(&services, &Screen::new()))? else {
        say("stopped; its store was a temporary one, so nothing is left behind");
        return Ok(Exit::Interrupted);
    };
    let seen = services.summaries();
    data(&table::table(&seen))?;
    data(&story.sentences())?;
    let violations: usize = seen.iter().map(|(_, summary)| summary.violations()).sum();
    Ok(if violations == 0 { Exit::Done } else { Exit::Failed })
}

/// What the searches came to.
#[derive(Debug, Default)]
struct Story {
    searches: usize,
    found: usize,
    took: Duration,
    /// Calls that nobody needed any more.
    spared: usize,
    /// Searches asked again, and the calls that the cache answered for them.
    again: usize,
    cached: usize,
    /// Attempts after a failure.
    repeated: u32,
    urgent: Urgent,
}

/// What the urgent search came to.
#[derive(Debug, Default)]
struct Urgent {
    overtook: usize,
    took: Duration,
}

/// The whole story; nothing if Ctrl-C ended it.
async fn tell(services: &Services, screen: &Screen) -> anyhow::Result<Option<Story>> {
    let directory = tempfile::tempdir().context("no directory for the demo's store")?;
    let pace = services.engine(&directory.path().join("demo.db")).start()?;
    let progress = Progress::new(pace.events(), services.names());
    let story = tokio::select! {
        story = searches(&pace, screen, &progress) => story.map(Some),
        interrupt = tokio::signal::ctrl_c() => interrupt.map(|()| None).map_err(Into::into),
        never = show(screen, &progress) => match never {},
    };
    screen.clear();
    // The store is closed before its directory goes.
    pace.stop(Duration::ZERO).await?;
    story
}

/// Keeps the screen fresh, for as long as anybody lets it.
async fn show(screen: &Screen, progress: &Progress) -> Infallible {
    loop {
        progress.catch_up();
        screen.draw(progress);
        tokio::time::sleep(TICK).await;
    }
}

/// One search: near services first, then others, then the slow one; the first answer is enough.
/// It reports what it has after a while, so that the demo ends on the busiest machine.
fn search(title: u32) -> Job {
    let job = Job::new("search", &title).first_conclusive();
    let job = STAGES.iter().fold(job, |job, stage| job.on(*stage));
    job.cache_key(title.to_le_bytes()).attempts(5).backoff("200ms").deadline("15s")
}

async fn searches(pace: &Paceline, screen: &Screen, progress: &Progress) -> anyhow::Result<Story> {
    let watch = Stopwatch::start();
    let jobs = submit(pace, 0..SEARCHES).await?;
    screen.say(&format!(
        "{SEARCHES} searches at once, on 5 services that allow only so many calls each"
    ));
    let mut story = Story::default();
    let (urgent, reports) = tokio::try_join!(urgent(pace, screen, progress), finished(jobs))?;
    (story.urgent, story.searches) = (urgent, reports.len() + 1);
    story.found = 1 + reports.iter().filter(|report| found(report)).count();
    progress.catch_up();
    for report in &reports {
        story.count(report, progress);
    }
    screen.say(&format!("{AGAIN} of the searches once more; services need not be asked again"));
    for report in finished(submit(pace, 0..AGAIN).await?).await? {
        let cached = report.calls.iter().filter(|call| call.cached).count();
        story.again +=
            usize::from(cached > 0 && report.calls.iter().all(|call| call.attempts == 0));
        story.cached += cached;
    }
    story.took = watch.lap().wall;
    Ok(story)
}

async fn submit(pace: &Paceline, titles: Range<u32>) -> anyhow::Result<Vec<Following>> {
    let jobs = pace.submit_all(titles.map(search)).await;
    Ok(jobs.into_iter().collect::<Result<_, _>>()?)
}

async fn finished(jobs: Vec<Following>) -> anyhow::Result<Vec<Arc<Report>>> {
    let mut waiting: JoinSet<_> = jobs.into_iter().map(Following::report).collect();
    let mut reports = Vec::new();
    while let Some(report) = waiting.join_next().await {
        reports.push(report??);
    }
    Ok(reports)
}

fn found(report: &Report) -> bool {
    report.answer == Answer::Conclusive
}

/// Somebody waits at a screen: the search comes late and is answered early.
async fn urgent(pace: &Paceline, screen: &Screen, progress: &Progress) -> anyhow::Result<Urgent> {
    tokio::time::sleep(URGENT_AFTER).await;
    let overtook = progress.unfinished();
    screen.say(&format!("an urgent search comes while {overtook} others still wait"));
    let watch = Stopwatch::start();
    let job = pace.submit(search(URGENT).interactive()).await?;
    let report = job.report().await?;
    ensure!(found(&report), "the urgent search found nothing");
    let took = watch.lap().wall;
    screen.say(&format!("the urgent search has its answer after {:.2}s", took.as_secs_f64()));
    Ok(Urgent { overtook, took })
}

impl Story {
    fn count(&mut self, report: &Report, progress: &Progress) {
        for (index, call) in report.calls.iter().enumerate() {
            // A call that was on the wire when another answered was made all the same.
            let id = CallId { job: report.job, index: index as u16 };
            let early = call.outcome == CallOutcome::Skipped(Skip::EarlyExit);
            self.spared += usize::from(early && !progress.has_started(id));
            self.repeated += call.attempts.saturating_sub(1);
        }
    }

    fn sentences(&self) -> String {
        let Story { searches, found, took, spared, again, cached, repeated, urgent } = self;
        let nowhere = searches - found;
        format!(
            "\n{searches} searches in {:.1}s: {found} found, {nowhere} that no service knew.\n\
             An urgent one overtook {} others and had its answer after {:.2}s.\n\
             {spared} calls were never made because another service had answered first.\n\
             {again} searches asked again cost no call: {cached} answers came from the cache.\n\
             {repeated} failed calls were tried again, in their turn.\n",
            took.as_secs_f64(),
            urgent.overtook,
            urgent.took.as_secs_f64(),
        )
    }
}
