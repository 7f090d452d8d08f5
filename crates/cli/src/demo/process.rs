//! The worker process as its parent sees it: started, told, heard, killed.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use tokio::sync::mpsc;

use super::words::{News, Order, line};

/// News that wait to be read; beyond it the process waits.
const MOST_NEWS: usize = 1_024;

/// A running worker process. Dropping it kills it, and returns when it is gone.
pub(super) struct Process {
    child: Child,
    orders: ChildStdin,
    news: mpsc::Receiver<News>,
}

impl Process {
    /// Starts this program anew, as a worker on this store.
    pub(super) fn start(store: &Path, addresses: &[SocketAddr]) -> anyhow::Result<Process> {
        let program = std::env::current_exe().context("this program cannot find itself")?;
        let mut command = Command::new(&program);
        command.args(["demo", "--worker"]).arg(store).arg("--services");
        command.args(addresses.iter().map(SocketAddr::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C at a terminal is for the parent alone, which ends its process itself.
        command.process_group(0);
        let child = command.spawn();
        let mut child =
            child.with_context(|| format!("cannot start `{}` again", program.display()))?;
        let orders = child.stdin.take().expect("piped");
        let out = child.stdout.take().expect("piped");
        let (sender, news) = mpsc::channel(MOST_NEWS);
        std::thread::spawn(move || read(out, &sender));
        Ok(Process { child, orders, news })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn tell(&mut self, order: &Order) -> anyhow::Result<()> {
        let told = self.orders.write_all(line(order).as_bytes());
        told.context("the worker process takes no orders: what it said stands above")
    }

    /// What it tells next; nothing when it has ended.
    pub(super) async fn hear(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// Kills it, as nothing can be killed harder, and waits until it is gone.
    pub(super) fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Waits until it is gone, which it is about to be.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Of a process that is gone nothing is asked.
        let _ = self.kill();
    }
}

fn read(out: ChildStdout, news: &mpsc::Sender<News>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Ok(heard) = serde_json::from_str(&line) else { return };
        if news.blocking_send(heard).is_err() {
            return;
        }
    }
}
