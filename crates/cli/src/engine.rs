//! The engine as the configuration describes it, on the store that all tools share.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join_all;
use paceline::{Builder, Group, Lane, Paceline, StartError, StoreError};
use paceline_apps::http::proxy::Proxies;
use paceline_apps::program::{GROUPS, Leftover, end_leftover};
use paceline_apps::request::{Endpoints, HttpWorker};
use paceline_server::Kinds;
use paceline_store::{Sqlite, Store as _};

use crate::config::{Config, Environment};
use crate::exit::TryLater;
use crate::output::say;
use crate::tools::Renew;

/// How long a command waits for a store that another process has.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two tries.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The purpose of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run rosters and calls.
    Rosters,
    /// To run calls, but no rosters.
    Calls,
    /// To read and change the store. Nothing is started.
    Looking,
}

/// Passes a configuration to the tools of an engine, also while it runs.
pub(crate) struct Live {
    endpoints: Endpoints,
    renews: Vec<Renew>,
}

impl Live {
    /// Makes the tools use this configuration. A name that it no longer has stays as it was until the
    /// next start, because work may wait for it.
    pub(crate) fn renew(&self, config: &Config, purpose: Purpose) -> anyhow::Result<()> {
        // A command that only reads the store sends nothing, and may run without the secrets.
        let looks = purpose == Purpose::Looking;
        self.endpoints.add(if looks { config.addresses() } else { config.endpoints()? });
        self.renews.iter().for_each(|renew| renew(config));
        Ok(())
    }
}

/// An engine with its kinds and its live configuration.
pub(crate) struct Engine {
    pub(crate) pace: Paceline,
    pub(crate) kinds: Kinds,
    pub(crate) live: Live,
}

/// A builder with the lanes, groups and settings of the configuration, and of its tools.
fn builder(config: &Config, purpose: Purpose, kinds: &Kinds) -> Builder {
    let mut builder = Paceline::open(&config.store_path);
    for lane in &config.lanes {
        builder = builder.lane(Lane::with_limits(&lane.name, lane.limits.clone()));
    }
    for (name, limits) in &config.groups {
        builder = builder.group(Group::with_limits(name, limits.clone()));
    }
    builder = kinds.register(builder);
    builder = config.tools.each().fold(builder, |builder, tool| tool.add_to(builder, purpose));
    if purpose == Purpose::Looking {
        builder = builder.at_rest();
    }
    if config.accept_older {
        builder = builder.accept_older();
    }
    let settings = config.settings.clone();
    builder
        .settings(|own| *own = paceline::Settings { hash_seed: own.hash_seed, ..settings })
        .keep_finished(config.keep_finished)
        .cache_bytes(usize::try_from(config.cache_bytes).unwrap_or(usize::MAX))
}

/// Starts an engine. Waits up to 10 s for a store that another process has.
pub(crate) async fn start(config: &Config, purpose: Purpose) -> anyhow::Result<Paceline> {
    Ok(start_with(config, purpose, |builder| builder).await?.pace)
}

/// Like [`start`], with additions to the builder.
pub(crate) async fn start_with(
    config: &Config,
    purpose: Purpose,
    mut add: impl FnMut(Builder) -> Builder,
) -> anyhow::Result<Engine> {
    if config.store_path == Environment::of_process().store_path()
        && let Some(directory) = config.store_path.parent()
    {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("no directory `{}` for the store", directory.display()))?;
    }
    let endpoints = Endpoints::default();
    let proxies = Proxies::from_env(|name| std::env::var(name).ok())?;
    let http = Arc::new(HttpWorker::new(endpoints.clone(), &proxies));
    let (kinds, renews) = config.tools.build(&http);
    let live = Live { endpoints, renews };
    live.renew(config, purpose)?;
    let mut waited = Duration::ZERO;
    loop {
        let builder = builder(config, purpose, &kinds);
        let started = match end_leftovers(config, purpose).await {
            Ok(gone) => add(builder).forget_notes(gone).start(),
            Err(error) => Err(error.into()),
        };
        match started {
            Err(StartError::Store(error @ StoreError::InUse { .. })) => {
                if waited == Duration::ZERO {
                    let (path, seconds) = (config.store_path.display(), PATIENCE.as_secs());
                    let by =
                        Sqlite::owner(&config.store_path).map(|pid| format!(" by process {pid}"));
                    let by = by.unwrap_or_default();
                    say(format_args!(
                        "`{path}` is in use{by}: waiting for it, {seconds} s at most"
                    ));
                }
                if waited >= PATIENCE {
                    let hint = "while `serve` and `services run` have the store, other commands \
                                ask them; this process cannot be asked";
                    return Err(TryLater(format!("{error} ({hint})")).into());
                }
            }
            started => return Ok(Engine { pace: started?, kinds, live }),
        }
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
    }
}

/// Ends programs that an earlier process left running, before new ones may start on their lanes (S3,
/// L5). Returns the notes about them.
async fn end_leftovers(config: &Config, purpose: Purpose) -> Result<Vec<Arc<str>>, StoreError> {
    if purpose == Purpose::Looking || !config.store_path.exists() {
        return Ok(Vec::new());
    }
    // The store stays open until they have ended, so that no other process starts anything.
    let open = if config.accept_older { Sqlite::open_older } else { Sqlite::open };
    let mut store = open(&config.store_path)?;
    let mut ending = Vec::new();
    for name in store.notes(GROUPS)? {
        if let Some(note) = store.note(&name)? {
            ending.push(async move { (end_leftover(&note).await, name) });
        }
    }
    let mut gone = Vec::new();
    for (left, name) in join_all(ending).await {
        let whose = name.strip_prefix(GROUPS).unwrap_or(&name);
        match left {
            Leftover::Nothing => {}
            Leftover::Ended => {
                say(format_args!("ended processes that an earlier run of `{whose}` left behind"));
            }
            Leftover::Alive => {
                say(format_args!(
                    "processes that an earlier run of `{whose}` left behind do not end"
                ));
                continue;
            }
        }
        gone.push(name);
    }
    Ok(gone)
}
