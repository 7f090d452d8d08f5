//! Data goes to stdout, everything else to stderr.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::MultiProgress;

use crate::config::ConfigError;
use crate::exit::{Exit, exit_of};

/// Writes data for whoever reads stdout.
pub fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What stderr is for.
enum Stderr {
    /// Lines for people.
    Lines,
    /// What is drawn on the terminal: lines have to go above it.
    Picture(MultiProgress),
    /// A log that programs read, and nothing else.
    Log,
}

static STDERR: Mutex<Stderr> = Mutex::new(Stderr::Lines);

fn stderr_is(what: Stderr) {
    *STDERR.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// From now on lines are written above this picture, or above nothing.
pub fn draws(picture: Option<MultiProgress>) {
    stderr_is(picture.map_or(Stderr::Lines, Stderr::Picture));
}

/// From now on lines are lines of the log.
pub fn logs() {
    stderr_is(Stderr::Log);
}

/// Writes one line for the person at the terminal. A closed stderr is nobody listening.
pub fn say(line: impl std::fmt::Display) {
    let write = || {
        let _ = writeln!(io::stderr().lock(), "{line}");
    };
    match &*STDERR.lock().unwrap_or_else(PoisonError::into_inner) {
        Stderr::Lines => write(),
        Stderr::Picture(picture) => picture.suspend(write),
        Stderr::Log => tracing::info!("{line}"),
    }
}

/// Says what went wrong, one line per mistake, and how to exit.
pub fn fail(error: &anyhow::Error) -> Exit {
    let exit = exit_of(error);
    match error.downcast_ref::<ConfigError>() {
        Some(ConfigError::Mistakes(mistakes)) => {
            for mistake in mistakes {
                say(format_args!("error: {mistake}"));
            }
        }
        _ if exit == Exit::Done => {}
        _ => say(format_args!("error: {error:#}")),
    }
    exit
}
