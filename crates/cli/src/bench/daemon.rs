//! A daemon in a process of its own, and bare requests to it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::loopback;

/// A daemon that ends with the benchmark.
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
    /// One with this configuration, in a new directory.
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
        let address = address.with_context(|| format!("the daemon said: {line}"))?;
        Ok(Daemon { child, address })
    }

    /// Bytes of memory that the daemon has now.
    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        let pages: u64 = statm.split_whitespace().nth(1).context("a field is missing")?.parse()?;
        Ok(pages * rustix::param::page_size() as u64)
    }

    /// Processor time that the daemon has used.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let mut next = || ticks.next().context("a field is missing")?.context("not a number");
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs_f64((next()? + next()?) as f64 / per_second as f64))
    }
}

/// A request as it stands on the wire.
pub(super) fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// One request over a connection of its own.
pub(super) async fn post(
    address: SocketAddr,
    path: &str,
    body: &str,
    status: u16,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&request(address, "POST", path, body)).await?;
    let answer = loopback::read(&mut stream).await?;
    ensure!(answer.status == status, "{path}: {} {}", answer.status, answer.body);
    Ok(())
}
