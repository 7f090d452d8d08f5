//! The command line of `paceline`: from arguments to a command, from its result to an exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};
use paceline_cli::config::{Config, Environment, print};
use paceline_cli::exit::Exit;
use paceline_cli::output::{data, fail, say};
use paceline_cli::tools::counted;
use paceline_cli::{bench, demo, fetch, job, lane, mock, serve, services, store, token};

/// Jobs are many small allocations that come and go together.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run work against upstreams you do not own: at their pace, never past their limits
#[derive(Parser)]
#[command(name = "paceline", version = env!("PACELINE_VERSION"), arg_required_else_help = true)]
struct Cli {
    /// Use this configuration file instead of the one found by default
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
    /// Open a store that was copied without its `-wal` file, in the older state of its main file
    #[arg(long, global = true, help_heading = "Global options")]
    accept_older: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Do the same work naively and with Paceline, on built-in mock upstreams with limits: no
    /// internet, no set-up, under a minute
    Demo(demo::Arguments),
    /// Download files in parallel, within the limits of each host
    Fetch(Box<fetch::Arguments>),
    /// Run services and rosters, and show when they run next
    Services(services::Arguments),
    /// Run the daemon: an HTTP API for programs in any language, permits, a relay and rosters
    Serve(serve::Arguments),
    /// Submit, list, show, wait for, cancel and retry jobs
    Job(Box<job::Arguments>),
    /// Show, pause, resume and reset lanes
    Lane(lane::Arguments),
    /// Back up the store, also while it is in use
    Store(store::Arguments),
    /// Run a rate-limited mock upstream to test clients against
    Mock(Box<mock::Arguments>),
    /// Measure this machine: throughput, latency, recovery, limits
    Bench(bench::Arguments),
    /// Print all settings with their defaults, check a file, or make a token
    #[command(subcommand, after_help = FOUND)]
    Config(ConfigCommand),
    /// Print completions for a shell
    Completions {
        /// The shell that reads them
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    Man {
        /// The command, like `job` or `job add` [default: the whole program]
        command: Vec<String>,
    },
}

const FOUND: &str = "\
The configuration is the file that `--config` names, else the one that PACELINE_CONFIG names, else
paceline.toml in the working directory, else paceline/paceline.toml in the XDG config directory.
No file is needed: every setting has a default.";

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print every setting with its default and an explanation
    Print,
    /// Report the mistakes in a configuration file, each with its line and column
    Check {
        /// The file to check [default: the one that would be used]
        file: Option<PathBuf>,
    },
    /// Make a token for the daemon: print the token to stderr, and its hash for the configuration to
    /// stdout
    Token(token::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    run(cli).unwrap_or_else(|error| fail(&error)).into()
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let config = || {
        let mut config = Config::load(cli.config.as_deref(), &Environment::of_process())?;
        config.accept_older = cli.accept_older;
        anyhow::Ok(config)
    };
    match cli.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Fetch(arguments) => fetch::run(&arguments, &config()?),
        Command::Services(arguments) => services::run(&arguments, &config()?),
        Command::Serve(arguments) => serve::run(&arguments, &config()?),
        Command::Job(arguments) => job::run(&arguments, &config()?),
        Command::Lane(arguments) => lane::run(&arguments, &config()?),
        Command::Store(arguments) => store::run(&arguments, &config()?),
        Command::Mock(arguments) => mock::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Config(ConfigCommand::Print) => done(&print()),
        Command::Config(ConfigCommand::Token(arguments)) => token::run(&arguments),
        Command::Config(ConfigCommand::Check { file }) => check(file.or(cli.config).as_deref()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "paceline", &mut script);
            done(&String::from_utf8(script)?)
        }
        Command::Man { command } => manual(&command),
    }
}

fn check(file: Option<&Path>) -> anyhow::Result<Exit> {
    let config = Config::load(file, &Environment::of_process())?;
    let templates = config.lanes.iter().filter(|lane| lane.is_template()).count();
    let (lanes, groups) = (config.lanes.len() - templates, config.groups.len());
    let file = match &config.file {
        Some(file) => file.display().to_string(),
        None => "no file, defaults only".to_string(),
    };
    let counts = [(lanes, "lane"), (templates, "template"), (groups, "group")];
    let counts = counted(counts.into_iter().chain(config.tools.counts()));
    if let Err(error) = config.endpoints() {
        say(format_args!("warning: {error:#}: commands that make calls will refuse to start"));
    }
    if config.server.tokens.is_empty() && !config.server.listen.ip().is_loopback() {
        let listen = config.server.listen;
        say(format_args!(
            "warning: `serve` refuses `{listen}` without tokens: make one with `paceline config token NAME`"
        ));
    }
    done(&format!("ok: {file}: {counts}\n"))
}

/// Prints the page of a command, named as on the command line: `job add`.
fn manual(names: &[String]) -> anyhow::Result<Exit> {
    let mut whole = Cli::command();
    whole.build();
    let mut command = &whole;
    for name in names {
        command = command.find_subcommand(name).with_context(|| {
            format!("no command named `{}`: `paceline help` lists them", names.join(" "))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    done(&String::from_utf8(page)?)
}

fn done(text: &str) -> anyhow::Result<Exit> {
    data(text)?;
    Ok(Exit::Done)
}
