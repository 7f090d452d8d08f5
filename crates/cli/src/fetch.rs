//! `paceline fetch`: polite parallel downloads, from arguments to an exit code.

mod arguments;
mod list;
mod report;
mod screen;

use std::sync::Arc;

use anyhow::Context as _;
use paceline_apps::fetch::{End, Run, Summary};
use tokio::signal::unix::SignalKind;

use crate::config::Config;
use crate::exit::{Exit, Usage};
use crate::interrupt::interrupted;

pub use arguments::Arguments;
use report::Reporter;
use screen::Screen;

/// Open files beyond a socket and a file for each job: the store, the list, some folders and idle
/// connections.
const OWN_FILES: u64 = 64;

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    allow_open_files(arguments.jobs())?;
    // Half of the cores: the engine, the disk and the kernel's network stack use the rest.
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads((cores / 2).max(1))
        .enable_all()
        .build()?;
    let exit = runtime.block_on(fetch(arguments, config));
    // A thread may still be reading a list from a terminal: do not wait for it.
    runtime.shutdown_background();
    exit
}

/// Raises the limit of open files as far as the system allows, and checks that it suffices.
fn allow_open_files(jobs: u32) -> Result<(), Usage> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that is not allowed, the old limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
    let needed = 2 * u64::from(jobs) + OWN_FILES;
    match getrlimit(Resource::Nofile).current {
        Some(most) if needed > most => Err(Usage(format!(
            "`--jobs {jobs}` needs {needed} open files and {most} are allowed: lower it, or raise \
             `ulimit -n`"
        ))),
        _ => Ok(()),
    }
}

async fn fetch(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    let options = arguments.options(config)?;
    let directory = options.directory.clone();
    let sources = arguments.sources()?;
    let failed_out = arguments.failed_out.as_deref();
    let reporter = Arc::new(Reporter::new(arguments.format, failed_out, &sources.lists)?);
    let items = list::read(sources)?;
    let stop = interrupted(&[SignalKind::interrupt()])?;
    let run = Run::start(options, reporter.clone()).await.inspect_err(|_| reporter.abandon())?;
    let screen = Screen::start(arguments.shown(), &run, reporter.clone());
    let summary = run.finish(items, stop).await.inspect_err(|_| reporter.abandon());
    screen.end();
    let summary = summary.with_context(|| format!("fetching into `{}`", directory.display()))?;
    reporter.finish(&summary)?;
    Ok(exit(&summary))
}

fn exit(summary: &Summary) -> Exit {
    if summary.end == End::Interrupted {
        Exit::Interrupted
    } else if summary.failed + summary.mistakes > 0 {
        Exit::Failed
    } else if summary.deferred + summary.parked > 0 || summary.unread {
        Exit::Deferred
    } else {
        Exit::Done
    }
}
