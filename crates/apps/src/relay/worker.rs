//! The worker of the kind `relay`: forwards one request and its response, both as streams.

use std::time::Duration;

use hyper::header::{CONTENT_LOCATION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::{Request, StatusCode};
use paceline::workers::OnCrash;
use paceline::{Call, Failed, Failure, Outcome, Work, Worker};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use super::queued::{ForwardedRequest, Payload, Relay, RelayedResponse, Reply, UpstreamError};
use crate::http::announced::{announced, retry_after};
use crate::http::{Client, Exchange, HttpError, NotSent, Refusal, Upload, announcing, refusal};
use crate::request::{Destination, RequestPayload};

/// Pieces of a response that are buffered for a slow client.
const MOST_AHEAD: usize = 4;
/// The time limit for the client to read one piece, and for the upstream to send the next.
const STALLED: Duration = Duration::from_mins(1);
/// The time until a response must begin, unless the lane's configuration says otherwise.
const FIRST_BYTE: Duration = Duration::from_mins(1);
/// The longest stream.
const LONGEST: Duration = Duration::from_hours(24);

/// Headers that belong to one connection and are not passed on (RFC 9110, 7.6.1).
const OF_THE_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Forwards requests.
pub(super) struct RelayWorker(Relay);

impl RelayWorker {
    /// A worker for the requests of this relay.
    pub(super) fn new(relay: Relay) -> RelayWorker {
        RelayWorker(relay)
    }
}

impl Worker for RelayWorker {
    async fn run(&self, call: Call) -> Work {
        let Payload { request: number, .. } = call.payload()?;
        let Some((forwarded, reply)) = self.0.take(number) else {
            return Err(gone("its caller has disconnected"));
        };
        self.forward(&call, number, forwarded, reply).await
    }

    fn sends_itself(&self) -> bool {
        true
    }

    fn keeps_worker(&self) -> bool {
        false
    }

    fn on_crash(&self) -> OnCrash {
        OnCrash::End
    }

    fn timeout(&self, _payload: &[u8], _lane: &str) -> Option<Duration> {
        Some(LONGEST)
    }
}

/// A failure that says nothing about the upstream.
fn gone(why: &str) -> Failed {
    Failed::lost(Failure::permanent("gone").because(why))
}

impl RelayWorker {
    async fn forward(
        &self,
        call: &Call,
        number: u64,
        forwarded: ForwardedRequest,
        mut reply: Reply,
    ) -> Work {
        let ask =
            RequestPayload { path: Some(forwarded.path.clone()), ..RequestPayload::default() };
        let destination = match self.0.http.endpoints().destination(call.lane(), &ask) {
            Ok(destination) => destination,
            Err(error) => return Err(Failed::of(error.into())),
        };
        let client = self.0.http.client(destination.reach);
        let begun = tokio::select! {
            begun = client.begin(call, &destination.url) => begun,
            () = reply.closed() => return Err(gone("its caller has disconnected")),
        };
        let attempt = match begun {
            Ok(attempt) => attempt,
            Err(NotSent::Late(late)) => {
                // Nothing was sent: the request waits for its next turn.
                self.0.put_back(number, forwarded, reply);
                return Err(late.into());
            }
            Err(NotSent::Failed(error)) => return broken(reply, &error),
        };
        let began = Instant::now();
        let exchange = async {
            let request = request(forwarded, &destination, client)
                .ok_or_else(|| not_a_request(&destination))?;
            let first_byte = destination.timeout.unwrap_or(FIRST_BYTE);
            let too_late = |_| Err(HttpError::Timeout("waiting for a response", first_byte));
            tokio::time::timeout(first_byte, attempt.send(request)).await.unwrap_or_else(too_late)
        };
        let exchange = tokio::select! {
            exchange = exchange => exchange,
            () = reply.closed() => return Err(gone("its caller has disconnected")),
        };
        match exchange {
            Ok(mut exchange) => {
                let upstream = began.elapsed();
                self.lead_back(&mut exchange.headers, call.lane(), &destination.url);
                pass_back(call, client, &destination.url, exchange, reply, upstream).await
            }
            Err(error) => broken(reply, &error),
        }
    }
}

/// Reports the error to the client, and a failure of the lane to the engine.
fn broken(reply: Reply, error: &HttpError) -> Work {
    let timed_out = matches!(error, HttpError::Timeout(..));
    let _ = reply.send(Err(UpstreamError { timed_out, message: error.to_string() }));
    Outcome::failed(error.failure())
}

impl RelayWorker {
    /// Rewrites the `Location` of a redirect. Below the lane's `url` it leads through the relay
    /// again, so that the limits of the lane hold for it too; otherwise it becomes an absolute URL.
    fn lead_back(&self, headers: &mut HeaderMap, lane: &str, asked: &Url) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let to = headers.get(&name).and_then(|to| to.to_str().ok());
            let Some(to) = to.and_then(|to| asked.join(to).ok()) else { continue };
            let below = self.0.http.endpoints().part_below(lane, &to);
            let led = below.map_or_else(
                || to.to_string(),
                |rest| format!("/to/{}{rest}", utf8_percent_encode(lane, NON_ALPHANUMERIC)),
            );
            if let Ok(led) = HeaderValue::from_str(&led) {
                headers.insert(name, led);
            }
        }
    }
}

fn not_a_request(destination: &Destination) -> HttpError {
    HttpError::NotHttp(destination.url.path().to_string())
}

fn request(
    forwarded: ForwardedRequest,
    destination: &Destination,
    client: &Client,
) -> Option<Request<Upload>> {
    let ForwardedRequest { method, mut headers, body, .. } = forwarded;
    strip(&mut headers);
    // The client's `Host` names the daemon.
    headers.remove(HOST);
    destination.request(client, method, headers, body)
}

/// Removes the headers that belong to one connection, including those that `Connection` lists.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    // The HTTP client sets the length of a streamed body itself.
    headers.remove("content-length");
}

/// Passes the response back: the head first, then piece by piece as fast as the client reads.
async fn pass_back(
    call: &Call,
    client: &Client,
    url: &url::Url,
    mut exchange: Exchange,
    reply: Reply,
    upstream: Duration,
) -> Work {
    let (status, mut headers) = (exchange.status, std::mem::take(&mut exchange.headers));
    if status.is_informational() {
        let message = format!("unexpected status {status} (protocol upgrade)");
        let _ = reply.send(Err(UpstreamError { timed_out: false, message: message.clone() }));
        return Outcome::failed(Failure::permanent("protocol").because(&message));
    }
    let said = announced(&headers, call.wall());
    let wait = retry_after(&headers, call.wall());
    let length = headers.get("content-length").cloned();
    strip(&mut headers);
    if let Some(length) = length {
        headers.insert("content-length", length);
    }
    let (pieces, body) = mpsc::channel(MOST_AHEAD);
    if reply.send(Ok(RelayedResponse { status, headers, body, upstream })).is_err() {
        return Err(gone("its caller has disconnected"));
    }
    loop {
        let next = tokio::time::timeout(STALLED, client.piece(url, &mut exchange)).await;
        let next = next.unwrap_or(Err(HttpError::Timeout("the next piece of the body", STALLED)));
        let piece = match next {
            Ok(Some(piece)) => Ok(piece),
            Ok(None) => break client.finish(url, exchange).await,
            Err(error) => {
                let broken = UpstreamError { timed_out: false, message: error.to_string() };
                let _ = pieces.send(Err(broken)).await;
                return Outcome::failed(error.failure());
            }
        };
        let sent = tokio::time::timeout(STALLED, pieces.send(piece)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err(gone("its caller has disconnected, or stopped reading"));
        }
    }
    announcing(verdict(status, wait), said)
}

/// The meaning of a status for the lane. The call is over in any case.
fn verdict(status: StatusCode, wait: Option<Duration>) -> Work {
    if status.is_client_error() || status.is_server_error() {
        return match refusal(status, wait) {
            // The client has the response: there is nothing to retry.
            Refusal::Throttled(wait) => Outcome::refused(wait),
            refused @ Refusal::Failed(..) => refused.into_work(),
        };
    }
    Outcome::done(serde_json::json!({ "status": status.as_u16() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_are_not_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("content-length", "3"),
            ("authorization", "Bearer upstream"),
            ("x-other", "2"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "x-other"]);
    }
}
