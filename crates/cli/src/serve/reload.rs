//! SIGHUP: reads the configuration again, and applies the changes that need no restart.

use paceline::Lane;
use paceline::lanes::ChangeError;
use sd_notify::NotifyState;

use super::RunningDaemon;
use crate::config::{Config, Environment};
use crate::engine::Purpose;

impl RunningDaemon {
    /// Reads the configuration again. A configuration with mistakes changes nothing.
    pub(super) async fn reload(&mut self) -> anyhow::Result<()> {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(false, &[NotifyState::Reloading, now]);
        }
        match self.read_again() {
            Ok(fresh) => self.apply(fresh).await?,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    error,
                    "the configuration was not read again: the earlier one holds"
                );
            }
        }
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        Ok(())
    }

    /// Reads the file, and applies its endpoints and access rules.
    fn read_again(&self) -> anyhow::Result<Config> {
        let mut fresh = Config::load(self.config.file.as_deref(), &Environment::of_process())?;
        // The address stays until a restart.
        fresh.server.listen = self.config.server.listen;
        // Earlier secrets stay hidden: their lanes may still have work.
        fresh.hide(&self.config.hidden);
        let access = self.owner.access(&fresh.server)?;
        self.engine.live.renew(&fresh, Purpose::Rosters)?;
        self.server.set_access(access);
        Ok(fresh)
    }

    async fn apply(&mut self, fresh: Config) -> anyhow::Result<()> {
        let (pace, config) = (&self.engine.pace, &mut self.config);
        for lane in &fresh.lanes {
            let name = &lane.name;
            match pace.set_lane(Lane::with_limits(name, lane.limits.clone())).await {
                Ok(()) => {}
                Err(ChangeError::Unknown(_)) => {
                    tracing::warn!(
                        lane = name,
                        "known from before: it is taken up at the next start"
                    );
                }
                Err(ChangeError::Ended(ended)) => return Err(ended.into()),
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(
                        lane = name,
                        error,
                        "its new limits take effect at the next start"
                    );
                }
            }
        }
        for lane in &config.lanes {
            if !fresh.lanes.iter().any(|it| it.name == lane.name) {
                let name = &lane.name;
                tracing::warn!(lane = name, "no longer configured: it is gone at the next start");
            }
        }
        for tool in fresh.tools.each() {
            tool.reload(&config.tools, pace).await?;
        }
        config.server.tokens.clone_from(&fresh.server.tokens);
        config.server.hosts.clone_from(&fresh.server.hosts);
        config.server.grace = fresh.server.grace;
        let fixed = |it: &Config| {
            let settings = (it.settings.clone(), it.groups.clone(), it.server.clone());
            (settings, it.store_path.clone(), it.keep_finished, it.cache_bytes)
        };
        if fixed(&fresh) != fixed(config) {
            tracing::warn!(
                "changes of groups, workers, queue, store and the server's bounds take effect at the next start"
            );
        }
        let lanes = fresh.lanes.len();
        tracing::info!(lanes, tools = fresh.tools.counted(), "the configuration was read again");
        (config.lanes, config.tools) = (fresh.lanes, fresh.tools);
        config.hidden = fresh.hidden;
        Ok(())
    }
}
