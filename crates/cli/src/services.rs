//! `paceline services`: work that comes again, from arguments to an exit code.

mod run;
mod status;

use std::io::Write as _;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Client, part, with_client};
use crate::config::Config;
use crate::exit::Exit;
use crate::form::{Form, Format};
use crate::output::{data, say};
use crate::table::items;

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
        #[arg(long, requires = "name", conflicts_with = "form")]
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

While it runs, `status`, `run NAME` and `reset` ask it, as do `paceline job` and `lane`; so too with a
daemon (`paceline serve`), which runs the rosters of its store by itself. Ctrl-C of whoever asks only
ends the waiting.

Exit codes: 0 done, 1 failed or not found, 2 wrong usage, 75 deferred by limits, 130 interrupted.";

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    match &arguments.command {
        Command::Run { name, format } => run_now(config, name.as_deref(), format.form),
        Command::Status { name: Some(name), output: true, .. } => {
            with_client(config, async |client| output(client, name).await)
        }
        Command::Status { name, format, .. } => with_client(config, async |client| {
            status::show(client, name.as_deref(), format.form).await
        }),
        Command::Reset { name, format } => {
            with_client(config, async |client| reset(client, name, format.form).await)
        }
    }
}

/// Whoever owns the store runs what it is told to; if nobody does, this process.
fn run_now(config: &Config, name: Option<&str>, form: Form) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match name {
            Some(name) => run::one(config, name, form).await,
            None => run::rosters(config, form).await,
        }
    })
}

/// All services, as the API shows them.
async fn services(client: &Client) -> anyhow::Result<Vec<Value>> {
    let told = client.ask(Method::GET, "/services").await?;
    Ok(items(&told["services"]).to_vec())
}

fn known(services: &[Value], name: &str) -> anyhow::Result<()> {
    if services.iter().any(|service| service["name"] == name) {
        return Ok(());
    }
    Err(no_service(name, services.iter().filter_map(|service| service["name"].as_str())))
}

fn no_service<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> anyhow::Error {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return anyhow!("no service named `{name}`: none is configured, add `[services.NAME]`");
    }
    anyhow!("no service named `{name}`: there are {}", names.join(", "))
}

async fn output(client: &Client, name: &str) -> anyhow::Result<Exit> {
    known(&services(client).await?, name)?;
    let said = client.ask_bytes(Method::GET, &format!("/services/{}/output", part(name))).await?;
    let mut out = std::io::stdout().lock();
    out.write_all(&said)?;
    out.flush()?;
    Ok(Exit::Done)
}

async fn reset(client: &Client, name: &str, form: Form) -> anyhow::Result<Exit> {
    known(&services(client).await?, name)?;
    let told = client.ask(Method::POST, &format!("/services/{}/reset", part(name))).await?;
    let when = match &told["left_ms"] {
        Value::Null => format!("it is on no roster and runs only by `services run {name}`"),
        _ => "it is due at the next check".to_string(),
    };
    match form {
        Form::Table => say(format_args!("`{name}` counts as never run: {when}")),
        Form::Json | Form::Jsonl => {
            data(&format!("{}\n", json!({ "service": name, "reset": true })))?;
        }
    }
    Ok(Exit::Done)
}
