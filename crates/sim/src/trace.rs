//! What happened, line by line, and a fingerprint of it.

use std::fmt::{Arguments, Write as _};

use paceline_core::{Outcome, Skip, Time};

use crate::clock::seconds;

/// Whether lines are kept, only counted into the fingerprint, or not even made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    #[default]
    Nothing,
    Fingerprint,
    Lines,
}

/// The story of a world.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) keep: Keep,
    lines: String,
    print: u64,
}

impl Trace {
    pub(crate) fn note(&mut self, at: Time, what: Arguments<'_>) {
        if self.keep == Keep::Nothing {
            return;
        }
        let start = self.lines.len();
        let _ = writeln!(self.lines, "{:>8} {what}", seconds(at));
        // FNV-1a: the same in every run and on every machine.
        for byte in self.lines.as_bytes()[start..].iter().chain(&at.0.to_le_bytes()) {
            self.print = (self.print ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if self.keep == Keep::Fingerprint {
            self.lines.truncate(start);
        }
    }

    pub(crate) fn lines(&self) -> &str {
        &self.lines
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.print
    }
}

/// An outcome in a few words.
pub(crate) fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { conclusive: false, .. } => "not conclusive".into(),
        Outcome::Skipped(Skip::MaxWait { wait, max_wait, priority }) => {
            format!("max_wait, needs {wait}, would wait {max_wait} as {priority}")
        }
        Outcome::Skipped(skip) => skip.reason().into(),
        Outcome::Failed(failure) => failure.class.to_string(),
        Outcome::Duplicate { of } => format!("of #{of}"),
        Outcome::Moved { to } => format!("to {to}"),
        Outcome::Done { .. } | Outcome::Empty | Outcome::Cancelled => String::new(),
    }
}
