//! A daemon in a process of its own, and requests to it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use hyper::Method;

use crate::local::{LocalServer, Response};

/// A daemon that is killed when this is dropped.
pub(super) struct Daemon {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    /// Starts one with this configuration, in a new directory.
    pub(super) fn start(directory: &Path, text: &str) -> anyhow::Result<Daemon> {
        std::fs::create_dir(directory)?;
        let config = directory.join("bench.toml");
        std::fs::write(&config, text)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--config").arg(config);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "quiet"]);
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let stderr = child.stderr.take().context("it was piped")?;
        let mut line = String::new();
        BufReader::new(stderr).read_line(&mut line)?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(';').next());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("the daemon printed: {line}"))?;
        Ok(Daemon { child, address })
    }

    /// A client of it, with connections of its own.
    pub(super) fn client(&self) -> LocalServer {
        LocalServer::new(self.address)
    }

    /// The memory of the daemon, in bytes.
    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        let pages: u64 = statm.split_whitespace().nth(1).context("a field is missing")?.parse()?;
        Ok(pages * rustix::param::page_size() as u64)
    }

    /// The processor time of the daemon so far.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let mut next = || ticks.next().context("a field is missing")?.context("not a number");
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs_f64((next()? + next()?) as f64 / per_second as f64))
    }
}

/// Sends one request, and checks the status of its response.
pub(super) async fn post(
    daemon: &LocalServer,
    path: &str,
    body: &str,
    status: u16,
) -> anyhow::Result<Response> {
    let response = daemon.ask(Method::POST, path, body.to_string()).await?;
    ensure!(response.status == status, "{path}: {} {}", response.status, response.body);
    Ok(response)
}
