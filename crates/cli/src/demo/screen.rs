//! Where the demo shows itself: a living block on a terminal, plain lines elsewhere. On stderr, for
//! stdout is for what it comes to.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::paint::{Colours, Ink, Line};
use crate::bench::stopwatch::Stopwatch;

/// How long nothing is said before a plain line tells how far it is.
const SILENCE: Duration = Duration::from_secs(3);
/// The size of a terminal that does not tell.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// Lines that stay, and below them a block that is drawn anew.
pub(super) struct Screen {
    watch: Stopwatch,
    manner: Manner,
    /// The block, and how many lines of it stand on the terminal.
    block: Vec<Line>,
    standing: usize,
    /// When the last line was written that stays.
    said_at: Duration,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Living(Colours),
    Plain,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let colours = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        let manner = match (std::io::stderr().is_terminal() && !dumb, colours) {
            (true, true) => Manner::Living(Colours::Shown),
            (true, false) => Manner::Living(Colours::Left),
            (false, _) => Manner::Plain,
        };
        let (watch, said_at) = (Stopwatch::start(), Duration::ZERO);
        Screen { watch, manner, block: Vec::new(), standing: 0, said_at }
    }

    /// How long the demo has run.
    pub(super) fn now(&self) -> Duration {
        self.watch.lap().wall
    }

    /// Says a line that stays.
    pub(super) fn say(&mut self, ink: Ink, text: impl Into<String>) {
        self.stay(Line::new(ink, text));
    }

    fn stay(&mut self, line: Line) {
        self.said_at = self.now();
        let at = format!("{:4.1}s  ", self.said_at.as_secs_f64());
        self.write(Some(&line.after(Line::new(Ink::Faint, at))));
    }

    /// Shows how far it is: the whole block, or now and then its last line, which is about all of it.
    pub(super) fn draw(&mut self, block: Vec<Line>) {
        if self.manner != Manner::Plain {
            self.block = block;
            self.write(None);
        } else if self.now() >= self.said_at + SILENCE {
            let line = block.into_iter().next_back().unwrap_or_default();
            self.stay(line);
        }
    }

    /// An empty line between what was said and what comes of it, where both are seen.
    pub(super) fn part(&mut self) {
        if self.manner != Manner::Plain {
            self.write(Some(&Line::default()));
        }
    }

    /// Takes the block away.
    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.write(None);
    }

    /// Writes over the block that stands there: the line that stays, if there is one, and the
    /// block below it. All at once, so that nothing flickers.
    fn write(&mut self, said: Option<&Line>) {
        let Manner::Living(colours) = self.manner else {
            let line = said.map(|line| line.painted(usize::MAX, Colours::Left) + "\n");
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
        // What is left of a higher block, or of a `^C`.
        text.push_str("\x1b[J");
        print(&text);
    }
}

/// Columns and rows, as they are now.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 1 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => (COLUMNS, ROWS),
    }
}

/// A closed stderr is nobody looking.
fn print(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
