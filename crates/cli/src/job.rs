//! `paceline job`: jobs submitted, listed, shown, waited for, cancelled and retried.

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

/// Submit, list, show, wait for, cancel and retry jobs.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
These commands ask the process that owns the store: `paceline serve`, or `paceline services run`.
If none is running they open the store themselves; added jobs then wait there for the next daemon.

Exit codes: 0 done, 1 failed or not found, 2 wrong usage, 75 refused or deferred by limits, 130 interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Submit a job: an HTTP request, a command of the configuration, or JSON
    Add(Box<describe::Arguments>),
    /// List jobs, the oldest first by default
    Ls(list::Arguments),
    /// Show one job: its state, or its report
    Show {
        /// The id of the job
        id: u64,
        #[command(flatten)]
        format: Format,
    },
    /// Show what the calls of a job wait for, until when, and how many calls are ahead
    Why {
        /// The id of the job
        id: u64,
        #[command(flatten)]
        format: Format,
    },
    /// Wait until jobs are finished, and print their reports
    Wait {
        /// The ids of the jobs
        #[arg(required = true, value_name = "ID")]
        ids: Vec<u64>,
        /// Stop waiting after this long, like 90s, and exit with 75
        #[arg(long, value_name = "SPAN")]
        timeout: Option<Span>,
        #[command(flatten)]
        format: Format,
    },
    /// Cancel jobs; one that several callers joined goes on until the last of them cancels
    Cancel(steer::Arguments),
    /// Retry finished jobs, as new jobs on the lanes that gave no answer
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
