//! The worker process: the real engine on a real store, which follows the orders of its parent.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use paceline::lanes::LaneStatus;
use paceline::report::JobState;
use paceline::{Builder, Call, Event, Following, JobId, Outcome, Paceline, Work, Worker};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::upstreams::PROFILES;
use super::waiting::Waiting;
use super::wanted::{BOUND_LANE, Part, URGENT_LANE, Wanted, wanted};
use super::words::{LaneState, News, Order, send};
use crate::bench::stopwatch::Stopwatch;
use crate::exit::Exit;
use crate::local::LocalServer;

/// How often the state of the lanes is sent to the parent.
const TICK: Duration = Duration::from_millis(100);
/// The most queued orders; the parent sends fewer.
const MOST_ORDERS: usize = 16;
/// The most jobs in one query of the store.
const PAGE: usize = 1_000;

/// Works until all jobs are done, or until the parent is gone.
pub(super) fn run(store: &Path, addresses: &[SocketAddr]) -> anyhow::Result<Exit> {
    ensure!(addresses.len() == PROFILES.len(), "the worker process needs one address per upstream");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(async {
        let pace = engine(store, addresses).start()?;
        Process::new(pace).work().await
    });
    // The thread that reads orders may still be blocked.
    runtime.shutdown_background();
    exit
}

/// An engine with a lane for each upstream.
fn engine(store: &Path, addresses: &[SocketAddr]) -> Builder {
    let upstreams = PROFILES.iter().zip(addresses);
    let upstreams = upstreams.map(|(profile, &address)| (profile.name, LocalServer::new(address)));
    let worker = UpstreamWorker { upstreams: upstreams.collect() };
    let builder = Paceline::open(store).worker("ask", worker);
    PROFILES.into_iter().fold(builder, |builder, profile| builder.lane(profile.lane()))
}

/// The worker: one real request per attempt.
struct UpstreamWorker {
    upstreams: BTreeMap<&'static str, LocalServer>,
}

impl Worker for UpstreamWorker {
    async fn run(&self, call: Call) -> Work {
        let path: String = call.payload()?;
        let upstream = self.upstreams.get(call.lane()).expect("each lane is an upstream");
        let response = upstream.attempt(&call, &path, || ()).await?;
        if response.status == 200 { Outcome::done(response.body) } else { response.refused(&call) }
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

/// The state of the process.
struct Process {
    pace: Paceline,
    events: Receiver<Event>,
    wanted: BTreeMap<u32, Wanted>,
    numbers: BTreeMap<JobId, u32>,
    waiting: Waiting,
    /// Urgent jobs under way, and the wait for the end.
    awaited: JoinSet<anyhow::Result<News>>,
}

impl Process {
    fn new(pace: Paceline) -> Process {
        let events = pace.events();
        let wanted = wanted().into_iter().map(|wanted| (wanted.number, wanted)).collect();
        let (numbers, waiting) = (BTreeMap::new(), Waiting::default());
        Process { pace, events, wanted, numbers, waiting, awaited: JoinSet::new() }
    }

    async fn work(mut self) -> anyhow::Result<Exit> {
        self.take_up().await?;
        let mut orders = orders();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.obey(order).await?,
                    None => return self.abandoned().await,
                },
                event = self.events.recv() => match event {
                    Ok(event) => self.apply(&event).await?,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(self.pace.ended().await.into()),
                },
                Some(news) = self.awaited.join_next() => match news?? {
                    News::Idle => return self.finish().await,
                    news => send(&news)?,
                },
                _ = ticks.tick() => send(&News::Status(self.status().await?))?,
            }
        }
    }

    /// Stops, because the parent is gone.
    async fn abandoned(self) -> anyhow::Result<Exit> {
        self.pace.stop(Duration::ZERO).await?;
        Ok(Exit::Interrupted)
    }

    /// Resumes the jobs that an earlier process left in the store.
    async fn take_up(&mut self) -> anyhow::Result<()> {
        let (mut unfinished, mut finished) = (Vec::new(), Vec::new());
        for (job, number, state) in self.stored().await? {
            if matches!(state, JobState::Waiting | JobState::Running) {
                unfinished.push(number);
                self.waiting.add(job, &self.wanted[&number]);
            } else {
                finished.push(number);
            }
            self.numbers.insert(job, number);
        }
        Ok(send(&News::Opened { unfinished, finished })?)
    }

    /// Every job of the store, with its number in the list of work.
    async fn stored(&self) -> anyhow::Result<Vec<(JobId, u32, JobState)>> {
        let (jobs, more) = self.pace.list(None, PAGE, None).await?;
        ensure!(more.is_none(), "the demo's store holds more than {PAGE} jobs");
        let jobs = jobs.into_iter().map(|view| {
            let record = view.stored.record;
            let key = record.spec.key.as_deref().map(String::from_utf8_lossy);
            let number = key.and_then(|key| key.parse().ok());
            let number = number.filter(|number| self.wanted.contains_key(number));
            let number = number.with_context(|| format!("job {} is not the demo's", record.id))?;
            Ok((record.id, number, view.state))
        });
        jobs.collect()
    }

    async fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        match order {
            Order::Submit(part) => self.submit(part).await,
            Order::Finish => {
                let pace = self.pace.clone();
                self.awaited.spawn(async move { Ok(pace.idle().await.map(|()| News::Idle)?) });
                Ok(())
            }
        }
    }

    async fn submit(&mut self, part: Part) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        let jobs: Vec<Wanted> =
            self.wanted.values().filter(|wanted| wanted.part == part).cloned().collect();
        let answers = self.pace.submit_all(jobs.iter().map(Wanted::job)).await;
        for (wanted, answer) in jobs.iter().zip(answers) {
            let job = answer?;
            self.numbers.insert(job.id(), wanted.number);
            self.waiting.add(job.id(), wanted);
            let lane = match part {
                Part::Urgent => URGENT_LANE,
                Part::Bound => BOUND_LANE,
                Part::Bulk | Part::Searches => continue,
            };
            let pace = self.pace.clone();
            self.awaited.spawn(async move {
                let calls = overtaken(&pace, job, lane).await?;
                Ok(News::Overtook { part, calls, ms: watch.lap().wall.as_millis() as u64 })
            });
        }
        Ok(send(&News::Accepted(jobs.iter().map(|wanted| wanted.number).collect()))?)
    }

    async fn apply(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Finished(report) => {
                let number = *self.numbers.get(&report.job).expect("submitted or taken up here");
                self.waiting.finished(report.job, &self.wanted[&number]);
                send(&News::Finished(number))?;
            }
            Event::Closed(lane, until) => {
                let ms = self.pace.until(*until).as_millis() as u64;
                let lanes = self.pace.lanes().await?;
                let rung =
                    lanes.iter().find(|status| status.name == *lane).map_or(0, |lane| lane.rung);
                send(&News::Closed { lane: lane.to_string(), ms, rung })?;
            }
            Event::Accepted(_) | Event::Started(..) | Event::Settled(..) => {}
        }
        Ok(())
    }

    async fn status(&self) -> anyhow::Result<Vec<LaneState>> {
        let mut states = Vec::new();
        for lane in self.pace.lanes().await? {
            let why = self.waiting.why(&self.pace, &lane.name).await?;
            let why = why.map(|reason| reason.name().to_string());
            states.push(LaneState { why, ..state(&self.pace, &lane) });
        }
        Ok(states)
    }

    /// Sends the jobs of the store to the parent, and ends.
    async fn finish(mut self) -> anyhow::Result<Exit> {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.apply(&event).await?,
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        for (job, number, _) in self.stored().await? {
            let view = self.pace.job(job).await?;
            send(&News::Kept { number, report: view.and_then(|view| view.stored.report) })?;
        }
        self.pace.stop(Duration::from_secs(1)).await?;
        send(&News::Over)?;
        Ok(Exit::Done)
    }
}

/// Follows a job to its report. Returns the number of earlier calls of its lane that still wait then.
async fn overtaken(pace: &Paceline, job: Following, lane: &str) -> anyhow::Result<usize> {
    job.report().await?;
    let lanes = pace.lanes().await?;
    let lane = lanes.iter().find(|status| &*status.name == lane).context("a lane of the demo")?;
    Ok(lane.waiting)
}

fn state(pace: &Paceline, lane: &LaneStatus) -> LaneState {
    let until = |moment| pace.until(moment).as_millis() as u64;
    LaneState {
        name: lane.name.to_string(),
        waiting: lane.waiting,
        in_flight: lane.in_flight,
        used: lane.used.first().map(|(rate, used)| (*used, rate.max.get())),
        opens_ms: until(lane.open_at),
        cooling_ms: lane.cooldown_until.map(until),
        why: None,
    }
}

/// The orders of the parent. The channel closes when the parent ends.
fn orders() -> mpsc::Receiver<Order> {
    let (sender, orders) = mpsc::channel(MOST_ORDERS);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str(&line) else { return };
            if sender.blocking_send(order).is_err() {
                return;
            }
        }
    });
    orders
}
