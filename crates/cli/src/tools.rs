//! The tools that have settings, one line each, and the interface of such a tool: its sections of the
//! configuration, and the tool that its settings make. Tools without settings are listed in
//! `paceline_apps::plain_tools`.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use paceline::{Builder, Ended, Paceline};
use paceline_apps::http::proxy::Proxies;
use paceline_apps::program::Program;
use paceline_apps::request::{Endpoint, Endpoints, HttpWorker};
use paceline_apps::{Tool, plain_tools};
use paceline_server::Kinds;

use crate::config::Config;
use crate::config::document::{Notes, Section};
use crate::config::keys::Reference;
use crate::engine::Purpose;

/// The settings of one tool. Methods that a tool may not need have defaults.
pub(crate) trait ToolSettings {
    /// Its sections of the configuration: each key, its default, its explanation.
    fn reference(&self) -> &'static [Reference] {
        &[]
    }

    /// Reads its sections. Lanes and groups have been read.
    fn read(&mut self, _config: &Config, _root: &Section<'_>, _notes: &mut Notes<'_>) {}

    /// The endpoints of its own lanes, besides the configured ones.
    fn endpoints(&self) -> BTreeMap<String, Endpoint> {
        BTreeMap::new()
    }

    /// The programs it runs.
    fn programs(&mut self) -> Vec<&mut Program> {
        Vec::new()
    }

    /// The number of its entries in the configuration, for `config check` and the log.
    fn counts(&self) -> Vec<(usize, &'static str)> {
        Vec::new()
    }

    /// Adds its lanes, groups, services and rosters to an engine.
    fn add_to(&self, builder: Builder, _purpose: Purpose) -> Builder {
        builder
    }

    /// The tool, and the function that passes new settings to it.
    fn build(&self, http: &Arc<HttpWorker>) -> Built;

    /// Changes a running engine to these settings after a reload.
    fn reload<'a>(
        &'a self,
        _before: &'a Tools,
        _pace: &'a Paceline,
    ) -> BoxFuture<'a, Result<(), Ended>> {
        ready(Ok(())).boxed()
    }
}

/// A tool of an engine.
pub(crate) struct Built {
    pub(crate) tool: Box<dyn Tool>,
    /// Passes the settings to the tool: once before the engine starts, and after each reload.
    pub(crate) renew: Renew,
}

pub(crate) type Renew = Box<dyn Fn(&Config) + Send + Sync>;

macro_rules! tools {
    ($($name:ident: $settings:ty,)+) => {
        /// The settings of all tools.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Tools {
            $(#[expect(missing_docs, reason = "a tool is documented in its folder")]
            pub $name: $settings,)+
        }

        impl Tools {
            /// All of them, in the order of the list.
            pub(crate) fn each(&self) -> impl Iterator<Item = &dyn ToolSettings> {
                [$(&self.$name as &dyn ToolSettings),+].into_iter()
            }

            /// All of them, mutable.
            pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn ToolSettings> {
                [$(&mut self.$name as &mut dyn ToolSettings),+].into_iter()
            }
        }
    };
}

tools! {
    services: crate::services::Settings,
    command: crate::command::Settings,
}

impl Tools {
    /// The sections of all tools.
    pub(crate) fn reference() -> impl Iterator<Item = &'static Reference> {
        let all = Tools::default();
        let references: Vec<_> = all.each().flat_map(ToolSettings::reference).collect();
        references.into_iter()
    }

    /// The number of configured entries of each.
    pub fn counts(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.each().flat_map(ToolSettings::counts)
    }

    /// The counts in words.
    pub(crate) fn counted(&self) -> String {
        counted(self.counts())
    }

    /// All tools with the kinds of their jobs, and the functions that pass settings to them.
    pub(crate) fn build(&self, http: &Arc<HttpWorker>) -> (Kinds, Vec<Renew>) {
        let (mut tools, mut renews) = (plain_tools(http), Vec::new());
        for Built { tool, renew } in self.each().map(|settings| settings.build(http)) {
            tools.push(tool);
            renews.push(renew);
        }
        (Kinds::new(tools), renews)
    }
}

/// The OpenAPI document of a daemon with all tools.
pub fn document() -> String {
    let http = HttpWorker::new(Endpoints::default(), &Proxies::default());
    let (kinds, _) = Tools::default().build(&Arc::new(http));
    paceline_server::document(&kinds)
}

/// Counts in words: `1 lane, 2 groups`.
pub fn counted(counts: impl IntoIterator<Item = (usize, &'static str)>) -> String {
    let words = counts.into_iter().map(|(n, what)| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    });
    words.collect::<Vec<_>>().join(", ")
}
