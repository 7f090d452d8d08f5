//! The trace of a world, line by line, and its fingerprint.

use std::fmt::{Arguments, Write as _};

use paceline_core::{Admission, Event, Outcome, Skip, Time};

use crate::clock::seconds;

/// The part of the trace that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keep {
    #[default]
    Nothing,
    Fingerprint,
    Lines,
}

/// The trace of a world.
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

    /// Notes the answer to a submission.
    pub(crate) fn admission(&mut self, at: Time, label: u64, admission: &Admission) {
        match admission {
            Admission::Accepted(job) if job.0 == label => {}
            Admission::Accepted(job) => {
                self.note(at, format_args!("submit {label}: accepted as #{job}"));
            }
            Admission::Joined(job) => {
                self.note(at, format_args!("submit {label}: joins #{job}"));
            }
            Admission::Replaced(job) => {
                self.note(at, format_args!("submit {label}: replaces #{job}"));
            }
            Admission::Duplicate(job) => {
                self.note(at, format_args!("submit {label}: refused, same as #{job}"));
            }
            Admission::TooLate { wait, .. } => {
                let wait = wait.map_or_else(|| "for an unknown time".into(), |it| it.to_string());
                self.note(at, format_args!("submit {label}: too late, it would wait {wait}"));
            }
            Admission::Refused { lane, retry_at } => {
                let on = lane.as_ref().map(|lane| format!(" on {lane}")).unwrap_or_default();
                let again = retry_at.map(|at| format!(", again at {}", seconds(at)));
                let again = again.unwrap_or_default();
                self.note(at, format_args!("submit {label}: no room{on}{again}"));
            }
        }
    }

    /// Notes an event that subscribers receive.
    pub(crate) fn event(&mut self, at: Time, event: &Event) {
        if self.keep == Keep::Nothing {
            return;
        }
        match event {
            Event::Settled(call, report) => {
                let (name, words) = (report.outcome.name(), words(&report.outcome));
                let cached = if report.cached { " from the cache" } else { "" };
                let gap = if words.is_empty() { "" } else { " " };
                let (job, lane) = (call.job, &report.lane);
                self.note(at, format_args!("{name} #{job} {lane}{gap}{words}{cached}"));
            }
            Event::Finished(report) => {
                let words = format!("{:?}, {:?}", report.state, report.answer).to_lowercase();
                self.note(at, format_args!("report #{} {words}", report.job));
            }
            Event::Closed(lane, until) => {
                let until = seconds(*until);
                self.note(at, format_args!("closed {lane} until {until}"));
            }
            Event::Accepted(_) | Event::Started(..) => {}
        }
    }

    pub(crate) fn lines(&self) -> &str {
        &self.lines
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.print
    }
}

/// The details of an outcome.
pub(crate) fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { conclusive: false, .. } => "not conclusive".into(),
        Outcome::Skipped(Skip::MaxWait { wait, max_wait, priority }) => {
            format!("max_wait, needs {wait}, would wait {max_wait} as {priority}")
        }
        Outcome::Skipped(Skip::Paused { max_wait, priority }) => {
            format!("max_wait, paused, would wait {max_wait} as {priority}")
        }
        Outcome::Skipped(skip) => skip.reason().into(),
        Outcome::Failed(failure) => failure.class.to_string(),
        Outcome::Duplicate { of } => format!("of #{of}"),
        Outcome::Moved { to } => format!("to {to}"),
        Outcome::Done { .. } | Outcome::Empty | Outcome::Cancelled => String::new(),
    }
}
