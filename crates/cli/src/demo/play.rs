//! The play: the same jobs by a naive client and by Paceline, whose worker process dies half-way.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::time::{Interval, MissedTickBehavior};

use super::books::Books;
use super::naive;
use super::paint::Ink;
use super::process::Process;
use super::score::Score;
use super::screen::Screen;
use super::table::Client;
use super::upstreams::{Side, Upstreams};
use super::view::{self, Progress};
use super::wanted::{BOUND_LANE, Part, URGENT_LANE, Wanted, wanted};
use super::words::{LaneState, News, Order};
use crate::bench::stopwatch::Stopwatch;

/// How often the screen is drawn.
const TICK: Duration = Duration::from_millis(100);
/// The times of the acts, from the moment the jobs are accepted.
const URGENT_AT: Duration = Duration::from_secs(3);
const KILL_AT: Duration = Duration::from_secs(11);
const BACK_AT: Duration = Duration::from_millis(12_500);
const BOUND_AT: Duration = Duration::from_secs(14);
const SEARCHES_AT: Duration = Duration::from_secs(18);
/// The signal that no process survives.
const SIGKILL: i32 = 9;

/// The state of the play.
pub(super) struct Play<'a> {
    upstreams: &'a Upstreams,
    screen: &'a mut Screen,
    pub(super) wanted: Vec<Wanted>,
    pub(super) books: Books,
    /// The last known state of the lanes; `None` while no worker process runs.
    lanes: Option<Vec<LaneState>>,
    /// The id of the process that was started last.
    id: u32,
    ticks: Interval,
    over: bool,
}

/// The event that ends an act.
enum Until {
    Accepted,
    Moment(Stopwatch, Duration),
    Over,
}

impl<'a> Play<'a> {
    pub(super) fn new(upstreams: &'a Upstreams, screen: &'a mut Screen) -> Play<'a> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (wanted, books) = (wanted(), Books::default());
        Play { upstreams, screen, wanted, books, lanes: None, id: 0, ticks, over: false }
    }

    /// The first act.
    pub(super) async fn naive(&mut self) -> Client {
        let calls: usize = self.wanted.iter().map(|wanted| wanted.lanes().count()).sum();
        let jobs = self.wanted.len();
        self.say(
            Ink::Plain,
            format!("5 mock upstreams on this machine; {jobs} jobs with {calls} calls, done twice"),
        );
        self.say(
            Ink::Strong,
            "first by a naive client: all calls at once, refused ones repeated at once",
        );
        let watch = Stopwatch::start();
        let side = &self.upstreams.naive;
        let (wanted, addresses) = (self.wanted.clone(), side.addresses());
        let mut client = std::pin::pin!(naive::run(&wanted, &addresses));
        loop {
            tokio::select! {
                () = &mut client => break,
                _ = self.ticks.tick() => self.screen.draw(view::naive(&side.summaries())),
            }
        }
        let took = watch.lap().wall;
        let client = Client { scores: side.scores(), took };
        let all = Score::all(&client.scores);
        let (answered, refused) = (all.answered.len(), all.refused);
        self.say(
            Ink::Bad,
            format!("it gives up: {answered} of {jobs} jobs answered, {refused} calls refused"),
        );
        client
    }

    /// The second act.
    pub(super) async fn paced(&mut self, store: &Path) -> anyhow::Result<Client> {
        let watch = Stopwatch::start();
        self.say(Ink::Strong, "now by Paceline, in a process of its own with a store on disk");
        let mut process = self.start(store)?;
        process.send(&Order::Submit(Part::Bulk))?;
        self.follow(&mut process, Until::Accepted).await?;
        let since = Stopwatch::start();
        let accepted = self.books.accepted.len();
        let id = self.id;
        self.say(
            Ink::Plain,
            format!("process {id}: {accepted} jobs are durable, none may be lost from now on"),
        );

        self.follow(&mut process, Until::Moment(since, URGENT_AT)).await?;
        self.urgent(&mut process, Part::Urgent)?;
        self.follow(&mut process, Until::Moment(since, KILL_AT)).await?;
        self.kill(process).await?;
        while since.lap().wall < BACK_AT {
            self.ticks.tick().await;
            self.draw();
        }
        let mut process = self.start(store)?;
        self.follow(&mut process, Until::Moment(since, BOUND_AT)).await?;
        self.urgent(&mut process, Part::Bound)?;
        self.follow(&mut process, Until::Moment(since, SEARCHES_AT)).await?;
        process.send(&Order::Submit(Part::Searches))?;
        let searches = self.wanted.iter().filter(|wanted| wanted.part == Part::Searches).count();
        self.say(
            Ink::Plain,
            format!("{searches} searches arrive, each for 3 upstreams: the first answer is enough"),
        );
        process.send(&Order::Finish)?;
        self.follow(&mut process, Until::Over).await?;
        let status = process.wait().context("the worker process cannot be waited for")?;
        ensure!(status.success(), "the worker process ended with {status}");
        let reports = self.books.kept.len();
        self.say(Ink::Good, format!("{reports} jobs have their report"));
        Ok(Client { scores: self.upstreams.paced.scores(), took: watch.lap().wall })
    }

    fn side(&self) -> &'a Side {
        &self.upstreams.paced
    }

    fn start(&mut self, store: &Path) -> anyhow::Result<Process> {
        let process = Process::start(store, &self.side().addresses())?;
        self.id = process.id();
        Ok(process)
    }

    /// Submits an urgent job, as for a user who waits at a screen.
    fn urgent(&mut self, process: &mut Process, part: Part) -> anyhow::Result<()> {
        process.send(&Order::Submit(part))?;
        let name = lane_of(part);
        let mut lanes = self.lanes.iter().flatten();
        let lane = lanes.find(|lane| lane.name == name).cloned().unwrap_or_default();
        let (waiting, opens) = (lane.waiting, lane.opens_ms as f64 / 1_000.0);
        let there = match part {
            Part::Bound => format!("which is full for {opens:.1}s"),
            _ => format!("where {waiting} calls wait"),
        };
        self.say(Ink::Good, format!("an interactive job arrives at {name}, {there}"));
        Ok(())
    }

    /// Kills the process as `kill -9` does, in the middle of its work.
    async fn kill(&mut self, mut process: Process) -> anyhow::Result<()> {
        let open = self.side().open();
        let status = process.kill().context("the worker process cannot be killed")?;
        ensure!(status.signal() == Some(SIGKILL), "the worker process had ended with {status}");
        while let Some(news) = process.receive().await {
            self.apply(news);
        }
        let (id, unfinished) = (process.id(), self.books.unfinished());
        self.lanes = None;
        let left = format!("{unfinished} jobs unfinished, {open} calls in flight");
        self.say(Ink::Bad, format!("SIGKILL: process {id} is dead; {left}"));
        Ok(())
    }

    /// Reads the messages of the process and shows them.
    async fn follow(&mut self, process: &mut Process, until: Until) -> anyhow::Result<()> {
        loop {
            let reached = match &until {
                Until::Accepted => !self.books.accepted.is_empty(),
                Until::Moment(since, moment) => since.lap().wall >= *moment,
                Until::Over => self.over,
            };
            if reached {
                return Ok(());
            }
            tokio::select! {
                news = process.receive() => match news {
                    Some(news) => self.apply(news),
                    None => bail!("the worker process ended too early: its messages are above"),
                },
                _ = self.ticks.tick() => self.draw(),
            }
        }
    }

    fn apply(&mut self, news: News) {
        match news {
            News::Opened { unfinished, finished } => self.opened(&unfinished, &finished),
            News::Accepted(numbers) => self.books.accepted.extend(numbers),
            News::Finished(number) => {
                self.books.finished(number);
                self.searched(number);
            }
            News::Closed { lane, ms, rung } => {
                let span = ms.div_ceil(1_000);
                let why = if rung > 0 { "it kept failing" } else { "it asked for that" };
                self.say(Ink::Warm, format!("{lane} is left alone for {span}s: {why}"));
            }
            News::Overtook { part, calls, ms } => {
                self.books.overtook.insert(part, (calls, Duration::from_millis(ms)));
                let (lane, took) = (lane_of(part), ms as f64 / 1_000.0);
                let text =
                    format!("the one on {lane} is answered after {took:.2}s, ahead of {calls}");
                self.say(Ink::Good, text);
            }
            News::Status(lanes) => self.lanes = Some(lanes),
            News::Kept { number, report: Some(report) } => self.books.kept(number, report),
            News::Over => self.over = true,
            News::Kept { report: None, .. } | News::Idle => {}
        }
    }

    /// A process opened the store. For the first one the store is empty.
    fn opened(&mut self, unfinished: &[u32], finished: &[u32]) {
        if !self.books.accepted.is_empty() {
            let found = self.books.found(unfinished, finished);
            let (id, left, missing) = (self.id, found.unfinished, found.missing);
            self.say(
                Ink::Good,
                format!("process {id} finds {left} unfinished jobs in the store, {missing} lost"),
            );
        }
    }

    /// Says when the last search is answered, and how many calls that saved by the upstreams' logs.
    fn searched(&mut self, number: u32) {
        let searches = self.wanted.iter().filter(|wanted| wanted.part == Part::Searches);
        let of_searches = searches.clone().any(|wanted| wanted.number == number);
        let answered = |wanted: &Wanted| self.books.finished.contains(&wanted.number);
        if of_searches && searches.clone().all(answered) {
            let seen = self.side().scores();
            let asked = |wanted: &Wanted| {
                seen.iter().filter(|score| score.asked.contains(&wanted.number)).count()
            };
            let made: usize = searches.clone().map(asked).sum();
            let all: usize = searches.map(|wanted| wanted.lanes().count()).sum();
            let text =
                format!("they are answered, and {} of their {all} calls never made", all - made);
            self.say(Ink::Good, text);
        }
    }

    fn say(&mut self, ink: Ink, text: impl Into<String>) {
        self.screen.say(ink, text);
    }

    fn draw(&mut self) {
        let seen = self.side().summaries();
        let progress = Progress {
            lanes: self.lanes.as_deref(),
            finished: self.books.finished.len(),
            jobs: self.wanted.len(),
            seen: &seen,
        };
        self.screen.draw(view::paced(&progress));
    }
}

/// The lane of an urgent job.
fn lane_of(part: Part) -> &'static str {
    if part == Part::Bound { BOUND_LANE } else { URGENT_LANE }
}
