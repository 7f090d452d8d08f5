//! The way to the work of a store: through the daemon that owns it, else through the store itself.
//! Both answer alike, because both are the same API.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use paceline::Paceline;
use paceline_server::{Server, Terms};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::engine::{For, start_with};
use crate::exit::Later;
use crate::fetch::Usage;

/// The largest answer that is read.
const LARGEST: usize = 256 << 20;
/// A daemon that takes longer to accept a connection is none.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// One way in.
pub(crate) enum Door {
    /// A daemon owns the store.
    Daemon(Daemon),
    /// Nobody does: this process, for a moment. It starts nothing.
    Store(Box<Server>, Paceline),
}

impl Door {
    /// Finds the way.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Door> {
        if let Some(daemon) = Daemon::of(&config.store_path) {
            let connect = TcpStream::connect(daemon.address);
            if let Ok(Ok(_)) = tokio::time::timeout(CONNECT_WITHIN, connect).await {
                return Ok(Door::Daemon(daemon));
            }
        }
        let engine = start_with(config, For::Looking, |builder| builder).await?;
        let server = Server::new(engine.pace.clone(), engine.doors, Terms::default());
        Ok(Door::Store(Box::new(server), engine.pace))
    }

    /// Whether somebody is there to do the work.
    pub(crate) fn works(&self) -> bool {
        matches!(self, Door::Daemon(_))
    }

    /// Asks for something as JSON. A refusal is an error that says how to exit.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let bytes = self.ask_bytes(method, path, body).await?;
        serde_json::from_slice(&bytes).context("the daemon's answer is not JSON")
    }

    /// The same, for answers of any bytes.
    pub(crate) async fn ask_bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Bytes> {
        let mut request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        match self {
            Door::Daemon(daemon) => {
                if let Some(token) = &daemon.token {
                    request = request.header(AUTHORIZATION, format!("Bearer {token}"));
                }
                let request = request.header(HOST, daemon.address.to_string()).body(body)?;
                let lost = || format!("the daemon at {} does not answer", daemon.address);
                let answer = send(daemon, request).await.with_context(lost)?;
                told(answer).await
            }
            Door::Store(server, _) => {
                let request = request.header(HOST, "localhost").body(body)?;
                told(server.ask(request).await).await
            }
        }
    }

    /// Closes it: what was asked for is durable.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Door::Store(_, pace) = self {
            pace.stop(Duration::ZERO).await?;
        }
        Ok(())
    }
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
    let detail = problem["detail"].as_str().unwrap_or("the daemon gave no reason");
    let again = problem["retry_at"].as_str().map(|at| format!(" (try again at {at})"));
    let detail = format!("{detail}{}", again.unwrap_or_default());
    match status.as_u16() {
        429 | 503 => Err(Later(detail).into()),
        400 | 422 => Err(Usage(detail).into()),
        _ => bail!("{detail}"),
    }
}
