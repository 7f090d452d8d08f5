//! `paceline serve`: the daemon, from its start to its shutdown.

mod log;
mod own;
mod reload;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use paceline::{Builder, Paceline};
use paceline_apps::api::Role;
use paceline_server::{Access, Bounds, Server, Terms, Token, digest};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;

use self::log::Form;
pub(crate) use self::own::OwnPort;
use crate::config::{Config, ServerConfig};
use crate::daemon::{Daemon, DaemonFile, new_token};
use crate::engine::{Engine, Purpose, start_with};
use crate::exit::Usage;
use crate::exit::{Exit, exit_of};
use crate::interrupt::Signals;
use crate::output::{logs, say};

/// Run the daemon.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    /// Listen on this address instead of the configured one; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The format of the log on stderr [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORM")]
    log: Option<Form>,
}

const AFTER: &str = "\
The API is described at /api/v1/openapi.json. After SIGTERM or Ctrl-C, running calls have `server.grace`
to finish, and the rest is left for the next start; a second signal ends them at once. SIGHUP reloads
the configuration: lanes, services, commands, tokens and hosts change, and no work is dropped.";

/// Runs the command.
pub fn run(arguments: &Arguments, config: &Config) -> anyhow::Result<Exit> {
    let log = log::start(arguments.log);
    if log.form == Form::Json {
        logs();
    }
    let mut config = config.clone();
    if let Some(listen) = arguments.listen {
        config.server.listen = listen;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(async {
        let mut listening = Listening::on(&config.server).await?;
        listening.speaks = log.form != Form::Json;
        let mut signals = DaemonSignals::with_reload()?;
        let daemon = tokio::select! {
            daemon = RunningDaemon::start(config, listening) => daemon?,
            exit = signals.end() => return Ok(exit),
        };
        daemon.attend(signals).await
    });
    // Connections that are still open belong to clients that are not served any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match exit {
        // The reader of a JSON log reads nothing else.
        Err(error) if log.form == Form::Json => {
            tracing::error!(error = format!("{error:#}"), "ended");
            Ok(exit_of(&error))
        }
        exit => exit,
    }
}

/// Logs only warnings: for a server inside another command, which prints its own messages.
pub(crate) fn log_warnings() {
    // For as long as the process lives.
    std::mem::forget(log::start(Some(Form::Quiet)));
}

/// A bound port with its access rules.
pub(crate) struct Listening {
    listener: TcpListener,
    access: Access,
    owner: OwnerToken,
    /// Prints messages for people besides the log.
    speaks: bool,
}

impl Listening {
    /// Binds the port, unless other machines could reach it without a token.
    pub(crate) async fn on(server: &ServerConfig) -> anyhow::Result<Listening> {
        let owner = OwnerToken::new()?;
        let access = owner.access(server)?;
        let listen = server.listen;
        let listener = TcpListener::bind(listen).await;
        let listener = listener.with_context(|| {
            format!("cannot listen on `{listen}`, choose another with `--listen`")
        })?;
        Ok(Listening { listener, access, owner, speaks: true })
    }
}

/// The token of the owner of the store, with full access. Commands read it from the file beside the
/// store.
pub(crate) struct OwnerToken {
    token: String,
}

impl OwnerToken {
    fn new() -> anyhow::Result<OwnerToken> {
        Ok(OwnerToken { token: new_token()? })
    }

    /// The access rules, the owner included. Without tokens, every program on this machine has access.
    fn access(&self, server: &ServerConfig) -> anyhow::Result<Access> {
        let (mut tokens, hosts) = (server.tokens.clone(), server.hosts.clone());
        if tokens.is_empty() && !server.listen.ip().is_loopback() {
            let listen = server.listen;
            let what = format!(
                "`{listen}` can be reached from other machines: add tokens (`paceline config token NAME`), or \
                 listen on 127.0.0.1"
            );
            return Err(Usage(what).into());
        }
        if !tokens.is_empty() {
            tokens.push(self.admits()?);
        }
        Ok(Access { tokens, hosts })
    }

    /// The token as a server stores it.
    fn admits(&self) -> anyhow::Result<Token> {
        let sha256 = data_encoding::HEXLOWER.decode(digest(&self.token).as_bytes())?;
        let sha256 = sha256.try_into().map_err(|_| anyhow::anyhow!("a digest has 32 bytes"))?;
        Ok(Token { name: "owner".to_string(), sha256, role: Role::Admin })
    }

    /// Writes the file beside the store that says how to reach this process.
    fn post(&self, config: &Config, address: SocketAddr) -> anyhow::Result<DaemonFile> {
        let (pid, token) = (std::process::id(), Some(self.token.clone()));
        let config_file = config.file.as_deref().and_then(|file| file.canonicalize().ok());
        let daemon = Daemon { pid, address, config: config_file, token };
        daemon.post(&config.store_path).context("cannot write the daemon's file beside the store")
    }
}

/// A daemon whose engine has started.
pub(crate) struct RunningDaemon {
    config: Config,
    engine: Engine,
    server: Server,
    /// Taken by `attend`.
    listener: Option<TcpListener>,
    address: SocketAddr,
    owner: OwnerToken,
    speaks: bool,
    /// Removed at shutdown.
    daemon_file: Option<DaemonFile>,
}

impl RunningDaemon {
    /// Opens the store and publishes the address. Requests are answered from `attend` on.
    pub(crate) async fn start(
        config: Config,
        listening: Listening,
    ) -> anyhow::Result<RunningDaemon> {
        let Listening { listener, access, owner, speaks } = listening;
        let address = listener.local_addr()?;
        let engine = start_with(&config, Purpose::Rosters, |builder| {
            let builder = builder.keep_events(u64::from(config.server.keep_events));
            with_watchdog(builder)
        });
        let engine = engine.await?;
        let terms = Terms { access, max_body: config.server.max_body() };
        let server = Server::new(engine.pace.clone(), engine.kinds.clone(), terms);
        // The owner's token is always in the file, because a reload may add other tokens.
        let daemon_file = owner.post(&config, address)?;
        let parked = engine.pace.summary().await?.parked;
        if parked > 0 {
            tracing::warn!(parked, "parked calls: their lane or kind is not configured");
        }
        tracing::info!(%address, store = %config.store_path.display(), "ready");
        if speaks {
            say(format_args!("listening on http://{address}; Ctrl-C stops"));
        }
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        let listener = Some(listener);
        Ok(RunningDaemon {
            config,
            engine,
            server,
            listener,
            address,
            owner,
            speaks,
            daemon_file: Some(daemon_file),
        })
    }

    /// The address it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until a signal ends it.
    pub(crate) async fn attend(mut self, mut signals: DaemonSignals) -> anyhow::Result<Exit> {
        let connections = room_for(self.config.server.connections as usize);
        let bounds = Bounds { connections, ..Bounds::default() };
        let (server, mut exit) = (self.server.clone(), Ok(Exit::Done));
        let listener = self.listener.take().expect("attend takes self");
        let over = async { exit = self.end(&mut signals).await };
        server.serve(listener, bounds, over).await;
        exit
    }

    /// Waits for a signal to stop, and shuts down.
    async fn end(&mut self, signals: &mut DaemonSignals) -> anyhow::Result<Exit> {
        let exit = loop {
            tokio::select! {
                () = signals.terminate.next() => break Exit::Done,
                () = signals.interrupt.next() => break Exit::Interrupted,
                () = signals.reload.next() => self.reload().await?,
                ended = self.engine.pace.ended() => return Err(ended.into()),
            }
        };
        self.server.stopping();
        // From here on other commands wait for the store instead of asking this daemon.
        drop(self.daemon_file.take());
        let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
        let grace = self.config.server.grace;
        tracing::info!(grace_s = Duration::from(grace).as_secs(), "stopping");
        if self.speaks {
            say(format_args!(
                "waiting at most {grace} for running calls to finish; a second signal ends them at once"
            ));
        }
        stop(&self.engine.pace, grace.into(), signals).await?;
        tracing::info!("stopped");
        Ok(exit)
    }
}

/// Reports to the watchdog of systemd from the engine's own loop.
fn with_watchdog(builder: Builder) -> Builder {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return builder;
    }
    // Twice per period, so that one late turn does not count as a hang.
    builder.heartbeat(Duration::from_micros(micros / 2), || {
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
    })
}

/// The number of connections that the limit of open files allows; calls and the store need some too.
fn room_for(wanted: usize) -> usize {
    const OTHERS: u64 = 256;
    let files = all_files();
    let room = usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(usize::MAX).max(16);
    if room < wanted {
        tracing::warn!(
            wanted,
            room,
            "the limit of open files allows fewer connections than configured: raise `ulimit -n`"
        );
    }
    room.min(wanted)
}

/// Raises the limit of open files as far as the system allows, and returns it.
pub(crate) fn all_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The signals of a daemon.
pub(crate) struct DaemonSignals {
    terminate: Signals,
    interrupt: Signals,
    reload: Signals,
}

impl DaemonSignals {
    /// SIGHUP reloads the configuration.
    fn with_reload() -> std::io::Result<DaemonSignals> {
        DaemonSignals::new(&[SignalKind::terminate()], &[SignalKind::hangup()])
    }

    /// There is no configuration to reload: SIGHUP means that the terminal was closed.
    pub(crate) fn without_reload() -> std::io::Result<DaemonSignals> {
        DaemonSignals::new(&[SignalKind::terminate(), SignalKind::hangup()], &[])
    }

    fn new(terminate: &[SignalKind], reload: &[SignalKind]) -> std::io::Result<DaemonSignals> {
        Ok(DaemonSignals {
            terminate: Signals::new(terminate)?,
            interrupt: Signals::new(&[SignalKind::interrupt()])?,
            reload: Signals::new(reload)?,
        })
    }

    /// Resolves at a signal to end, with the exit code for it.
    pub(crate) async fn end(&mut self) -> Exit {
        tokio::select! {
            () = self.terminate.next() => Exit::Done,
            () = self.interrupt.next() => Exit::Interrupted,
        }
    }
}

async fn stop(pace: &Paceline, grace: Duration, signals: &mut DaemonSignals) -> anyhow::Result<()> {
    tokio::select! {
        stopped = pace.stop(grace) => return Ok(stopped?),
        _ = signals.end() => {}
    }
    Ok(pace.stop(Duration::ZERO).await?)
}
