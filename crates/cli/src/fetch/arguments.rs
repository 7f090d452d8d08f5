//! What can be said to `paceline fetch`.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use hyper::header::{HeaderName, HeaderValue};
use paceline::Span;
use paceline::lanes::{Limits, Rate, Window};
use paceline_apps::fetch::checksum::Checksum;
use paceline_apps::fetch::input::Format;
use paceline_apps::fetch::item::{Item, url_of};
use paceline_apps::fetch::warc::{WarcError, check_name};
use paceline_apps::fetch::{Coding, Existing, Fetched, Manners, Naming, Options, Robots};
use paceline_apps::http::Patience;
use paceline_apps::http::cookies::Jar;
use paceline_apps::http::netrc::Netrc;
use paceline_apps::http::proxy::Proxies;

use super::list::Sources;
use crate::config::{Config, Size};
use crate::exit::Usage;

/// The largest file of cookies or logins that is read.
const LARGEST_FILE: u64 = 16 << 20;

const EXAMPLES: &str = "\
Files are written to a temporary name, verified, and then named: a name that exists is complete.
The same command again fetches what is missing and nothing else; what an interruption left is
resumed. What is known is kept in DIR/.paceline/.

Examples:
  paceline fetch https://example.org/a.iso https://example.org/b.iso
  paceline fetch -i list.txt -d downloads --per-host 2 --every 1s
  curl -fsS https://example.org/SHA256SUMS | paceline fetch -i - --base https://example.org/
  paceline fetch -i list.txt --failed-out failed.txt --format jsonl

Exit codes: 0 all there; 1 some failed; 2 wrong usage; 75 some put off by limits or `--deadline`;
130 interrupted.";

/// Polite parallel downloads.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct Arguments {
    /// What to fetch
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// A list to fetch, or `-` for stdin: addresses by line (mirrors separated by tabs), aria2's
    /// format, JSON lines, or checksums with `--base`
    #[arg(short, long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// What the lines of a list are
    #[arg(long, value_enum, default_value_t = InputFormat::Auto, value_name = "FORMAT")]
    input_format: InputFormat,
    /// The list is a checksum file such as SHA256SUMS, and its names are below this address
    #[arg(long, value_name = "URL")]
    base: Option<String>,

    /// Where the files go
    #[arg(short, long, default_value = ".", value_name = "DIR", help_heading = "Files")]
    directory: PathBuf,
    /// The file of the one address that is fetched
    #[arg(short, long, value_name = "FILE", help_heading = "Files")]
    output: Option<PathBuf>,
    /// What the one file must come to, as in `sha-256=9f86d0...`
    #[arg(long, value_name = "CHECKSUM", help_heading = "Files")]
    checksum: Option<Checksum>,
    /// Make folders for host and path
    #[arg(long, conflicts_with = "content_disposition", help_heading = "Files")]
    tree: bool,
    /// Call files what the server calls them
    #[arg(long, conflicts_with = "overwrite", help_heading = "Files")]
    content_disposition: bool,
    /// Replace files that are there and were not fetched from here
    #[arg(long, help_heading = "Files")]
    overwrite: bool,
    /// Ask whether files that were fetched before have changed
    #[arg(long, help_heading = "Files")]
    refresh: bool,
    /// Undo gzip, br and zstd, and ask servers for them
    #[arg(long, conflicts_with = "warc", help_heading = "Files")]
    decode: bool,
    /// The largest file
    #[arg(long, default_value = "1024GiB", value_name = "SIZE", help_heading = "Files")]
    max_size: Size,
    /// Also write an archive NAME-00001.warc.gz, and its index NAME.cdxj
    #[arg(long, value_parser = archive_name, value_name = "NAME", help_heading = "Files")]
    warc: Option<String>,

    /// Requests at once, in all
    #[arg(short, long, value_parser = at_least_one, default_value = "16", value_name = "N")]
    #[arg(help_heading = "Pace")]
    jobs: NonZeroU32,
    /// Requests at once to one host [default: 4, and at most half of all]
    #[arg(long, value_parser = at_least_one, value_name = "N", help_heading = "Pace")]
    per_host: Option<NonZeroU32>,
    /// The gap between two requests to one host
    #[arg(long, value_name = "SPAN", help_heading = "Pace")]
    every: Option<Span>,
    /// Requests per time to one host, as in `2/s`; may be given several times
    #[arg(long, value_name = "RATE", help_heading = "Pace")]
    rate: Vec<Rate>,
    /// Bytes per second over all downloads
    #[arg(long, value_name = "SIZE", help_heading = "Pace")]
    limit_rate: Option<Size>,
    /// Connections to one large file, where the server allows it
    #[arg(long, default_value = "1", value_name = "N", conflicts_with_all = ["warc", "decode"], value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Pace")]
    segments: u32,
    /// Obey robots.txt, `Crawl-delay` included
    #[arg(long, help_heading = "Pace")]
    robots: bool,

    /// How often a file is tried again when that may help
    #[arg(long, default_value = "3", value_name = "N", help_heading = "Patience")]
    retries: u16,
    /// A host that stays closed for longer is left for another run [default: 2m, or what its own limits may take]
    #[arg(long, value_name = "SPAN", help_heading = "Patience")]
    max_wait: Option<Span>,
    /// Stop after so long, with 3 s for what runs, and leave the rest for another run
    #[arg(long, value_name = "SPAN", help_heading = "Patience")]
    deadline: Option<Span>,
    /// How long a connection may take to come about
    #[arg(long, default_value = "10s", value_name = "SPAN", help_heading = "Patience")]
    connect_timeout: Span,
    /// How long an answer may take to begin
    #[arg(long, default_value = "30s", value_name = "SPAN", help_heading = "Patience")]
    first_byte_timeout: Span,
    /// How long nothing may come within an answer
    #[arg(long, default_value = "30s", value_name = "SPAN", help_heading = "Patience")]
    idle_timeout: Span,
    /// How long one request may take in all
    #[arg(long, value_name = "SPAN", help_heading = "Patience")]
    timeout: Option<Span>,

    /// A header of every request to the hosts that are named, as in `X-Key: abc`; where redirects
    /// lead, only `Accept`, `Accept-Language`, `Referer` and `User-Agent` go along
    #[arg(long, value_name = "HEADER", help_heading = "Requests")]
    header: Vec<String>,
    /// What requests say who asks [default: Paceline/VERSION, with `--contact`]
    #[arg(long, value_name = "TEXT", help_heading = "Requests")]
    user_agent: Option<String>,
    /// How to reach you, told to servers: an address of the web or of mail
    #[arg(long, value_name = "TEXT", conflicts_with = "user_agent", help_heading = "Requests")]
    contact: Option<String>,
    /// Logins from $NETRC or ~/.netrc
    #[arg(long, help_heading = "Requests")]
    netrc: bool,
    /// Logins from this file in the format of netrc
    #[arg(long, value_name = "FILE", conflicts_with = "netrc", help_heading = "Requests")]
    netrc_file: Option<PathBuf>,
    /// Cookies from a file in the format of browsers and curl
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    cookies: Option<PathBuf>,

    /// A table for people, or events as JSON lines on stdout
    #[arg(long, value_enum, default_value_t = Output::Table, value_name = "FORMAT", help_heading = "Output")]
    pub(super) format: Output,
    /// Write what did not come to a file that `-i` and aria2c read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) failed_out: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// What the lines of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// JSON lines if the first line is JSON, else as aria2 has them
    Auto,
    /// Addresses by line, each taken up at once: for pipes that never end
    Plain,
    /// Addresses with indented options, or without
    Aria2,
    /// JSON lines
    Jsonl,
}

/// What goes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Nothing: people read stderr
    Table,
    /// One event per line
    Jsonl,
}

/// What is shown while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Progress,
    Nothing,
}

impl Arguments {
    /// Requests at once, in all.
    pub(super) fn jobs(&self) -> u32 {
        self.jobs.get()
    }

    pub(super) fn shown(&self) -> Shown {
        if self.quiet { Shown::Nothing } else { Shown::Progress }
    }

    /// Where the items come from.
    pub(super) fn sources(&self) -> anyhow::Result<Sources> {
        let format = match (&self.base, self.input_format) {
            (Some(base), InputFormat::Auto) => Format::Manifest { base: address(base)? },
            (Some(_), _) => {
                bail!(Usage(
                    "`--base` is for checksum files: leave out `--input-format`".to_string()
                ))
            }
            (None, InputFormat::Auto) => Format::Auto,
            (None, InputFormat::Plain) => Format::Plain,
            (None, InputFormat::Aria2) => Format::Aria2,
            (None, InputFormat::Jsonl) => Format::Jsonl,
        };
        let mut items = Vec::with_capacity(self.urls.len());
        for url in &self.urls {
            items.push(Item { urls: vec![address(url)?], out: None, dir: None, checksum: None });
        }
        if items.is_empty() && self.input.is_empty() {
            bail!(Usage("nothing to fetch: name addresses, or a list with `-i FILE`".to_string()));
        }
        let single = items.len() == 1 && self.input.is_empty();
        if (self.output.is_some() || self.checksum.is_some()) && !single {
            bail!(Usage("`--output` and `--checksum` are for exactly one address".to_string()));
        }
        if let [item] = items.as_mut_slice() {
            item.checksum.clone_from(&self.checksum);
            item.out = self
                .output
                .as_deref()
                .and_then(Path::file_name)
                .map(|name| name.to_string_lossy().into_owned());
        }
        Ok(Sources { items, lists: self.input.clone(), format })
    }

    /// Everything that a run is told.
    pub(super) fn options(&self, config: &Config) -> anyhow::Result<Options> {
        let host = self.host_limits(config);
        let mut lanes: Vec<(String, Limits)> = Vec::new();
        for lane in config.lanes.iter().filter(|lane| lane.name.starts_with("host:")) {
            let limits = match &*lane.name {
                "host:*" => host.clone(),
                _ => self.tightened(lane.limits.clone()),
            };
            lanes.push((lane.name.clone(), limits));
        }
        let max_wait = self.max_wait.unwrap_or_else(|| self.default_max_wait(&host, &lanes));
        Ok(Options {
            directory: self.target_directory()?,
            accept_older: config.accept_older,
            naming: match (self.tree, self.content_disposition) {
                (true, _) => Naming::Tree,
                (false, true) => Naming::ByServer,
                (false, false) => Naming::Flat,
            },
            existing: if self.overwrite { Existing::Overwrite } else { Existing::Keep },
            fetched: if self.refresh { Fetched::Refresh } else { Fetched::Keep },
            jobs: self.jobs,
            beside: if self.per_host.is_some() { self.jobs } else { self.half_of_jobs() },
            host,
            lanes,
            groups: config.groups.clone(),
            retries: self.retries,
            max_wait,
            deadline: self.deadline.map(Duration::from),
            timeout: self.timeout,
            patience: Patience {
                connect: self.connect_timeout.into(),
                first_byte: self.first_byte_timeout.into(),
                idle: self.idle_timeout.into(),
            },
            limit_rate: self.limit_rate.map(|Size(bytes)| bytes.max(1)),
            largest: self.max_size.0,
            coding: if self.decode { Coding::Decode } else { Coding::Identity },
            segments: self.segments,
            robots: if self.robots { Robots::Obey } else { Robots::Ignore },
            manners: self.manners()?,
            proxies: Proxies::from_env(|name| std::env::var(name).ok())?,
            warc: self.warc.clone(),
        })
    }

    /// Two minutes, or what hosts may need by limits that are no trouble but the user's own choice.
    fn default_max_wait(&self, host: &Limits, lanes: &[(String, Limits)]) -> Span {
        let limits = || std::iter::once(host).chain(lanes.iter().map(|(_, limits)| limits));
        let gaps = limits().filter_map(|limits| limits.every).map(|every| every.times(2));
        let windows =
            limits().flat_map(|limits| &limits.windows).map(|window| window.rate.per.times(2));
        let rules = self.robots.then_some(Span::hours(1));
        gaps.chain(windows).chain(rules).chain([Span::mins(2)]).max().expect("there is one")
    }

    /// Who says how many requests one host may have has said so of all of them.
    fn most_per_host(&self) -> NonZeroU32 {
        self.per_host.unwrap_or(self.half_of_jobs())
    }

    fn half_of_jobs(&self) -> NonZeroU32 {
        NonZeroU32::new(self.jobs.get() / 2).unwrap_or(NonZeroU32::MIN)
    }

    /// The limits of a host that the file names: of what is said there and here, the stricter.
    fn tightened(&self, mut limits: Limits) -> Limits {
        limits.in_flight = limits.in_flight.min(self.most_per_host());
        limits.every = limits.every.max(self.every);
        limits.windows.extend(self.rate.iter().map(|rate| Window::new(*rate)));
        limits
    }

    /// The limits of a host: what is said here counts more than the file.
    fn host_limits(&self, config: &Config) -> Limits {
        let template = config.lanes.iter().find(|lane| lane.name == "host:*");
        let four = NonZeroU32::new(4).expect("above zero");
        let default = || Limits { in_flight: four, ..Limits::default() };
        let mut limits = template.map_or_else(default, |lane| lane.limits.clone());
        limits.in_flight = match self.per_host {
            Some(per_host) => per_host,
            None => limits.in_flight.min(self.half_of_jobs()),
        };
        if self.every.is_some() {
            limits.every = self.every;
        }
        if !self.rate.is_empty() {
            limits.windows = self.rate.iter().map(|rate| Window::new(*rate)).collect();
        }
        limits
    }

    /// `--output` may name a folder: then the file is there, and so is what is known about it.
    fn target_directory(&self) -> anyhow::Result<PathBuf> {
        let Some(output) = &self.output else { return Ok(self.directory.clone()) };
        if output.file_name().is_none() {
            bail!(Usage("`--output` must end in the name of a file".to_string()));
        }
        Ok(match output.parent() {
            Some(parent) => self.directory.join(parent),
            None => self.directory.clone(),
        })
    }

    fn netrc_path(&self) -> anyhow::Result<Option<PathBuf>> {
        if !self.netrc {
            return Ok(self.netrc_file.clone());
        }
        if let Some(file) = std::env::var_os("NETRC") {
            return Ok(Some(file.into()));
        }
        let home = std::env::var_os("HOME").context("no home directory to find .netrc in")?;
        Ok(Some(Path::new(&home).join(".netrc")))
    }

    fn manners(&self) -> anyhow::Result<Manners> {
        let version = env!("CARGO_PKG_VERSION");
        let agent = match (&self.user_agent, &self.contact) {
            (Some(agent), _) => agent.clone(),
            (None, Some(contact)) => format!("Paceline/{version} (+{contact})"),
            (None, None) => format!("Paceline/{version}"),
        };
        let user_agent = HeaderValue::from_str(&agent)
            .map_err(|_| Usage("`--user-agent` or `--contact` has an odd character".to_string()))?;
        let headers = self.header.iter().map(|text| header(text)).collect::<Result<_, _>>()?;
        let netrc = match self.netrc_path()? {
            None => None,
            Some(file) => Some(Netrc::parse(&contents(&file)?, &file.display().to_string())?),
        };
        let cookies = match &self.cookies {
            None => None,
            Some(file) => Some(Jar::parse(&contents(file)?, &file.display().to_string())?),
        };
        Ok(Manners::new(user_agent, headers, netrc, cookies))
    }
}

fn header(text: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let usage = |what: &str| Usage(what.to_string());
    let (name, value) =
        text.split_once(':').ok_or_else(|| usage("a header is written `NAME: VALUE`"))?;
    // The value may be a secret: it is not shown.
    let name = name
        .trim()
        .parse::<HeaderName>()
        .map_err(|_| usage("a header's name has an odd character"))?;
    let mut value = value
        .trim()
        .parse::<HeaderValue>()
        .map_err(|_| usage("a header's value has an odd character"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn archive_name(text: &str) -> Result<String, WarcError> {
    check_name(text).map(|()| text.to_string())
}

fn at_least_one(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse().map_err(|_| "write a whole number, 1 or more")
}

fn address(text: &str) -> Result<url::Url, Usage> {
    url_of(text).map_err(|error| Usage(error.to_string()))
}

fn contents(file: &Path) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file)
        .and_then(|open| open.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read `{}`", file.display()))?;
    anyhow::ensure!(bytes.len() as u64 <= LARGEST_FILE, "`{}` is too large", file.display());
    Ok(bytes)
}
