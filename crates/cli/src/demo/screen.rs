//! The display of the demo on stderr: a block that is redrawn on a terminal, plain lines elsewhere.
//! Stdout is for the result.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::paint::{Colours, Ink, Line};
use crate::bench::stopwatch::Stopwatch;

/// The silence after which a plain line shows the progress.
const SILENCE: Duration = Duration::from_secs(3);
/// The size of a terminal that does not report it.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// Lines that stay, and below them a block that is redrawn.
pub(super) struct Screen {
    watch: Stopwatch,
    mode: Mode,
    /// The block, and the number of its lines on the terminal.
    block: Vec<Line>,
    standing: usize,
    /// When the last line that stays was written.
    said_at: Duration,
}

/// The way it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Redrawn(Colours),
    Plain,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let colours = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        let mode = match (std::io::stderr().is_terminal() && !dumb, colours) {
            (true, true) => Mode::Redrawn(Colours::Shown),
            (true, false) => Mode::Redrawn(Colours::Hidden),
            (false, _) => Mode::Plain,
        };
        let (watch, said_at) = (Stopwatch::start(), Duration::ZERO);
        Screen { watch, mode, block: Vec::new(), standing: 0, said_at }
    }

    /// The time since the demo started.
    pub(super) fn now(&self) -> Duration {
        self.watch.lap().wall
    }

    /// Writes a line that stays.
    pub(super) fn say(&mut self, ink: Ink, text: impl Into<String>) {
        self.stay(Line::new(ink, text));
    }

    fn stay(&mut self, line: Line) {
        self.said_at = self.now();
        let at = format!("{:4.1}s  ", self.said_at.as_secs_f64());
        self.write(Some(&line.after(Line::new(Ink::Faint, at))));
    }

    /// Shows the progress: the whole block on a terminal, else now and then its last line, a summary.
    pub(super) fn draw(&mut self, block: Vec<Line>) {
        if self.mode != Mode::Plain {
            self.block = block;
            self.write(None);
        } else if self.now() >= self.said_at + SILENCE {
            let line = block.into_iter().next_back().unwrap_or_default();
            self.stay(line);
        }
    }

    /// Writes an empty line between the progress and the result, on a terminal that shows both.
    pub(super) fn part(&mut self) {
        if self.mode != Mode::Plain {
            self.write(Some(&Line::default()));
        }
    }

    /// Removes the block.
    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.write(None);
    }

    /// Overwrites the block with the line that stays, if there is one, and the new block below it. In
    /// one write, so that nothing flickers.
    fn write(&mut self, said: Option<&Line>) {
        let Mode::Redrawn(colours) = self.mode else {
            let line = said.map(|line| line.painted(usize::MAX, Colours::Hidden) + "\n");
            return print(&line.unwrap_or_default());
        };
        let (columns, rows) = size();
        let mut text = match self.standing {
            0 => String::new(),
            lines => format!("\r\x1b[{lines}A"),
        };
        // A block higher than the terminal could not be written over.
        let block = self.block.iter().take(rows - 1);
        self.standing = block.len();
        for line in said.into_iter().chain(block) {
            text.push_str(&line.painted(columns, colours));
            text.push_str("\x1b[K\n");
        }
        // Clears the rest of a higher block, or a `^C`.
        text.push_str("\x1b[J");
        print(&text);
    }
}

/// The current size of the terminal: columns and rows.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 1 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => (COLUMNS, ROWS),
    }
}

/// Writes to stderr. A closed stderr is no error.
fn print(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
