//! What the program tells its caller when it ends.

use std::process::ExitCode;

use crate::config::ConfigError;

/// How a command ended. Scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything is done.
    Done = 0,
    /// Something failed or was not found.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// Refused or deferred by limits: worth trying later.
    Deferred = 75,
    /// Ended by the user.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// A mistake in how the command was called.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Something that is worth trying later.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TryLater(pub String);

/// The exit that an error stands for.
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
        // Whoever read our output has seen enough, as with `| head`.
        Exit::Done
    } else {
        Exit::Failed
    }
}
