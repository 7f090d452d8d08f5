//! Data goes to stdout, everything else to stderr.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::MultiProgress;

use crate::config::ConfigError;
use crate::exit::{Exit, exit_of};

/// Writes data to stdout.
pub fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The use of stderr.
enum Stderr {
    /// Lines for people.
    Lines,
    /// A display that is redrawn on the terminal: lines go above it.
    Picture(MultiProgress),
    /// A log for programs, and nothing else.
    Log,
}

static STDERR: Mutex<Stderr> = Mutex::new(Stderr::Lines);

fn stderr_is(what: Stderr) {
    *STDERR.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// From now on lines are written above this display; plainly if there is none.
pub fn draws(picture: Option<MultiProgress>) {
    stderr_is(picture.map_or(Stderr::Lines, Stderr::Picture));
}

/// From now on lines are written to the log.
pub fn logs() {
    stderr_is(Stderr::Log);
}

/// Writes one line for people to stderr. A closed stderr is no error.
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

/// Prints an error, one line per mistake, and returns its exit code.
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
