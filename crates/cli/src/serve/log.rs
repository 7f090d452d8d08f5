//! The daemon's log: one line per change of state, on stderr.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing::Level;
use tracing_appender::non_blocking::WorkerGuard;

/// A format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Text for people
    Text,
    /// One JSON object per line, for programs
    Json,
    /// Warnings only, as text
    Quiet,
}

/// A log that is being written. Dropping it writes the last lines.
pub(super) struct Log {
    pub(super) form: Form,
    _guard: WorkerGuard,
}

/// Starts the log. A thread of its own writes it, so that a slow reader of stderr loses lines and
/// delays nothing.
pub(super) fn start(form: Option<Form>) -> Log {
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let eyes = std::io::stderr().is_terminal();
    let form = form.unwrap_or(if eyes { Form::Text } else { Form::Json });
    let level = if form == Form::Quiet { Level::WARN } else { Level::INFO };
    let colour = eyes && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        .with_target(false)
        .with_ansi(colour);
    // A second log in one process, as in tests, is not needed.
    let _ = match form {
        Form::Json => lines.json().flatten_event(true).try_init(),
        Form::Text | Form::Quiet => lines.try_init(),
    };
    Log { form, _guard: guard }
}
