//! `paceline store`: backups of the store, also while it is in use.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use paceline_store::{Backup, BackupError, BackupProgress, MissingLog, backup};
use serde_json::{Value, json};
use tokio::signal::unix::SignalKind;

use crate::config::{Config, Size};
use crate::exit::Exit;
use crate::form::Format;
use crate::interrupt::interrupted;
use crate::output::say;
use crate::table::{aligned, text};

/// Smaller copies are done before a progress line could be read.
const LARGE: u64 = 256 << 20;

/// Back up the store.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy the store to a new file, also while a process uses it
    #[command(after_help = AFTER)]
    Backup(Target),
}

const AFTER: &str = "\
The copy holds the store at one moment, with every job that was accepted before. It is a single file
that only its owner can read, and it appears complete or not at all. A daemon keeps running meanwhile;
the log beside its store (`-wal`) grows until the copy is made.

To restore a copy, stop the processes that use the store, put the copy in its place, and remove the
`-wal` file beside it. Never run a copy while its original is in use: both would spend the same limits
and make the same calls.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

#[derive(Debug, Args)]
struct Target {
    /// The file to create
    file: PathBuf,
    /// Copy this store instead of the configured one
    #[arg(long, value_name = "STORE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    let Command::Backup(target) = &arguments.command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Some(made) = runtime.block_on(copy(target, config))? else {
        say("interrupted: no copy was made");
        return Ok(Exit::Interrupted);
    };
    target.format.form.one(&described(&made), facts)?;
    say("never run the copy while its original is in use: both would spend the same limits");
    Ok(Exit::Done)
}

/// Makes the copy, unless it is interrupted.
async fn copy(target: &Target, config: &Config) -> anyhow::Result<Option<Backup>> {
    let source = target.from.clone().unwrap_or_else(|| config.store_path.clone());
    let older = if config.accept_older { MissingLog::Accept } else { MissingLog::Refuse };
    let stopped = Arc::new(AtomicBool::new(false));
    let (file, seen) = (target.file.clone(), stopped.clone());
    let stop = interrupted(&[SignalKind::interrupt()])?;
    let mut work = tokio::task::spawn_blocking(move || make(&source, &file, older, &seen));
    let made = tokio::select! {
        made = &mut work => made,
        () = stop => {
            stopped.store(true, Ordering::Relaxed);
            work.await
        }
    };
    match made? {
        Err(BackupError::Stopped) => Ok(None),
        made => Ok(Some(made?)),
    }
}

fn make(
    source: &Path,
    file: &Path,
    older: MissingLog,
    stopped: &AtomicBool,
) -> Result<Backup, BackupError> {
    let mut said = 0;
    backup(source, file, older, |BackupProgress { bytes, of }| {
        let tenths = bytes * 10 / of.max(1);
        if of >= LARGE && tenths > said {
            said = tenths;
            say(format_args!("copied {} of {}", Size(bytes), Size(of)));
        }
        if stopped.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
}

fn described(made: &Backup) -> Value {
    json!({
        "path": made.path,
        "bytes": made.bytes,
        "jobs": made.unfinished + made.finished,
        "unfinished": made.unfinished,
    })
}

fn facts(made: &Value) -> String {
    let rows = [
        ("copy", text(&made["path"])),
        ("bytes", text(&made["bytes"])),
        ("jobs", text(&made["jobs"])),
        ("unfinished", text(&made["unfinished"])),
    ];
    aligned(&rows.map(|(name, value)| [name.to_string(), value]))
}
