//! The engine as the configuration describes it, on the store that all tools share.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use paceline::{Builder, Group, Lane, Paceline, SERVICE_KIND, StartError, StoreError};
use paceline_apps::call::{HttpWorker, Places};
use paceline_apps::command::{self, Commands};
use paceline_apps::http::proxy::Proxies;
use paceline_apps::services::{self, ServiceWorker, Tasks};
use paceline_server::Doors;

use crate::config::{Config, Surroundings};
use crate::exit::Later;
use crate::output::say;

/// How long a short command waits for a store that somebody else has.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the engine is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Rosters are run.
    Rosters,
    /// Calls are made, but no roster is run.
    Calls,
    /// Nothing is started: somebody only looks or marks.
    Looking,
}

/// What a configuration says beyond limits. A reload changes it under a running engine.
#[derive(Clone, Default)]
pub(crate) struct Known {
    places: Places,
    tasks: Tasks,
    commands: Commands,
}

impl Known {
    /// From now on it is as this configuration says.
    pub(crate) fn set(&self, config: &Config) -> anyhow::Result<()> {
        self.places.set(config.places()?);
        let tasks = config.services.iter().map(|it| (it.name.clone(), it.task.clone()));
        self.tasks.set(tasks.collect());
        let commands = config.commands.iter().map(|it| (it.name.clone(), it.task.clone()));
        self.commands.set(commands.collect());
        Ok(())
    }
}

/// An engine, and what belongs to it.
pub(crate) struct Engine {
    pub(crate) pace: Paceline,
    pub(crate) doors: Doors,
    pub(crate) known: Known,
}

impl Engine {
    /// What an earlier process left running, and no run will end any more, is ended (S3).
    async fn end_forgotten(&self) -> anyhow::Result<()> {
        for service in services::end_forgotten(&self.pace, &self.known.tasks).await? {
            say(format_args!("ended what was left of `{service}`, which is configured no more"));
        }
        for job in command::end_forgotten(&self.pace).await? {
            say(format_args!("ended what was left of job {job}, which is over"));
        }
        Ok(())
    }
}

/// The lanes, groups, settings, services and commands of the configuration.
fn builder(config: &Config, what: For, known: &Known) -> anyhow::Result<(Builder, Doors)> {
    let mut builder = Paceline::open(&config.store_path);
    for lane in &config.lanes {
        builder = builder.lane(Lane::with_limits(&lane.name, lane.limits.clone()));
    }
    for (name, limits) in &config.groups {
        builder = builder.group(Group::with_limits(name, limits.clone()));
    }
    let proxies = Proxies::from_env(|name| std::env::var(name).ok())?;
    let http = Arc::new(HttpWorker::new(known.places.clone(), &proxies));
    let doors = Doors::new(http.clone(), known.commands.clone());
    builder = doors.register(builder);
    builder = builder.worker(SERVICE_KIND, ServiceWorker::new(known.tasks.clone(), http));
    builder = config.services.iter().fold(builder, |builder, it| builder.service(it.service()));
    if what != For::Calls {
        builder = config.rosters.iter().fold(builder, |builder, it| builder.roster(it.roster()));
    }
    if what == For::Looking {
        builder = builder.at_rest();
    }
    let settings = config.settings.clone();
    let builder = builder
        .settings(|own| *own = paceline::Settings { hash_seed: own.hash_seed, ..settings })
        .keep_finished(config.keep_finished)
        .cache_bytes(usize::try_from(config.cache_bytes).unwrap_or(usize::MAX));
    Ok((builder, doors))
}

/// Starts an engine. A store that somebody else has is waited for, for a while.
pub(crate) async fn start(config: &Config, what: For) -> anyhow::Result<Paceline> {
    Ok(start_with(config, what, |builder| builder).await?.pace)
}

/// The same, with something added to it.
pub(crate) async fn start_with(
    config: &Config,
    what: For,
    mut add: impl FnMut(Builder) -> Builder,
) -> anyhow::Result<Engine> {
    if config.store_path == Surroundings::of_process().store_path()
        && let Some(directory) = config.store_path.parent()
    {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("no directory `{}` for the store", directory.display()))?;
    }
    let known = Known::default();
    known.set(config)?;
    let mut waited = Duration::ZERO;
    loop {
        let (builder, doors) = builder(config, what, &known)?;
        match add(builder).start() {
            Err(StartError::Store(error @ StoreError::InUse { .. })) => {
                if waited == Duration::ZERO {
                    let (path, seconds) = (config.store_path.display(), PATIENCE.as_secs());
                    say(format_args!("`{path}` is in use: waiting for it, {seconds} s at most"));
                }
                if waited >= PATIENCE {
                    return Err(Later(error.to_string()).into());
                }
            }
            started => {
                let engine = Engine { pace: started?, doors, known };
                if what != For::Looking {
                    engine.end_forgotten().await?;
                }
                return Ok(engine);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
    }
}
