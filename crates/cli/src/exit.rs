//! Exit codes, and the errors that lead to them.

use std::process::ExitCode;

use crate::config::ConfigError;

/// The exit code of a command. Scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything is done.
    Done = 0,
    /// Something failed or was not found.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// Refused or deferred by limits, or the store is in use: a later try may succeed.
    Deferred = 75,
    /// Interrupted by the user.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// A mistake in the arguments or the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// An error after which a later try may succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TryLater(pub String);

/// The exit code of an error.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if error.is::<ConfigError>() || error.is::<Usage>() {
        Exit::Usage
    } else if error.is::<TryLater>() {
        Exit::Deferred
    } else if error.chain().any(closed) {
        // The reader closed stdout, as `| head` does.
        Exit::Done
    } else {
        Exit::Failed
    }
}
