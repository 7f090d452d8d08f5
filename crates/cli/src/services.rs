//! `paceline services`: work that comes again, from arguments to an exit code.

mod run;
mod status;

use std::io::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use paceline_apps::services::output_note;

use crate::config::Config;
use crate::engine::{For, start};
use crate::exit::Exit;
use crate::fetch::Usage;
use crate::output::{data, say};

/// What to do with services.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all rosters until you stop it, or one service now
    #[command(after_help = RUN)]
    Run {
        /// One service, now and once, whatever its timing
        name: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// When services run next, when they last did, and what came of it
    Status {
        /// Only this service
        name: Option<String>,
        /// Print what its last run said, the last 64 KiB of it
        #[arg(long, requires = "name", conflicts_with = "format")]
        output: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Mark a service as never run, so that it is due at the next check
    Reset {
        /// Which
        name: String,
        #[command(flatten)]
        format: Format,
    },
}

const RUN: &str = "\
Services and rosters are described in the configuration: see `paceline config print`. A service is
never run twice at once, whoever asks, and keeps the limits of its lane. Ctrl-C lets what runs
finish; the next start goes on with the rest.

Exit codes: 0 done, 1 failed, 75 deferred by limits, 130 interrupted.";

#[derive(Clone, Copy, Debug, Args)]
struct Format {
    /// How it is printed
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
}

/// How things are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For eyes
    Table,
    /// For programs
    Json,
}

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match &arguments.command {
            Command::Run { name: None, format } => run::rosters(config, format.format).await,
            Command::Run { name: Some(name), format } => {
                known(config, name)?;
                run::one(config, name, format.format).await
            }
            Command::Status { name, output: true, .. } => {
                output(config, name.as_deref().expect("clap requires it")).await
            }
            Command::Status { name, format, .. } => {
                status::show(config, name.as_deref(), format.format).await
            }
            Command::Reset { name, format } => reset(config, name, format.format).await,
        }
    })
}

/// A service must be configured to be run; to be asked about it need only have been.
fn known(config: &Config, name: &str) -> Result<(), Usage> {
    if config.services.iter().any(|service| service.name == name) {
        return Ok(());
    }
    Err(no_service(config, name))
}

fn no_service(config: &Config, name: &str) -> Usage {
    let names: Vec<String> = config.services.iter().map(|it| format!("`{}`", it.name)).collect();
    Usage(if names.is_empty() {
        format!("no service named `{name}`: none is configured, add `[services.NAME]`")
    } else {
        format!("no service named `{name}`: there are {}", names.join(", "))
    })
}

async fn output(config: &Config, name: &str) -> anyhow::Result<Exit> {
    let pace = start(config, For::Looking).await?;
    let note = pace.note(&output_note(name)).await?;
    pace.stop(std::time::Duration::ZERO).await?;
    let Some(said) = note else {
        known(config, name)?;
        say(format_args!("`{name}` has not said anything yet"));
        return Ok(Exit::Failed);
    };
    let mut out = std::io::stdout().lock();
    out.write_all(&said)?;
    out.flush()?;
    Ok(Exit::Done)
}

async fn reset(config: &Config, name: &str, form: Form) -> anyhow::Result<Exit> {
    let pace = start(config, For::Looking).await?;
    let done = pace.reset_service(name).await?;
    pace.stop(std::time::Duration::ZERO).await?;
    done.map_err(|_| no_service(config, name))?;
    match form {
        Form::Table => {
            say(format_args!("`{name}` counts as never run: it is due at the next check"));
        }
        Form::Json => {
            data(&format!("{}\n", serde_json::json!({ "service": name, "reset": true })))?;
        }
    }
    Ok(Exit::Done)
}
