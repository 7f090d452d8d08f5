//! The configuration: one TOML file. Every key is optional, and every mistake is reported with its
//! position.

pub(crate) mod document;
mod find;
mod headers;
pub(crate) mod keys;
mod lanes;
pub(crate) mod nearest;
mod print;
pub(crate) mod program;
mod server;
pub(crate) mod settings;
mod size;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use paceline_apps::program::Program;
use paceline_apps::request::Endpoint;
use paceline_core::{GroupLimits, Limits, Settings, Span};
use url::Url;

use crate::exit::Usage;
use crate::tools::{ToolSettings, Tools};
use document::{Notes, Section};

pub use document::Mistake;
pub use find::Environment;
pub use headers::{HeaderConfig, Source};
pub use print::print;
pub use server::ServerConfig;
pub use size::{Size, SizeError};

/// The largest file that is read.
const LARGEST_FILE: u64 = 1 << 20;

/// The configuration of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it was read from, if any.
    pub file: Option<PathBuf>,
    /// The settings of the engine. The engine chooses the `hash_seed`.
    pub settings: Settings,
    /// Lanes and templates, in the order of the file.
    pub lanes: Vec<LaneConfig>,
    /// Groups, in the order of the file.
    pub groups: Vec<(String, GroupLimits)>,
    /// The settings of the tools.
    pub tools: Tools,
    /// The path of the embedded store.
    pub store_path: PathBuf,
    /// Opens a store whose log is missing in its older state. Only the command line sets it.
    pub accept_older: bool,
    /// How long finished jobs are kept.
    pub keep_finished: Span,
    /// Memory for cached answers, in bytes.
    pub cache_bytes: u64,
    /// The settings of the daemon.
    pub server: ServerConfig,
    /// Variables of the environment that are withheld from programs.
    pub(crate) hidden: Vec<String>,
}

/// One lane, or a template for lanes whose names have a common prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// Its name; a template's ends in `*`.
    pub name: String,
    /// The base URL of the upstream.
    pub url: Option<String>,
    /// The headers of its requests.
    pub headers: Vec<HeaderConfig>,
    /// Allows a url whose host name resolves to an address of a private network.
    pub private: bool,
    /// Its rules.
    pub limits: Limits,
}

impl LaneConfig {
    /// Returns `true` if it is a template for lanes.
    pub fn is_template(&self) -> bool {
        self.name.ends_with('*')
    }
}

/// An error of reading the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The named file does not exist.
    #[error("no file `{0}`: create it with `paceline config print > FILE`, or name another")]
    Missing(String),
    /// The file cannot be read.
    #[error("cannot read the configuration `{file}`")]
    Read {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// The file is too large.
    #[error("`{0}` is larger than 1MiB, the most that a configuration may have")]
    TooLarge(String),
    /// The mistakes in the file, at least one, in the order of their positions.
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Mistakes(Vec<Mistake>),
}

impl Config {
    /// The configuration without a file.
    pub fn defaults(environment: &Environment) -> Config {
        Config {
            file: None,
            settings: Settings::default(),
            lanes: Vec::new(),
            groups: Vec::new(),
            tools: Tools::default(),
            store_path: environment.store_path(),
            accept_older: false,
            keep_finished: Span::days(7),
            cache_bytes: 64 << 20,
            server: ServerConfig::default(),
            hidden: Vec::new(),
        }
    }

    /// Reads the file `named`, else the one that `environment` lead to, else none.
    pub fn load(named: Option<&Path>, environment: &Environment) -> Result<Config, ConfigError> {
        match environment.file(named) {
            Some(file) => Config::parse(&file, &read(&file)?, environment),
            None => Ok(Config::defaults(environment)),
        }
    }

    /// Reads `text`, the content of `file`.
    pub fn parse(
        file: &Path,
        text: &[u8],
        environment: &Environment,
    ) -> Result<Config, ConfigError> {
        let mut notes = Notes::new(file, text);
        let mut config = Config::defaults(environment);
        if let Some(text) = notes.text()
            && let Some(document) = notes.parse(text)
        {
            config.read(&Section::root(document.get_ref()), &mut notes);
        }
        notes.finish().map_err(ConfigError::Mistakes)?;
        // A path in the file is relative to the file, wherever the program is started.
        if let Some(directory) = file.parent() {
            for program in config.programs() {
                program.directory = working_directory(directory);
            }
        }
        config.hide(&[]);
        if let Some(directory) = file.parent() {
            config.store_path = directory.join(&config.store_path);
        }
        config.file = Some(file.to_path_buf());
        Ok(config)
    }

    /// The programs of all tools.
    fn programs(&mut self) -> impl Iterator<Item = &mut Program> {
        self.tools.each_mut().flat_map(ToolSettings::programs)
    }

    /// Withholds the secrets of lanes from all programs, and the variables `also`: a lane that was
    /// configured before a reload may still have work that uses them.
    pub(crate) fn hide(&mut self, also: &[String]) {
        let mut hidden: Vec<String> = self.secrets().map(str::to_string).collect();
        hidden.extend_from_slice(also);
        hidden.sort_unstable();
        hidden.dedup();
        for program in self.programs() {
            program.without.clone_from(&hidden);
        }
        self.hidden = hidden;
    }

    /// Variables of the environment that hold secrets of lanes.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        let headers = self.lanes.iter().flat_map(|lane| &lane.headers);
        headers.filter_map(|header| match &header.source {
            Source::Env(variable) => Some(variable.as_str()),
            Source::Here(_) | Source::File(_) => None,
        })
    }

    /// The endpoints of all lanes, with their secrets.
    pub fn endpoints(&self) -> anyhow::Result<BTreeMap<String, Endpoint>> {
        let directory = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let mut endpoints = self.addresses();
        for lane in &self.lanes {
            let headers = lane.headers.iter().map(|header| header.resolve(directory));
            let headers = headers.collect::<anyhow::Result<_>>();
            let wrong = |error| Usage(format!("the lane `{}`: {error:#}", lane.name));
            let headers = headers.map_err(wrong)?;
            endpoints.entry(lane.name.clone()).or_default().headers = headers;
        }
        Ok(endpoints)
    }

    /// The endpoints of all lanes, without their headers.
    pub(crate) fn addresses(&self) -> BTreeMap<String, Endpoint> {
        let of_lane = |lane: &LaneConfig| Endpoint {
            url: lane.url.as_deref().and_then(|url| Url::parse(url).ok()),
            private: lane.private,
            timeout: lane.limits.timeout.map(Into::into),
            ..Endpoint::default()
        };
        let lanes = self.lanes.iter().map(|lane| (lane.name.clone(), of_lane(lane)));
        lanes.chain(self.tools.each().flat_map(ToolSettings::endpoints)).collect()
    }

    fn read(&mut self, root: &Section<'_>, notes: &mut Notes<'_>) {
        root.check_sections(notes);
        settings::read_store(self, root, notes);
        settings::read_settings(self, root, notes);
        server::read_server(self, root, notes);
        lanes::read_groups(self, root, notes);
        lanes::read_lanes(self, root, notes);
        let mut tools = std::mem::take(&mut self.tools);
        tools.each_mut().for_each(|settings| settings.read(self, root, notes));
        self.tools = tools;
    }
}

/// The directory of a file; the working directory if the file was named without one.
fn working_directory(directory: &Path) -> PathBuf {
    let here = directory.as_os_str().is_empty();
    if here { PathBuf::from(".") } else { directory.to_path_buf() }
}

fn read(file: &Path) -> Result<Vec<u8>, ConfigError> {
    let name = || file.display().to_string();
    let mut text = Vec::new();
    let outcome =
        File::open(file).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut text));
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ConfigError::Missing(name())),
        Err(source) => Err(ConfigError::Read { file: name(), source }),
        Ok(_) if text.len() as u64 > LARGEST_FILE => Err(ConfigError::TooLarge(name())),
        Ok(_) => Ok(text),
    }
}

#[cfg(test)]
mod tests;
