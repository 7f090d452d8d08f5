//! What the demo shows while it runs: a few living lines on a terminal, plain ones elsewhere.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Write as _};

use paceline::{CallId, Event, JobId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use crate::bench::stopwatch::Stopwatch;

/// Letters of the bar.
const BAR: usize = 30;

/// What happened so far, told by the engine's own events.
pub(super) struct Progress {
    lanes: Vec<(&'static str, &'static str)>,
    seen: RefCell<Seen>,
}

struct Seen {
    events: Receiver<Event>,
    accepted: BTreeSet<JobId>,
    finished: usize,
    started: BTreeSet<CallId>,
    by_lane: BTreeMap<String, usize>,
}

impl Progress {
    pub(super) fn new(
        events: Receiver<Event>,
        lanes: Vec<(&'static str, &'static str)>,
    ) -> Progress {
        let seen = Seen {
            events,
            accepted: BTreeSet::new(),
            finished: 0,
            started: BTreeSet::new(),
            by_lane: BTreeMap::new(),
        };
        Progress { lanes, seen: RefCell::new(seen) }
    }

    /// Takes in what was told since the last time.
    pub(super) fn catch_up(&self) {
        let mut seen = self.seen.borrow_mut();
        loop {
            match seen.events.try_recv() {
                Ok(event) => seen.take(&event),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    pub(super) fn has_started(&self, call: CallId) -> bool {
        self.seen.borrow().started.contains(&call)
    }

    pub(super) fn unfinished(&self) -> usize {
        self.catch_up();
        let seen = self.seen.borrow();
        seen.accepted.len() - seen.finished
    }

    /// One line about everything.
    fn line(&self) -> String {
        let seen = self.seen.borrow();
        let calls: usize = seen.by_lane.values().sum();
        let (finished, accepted) = (seen.finished, seen.accepted.len());
        format!("{finished} of {accepted} searches answered, {calls} calls made")
    }

    /// A bar, and a line for each service.
    fn block(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        let (finished, accepted) = (seen.finished, seen.accepted.len());
        let full = BAR * finished / accepted.max(1);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        let mut lines = vec![format!("  [{bar}] {finished} of {accepted} searches")];
        for (name, allows) in &self.lanes {
            let calls = seen.by_lane.get(*name).copied().unwrap_or(0);
            lines.push(format!(
                "  {name:8} {allows:24} {calls:3} calls {}",
                "|".repeat(calls.min(30))
            ));
        }
        lines
    }
}

impl Seen {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Accepted(job) => {
                self.accepted.insert(*job);
            }
            Event::Started(call, lane) => {
                self.started.insert(*call);
                *self.by_lane.entry(lane.to_string()).or_default() += 1;
            }
            Event::Finished(_) => self.finished += 1,
            Event::Settled(..) | Event::Closed(..) => {}
        }
    }
}

/// Where it is shown: stderr, for stdout is for what the demo comes to.
pub(super) struct Screen {
    watch: Stopwatch,
    live: bool,
    colour: bool,
    shown: RefCell<Shown>,
}

#[derive(Default)]
struct Shown {
    /// Lines of the living block that stand on the terminal.
    lines: usize,
    /// Seconds whose progress was told in plain lines.
    seconds: u64,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let live = std::io::stderr().is_terminal() && !dumb;
        let colour = live && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        Screen { watch: Stopwatch::start(), live, colour, shown: RefCell::default() }
    }

    /// Says a line that stays.
    pub(super) fn say(&self, line: &str) {
        let gone = self.gone();
        let at = format!("{:4.1}s", self.watch.lap().wall.as_secs_f64());
        let at = if self.colour { format!("\x1b[2m{at}\x1b[0m") } else { at };
        write(&format!("{gone}{at}  {line}\n"));
    }

    /// Shows how far it is: a living block, or a plain line each second.
    pub(super) fn draw(&self, progress: &Progress) {
        if !self.live {
            let seconds = self.watch.lap().wall.as_secs();
            if std::mem::replace(&mut self.shown.borrow_mut().seconds, seconds) < seconds {
                self.say(&progress.line());
            }
            return;
        }
        let block = progress.block();
        let gone = self.gone();
        self.shown.borrow_mut().lines = block.len();
        write(&format!("{gone}{}\n", block.join("\n")));
    }

    /// Takes the living block away.
    pub(super) fn clear(&self) {
        write(&self.gone());
    }

    /// What takes the living block away. The cursor may stand behind a `^C`.
    fn gone(&self) -> String {
        match std::mem::take(&mut self.shown.borrow_mut().lines) {
            0 => String::new(),
            lines => format!("\r\x1b[{lines}A\x1b[J"),
        }
    }
}

/// A closed stderr is nobody looking.
fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
