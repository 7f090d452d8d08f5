//! The way to the work of a store: through the daemon that owns it, else through the store itself.
//! Both answer alike, because both are the same API.

mod events;

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use paceline::Paceline;
use paceline_server::{Server, Terms};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::engine::{For, start_with};
use crate::exit::{Exit, Later};
use crate::fetch::Usage;
use crate::output::say;

pub(crate) use events::Events;

/// The largest answer that is read.
const LARGEST: usize = 256 << 20;
/// A daemon that takes longer to accept a connection is none.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a daemon that may be starting is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One way in.
pub(crate) enum Door {
    /// A daemon owns the store, or another command that lets its owner in.
    Daemon(Daemon),
    /// Nobody does: this process, for a moment. It starts nothing.
    Store(Box<Server>, Paceline),
}

/// Who has the store.
pub(crate) enum Way<T> {
    /// This process, which has started something on it.
    Ours(T),
    /// Somebody who can be asked.
    Theirs(Door),
}

/// Starts something on the store, unless somebody who has it can be asked, be it while this waits for
/// the store: whoever only just started has taken it before saying where to ask.
pub(crate) async fn or_ask<T>(
    config: &Config,
    start: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Way<T>> {
    let mut start = std::pin::pin!(start);
    loop {
        if let Some(door) = Door::of_daemon(config).await {
            return Ok(Way::Theirs(door));
        }
        tokio::select! {
            biased;
            started = &mut start => return Ok(Way::Ours(started?)),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// What a name may keep as a part of a path.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as one part of a path.
pub(crate) fn part(name: &str) -> String {
    // As they are, these would lead to another path.
    match name {
        "." => "%2E".to_string(),
        ".." => "%2E%2E".to_string(),
        name => utf8_percent_encode(name, KEPT).to_string(),
    }
}

/// Opens the door, does something through it, and closes it.
pub(crate) fn through(
    config: &Config,
    act: impl AsyncFnOnce(&Door) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let door = Door::open(config).await?;
        let exit = act(&door).await;
        door.close().await?;
        exit
    })
}

impl Door {
    /// Finds the way.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Door> {
        match or_ask(config, Door::of_store(config)).await? {
            Way::Ours(door) | Way::Theirs(door) => Ok(door),
        }
    }

    async fn of_store(config: &Config) -> anyhow::Result<Door> {
        let engine = start_with(config, For::Looking, |builder| builder).await?;
        let terms = Terms { max_body: config.server.max_body(), ..Terms::default() };
        let server = Server::new(engine.pace.clone(), engine.doors, terms);
        Ok(Door::Store(Box::new(server), engine.pace))
    }

    /// The way through a daemon, if one owns the store.
    pub(crate) async fn of_daemon(config: &Config) -> Option<Door> {
        let daemon = Daemon::of(&config.store_path)?;
        let connect = TcpStream::connect(daemon.address);
        let connected = tokio::time::timeout(CONNECT_WITHIN, connect).await;
        if !matches!(connected, Ok(Ok(_))) {
            return None;
        }
        let own = config.file.as_deref().and_then(|file| file.canonicalize().ok());
        if let (Some(own), Some(its)) = (own, &daemon.config)
            && own != *its
        {
            let (its, store) = (its.display(), config.store_path.display());
            let pid = daemon.pid;
            say(format_args!("asking process {pid}, which owns `{store}` and was told `{its}`"));
        }
        Some(Door::Daemon(daemon))
    }

    /// Whether somebody is there to do the work.
    pub(crate) fn works(&self) -> bool {
        matches!(self, Door::Daemon(_))
    }

    /// Asks for something as JSON. A refusal is an error that says how to exit.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> anyhow::Result<Value> {
        json(&self.ask_bytes(method, path).await?)
    }

    /// The same, for answers of any bytes.
    pub(crate) async fn ask_bytes(&self, method: Method, path: &str) -> anyhow::Result<Bytes> {
        self.exchange(request(method, path), Body::empty()).await
    }

    /// Hands jobs in.
    pub(crate) async fn submit(&self, jobs: Bytes) -> anyhow::Result<Value> {
        let request = request(Method::POST, "/jobs").header(CONTENT_TYPE, "application/json");
        json(&self.exchange(request, Body::from(jobs)).await?)
    }

    /// What happens from now on. Only a daemon tells.
    pub(crate) async fn events(&self) -> anyhow::Result<Option<Events>> {
        let Door::Daemon(daemon) = self else { return Ok(None) };
        let request = owned(daemon, request(Method::GET, "/events")).body(Body::empty())?;
        Events::open(daemon, request).await.map(Some)
    }

    async fn exchange(&self, request: Builder, body: Body) -> anyhow::Result<Bytes> {
        let answer = match self {
            Door::Daemon(daemon) => {
                let request = owned(daemon, request).body(body)?;
                let answer = tokio::time::timeout(ANSWER_WITHIN, send(daemon, request)).await;
                let silent = || anyhow::anyhow!("nothing came in {} s", ANSWER_WITHIN.as_secs());
                let answer = answer.unwrap_or_else(|_| Err(silent()));
                answer.map_err(|error| lost(daemon, &error))?
            }
            Door::Store(server, _) => {
                server.ask(request.header(HOST, "localhost").body(body)?).await
            }
        };
        told(answer).await
    }

    /// Closes it: what was asked for is durable.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Door::Store(_, pace) = self {
            pace.stop(Duration::ZERO).await?;
        }
        Ok(())
    }
}

fn request(method: Method, path: &str) -> Builder {
    Request::builder().method(method).uri(format!("/api/v1{path}"))
}

/// A request of the owner of a daemon.
fn owned(daemon: &Daemon, mut request: Builder) -> Builder {
    if let Some(token) = &daemon.token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    request.header(HOST, daemon.address.to_string())
}

/// A daemon that is gone may be back later: what it accepted is durable.
fn lost(daemon: &Daemon, error: &anyhow::Error) -> Later {
    let Daemon { pid, address, .. } = daemon;
    Later(format!("process {pid} at {address} does not answer: {error:#}"))
}

fn json(bytes: &[u8]) -> anyhow::Result<Value> {
    serde_json::from_slice(bytes).context("the answer is not JSON")
}

async fn send(daemon: &Daemon, request: Request<Body>) -> anyhow::Result<Response<Body>> {
    let stream = TcpStream::connect(daemon.address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut connection = std::pin::pin!(connection);
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        anyhow::Ok(Response::from_parts(head, Body::from(body)))
    };
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // The connection is over when its answer is there, or will never be.
        ended = &mut connection => {
            ended?;
            answer.await
        }
    }
}

/// The body of a good answer; of any other, the error that it stands for.
async fn told(answer: Response<Body>) -> anyhow::Result<Bytes> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("no reason was given");
    let again = problem["retry_at"].as_str().map(|at| format!(" (try again at {at})"));
    let detail = format!("{detail}{}", again.unwrap_or_default());
    match status.as_u16() {
        429 | 503 => Err(Later(detail).into()),
        400 | 413 | 422 => Err(Usage(detail).into()),
        _ => bail!("{detail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path_whatever_is_in_it() {
        assert_eq!(part("shop-1.example"), "shop-1.example");
        assert_eq!(part("host:a/b?c#d %"), "host%3Aa%2Fb%3Fc%23d%20%25");
        assert_eq!([part("."), part("..")], ["%2E", "%2E%2E"]);
    }
}
