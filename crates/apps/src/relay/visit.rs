//! Visits: what is to be forwarded, and the way back for its answer.

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
use crate::request::{Ask, AskError, HttpWorker};

/// A request on its way through.
pub struct Visit {
    /// Its method.
    pub method: Method,
    /// Its path and query, below the url of the lane.
    pub path: String,
    /// Its headers, without those of the connection.
    pub headers: HeaderMap,
    /// Its body, as it comes.
    pub body: Upload,
}

/// The head of an answer, and its body as it comes.
#[derive(Debug)]
pub struct Relayed {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, without those of the connection.
    pub headers: HeaderMap,
    /// Its body, piece by piece; it was cut off if the last one is an error.
    pub body: mpsc::Receiver<Result<Bytes, Broken>>,
    /// How long the service took to begin.
    pub upstream: Duration,
}

/// The service did not answer, or not to the end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Broken {
    /// Whether it took too long.
    pub timed_out: bool,
    /// For people.
    pub message: String,
}

/// The way back.
pub(super) type Reply = oneshot::Sender<Result<Relayed, Broken>>;

/// What the job of a visit carries: which one, and what to show of it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Payload {
    pub(super) visit: u64,
    method: String,
    /// Without its query, which may hold secrets.
    path: String,
}

/// Visits that wait for their turn, in this process.
#[derive(Clone)]
pub struct Relay {
    pub(super) http: Arc<HttpWorker>,
    waiting: Arc<Mutex<Waiting>>,
}

struct Waiting {
    visits: HashMap<u64, (Visit, Reply)>,
    /// Numbers start where no earlier process was: a visit of one that died is nobody's.
    next: u64,
}

/// A visit that was announced. Dropped before its turn came, it is taken back.
pub struct Announced {
    relay: Relay,
    number: u64,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.relay.take(self.number);
    }
}

impl Relay {
    /// A relay to the endpoints that `http` knows.
    pub fn new(http: Arc<HttpWorker>) -> Relay {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        let next = RandomState::new().build_hasher().finish() >> 16;
        Relay { http, waiting: Arc::new(Mutex::new(Waiting { visits: HashMap::new(), next })) }
    }

    /// Whether this lane has a place to forward to, and the path stays below it.
    pub fn check(&self, lane: &str, path: &str) -> Result<(), AskError> {
        let ask = Ask { path: Some(path.to_string()), ..Ask::default() };
        self.http.endpoints().destination(lane, &ask).map(drop)
    }

    /// The job of a visit, and where its answer will arrive.
    pub fn announce(
        &self,
        lane: &str,
        visit: Visit,
    ) -> (Job, Announced, oneshot::Receiver<Result<Relayed, Broken>>) {
        let (reply, answer) = oneshot::channel();
        let path = visit.path.split('?').next().unwrap_or_default().to_string();
        let method = visit.method.to_string();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let number = waiting.next;
        waiting.next += 1;
        waiting.visits.insert(number, (visit, reply));
        let job = Job::new(RELAY_KIND, &Payload { visit: number, method, path }).on([lane]);
        (job.attempts(1), Announced { relay: self.clone(), number }, answer)
    }

    pub(super) fn put_back(&self, number: u64, visit: Visit, reply: Reply) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.visits.insert(number, (visit, reply));
    }

    pub(super) fn take(&self, visit: u64) -> Option<(Visit, Reply)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).visits.remove(&visit)
    }
}
