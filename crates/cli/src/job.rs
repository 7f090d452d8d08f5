//! `paceline job`: work handed in, looked at, waited for, withdrawn and tried again.

mod add;
mod describe;
mod list;
mod show;
mod steer;
mod wait;

use clap::{Args, Subcommand};
use paceline::Span;

use crate::client::with_client;
use crate::config::Config;
use crate::exit::Exit;
use crate::form::Format;

pub(crate) use show::why_of;

/// What to do with jobs.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
A daemon (`paceline serve`, or `services run`) that owns the store is asked; without one the store
itself is, and what is added waits there for the next daemon.

Exit codes: 0 done, 1 failed or not found, 2 wrong usage, 75 refused or deferred by limits, 130 interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Hand in a job: a request, a command of the configuration, or JSON
    Add(Box<describe::Arguments>),
    /// List jobs, the oldest first unless told otherwise
    Ls(list::Arguments),
    /// One job: how it stands, or its report
    Show {
        /// Its number
        id: u64,
        #[command(flatten)]
        format: Format,
    },
    /// What the calls of a job wait for, until when, and behind how many
    Why {
        /// Its number
        id: u64,
        #[command(flatten)]
        format: Format,
    },
    /// Wait until jobs are finished, and print their reports
    Wait {
        /// Their numbers
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
        /// Wait at most so long, like 90s; then exit with 75
        #[arg(long, value_name = "SPAN")]
        timeout: Option<Span>,
        #[command(flatten)]
        format: Format,
    },
    /// Withdraw from jobs; the last caller to do so cancels a job
    Cancel(steer::Arguments),
    /// Try finished jobs again, on the lanes that gave no answer: new jobs
    Retry(steer::Arguments),
}

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    match &arguments.command {
        Command::Add(arguments) => {
            let jobs = arguments.jobs()?;
            with_client(config, async |client| add::add(client, arguments, jobs).await)
        }
        Command::Ls(arguments) => {
            with_client(config, async |client| list::list(client, arguments).await)
        }
        Command::Show { id, format } => {
            with_client(config, async |client| show::show(client, *id, format.form).await)
        }
        Command::Why { id, format } => {
            with_client(config, async |client| show::why(client, *id, format.form).await)
        }
        Command::Wait { ids, timeout, format } => {
            let within = timeout.map(Into::into);
            with_client(config, async |client| wait::wait(client, ids, within, format.form).await)
        }
        Command::Cancel(arguments) => {
            with_client(config, async |client| steer::cancel(client, arguments).await)
        }
        Command::Retry(arguments) => {
            with_client(config, async |client| steer::retry(client, arguments).await)
        }
    }
}
