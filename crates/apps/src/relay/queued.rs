//! Requests that wait to be forwarded, and the channels for their responses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use paceline::Job;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::RELAY_KIND;
use crate::http::Upload;
use crate::request::{HttpWorker, PayloadError, RequestPayload};

/// A request to forward.
pub struct ForwardedRequest {
    /// The method.
    pub method: Method,
    /// The path and query, below the `url` of the lane.
    pub path: String,
    /// The headers, without those of the connection.
    pub headers: HeaderMap,
    /// The body, as a stream.
    pub body: Upload,
}

/// The head of a response, and its body as a stream.
#[derive(Debug)]
pub struct RelayedResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers, without those of the connection.
    pub headers: HeaderMap,
    /// The body, piece by piece. An error as the last piece means that it was cut off.
    pub body: mpsc::Receiver<Result<Bytes, UpstreamError>>,
    /// The time until the upstream began to respond.
    pub upstream: Duration,
}

/// The upstream did not respond, or cut its response off.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct UpstreamError {
    /// `true` if a timeout passed.
    pub timed_out: bool,
    /// The error, for people.
    pub message: String,
}

/// The channel for the response.
pub(super) type Reply = oneshot::Sender<Result<RelayedResponse, UpstreamError>>;

/// The payload of the job: the number of the request, and a description for people.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Payload {
    #[serde(rename = "visit")]
    pub(super) request: u64,
    method: String,
    /// Without its query, which may hold secrets.
    path: String,
}

/// The requests that wait for their turn, in this process.
#[derive(Clone)]
pub struct Relay {
    pub(super) http: Arc<HttpWorker>,
    waiting: Arc<Mutex<Waiting>>,
}

struct Waiting {
    requests: HashMap<u64, (ForwardedRequest, Reply)>,
    /// Starts at random, so that jobs of an earlier process match no request of this one.
    next: u64,
}

/// A request that waits for its turn. Dropping this withdraws it.
pub struct QueuedRequest {
    relay: Relay,
    number: u64,
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.relay.take(self.number);
    }
}

impl Relay {
    /// A relay to the endpoints of `http`.
    pub fn new(http: Arc<HttpWorker>) -> Relay {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        let next = RandomState::new().build_hasher().finish() >> 16;
        Relay { http, waiting: Arc::new(Mutex::new(Waiting { requests: HashMap::new(), next })) }
    }

    /// Checks that the lane has a `url`, and that the path stays below it.
    pub fn check(&self, lane: &str, path: &str) -> Result<(), PayloadError> {
        let ask = RequestPayload { path: Some(path.to_string()), ..RequestPayload::default() };
        self.http.endpoints().destination(lane, &ask).map(drop)
    }

    /// The job of a request, and the channel on which its response will arrive.
    pub fn enqueue(
        &self,
        lane: &str,
        request: ForwardedRequest,
    ) -> (Job, QueuedRequest, oneshot::Receiver<Result<RelayedResponse, UpstreamError>>) {
        let (reply, answer) = oneshot::channel();
        let path = request.path.split('?').next().unwrap_or_default().to_string();
        let method = request.method.to_string();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = waiting.next;
        waiting.next += 1;
        waiting.requests.insert(number, (request, reply));
        let job = Job::new(RELAY_KIND, &Payload { request: number, method, path }).on([lane]);
        (job.attempts(1), QueuedRequest { relay: self.clone(), number }, answer)
    }

    pub(super) fn put_back(&self, number: u64, request: ForwardedRequest, reply: Reply) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.requests.insert(number, (request, reply));
    }

    pub(super) fn take(&self, number: u64) -> Option<(ForwardedRequest, Reply)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).requests.remove(&number)
    }
}
