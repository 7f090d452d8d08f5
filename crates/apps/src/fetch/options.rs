//! How files are to be fetched.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use paceline::Span;
use paceline::lanes::{GroupLimits, Limits};

use super::request::{Coding, Manners};
use crate::http::Patience;
use crate::http::proxy::Proxies;

/// Everything that a run is told.
#[derive(Debug)]
pub struct Options {
    /// Where the files go.
    pub directory: PathBuf,
    /// Whether a store whose log is missing is opened in its older state.
    pub accept_older: bool,
    /// How files get their names.
    pub naming: Naming,
    /// What becomes of files that have the name of one to be fetched.
    pub existing: Existing,
    /// What becomes of files that were fetched before.
    pub fetched: Fetched,
    /// Requests at once, in all.
    pub jobs: NonZeroU32,
    /// The limits of hosts that have none of their own.
    pub host: Limits,
    /// Of these, how many may be more than the first to their hosts: the rest are left for hosts that
    /// are asked nothing yet, so that those that hang hold up no others (P5).
    pub beside: NonZeroU32,
    /// Lanes of hosts by name, and templates.
    pub lanes: Vec<(String, Limits)>,
    /// The groups that those lanes are in.
    pub groups: Vec<(String, GroupLimits)>,
    /// How often a file is tried again.
    pub retries: u16,
    /// A host that stays closed for longer is left for another run.
    pub max_wait: Span,
    /// When the run ends, whatever is left.
    pub deadline: Option<Duration>,
    /// How long one attempt may take in all.
    pub timeout: Option<Span>,
    /// How long its steps may take.
    pub patience: Patience,
    /// Bytes per second over all downloads.
    pub limit_rate: Option<u64>,
    /// The largest file.
    pub largest: u64,
    /// Content codings.
    pub coding: Coding,
    /// Connections to one large file; one means that files are not split.
    pub segments: u32,
    /// Whether robots.txt is obeyed.
    pub robots: Robots,
    /// What requests say.
    pub manners: Manners,
    /// Proxies.
    pub proxies: Proxies,
    /// The name of an archive to write.
    pub warc: Option<String>,
}

/// How files get their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// From the last part of the address.
    #[default]
    Flat,
    /// Folders for host and path.
    Tree,
    /// As the server says, else from the address.
    ByServer,
}

/// What becomes of files that have the name of one to be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// They stay, and the new one is not fetched.
    #[default]
    Keep,
    /// They are replaced.
    Overwrite,
}

/// What becomes of files that were fetched before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetched {
    /// Nothing: they are there.
    #[default]
    Keep,
    /// The server is asked whether they have changed.
    Refresh,
}

/// Whether robots.txt is obeyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Robots {
    /// The user names what is fetched: these are not a robot's choices.
    #[default]
    Ignore,
    /// It is asked for and obeyed.
    Obey,
}
