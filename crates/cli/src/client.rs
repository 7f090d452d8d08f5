//! The client of the API. It asks the daemon that owns the store, or opens the store itself. Both give
//! the same responses, because both are the same API.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use paceline::Paceline;
use paceline_apps::http::proxy::Proxies;
use paceline_apps::http::{self, HttpError, Patience};
use paceline_server::{Server, Terms};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::TcpStream;
use url::Url;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::engine::{Purpose, start_with};
use crate::exit::{Exit, TryLater, Usage};
use crate::output::say;

/// The largest response that is read.
const LARGEST: usize = 256 << 20;
/// A daemon that takes longer to accept a connection does not run.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a response may take.
const RESPONSE_WITHIN: Duration = Duration::from_mins(1);
/// How long one request waits for a job to finish: shorter than a response may take.
const WAIT: &str = "wait=25";
/// How often a daemon that may be starting is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// A client of the API.
pub(crate) enum Client {
    /// The client of the process that owns the store: a daemon, or `services run`.
    Daemon(Box<(Daemon, http::Client)>),
    /// The client of an engine in this process, which starts no calls and ends with the command.
    Store(Box<Server>, Paceline),
}

/// The owner of the store, as seen by this process.
pub(crate) enum StoreOwner<T> {
    /// This process, with the result of its start.
    This(T),
    /// Another process, with a client for it.
    Other(Client),
}

/// Runs `start` on the store, unless another process owns the store and can be asked. Looks for that
/// process also while it waits for the store, because a starting daemon owns the store before it
/// publishes its address.
pub(crate) async fn start_or_ask<T>(
    config: &Config,
    start: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<StoreOwner<T>> {
    let mut start = std::pin::pin!(start);
    loop {
        if let Some(client) = Client::of_daemon(config).await {
            return Ok(StoreOwner::Other(client));
        }
        tokio::select! {
            biased;
            started = &mut start => return Ok(StoreOwner::This(started?)),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// The characters of a name that are not encoded in a path.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as one part of a path.
pub(crate) fn part(name: &str) -> String {
    // Unencoded, these two would change the path.
    match name {
        "." => "%2E".to_string(),
        ".." => "%2E%2E".to_string(),
        name => utf8_percent_encode(name, KEPT).to_string(),
    }
}

/// Runs a command with a client, and closes it.
pub(crate) fn with_client(
    config: &Config,
    act: impl AsyncFnOnce(&Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::open(config).await?;
        let exit = act(&client).await;
        client.close().await?;
        exit
    })
}

impl Client {
    /// The client of the daemon that owns the store, else of the store itself.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Client> {
        match start_or_ask(config, Client::of_store(config)).await? {
            StoreOwner::This(client) | StoreOwner::Other(client) => Ok(client),
        }
    }

    async fn of_store(config: &Config) -> anyhow::Result<Client> {
        let engine = start_with(config, Purpose::Looking, |builder| builder).await?;
        let terms = Terms { max_body: config.server.max_body(), ..Terms::default() };
        let server = Server::new(engine.pace.clone(), engine.kinds, terms);
        Ok(Client::Store(Box::new(server), engine.pace))
    }

    /// The client of a daemon, if one owns the store.
    pub(crate) async fn of_daemon(config: &Config) -> Option<Client> {
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
            say(format_args!(
                "asking process {pid}, which owns `{store}` and is configured by `{its}`"
            ));
        }
        let patience = Patience {
            connect: CONNECT_WITHIN,
            first_byte: RESPONSE_WITHIN,
            idle: RESPONSE_WITHIN,
        };
        let http = http::Client::new(patience, Proxies::default());
        Some(Client::Daemon(Box::new((daemon, http))))
    }

    /// Returns `true` if a process runs jobs on the store.
    pub(crate) fn runs_jobs(&self) -> bool {
        matches!(self, Client::Daemon(_))
    }

    /// Asks for JSON. A refusal is an error that says how to exit.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> anyhow::Result<Value> {
        json(&self.ask_bytes(method, path).await?)
    }

    /// Asks for a response of any bytes.
    pub(crate) async fn ask_bytes(&self, method: Method, path: &str) -> anyhow::Result<Bytes> {
        self.exchange(method, path, HeaderMap::new(), Bytes::new()).await
    }

    /// Submits jobs.
    pub(crate) async fn submit(&self, jobs: Bytes) -> anyhow::Result<Value> {
        let json_body = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json_body)]);
        json(&self.exchange(Method::POST, "/jobs", headers, jobs).await?)
    }

    /// A job when it is finished, or its state after 25 s.
    pub(crate) async fn wait_for(&self, job: &Value) -> anyhow::Result<Value> {
        let headers = HeaderMap::from_iter([(PREFER, HeaderValue::from_static(WAIT))]);
        json(&self.exchange(Method::GET, &format!("/jobs/{job}"), headers, Bytes::new()).await?)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> anyhow::Result<Bytes> {
        let path = format!("/api/v1{path}");
        match self {
            Client::Daemon(daemon) => {
                let (daemon, http) = &**daemon;
                if let Some(token) = &daemon.token {
                    let mut token = HeaderValue::from_str(&format!("Bearer {token}"))?;
                    token.set_sensitive(true);
                    headers.insert(AUTHORIZATION, token);
                }
                let url = Url::parse(&format!("http://{}{path}", daemon.address))?;
                let request = http.request(&url, method, headers, body);
                let request = request.context("the path is not one of HTTP")?;
                let response = async {
                    let exchange = http.ask(&url, request).await?;
                    Ok((exchange.status, http.whole(&url, exchange, LARGEST).await?))
                };
                let (status, body) = response.await.map_err(|error| lost(daemon, &error))?;
                succeeded(status, body.into())
            }
            Client::Store(server, _) => {
                let mut request = Request::new(Body::from(body));
                *request.method_mut() = method;
                *request.uri_mut() = path.parse()?;
                headers.insert(HOST, HeaderValue::from_static("localhost"));
                *request.headers_mut() = headers;
                let response = server.ask(request).await;
                let status = response.status();
                let body = Limited::new(response.into_body(), LARGEST).collect().await;
                let body = body.map_err(|error| anyhow::anyhow!("{error}"))?;
                succeeded(status, body.to_bytes())
            }
        }
    }

    /// Closes it. Earlier changes are durable.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Client::Store(_, pace) = self {
            pace.stop(Duration::ZERO).await?;
        }
        Ok(())
    }
}

/// The error of a daemon that is gone. It may be back later, and what it accepted is durable.
fn lost(daemon: &Daemon, error: &HttpError) -> TryLater {
    let Daemon { pid, address, .. } = daemon;
    TryLater(format!("process {pid} at {address} does not answer: {error}"))
}

fn json(bytes: &[u8]) -> anyhow::Result<Value> {
    serde_json::from_slice(bytes).context("the response is not JSON")
}

/// The body of a successful response; the error of any other response.
fn succeeded(status: StatusCode, body: Bytes) -> anyhow::Result<Bytes> {
    if status.is_success() {
        return Ok(body);
    }
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("no reason was given");
    let again = problem["retry_at"].as_str().map(|at| format!(" (try again at {at})"));
    let detail = format!("{detail}{}", again.unwrap_or_default());
    match status.as_u16() {
        429 | 503 => Err(TryLater(detail).into()),
        400 | 413 | 422 => Err(Usage(detail).into()),
        _ => bail!("{detail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_part_of_a_path() {
        assert_eq!(part("shop-1.example"), "shop-1.example");
        assert_eq!(part("host:a/b?c#d %"), "host%3Aa%2Fb%3Fc%23d%20%25");
        assert_eq!([part("."), part("..")], ["%2E", "%2E%2E"]);
    }
}
