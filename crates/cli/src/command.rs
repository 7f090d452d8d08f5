//! Commands: configured programs that jobs of the kind `command` run by name.

mod config;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use paceline::{Ended, Paceline};
use paceline_apps::command::Commands;
use paceline_apps::program::Program;
use paceline_apps::request::HttpWorker;

use crate::config::Config;
use crate::config::document::{Notes, Section};
use crate::config::keys::Reference;
use crate::tools::{Built, ToolSettings, Tools};

pub use config::CommandConfig;

/// The commands, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(pub Vec<CommandConfig>);

impl ToolSettings for Settings {
    fn reference(&self) -> &'static [Reference] {
        config::REFERENCE
    }

    fn read(&mut self, _config: &Config, root: &Section<'_>, notes: &mut Notes<'_>) {
        config::read(self, root, notes);
    }

    fn programs(&mut self) -> Vec<&mut Program> {
        self.0.iter_mut().map(|it| &mut it.task.program).collect()
    }

    fn counts(&self) -> Vec<(usize, &'static str)> {
        if self.0.is_empty() { Vec::new() } else { vec![(self.0.len(), "command")] }
    }

    fn build(&self, _http: &Arc<HttpWorker>) -> Built {
        let commands = Commands::default();
        let renewed = commands.clone();
        let renew = move |config: &Config| {
            let tasks = config.tools.command.0.iter().map(|it| (it.name.clone(), it.task.clone()));
            renewed.renew(tasks.collect(), &config.hidden);
        };
        Built { tool: Box::new(commands), renew: Box::new(renew) }
    }

    fn reload<'a>(
        &'a self,
        before: &'a Tools,
        _pace: &'a Paceline,
    ) -> BoxFuture<'a, Result<(), Ended>> {
        for command in &before.command.0 {
            if !self.0.iter().any(|it| it.name == command.name) {
                let name = &command.name;
                tracing::warn!(
                    command = name,
                    "no longer configured: it is gone at the next start"
                );
            }
        }
        ready(Ok(())).boxed()
    }
}
