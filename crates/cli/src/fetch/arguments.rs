//! The arguments of `paceline fetch`.

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
A file is written under a temporary name, verified, and then renamed: a file under its own name is
complete. Running the same command again fetches only the missing files, and resumes files that were
interrupted. The state of the downloads is kept in DIR/.paceline/.

Examples:
  paceline fetch https://example.org/a.iso https://example.org/b.iso
  paceline fetch -i list.txt -d downloads --per-host 2 --every 1s
  curl -fsS https://example.org/SHA256SUMS | paceline fetch -i - --base https://example.org/
  paceline fetch -i list.txt --failed-out failed.txt --format jsonl

Exit codes: 0 all files are there; 1 some failed; 2 wrong usage; 75 some were deferred by limits or
`--deadline`; 130 interrupted.";

/// Download files in parallel, within the limits of each host.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct Arguments {
    /// The URLs to fetch
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// Fetch the files of this list, `-` for stdin: one URL per line (mirrors separated by tabs), the
    /// format of aria2, JSON lines, or with `--base` a checksum file
    #[arg(short, long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// The format of the list
    #[arg(long, value_enum, default_value_t = InputFormat::Auto, value_name = "FORMAT")]
    input_format: InputFormat,
    /// Read the list as a checksum file such as SHA256SUMS, whose names are below this URL
    #[arg(long, value_name = "URL")]
    base: Option<String>,

    /// The directory for the files
    #[arg(short, long, default_value = ".", value_name = "DIR", help_heading = "Files")]
    directory: PathBuf,
    /// Write the file to this path; for exactly one URL
    #[arg(short, long, value_name = "FILE", help_heading = "Files")]
    output: Option<PathBuf>,
    /// The checksum that the file must have, like `sha-256=9f86d0...`; for exactly one URL
    #[arg(long, value_name = "CHECKSUM", help_heading = "Files")]
    checksum: Option<Checksum>,
    /// Create directories for the host and the path of each URL
    #[arg(long, conflicts_with = "content_disposition", help_heading = "Files")]
    tree: bool,
    /// Use the file names that servers send
    #[arg(long, conflicts_with = "overwrite", help_heading = "Files")]
    content_disposition: bool,
    /// Replace existing files that were not fetched from these URLs
    #[arg(long, help_heading = "Files")]
    overwrite: bool,
    /// Fetch files again that have changed on the server
    #[arg(long, help_heading = "Files")]
    refresh: bool,
    /// Ask servers for gzip, br and zstd, and decode them
    #[arg(long, conflicts_with = "warc", help_heading = "Files")]
    decode: bool,
    /// The largest file to accept
    #[arg(long, default_value = "1024GiB", value_name = "SIZE", help_heading = "Files")]
    max_size: Size,
    /// Also write a WARC archive, NAME-00001.warc.gz, and its index, NAME.cdxj
    #[arg(long, value_parser = archive_name, value_name = "NAME", help_heading = "Files")]
    warc: Option<String>,

    /// Requests at once, over all hosts
    #[arg(short, long, value_parser = at_least_one, default_value = "16", value_name = "N")]
    #[arg(help_heading = "Pace")]
    jobs: NonZeroU32,
    /// Requests at once to one host [default: 4, and at most half of `--jobs`]
    #[arg(long, value_parser = at_least_one, value_name = "N", help_heading = "Pace")]
    per_host: Option<NonZeroU32>,
    /// The shortest gap between two requests to one host, like 1s
    #[arg(long, value_name = "SPAN", help_heading = "Pace")]
    every: Option<Span>,
    /// Requests per window to one host, like `2/s`; may be repeated
    #[arg(long, value_name = "RATE", help_heading = "Pace")]
    rate: Vec<Rate>,
    /// Bytes per second over all downloads, like 5MiB
    #[arg(long, value_name = "SIZE", help_heading = "Pace")]
    limit_rate: Option<Size>,
    /// Connections for one large file, if the server supports ranges
    #[arg(long, default_value = "1", value_name = "N", conflicts_with_all = ["warc", "decode"], value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Pace")]
    segments: u32,
    /// Obey robots.txt, including `Crawl-delay`
    #[arg(long, help_heading = "Pace")]
    robots: bool,

    /// Retries of a file after a failure that may be temporary
    #[arg(long, default_value = "3", value_name = "N", help_heading = "Patience")]
    retries: u16,
    /// Leave a host that stays closed longer than this for the next run [default: 2m, or longer if
    /// its limits require it]
    #[arg(long, value_name = "SPAN", help_heading = "Patience")]
    max_wait: Option<Span>,
    /// Stop after this long, give running requests 3 s to finish, and leave the rest for the next run
    #[arg(long, value_name = "SPAN", help_heading = "Patience")]
    deadline: Option<Span>,
    /// The timeout of connecting
    #[arg(long, default_value = "10s", value_name = "SPAN", help_heading = "Patience")]
    connect_timeout: Span,
    /// The timeout until a response begins
    #[arg(long, default_value = "30s", value_name = "SPAN", help_heading = "Patience")]
    first_byte_timeout: Span,
    /// The timeout between two reads of a response
    #[arg(long, default_value = "30s", value_name = "SPAN", help_heading = "Patience")]
    idle_timeout: Span,
    /// The timeout of a whole request [default: none]
    #[arg(long, value_name = "SPAN", help_heading = "Patience")]
    timeout: Option<Span>,

    /// Send this header to the hosts of the URLs, like `X-Key: abc`; may be repeated. A redirect to
    /// another host gets only `Accept`, `Accept-Language`, `Referer` and `User-Agent`
    #[arg(long, value_name = "HEADER", help_heading = "Requests")]
    header: Vec<String>,
    /// The `User-Agent` of requests [default: Paceline/VERSION, with `--contact`]
    #[arg(long, value_name = "TEXT", help_heading = "Requests")]
    user_agent: Option<String>,
    /// Your URL or mail address, sent to servers in the `User-Agent`
    #[arg(long, value_name = "TEXT", conflicts_with = "user_agent", help_heading = "Requests")]
    contact: Option<String>,
    /// Read logins from $NETRC or ~/.netrc
    #[arg(long, help_heading = "Requests")]
    netrc: bool,
    /// Read logins from this file, in the format of netrc
    #[arg(long, value_name = "FILE", conflicts_with = "netrc", help_heading = "Requests")]
    netrc_file: Option<PathBuf>,
    /// Read cookies from this file, in the format of browsers and curl
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    cookies: Option<PathBuf>,

    /// The format of the output
    #[arg(long, value_enum, default_value_t = Output::Table, value_name = "FORMAT", help_heading = "Output")]
    pub(super) format: Output,
    /// Write the URLs that failed to this file, which `-i` and aria2c can read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) failed_out: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// JSON lines if the first line is JSON, else the format of aria2
    Auto,
    /// One URL per line, each fetched as soon as it is read: for pipes that never end
    Plain,
    /// URLs, each with optional indented options
    Aria2,
    /// One JSON object per line
    Jsonl,
}

/// The output on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Nothing on stdout; progress and a summary on stderr
    Table,
    /// One event per line on stdout, as JSON
    Jsonl,
}

/// The progress that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Progress,
    Nothing,
}

impl Arguments {
    /// Requests at once, over all hosts.
    pub(super) fn jobs(&self) -> u32 {
        self.jobs.get()
    }

    pub(super) fn shown(&self) -> Shown {
        if self.quiet { Shown::Nothing } else { Shown::Progress }
    }

    /// The sources of items.
    pub(super) fn sources(&self) -> anyhow::Result<Sources> {
        let format = match (&self.base, self.input_format) {
            (Some(base), InputFormat::Auto) => Format::Manifest { base: address(base)? },
            (Some(_), _) => {
                bail!(Usage(
                    "`--base` reads a checksum file: leave out `--input-format`".to_string()
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
            bail!(Usage("nothing to fetch: give URLs, or a list with `-i FILE`".to_string()));
        }
        let single = items.len() == 1 && self.input.is_empty();
        if (self.output.is_some() || self.checksum.is_some()) && !single {
            bail!(Usage("`--output` and `--checksum` need exactly one URL".to_string()));
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

    /// The options of a run.
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

    /// Two minutes, or longer if limits that the user chose make hosts wait longer.
    fn default_max_wait(&self, host: &Limits, lanes: &[(String, Limits)]) -> Span {
        let limits = || std::iter::once(host).chain(lanes.iter().map(|(_, limits)| limits));
        let gaps = limits().filter_map(|limits| limits.every).map(|every| every.times(2));
        let windows =
            limits().flat_map(|limits| &limits.windows).map(|window| window.rate.per.times(2));
        let rules = self.robots.then_some(Span::hours(1));
        gaps.chain(windows).chain(rules).chain([Span::mins(2)]).max().expect("there is one")
    }

    /// Requests at once to one host: `--per-host` may use all of `--jobs`, the default half of them.
    fn most_per_host(&self) -> NonZeroU32 {
        self.per_host.unwrap_or(self.half_of_jobs())
    }

    fn half_of_jobs(&self) -> NonZeroU32 {
        NonZeroU32::new(self.jobs.get() / 2).unwrap_or(NonZeroU32::MIN)
    }

    /// The limits of a host that the file names: the stricter of the file and the options.
    fn tightened(&self, mut limits: Limits) -> Limits {
        limits.in_flight = limits.in_flight.min(self.most_per_host());
        limits.every = limits.every.max(self.every);
        limits.windows.extend(self.rate.iter().map(|rate| Window::new(*rate)));
        limits
    }

    /// The limits of any other host: options override the template of the file.
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

    /// The directory of the run: `--output` may name one for the file and its state.
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
        let user_agent = HeaderValue::from_str(&agent).map_err(|_| {
            Usage(
                "`--user-agent` or `--contact` has a character that a header cannot have"
                    .to_string(),
            )
        })?;
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
        .map_err(|_| usage("the name of a header has an invalid character"))?;
    let mut value = value
        .trim()
        .parse::<HeaderValue>()
        .map_err(|_| usage("the value of a header has an invalid character"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn archive_name(text: &str) -> Result<String, WarcError> {
    check_name(text).map(|()| text.to_string())
}

fn at_least_one(text: &str) -> Result<NonZeroU32, &'static str> {
    text.parse().map_err(|_| "write a whole number, at least 1")
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
