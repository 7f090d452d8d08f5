//! Limits against mock upstreams, measured by the upstreams' own logs: violations, and how much of the
//! limits is used.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use paceline::lanes::Rate;
use paceline::report::CallOutcome;
use paceline::{Call, Job, Lane, Outcome, Paceline, Span, Time, Work, Worker};
use paceline_mock::{Behaviour, Mock};
use tokio::task::JoinSet;

use super::stopwatch::Stopwatch;
use super::{Figure, Target};
use crate::local::LocalServer;

/// How long calls are watched, and the minimum with `--quick`.
const WATCHED: Duration = Duration::from_secs(20);
const WATCHED_AT_LEAST: Duration = Duration::from_secs(5);
/// How much too early a call may arrive and still be in time: network delay varies.
const ARRIVAL: Span = Span::millis(10);
/// The latency of the upstreams.
const LATENCY: Span = Span::millis(10);
/// The slots of the pool: enough for lanes to wait only for their limits.
const WORKERS: u32 = 64;

/// The limits of an upstream, and the load on it.
struct Plan {
    every: Option<&'static str>,
    limits: &'static [&'static str],
    in_flight: u32,
    /// Calls queued from the start; zero for a lane that gets one call at a time.
    queued: usize,
}

const fn plan(
    every: Option<&'static str>,
    limits: &'static [&'static str],
    in_flight: u32,
    queued: usize,
) -> Plan {
    Plan { every, limits, in_flight, queued }
}

/// Twenty upstreams: one with ten thousand queued calls, four more that are always busy, the others
/// with a call now and then.
const PLANS: [Plan; 20] = [
    plan(Some("100ms"), &["1000/min"], 2, 10_000),
    plan(None, &["10/s"], 10, 1_000),
    plan(Some("250ms"), &["30/10s"], 1, 1_000),
    plan(Some("150ms"), &["5/s", "100/min"], 2, 1_000),
    plan(None, &["3/s", "1000/h"], 3, 1_000),
    plan(Some("100ms"), &[], 1, 0),
    plan(Some("150ms"), &["5/s"], 1, 0),
    plan(Some("200ms"), &[], 2, 0),
    plan(Some("250ms"), &["10/5s"], 1, 0),
    plan(Some("300ms"), &[], 1, 0),
    plan(Some("400ms"), &["60/min"], 2, 0),
    plan(Some("500ms"), &[], 1, 0),
    plan(Some("1s"), &["1000/h"], 1, 0),
    plan(None, &["2/s"], 2, 0),
    plan(None, &["5/s"], 1, 0),
    plan(None, &["10/s", "100/min"], 2, 0),
    plan(None, &["20/10s"], 1, 0),
    plan(None, &["50/min"], 1, 0),
    plan(None, &["4/s"], 4, 0),
    plan(None, &["1/s"], 1, 0),
];

impl Plan {
    fn behaviour(&self) -> anyhow::Result<Behaviour> {
        Ok(Behaviour {
            every: self.every.map(str::parse).transpose()?,
            limits: self.rates()?,
            in_flight: NonZeroU32::new(self.in_flight),
            latency: LATENCY,
            tolerance: ARRIVAL,
            ..Behaviour::default()
        })
    }

    fn rates(&self) -> anyhow::Result<Vec<Rate>> {
        let rates: Result<Vec<Rate>, _> = self.limits.iter().map(|rate| rate.parse()).collect();
        Ok(rates?)
    }

    fn lane(&self, name: &str) -> Lane {
        let lane = Lane::new(name).in_flight(self.in_flight);
        let lane = self.every.into_iter().fold(lane, Lane::every);
        self.limits.iter().copied().fold(lane, Lane::limit)
    }
}

pub(crate) fn measure(scale: usize) -> anyhow::Result<Vec<Figure>> {
    let watched = (WATCHED / u32::try_from(scale)?).max(WATCHED_AT_LEAST);
    // The upstreams have a thread of their own, so that they do not delay the engine.
    let upstreams =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mocks = upstreams.block_on(start_upstreams())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (seen, waits) = runtime.block_on(watch(&mocks, watched))?;
    Ok(figures(&seen, waits))
}

/// An upstream under measurement.
struct Watched {
    name: String,
    mock: Mock,
    /// Runs since the mock's log began.
    watch: Stopwatch,
}

async fn start_upstreams() -> anyhow::Result<Vec<Watched>> {
    let mut mocks = Vec::new();
    for (number, plan) in PLANS.iter().enumerate() {
        let watch = Stopwatch::start();
        let mock = Mock::start(plan.behaviour()?).await.context("no port for a mock upstream")?;
        mocks.push(Watched { name: format!("upstream-{number:02}"), mock, watch });
    }
    Ok(mocks)
}

/// The calls that one upstream had seen at the end.
struct Seen {
    behaviour: Behaviour,
    saturated: bool,
    arrivals: Vec<Time>,
    until: Time,
    violations: usize,
}

/// How long calls on idle, open lanes took to be sent. Both moments are measured in this process.
#[derive(Default)]
struct Waits {
    /// From the moment the caller learned that the job is accepted.
    accepted: Vec<Span>,
    /// From the moment the caller submitted it, so with the commit that makes it durable.
    submitted: Vec<Span>,
}

async fn watch(mocks: &[Watched], watched: Duration) -> anyhow::Result<(Vec<Seen>, Waits)> {
    let directory = tempfile::tempdir().context("no directory for a store")?;
    let worker = UpstreamWorker::new(mocks);
    let mut builder = Paceline::open(directory.path().join("limits.db"))
        .worker("ask", worker.clone())
        .workers(WORKERS, WORKERS)
        .settings(|settings| {
            let waiting = NonZeroU32::new(100_000).expect("above zero");
            (settings.max_waiting, settings.lane_waiting) = (waiting, waiting);
        });
    for (watched, plan) in mocks.iter().zip(&PLANS) {
        builder = builder.lane(plan.lane(&watched.name));
    }
    let pace = builder.start()?;
    for (watched, plan) in mocks.iter().zip(&PLANS) {
        let jobs = (0..plan.queued).map(|_| Job::new("ask", &()).on([&watched.name]));
        for accepted in pace.submit_all(jobs).await {
            accepted?;
        }
    }
    let mut callers: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for (watched, plan) in mocks.iter().zip(&PLANS).filter(|(_, plan)| plan.queued == 0) {
        let behaviour = plan.behaviour()?;
        callers.spawn(trickle(pace.clone(), watched.name.clone(), behaviour, worker.clone()));
    }
    tokio::time::sleep(watched).await;
    let seen = mocks.iter().zip(&PLANS).map(|(watched, plan)| seen(watched, plan));
    let seen = seen.collect::<anyhow::Result<Vec<Seen>>>()?;
    let waits = std::mem::take(&mut *worker.waits());
    // A caller ends only when something went wrong.
    while let Some(ended) = callers.try_join_next() {
        ended??;
    }
    callers.shutdown().await;
    pace.stop(Duration::ZERO).await?;
    Ok((seen, waits))
}

fn seen(watched: &Watched, plan: &Plan) -> anyhow::Result<Seen> {
    let until = Time::ZERO + Span::from(watched.watch.lap().wall);
    let arrivals = watched.mock.log().iter().map(|entry| Time(entry.at_us)).collect();
    let behaviour = plan.behaviour()?;
    let violations = watched.mock.summary().violations();
    Ok(Seen { behaviour, saturated: plan.queued > 0, arrivals, until, violations })
}

/// One call after another on a lane that is idle and open whenever a call comes: the next one
/// is submitted when even an even spread of all limits allows it, and a little later.
async fn trickle(
    pace: Paceline,
    lane: String,
    behaviour: Behaviour,
    worker: UpstreamWorker,
) -> anyhow::Result<()> {
    let spread =
        behaviour.limits.iter().map(|rate| Span(rate.per.0.div_ceil(rate.max.get().into())));
    let apart = spread.chain(behaviour.every).max().unwrap_or_default();
    let mut roll = lane.bytes().fold(7, |roll: u64, byte| roll * 31 + u64::from(byte));
    loop {
        let submitted_at = worker.now();
        let job = pace.submit(Job::new("ask", &()).on([&lane])).await?;
        let accepted_at = worker.now();
        let report = job.report().await?;
        let call = report.calls.first().context("a job of one call")?;
        let CallOutcome::Done { value, .. } = &call.outcome else {
            bail!("a call ended without an answer: {call}");
        };
        let sent_at: Time = serde_json::from_slice(value)?;
        worker.waits().submitted.push(sent_at.since(submitted_at));
        // Often zero: workers start before callers are answered.
        worker.waits().accepted.push(sent_at.since(accepted_at));
        roll = roll.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        tokio::time::sleep((apart + Span::millis(5 + (roll >> 33) % 100)).into()).await;
    }
}

/// The worker: one real request per attempt.
#[derive(Clone)]
struct UpstreamWorker {
    upstreams: Arc<BTreeMap<String, LocalServer>>,
    watch: Stopwatch,
    waits: Arc<Mutex<Waits>>,
}

impl UpstreamWorker {
    fn new(mocks: &[Watched]) -> UpstreamWorker {
        let upstreams = mocks.iter();
        let upstreams = upstreams.map(|one| (one.name.clone(), LocalServer::new(one.mock.addr())));
        let (upstreams, waits) = (Arc::new(upstreams.collect()), Arc::default());
        UpstreamWorker { upstreams, watch: Stopwatch::start(), waits }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.watch.lap().wall)
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker for UpstreamWorker {
    async fn run(&self, call: Call) -> Work {
        let upstream = self.upstreams.get(call.lane()).expect("every lane has an upstream");
        let mut sent_at = Time::ZERO;
        let response = upstream.attempt(&call, "/", || sent_at = self.now()).await?;
        if response.status == 200 { Outcome::done(sent_at) } else { response.refused(&call) }
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

fn figures(seen: &[Seen], mut waits: Waits) -> Vec<Figure> {
    let figure = |metric, value, unit, target| Figure::new("limits", metric, value, unit, target);
    let violations: usize = seen.iter().map(|seen| seen.violations).sum();
    let calls: usize = seen.iter().map(|seen| seen.arrivals.len()).sum();
    let shortfall = seen.iter().map(Seen::shortfall).max().unwrap_or_default();
    let shares =
        seen.iter().filter(|seen| seen.saturated).map(|seen| (seen.arrivals.len(), seen.share()));
    let shares: Vec<(usize, f64)> = shares.collect();
    let begun: usize = shares.iter().map(|(calls, _)| calls).sum();
    let allowed: f64 = shares.iter().map(|(calls, share)| *calls as f64 / share).sum();
    let worst = shares.iter().map(|(_, share)| *share).fold(f64::INFINITY, f64::min);
    vec![
        figure("calls", calls as f64, "", Target::None),
        figure("violations", violations as f64, "", Target::AtMost(0.0)),
        figure("largest_shortfall_ms", millis(shortfall), "ms", Target::None),
        figure("share_of_allowed", begun as f64 / allowed, "", Target::AtLeast(0.99)),
        figure("worst_lane_share", worst, "", Target::None),
        figure("other_lanes_p99_ms", millis(p99(&mut waits.accepted)), "ms", Target::AtMost(5.0)),
        figure("from_submit_p99_ms", millis(p99(&mut waits.submitted)), "ms", Target::None),
    ]
}

fn millis(span: Span) -> f64 {
    span.0 as f64 / 1_000.0
}

fn p99(spans: &mut [Span]) -> Span {
    spans.sort_unstable();
    spans.get(spans.len() * 99 / 100).or(spans.last()).copied().unwrap_or_default()
}

impl Seen {
    /// Its gap and windows, each as how many calls back it looks and how far.
    fn spacings(&self) -> impl Iterator<Item = (usize, Span)> {
        let gap = self.behaviour.every.map(|every| (1, every));
        let windows = self.behaviour.limits.iter().map(|rate| (rate.max.get() as usize, rate.per));
        gap.into_iter().chain(windows)
    }

    /// The largest time by which calls arrived closer together than a limit allows.
    fn shortfall(&self) -> Span {
        let short = self.spacings().flat_map(|(back, per)| {
            let pairs = self.arrivals.iter().skip(back).zip(&self.arrivals);
            pairs.map(move |(late, early)| Span(per.0.saturating_sub(late.since(*early).0)))
        });
        short.max().unwrap_or_default()
    }

    /// Calls begun, as a part of those that the limits allow.
    ///
    /// Counting both over a fixed interval would depend on whether a window opens just before its
    /// end or just after. So time is compared instead: from the first of the calls, how soon a
    /// client that loses no time could begin one more than were begun, and how soon this one
    /// could. A lane that stood open at the end, unused, has lost that time too.
    fn share(&self) -> f64 {
        let Some(&first) = self.arrivals.first() else { return 0.0 };
        let mut ideal = Vec::with_capacity(self.arrivals.len());
        while ideal.len() < self.arrivals.len() {
            ideal.push(self.opening(&ideal, first));
        }
        let ideal = self.opening(&ideal, first).since(first);
        let real = self.opening(&self.arrivals, first).max(self.until).since(first);
        ideal.0 as f64 / real.0 as f64
    }

    /// The earliest moment of the next call after these.
    fn opening(&self, begun: &[Time], first: Time) -> Time {
        let openings = self.spacings().filter_map(|(back, per)| {
            let place = begun.len().checked_sub(back)?;
            Some(begun[place] + per)
        });
        openings.max().unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(every: Option<&str>, limit: &str, arrivals: &[u64], until: u64) -> Seen {
        let behaviour = Behaviour {
            every: every.map(|every| every.parse().expect("a span")),
            limits: vec![limit.parse().expect("a rate")],
            ..Behaviour::default()
        };
        let at = |ms: &u64| Time(ms * 1_000);
        let arrivals = arrivals.iter().map(at).collect();
        Seen { behaviour, saturated: true, arrivals, until: at(&until), violations: 0 }
    }

    #[test]
    fn the_share_is_one_where_no_time_was_lost() {
        assert!((seen(None, "2/s", &[0, 0, 1_000, 1_000], 1_500).share() - 1.0).abs() < 1e-9);
        assert!((seen(Some("100ms"), "9/s", &[0, 100, 200], 250).share() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn lost_time_counts_wherever_it_was_lost() {
        assert!((seen(None, "2/s", &[0, 0, 2_000, 2_000], 2_500).share() - 2.0 / 3.0).abs() < 1e-9);
        assert!((seen(Some("100ms"), "9/s", &[0, 100, 200], 600).share() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_shortfall_is_the_largest_of_all_limits() {
        let seen = seen(Some("100ms"), "2/s", &[0, 98, 950], 1_000);
        assert_eq!(seen.shortfall(), Span::millis(50));
    }
}
