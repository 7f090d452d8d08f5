//! `paceline demo`: the same work done naively and by Paceline, against built-in mock upstreams that
//! behave like real ones.

mod books;
mod naive;
mod paint;
mod play;
mod process;
mod score;
mod screen;
mod serve;
mod table;
mod upstreams;
mod view;
mod waiting;
mod wanted;
mod words;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;

use crate::exit::Exit;
use crate::follow::worst;
use crate::output::{data, say};
use crate::serve::DaemonSignals;
use play::Play;
use score::Score;
use screen::Screen;
use upstreams::Upstreams;

/// The most time that the demo may take.
const AT_MOST: Duration = Duration::from_secs(57);

/// Show the same work done naively and by Paceline.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Afterwards, run a daemon with a lane for each of these upstreams, until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// Run as the worker process of a demo, on this store
    #[arg(long, hide = true, value_name = "FILE", requires = "upstreams")]
    worker: Option<PathBuf>,
    /// The addresses of the mock upstreams
    #[arg(long, hide = true, value_name = "ADDRESS", num_args = 1..)]
    upstreams: Vec<SocketAddr>,
}

/// Runs to its end, or until Ctrl-C.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(store) = &arguments.worker {
        return worker::run(store, &arguments.upstreams);
    }
    // The mock upstreams have a thread of their own, as if they ran elsewhere.
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let upstreams = elsewhere.block_on(Upstreams::start())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let exit = runtime.block_on(show(&upstreams, arguments));
    // Connections that are still open belong to clients that are not served any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    exit
}

/// Runs the play, prints its result, and then the daemon if asked to.
async fn show(upstreams: &Upstreams, arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut screen = Screen::new();
    // Ctrl-C, SIGTERM, or a closed terminal.
    let mut signals = DaemonSignals::without_reload()?;
    let ending = tokio::select! {
        ending = tokio::time::timeout(AT_MOST, perform(upstreams, &mut screen)) => match ending {
            Ok(ending) => ending.map(Some),
            Err(_) => Err(anyhow!("not finished after {AT_MOST:?}: this machine is too busy, try again")),
        },
        _ = signals.end() => Ok(None),
    };
    screen.clear();
    let Some(ending) = ending? else {
        say("stopped; its worker process and its store are removed");
        return Ok(Exit::Interrupted);
    };
    screen.part();
    data(&ending.text)?;
    let mut exit = ending.exit;
    if arguments.serve {
        let ended = serve::run(&store(&ending.directory), &upstreams.paced, signals).await?;
        exit = worst([exit, ended]);
        drop(ending.directory);
        say("stopped; its store is removed");
    }
    Ok(exit)
}

/// The result of the play.
struct Ending {
    text: String,
    exit: Exit,
    /// The directory of its store, removed when this is dropped.
    directory: TempDir,
}

fn store(directory: &TempDir) -> PathBuf {
    directory.path().join("demo.db")
}

/// Runs the whole play. Dropped half-way, it leaves no process and no directory behind.
async fn perform(upstreams: &Upstreams, screen: &mut Screen) -> anyhow::Result<Ending> {
    let directory = tempfile::Builder::new().prefix("paceline-demo-").tempdir();
    let directory =
        directory.context("cannot create a directory for the demo's store: set TMPDIR")?;
    let mut play = Play::new(upstreams, screen);
    let naive = play.naive().await;
    let paced = play.paced(&store(&directory)).await?;
    let table = table::table(&naive, &paced, play.wanted.len());
    let sentences = play.books.sentences(&play.wanted, &paced.scores);
    let flaws = Score::all(&paced.scores).broken + play.books.lost(&play.wanted) + play.books.twice;
    let exit = if flaws == 0 { Exit::Done } else { Exit::Failed };
    Ok(Ending { text: format!("{table}\n{sentences}"), exit, directory })
}
