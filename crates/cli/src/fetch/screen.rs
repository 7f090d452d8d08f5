//! The progress of a run: one line and a few bars on a terminal, a plain line now and then elsewhere.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{
    BinaryBytes, HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle,
};
use paceline::Paceline;
use paceline::lanes::LaneStatus;
use paceline_apps::fetch::{Active, Progress, Run};
use tokio::time::Instant;

use super::arguments::Shown;
use super::report::Reporter;
use crate::output::{draws, say};

/// The most bars of single files; more would only flicker.
const MOST_BARS: usize = 4;
/// Smaller files are done before their bar could be read.
const WORTH_A_BAR: u64 = 1 << 20;
/// The most hosts that are named as cooling down.
const MOST_HOSTS: usize = 3;
/// How often a terminal is drawn, and how often a plain line is written.
const DRAW_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The time over which rates are measured.
const RATE_OVER: Duration = Duration::from_secs(5);

/// The progress display of a run.
pub(super) struct Screen {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Screen {
    /// Shows a run. A thread of its own draws, so that nothing waits for a slow terminal.
    pub(super) fn start(shown: Shown, run: &Run, reporter: Arc<Reporter>) -> Screen {
        if shown == Shown::Nothing {
            return Screen { thread: None };
        }
        let (end, ended) = channel::<()>();
        let (progress, pace) = (run.progress(), run.paceline());
        let runtime = tokio::runtime::Handle::current();
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { DRAW_EVERY } else { LINE_EVERY };
        let draw = move || {
            let mut line = Line::new(progress, reporter);
            let mut picture = terminal.then(Picture::new);
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let resting = runtime.block_on(resting(&pace));
                let text = line.text(&resting);
                match &mut picture {
                    Some(picture) => picture.draw(text, &line.progress.active()),
                    None => say(text),
                }
            }
            if let Some(picture) = picture {
                picture.clear();
            }
        };
        let thread = std::thread::Builder::new().name("paceline-screen".to_string()).spawn(draw);
        Screen { thread: thread.ok().map(|thread| (end, thread)) }
    }

    /// Clears the display for the summary.
    pub(super) fn end(self) {
        if let Some((end, thread)) = self.thread {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// The hosts that cool down, and for how long.
async fn resting(pace: &Paceline) -> Vec<(String, Duration)> {
    let lanes = pace.lanes().await.unwrap_or_default();
    let resting = lanes.iter().filter_map(|lane: &LaneStatus| {
        let left = pace.until(lane.cooldown_until?);
        let host = lane.name.strip_prefix("host:").unwrap_or(&lane.name);
        (lane.waiting > 0 && !left.is_zero()).then(|| (host.to_string(), left))
    });
    resting.collect()
}

/// The run in one line.
struct Line {
    progress: Arc<Progress>,
    reporter: Arc<Reporter>,
    /// Earlier counts of files and bytes, from which rates are computed.
    seen: std::collections::VecDeque<(Instant, u64, u64)>,
}

impl Line {
    fn new(progress: Arc<Progress>, reporter: Arc<Reporter>) -> Line {
        let seen = [(Instant::now(), 0, 0)].into();
        Line { progress, reporter, seen }
    }

    fn text(&mut self, resting: &[(String, Duration)]) -> String {
        let counts = self.reporter.counts();
        let (listed, settled) = (self.progress.listed(), counts.settled());
        let more = if self.progress.list_read() { "" } else { "+" };
        let mut text = format!("{settled}/{listed}{more} files");
        for (count, what) in [
            (counts.there, "there already"),
            (counts.failed, "failed"),
            (counts.deferred, "deferred"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        let (files_per_second, bytes_per_second) = self.rates(settled);
        let _ = write!(
            text,
            ", {} at {}/s",
            BinaryBytes(self.progress.bytes()),
            BinaryBytes(bytes_per_second as u64)
        );
        let left = listed.saturating_sub(settled);
        if let Some(left) = self.time_left(left, files_per_second, bytes_per_second) {
            let _ = write!(text, ", {} left", HumanDuration(left));
        }
        for (host, left) in resting.iter().take(MOST_HOSTS) {
            let until = jiff::Zoned::now().saturating_add(*left).strftime("%H:%M:%S").to_string();
            let _ = write!(text, "; {host} cools down until {until}");
        }
        if resting.len() > MOST_HOSTS {
            let _ = write!(text, "; {} more hosts cool down", resting.len() - MOST_HOSTS);
        }
        text
    }

    /// Files and bytes per second, over the last seconds.
    fn rates(&mut self, settled: u64) -> (f64, f64) {
        let (now, bytes) = (Instant::now(), self.progress.bytes());
        self.seen.push_back((now, settled, bytes));
        while self.seen.len() > 2 && now - self.seen[1].0 >= RATE_OVER {
            self.seen.pop_front();
        }
        let (then, files_then, bytes_then) = self.seen[0];
        let seconds = (now - then).as_secs_f64().max(0.001);
        let per_second = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
        (per_second(settled, files_then), per_second(bytes, bytes_then))
    }

    /// Estimated by bytes if every file that is left is in flight with a known length, else by files.
    fn time_left(&self, files: u64, files_rate: f64, bytes_rate: f64) -> Option<Duration> {
        let active = self.progress.active();
        let known = active.iter().all(|active| active.total > 0);
        let seconds = if !self.progress.list_read() || files == 0 {
            return None;
        } else if known && active.len() as u64 >= files {
            let bytes: u64 = active.iter().map(|a| a.total.saturating_sub(a.done())).sum();
            bytes as f64 / bytes_rate
        } else {
            files as f64 / files_rate
        };
        seconds.is_finite().then(|| Duration::from_secs_f64(seconds.min(1e9)))
    }
}

/// The line and the bars on a terminal.
struct Picture {
    screen: MultiProgress,
    line: ProgressBar,
    style: ProgressStyle,
    bars: Vec<ProgressBar>,
}

impl Picture {
    fn new() -> Picture {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let plain = ProgressStyle::with_template("{wide_msg}").expect("the template is right");
        let line = screen.add(ProgressBar::no_length().with_style(plain));
        let style = ProgressStyle::with_template(
            "  {bar:24} {binary_bytes:>10}/{binary_total_bytes:10} {wide_msg}",
        );
        draws(Some(screen.clone()));
        Picture { screen, line, style: style.expect("the template is right"), bars: Vec::new() }
    }

    fn draw(&mut self, text: String, active: &[Arc<Active>]) {
        self.line.set_message(text);
        let large = active.iter().filter(|active| active.total >= WORTH_A_BAR);
        let large: Vec<_> = large.take(MOST_BARS).collect();
        while self.bars.len() > large.len() {
            self.screen.remove(&self.bars.pop().expect("there are more"));
        }
        while self.bars.len() < large.len() {
            let bar = ProgressBar::new(0).with_style(self.style.clone());
            self.bars.push(self.screen.add(bar));
        }
        for (bar, active) in self.bars.iter().zip(large) {
            bar.set_length(active.total);
            bar.set_position(active.done());
            bar.set_message(active.file.clone());
        }
    }

    fn clear(&self) {
        draws(None);
        let _ = self.screen.clear();
    }
}
