//! Lines for a terminal: coloured text, cut to the width of the terminal.

use std::fmt::Write as _;

/// The look of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Faint,
    Strong,
    Good,
    Warm,
    Bad,
}

impl Ink {
    const fn code(self) -> &'static str {
        match self {
            Ink::Plain => "",
            Ink::Faint => "\x1b[2m",
            Ink::Strong => "\x1b[1m",
            Ink::Good => "\x1b[32m",
            Ink::Warm => "\x1b[33m",
            Ink::Bad => "\x1b[31m",
        }
    }
}

/// The use of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    Shown,
    Hidden,
}

/// One line, piece by piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pieces: Vec<(Ink, String)>,
}

impl Line {
    pub(super) fn new(ink: Ink, text: impl Into<String>) -> Line {
        Line::default().then(ink, text)
    }

    #[must_use]
    pub(super) fn then(mut self, ink: Ink, text: impl Into<String>) -> Line {
        self.pieces.push((ink, text.into()));
        self
    }

    /// This line after the pieces of another.
    #[must_use]
    pub(super) fn after(self, mut first: Line) -> Line {
        first.pieces.extend(self.pieces);
        first
    }

    /// At most `width` characters of it. The rest is cut off, because a line that wraps would take
    /// two rows.
    pub(super) fn painted(&self, width: usize, colours: Colours) -> String {
        let (mut line, mut left) = (String::new(), width);
        for (ink, text) in &self.pieces {
            let cut: String = text.chars().take(left).collect();
            left -= cut.chars().count();
            if colours == Colours::Hidden || *ink == Ink::Plain || cut.is_empty() {
                line.push_str(&cut);
            } else {
                write!(line, "{}{cut}\x1b[0m", ink.code()).expect("a string takes everything");
            }
        }
        line.truncate(line.trim_end_matches(' ').len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(width: usize, colours: Colours, expected: &str) {
        let line = Line::new(Ink::Strong, "steady").then(Ink::Plain, "  20 of 20  ");
        assert_eq!(line.painted(width, colours), expected);
    }

    #[test]
    fn a_line_is_cut_by_its_visible_characters() {
        check(80, Colours::Hidden, "steady  20 of 20");
        check(10, Colours::Hidden, "steady  20");
        check(10, Colours::Shown, "\x1b[1msteady\x1b[0m  20");
        check(3, Colours::Shown, "\x1b[1mste\x1b[0m");
        check(0, Colours::Shown, "");
    }
}
