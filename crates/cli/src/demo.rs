//! `paceline demo`: the same work done naively and by Paceline, on built-in services that behave
//! like real ones.

mod books;
mod naive;
mod paint;
mod play;
mod process;
mod score;
mod screen;
mod serve;
mod services;
mod table;
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
use crate::serve::Heard;
use play::Play;
use score::Score;
use screen::Screen;
use services::Services;

/// It ends by then, on the busiest machine.
const AT_MOST: Duration = Duration::from_secs(57);

/// What `paceline demo` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Stay afterwards: a daemon with these services behind its lanes, until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// Be the worker process of a demo, on this store
    #[arg(long, hide = true, value_name = "FILE", requires = "services")]
    worker: Option<PathBuf>,
    /// Where its services listen
    #[arg(long, hide = true, value_name = "ADDRESS", num_args = 1..)]
    services: Vec<SocketAddr>,
}

/// Runs to its end, or until Ctrl-C.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    if let Some(store) = &arguments.worker {
        return worker::run(store, &arguments.services);
    }
    // The services have a thread of their own: they are somebody else's.
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let services = elsewhere.block_on(Services::start())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let exit = runtime.block_on(show(&services, arguments));
    // What is still open belongs to clients that do not matter any more.
    runtime.shutdown_timeout(Duration::from_secs(1));
    exit
}

/// The play, what it came to, and what is asked for beyond it.
async fn show(services: &Services, arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut screen = Screen::new();
    // Ctrl-C, or the wish of another program, or a terminal that is gone.
    let mut signals = Heard::without_reload()?;
    let told = tokio::select! {
        told = tokio::time::timeout(AT_MOST, tell(services, &mut screen)) => match told {
            Ok(told) => told.map(Some),
            Err(_) => Err(anyhow!("not done after {AT_MOST:?}: this machine is too busy, try again")),
        },
        _ = signals.end() => Ok(None),
    };
    screen.clear();
    let Some(told) = told? else {
        say("stopped; its process is gone and its store too: nothing is left behind");
        return Ok(Exit::Interrupted);
    };
    screen.part();
    data(&told.text)?;
    let mut exit = told.exit;
    if arguments.serve {
        let ended = serve::run(&store(&told.directory), &services.paced, signals).await?;
        exit = worst([exit, ended]);
        drop(told.directory);
        say("stopped; its store is gone: nothing is left behind");
    }
    Ok(exit)
}

/// What the play came to.
struct Told {
    text: String,
    exit: Exit,
    /// Where its store is, for as long as this is kept.
    directory: TempDir,
}

fn store(directory: &TempDir) -> PathBuf {
    directory.path().join("demo.db")
}

/// The whole play. Dropped half-way it leaves no process and no directory.
async fn tell(services: &Services, screen: &mut Screen) -> anyhow::Result<Told> {
    let directory = tempfile::Builder::new().prefix("paceline-demo-").tempdir();
    let directory = directory.context("no directory for the demo's store: set TMPDIR to one")?;
    let mut play = Play::new(services, screen);
    let naive = play.naive().await;
    let paced = play.paced(&store(&directory)).await?;
    let table = table::table(&naive, &paced, play.wanted.len());
    let sentences = play.books.sentences(&play.wanted, &paced.scores);
    let flaws = Score::all(&paced.scores).broken + play.books.lost(&play.wanted) + play.books.twice;
    let exit = if flaws == 0 { Exit::Done } else { Exit::Failed };
    Ok(Told { text: format!("{table}\n{sentences}"), exit, directory })
}
