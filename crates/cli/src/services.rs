//! `paceline services`: services and rosters run, shown and reset; and their settings.

mod config;
mod run;
mod status;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use futures_util::future::{BoxFuture, FutureExt as _};
use hyper::Method;
use paceline::services::{SetServicesError, own_lane};
use paceline::{Builder, Ended, Paceline};
use paceline_apps::program::Program;
use paceline_apps::request::{Endpoint, HttpWorker};
use paceline_apps::services::{Act, Services, Tasks};
use serde_json::{Value, json};
use url::Url;

use crate::client::{Client, part, with_client};
use crate::config::Config;
use crate::config::document::{Notes, Section};
use crate::config::keys::Reference;
use crate::engine::Purpose;
use crate::exit::Exit;
use crate::form::{Form, Format};
use crate::output::{data, say};
use crate::table::items;
use crate::tools::{Built, ToolSettings, Tools};

pub use config::{RosterConfig, ServiceConfig, WhenConfig};

/// Services and rosters, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The services.
    pub services: Vec<ServiceConfig>,
    /// The rosters that run them.
    pub rosters: Vec<RosterConfig>,
}

impl ToolSettings for Settings {
    fn reference(&self) -> &'static [Reference] {
        config::REFERENCE
    }

    fn read(&mut self, config: &Config, root: &Section<'_>, notes: &mut Notes<'_>) {
        config::read_services(self, config, root, notes);
        config::read_rosters(self, root, notes);
    }

    /// The address of a service that names no lane is the endpoint of a lane of its own.
    fn endpoints(&self) -> BTreeMap<String, Endpoint> {
        let own = self.services.iter().filter(|service| service.lane.is_none());
        let endpoint = |service: &ServiceConfig| {
            let Act::Request(ask) = &service.task.act else { return None };
            let mut url = Url::parse(ask.url.as_deref()?).ok()?;
            url.set_path("");
            let endpoint = Endpoint { url: Some(url), ..Endpoint::default() };
            Some((own_lane(&service.name), endpoint))
        };
        own.filter_map(endpoint).collect()
    }

    fn programs(&mut self) -> Vec<&mut Program> {
        let programs = self.services.iter_mut().filter_map(|it| match &mut it.task.act {
            Act::Run(program) => Some(program),
            Act::Request(_) => None,
        });
        programs.collect()
    }

    fn counts(&self) -> Vec<(usize, &'static str)> {
        if self.services.is_empty() && self.rosters.is_empty() {
            return Vec::new();
        }
        vec![(self.services.len(), "service"), (self.rosters.len(), "roster")]
    }

    fn add_to(&self, builder: Builder, purpose: Purpose) -> Builder {
        let builder =
            self.services.iter().fold(builder, |builder, it| builder.service(it.service()));
        if purpose == Purpose::Calls {
            return builder;
        }
        self.rosters.iter().fold(builder, |builder, it| builder.roster(it.roster()))
    }

    fn build(&self, http: &Arc<HttpWorker>) -> Built {
        let tasks = Tasks::default();
        let renewed = tasks.clone();
        let renew = move |config: &Config| {
            let services = config.tools.services.services.iter();
            let tasks = services.map(|it| (it.name.clone(), it.task.clone()));
            renewed.renew(tasks.collect(), &config.hidden);
        };
        Built { tool: Box::new(Services::new(tasks, http.clone())), renew: Box::new(renew) }
    }

    fn reload<'a>(
        &'a self,
        _before: &'a Tools,
        pace: &'a Paceline,
    ) -> BoxFuture<'a, Result<(), Ended>> {
        async {
            let services = self.services.iter().map(ServiceConfig::service).collect();
            let rosters = self.rosters.iter().map(RosterConfig::roster).collect();
            match pace.set_services(services, rosters).await {
                Ok(()) => Ok(()),
                Err(SetServicesError::Ended(ended)) => Err(ended),
                Err(error) => {
                    let error = error.to_string();
                    tracing::error!(error, "services and rosters stay as they were");
                    Ok(())
                }
            }
        }
        .boxed()
    }
}

/// Run services and rosters, and show when they run next.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all rosters until interrupted, or one service now
    #[command(after_help = RUN)]
    Run {
        /// Run only this service, once, even if it is not due
        name: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Show when services run next, when they last ran, and with what result
    Status {
        /// Show only this service
        name: Option<String>,
        /// Print the output of its last run, at most the last 64 KiB
        #[arg(long, requires = "name", conflicts_with = "form")]
        output: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Mark a service as never run, so that it is due at the next check
    Reset {
        /// The name of the service
        name: String,
        #[command(flatten)]
        format: Format,
    },
}

const RUN: &str = "\
Services and rosters are set in the configuration: see `paceline config print`. A service never runs
twice at once, however it was started, and keeps the limits of its lane. Ctrl-C lets running services
finish; the next start continues with the rest.

While the rosters run, other commands ask this process: `services status`, `services run NAME`,
`services reset`, `job` and `lane`. The daemon (`paceline serve`) runs the rosters of its store too, and
answers the same commands. Ctrl-C in a command that waits for another process ends only the wait.

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

/// Runs in the process that owns the store; in this one if there is none.
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
    let response = client.ask(Method::GET, "/services").await?;
    Ok(items(&response["services"]).to_vec())
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
    anyhow!("no service named `{name}`: the services are {}", names.join(", "))
}

async fn output(client: &Client, name: &str) -> anyhow::Result<Exit> {
    known(&services(client).await?, name)?;
    let bytes = client.ask_bytes(Method::GET, &format!("/services/{}/output", part(name))).await?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(Exit::Done)
}

async fn reset(client: &Client, name: &str, form: Form) -> anyhow::Result<Exit> {
    known(&services(client).await?, name)?;
    let response = client.ask(Method::POST, &format!("/services/{}/reset", part(name))).await?;
    let when = match &response["left_ms"] {
        Value::Null => {
            format!("it is on no roster, so only `paceline services run {name}` runs it")
        }
        _ => "it is due at the next check".to_string(),
    };
    match form {
        Form::Table => say(format_args!("`{name}` is marked as never run: {when}")),
        Form::Json | Form::Jsonl => {
            data(&format!("{}\n", json!({ "service": name, "reset": true })))?;
        }
    }
    Ok(Exit::Done)
}
