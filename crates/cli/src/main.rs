//! The command line of `paceline`: from arguments to a command, from its result to an exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};
use paceline_cli::config::{Config, Surroundings, print};
use paceline_cli::exit::Exit;
use paceline_cli::output::{data, fail, say};
use paceline_cli::tools::counted;
use paceline_cli::{bench, demo, fetch, job, lane, mock, serve, services, store, token};

/// Jobs are many small pieces of memory that come and go together.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs work against services you do not own: at their pace, never past their limits.
#[derive(Parser)]
#[command(name = "paceline", version = env!("PACELINE_VERSION"), arg_required_else_help = true)]
struct Cli {
    /// The configuration file, instead of the one that is found
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Open a store that was copied without its `-wal`, in the older state that its file holds
    #[arg(long, global = true)]
    accept_older: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Built-in services with limits, and the same work done naively and politely: no internet, no
    /// set-up, under a minute
    Demo(demo::Arguments),
    /// Polite parallel downloads
    Fetch(Box<fetch::Arguments>),
    /// Work that comes again: programs on rosters, each at its own time
    Services(services::Arguments),
    /// The daemon: an HTTP API for programs in any language, permits, relay, rosters
    Serve(serve::Arguments),
    /// Work to be done: hand it in, look at it, wait for it, withdraw it
    Job(Box<job::Arguments>),
    /// Services and their limits: how they are doing, stopped, let go on
    Lane(lane::Arguments),
    /// Copy the store while it is in use
    Store(store::Arguments),
    /// A rate-limited service to test clients against
    Mock(Box<mock::Arguments>),
    /// What this machine does: rates, latencies, recovery, limits
    Bench(bench::Arguments),
    /// All settings with their defaults, or a check of yours
    #[command(subcommand, after_help = FOUND)]
    Config(ConfigCommand),
    /// Completions for a shell, on stdout
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// The manual page, on stdout
    Man {
        /// The command it is about; else the whole program
        command: Option<String>,
    },
}

const FOUND: &str = "\
The configuration is the file of `--config`, else of PACELINE_CONFIG, else paceline.toml in the
working directory, else paceline/paceline.toml in the XDG config directory. No file is needed.";

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print every setting with its default and its explanation
    Print,
    /// Say what is wrong with a file, and where
    Check {
        /// The file; else the one that would be used
        file: Option<PathBuf>,
    },
    /// Make a token for the daemon: it goes to stderr, its hash for the configuration to stdout
    Token(token::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    run(cli).unwrap_or_else(|error| fail(&error)).into()
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let config = || {
        let mut config = Config::load(cli.config.as_deref(), &Surroundings::of_process())?;
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
        Command::Man { command } => manual(command.as_deref()),
    }
}

fn check(file: Option<&Path>) -> anyhow::Result<Exit> {
    let config = Config::load(file, &Surroundings::of_process())?;
    let templates = config.lanes.iter().filter(|lane| lane.is_template()).count();
    let (lanes, groups) = (config.lanes.len() - templates, config.groups.len());
    let file = match &config.file {
        Some(file) => file.display().to_string(),
        None => "no file, the defaults hold".to_string(),
    };
    let counts = [(lanes, "lane"), (templates, "template"), (groups, "group")];
    let counts = counted(counts.into_iter().chain(config.tools.counts()));
    if let Err(error) = config.endpoints() {
        say(format_args!("warning: {error:#}: whatever makes calls will refuse to start"));
    }
    if config.server.tokens.is_empty() && !config.server.listen.ip().is_loopback() {
        let listen = config.server.listen;
        say(format_args!("warning: `serve` refuses `{listen}` without tokens: add some"));
    }
    done(&format!("ok: {file}: {}\n", counts))
}

fn manual(command: Option<&str>) -> anyhow::Result<Exit> {
    let mut whole = Cli::command();
    whole.build();
    let about = match command {
        Some(name) => whole.find_subcommand(name).cloned(),
        None => Some(whole),
    };
    let about = about.with_context(|| {
        let name = command.unwrap_or_default();
        format!("no command named `{name}`: `paceline help` lists them")
    })?;
    let mut page = Vec::new();
    clap_mangen::Man::new(about).render(&mut page)?;
    done(&String::from_utf8(page)?)
}

fn done(text: &str) -> anyhow::Result<Exit> {
    data(text)?;
    Ok(Exit::Done)
}
