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

/// What is drawn on the terminal, if anything is: lines have to go above it.
static PICTURE: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// From now on lines are written above this picture, or above nothing.
pub fn draws(picture: Option<MultiProgress>) {
    *PICTURE.lock().unwrap_or_else(PoisonError::into_inner) = picture;
}

/// Writes one line for the person at the terminal. A closed stderr is nobody listening.
pub fn say(line: impl std::fmt::Display) {
    let write = || {
        let _ = writeln!(io::stderr().lock(), "{line}");
    };
    match &*PICTURE.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(picture) => picture.suspend(write),
        None => write(),
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
