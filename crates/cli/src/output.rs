//! Data goes to stdout, everything else to stderr.

use std::io::{self, Write};

use crate::config::ConfigError;
use crate::exit::{Exit, exit_of};

/// Writes data for whoever reads stdout.
pub fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one line for the person at the terminal. A closed stderr is nobody listening.
pub fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
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
