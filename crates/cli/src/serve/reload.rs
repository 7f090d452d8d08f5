//! SIGHUP: the configuration is read again, and what can change under work that goes on does.

use paceline::{ChangeError, Lane};
use sd_notify::NotifyState;

use crate::config::{Config, Surroundings};
use crate::engine::Engine;

/// Reads the configuration again. One that has mistakes changes nothing.
pub(super) async fn reload(engine: &Engine, config: &mut Config) -> anyhow::Result<()> {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        let _ = sd_notify::notify(false, &[NotifyState::Reloading, now]);
    }
    let read = Config::load(config.file.as_deref(), &Surroundings::of_process());
    match read.map_err(anyhow::Error::from).and_then(|fresh| {
        engine.known.set(&fresh)?;
        Ok(fresh)
    }) {
        Ok(fresh) => apply(engine, config, fresh).await?,
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(error, "the configuration was not read again: the earlier one holds");
        }
    }
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    Ok(())
}

async fn apply(engine: &Engine, config: &mut Config, fresh: Config) -> anyhow::Result<()> {
    let pace = &engine.pace;
    for lane in &fresh.lanes {
        let name = &lane.name;
        match pace.set_lane(Lane::with_limits(name, lane.limits.clone())).await? {
            Ok(()) => {}
            Err(ChangeError::Unknown(_)) => {
                tracing::warn!(lane = name, "known from before: it is taken up at the next start");
            }
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(lane = name, error, "its limits change at the next start");
            }
        }
    }
    for lane in &config.lanes {
        if !fresh.lanes.iter().any(|it| it.name == lane.name) {
            let name = &lane.name;
            tracing::warn!(lane = name, "no longer configured: it is gone at the next start");
        }
    }
    let services = fresh.services.iter().map(crate::config::ServiceConfig::service).collect();
    let rosters = fresh.rosters.iter().map(crate::config::RosterConfig::roster).collect();
    if let Err(error) = pace.set_services(services, rosters).await? {
        let error = error.to_string();
        tracing::error!(error, "services and rosters stay as they were");
    }
    let whole = |it: &Config| (it.settings.clone(), it.groups.clone(), it.server.clone());
    let listen = config.server.listen;
    let mut same = fresh.clone();
    same.server.listen = listen;
    if whole(&same) != whole(config) || fresh.store_path != config.store_path {
        tracing::warn!("groups, workers, store, server and tokens change at the next start");
    }
    let (lanes, services) = (fresh.lanes.len(), fresh.services.len());
    tracing::info!(lanes, services, "the configuration was read again");
    (config.lanes, config.services, config.rosters) = (fresh.lanes, fresh.services, fresh.rosters);
    Ok(())
}
