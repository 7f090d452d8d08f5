//! The worker process from its parent's side: start, orders, messages, kill.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use tokio::sync::mpsc;

use super::words::{News, Order, line};

/// The most unread messages; beyond that the process waits.
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
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(&program);
        command.args(["demo", "--worker"]).arg(store).arg("--upstreams");
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

    pub(super) fn send(&mut self, order: &Order) -> anyhow::Result<()> {
        let sent = self.orders.write_all(line(order).as_bytes());
        sent.context("the worker process accepts no orders: its messages are above")
    }

    /// Its next message; `None` when it has ended.
    pub(super) async fn receive(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// Kills it with SIGKILL and waits for its end.
    pub(super) fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

fn read(out: ChildStdout, news: &mpsc::Sender<News>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str(&line) else { return };
        if news.blocking_send(message).is_err() {
            return;
        }
    }
}
