//! The options of a run.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use paceline::Span;
use paceline::lanes::{GroupLimits, Limits};

use super::request::{Coding, Manners};
use crate::http::Patience;
use crate::http::proxy::Proxies;

/// The options of a run.
#[derive(Debug)]
pub struct Options {
    /// The target directory.
    pub directory: PathBuf,
    /// Opens a store whose log is missing in its older state.
    pub accept_older: bool,
    /// How files get their names.
    pub naming: Naming,
    /// What to do if a file with the target's name exists.
    pub existing: Existing,
    /// What to do with files that were fetched before.
    pub fetched: Fetched,
    /// Requests in flight, over all hosts.
    pub jobs: NonZeroU32,
    /// The default limits of a host.
    pub host: Limits,
    /// How many of these may go to hosts that already have a request in flight. The rest is kept
    /// for other hosts, so that hosts that hang delay no others.
    pub beside: NonZeroU32,
    /// Lanes of hosts, and templates, by name.
    pub lanes: Vec<(String, Limits)>,
    /// The groups of those lanes.
    pub groups: Vec<(String, GroupLimits)>,
    /// Retries per file.
    pub retries: u16,
    /// The longest wait for a closed host. A file whose host stays closed for longer is left for
    /// another run.
    pub max_wait: Span,
    /// The time after which the run ends, finished or not.
    pub deadline: Option<Duration>,
    /// The time limit of one attempt.
    pub timeout: Option<Span>,
    /// The time limits of its steps.
    pub patience: Patience,
    /// The limit of bytes per second over all downloads.
    pub limit_rate: Option<u64>,
    /// The largest file, in bytes.
    pub largest: u64,
    /// Content codings.
    pub coding: Coding,
    /// Connections per large file. With one, files are not split.
    pub segments: u32,
    /// Whether robots.txt is obeyed.
    pub robots: Robots,
    /// Headers and logins of requests.
    pub manners: Manners,
    /// Proxies.
    pub proxies: Proxies,
    /// The name of an archive to write.
    pub warc: Option<String>,
}

/// How files get their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The last part of the URL.
    #[default]
    Flat,
    /// Folders for the host and the path.
    Tree,
    /// The name that the server suggests, else the last part of the URL.
    ByServer,
}

/// What to do if a file with the target's name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Keep it, and do not fetch the new file.
    #[default]
    Keep,
    /// Replace it.
    Overwrite,
}

/// What to do with files that were fetched before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetched {
    /// Keep them.
    #[default]
    Keep,
    /// Ask the server whether they have changed.
    Refresh,
}

/// Whether robots.txt is obeyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Robots {
    /// No: the user names every file, so this is no robot.
    #[default]
    Ignore,
    /// Yes: it is fetched and obeyed.
    Obey,
}
