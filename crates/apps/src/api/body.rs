//! Request bodies: JSON, bounded in size and time, and bounded in memory over all requests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{ApiResult, Problem};

/// How long a body may take to arrive.
const WITHIN: Duration = Duration::from_secs(30);
/// Memory for all bodies, in bodies of the largest size.
const AT_ONCE: usize = 8;
/// Room is counted in steps of this. The first step is free: connections are bounded themselves,
/// and small requests must not wait for large ones.
const STEP: usize = 16 << 10;
/// The `Retry-After` of a body that found no room: other bodies leave soon.
const SOON: Duration = Duration::from_secs(1);

/// The bounds of one body, and of all together.
#[derive(Clone, Debug)]
pub struct Bodies {
    most: usize,
    /// In steps.
    room: Arc<Semaphore>,
}

/// A body, and the room that it takes.
#[derive(Debug)]
pub struct Sent {
    bytes: Vec<u8>,
    /// In steps.
    room: Vec<OwnedSemaphorePermit>,
}

impl Deref for Sent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// Bodies of at most `most` bytes each.
    pub fn new(most: usize) -> Bodies {
        let steps = most.div_ceil(STEP).saturating_mul(AT_ONCE).min(Semaphore::MAX_PERMITS);
        Bodies { most, room: Arc::new(Semaphore::new(steps)) }
    }

    /// Reads the JSON body of a request.
    pub async fn json(&self, request: Request<Body>, now: SystemTime) -> ApiResult<Sent> {
        if !is_json(request.headers()) {
            let detail = "the body must be JSON, sent with `Content-Type: application/json`";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let all = self.all(request.into_body(), now);
        tokio::time::timeout(WITHIN, all).await.unwrap_or_else(|_| {
            let detail = format!("the body did not arrive in {} s", WITHIN.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", detail))
        })
    }

    async fn all(&self, mut body: Body, now: SystemTime) -> ApiResult<Sent> {
        let mut sent = Sent { bytes: Vec::new(), room: Vec::new() };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Problem::malformed("the body was cut off"))?;
            let Ok(piece) = frame.into_data() else { continue };
            let size = sent.bytes.len() + piece.len();
            if size > self.most {
                return Err(self.too_large());
            }
            // Counted as it arrives: a client that announces much and sends nothing takes no room.
            while size > (sent.room.len() + 1) * STEP {
                let step = self.room.clone().try_acquire_owned();
                sent.room.push(step.map_err(|_| no_room(now))?);
            }
            sent.bytes.extend_from_slice(&piece);
        }
        Ok(sent)
    }

    fn too_large(&self) -> Problem {
        let detail = format!("the body is larger than {} bytes: send less at a time", self.most);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
    }
}

fn no_room(now: SystemTime) -> Problem {
    let detail = "too many large bodies at once: retry in a moment";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).later(Some(now + SOON), now)
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let said = said.and_then(|said| said.split(';').next()).unwrap_or_default().trim();
    said.eq_ignore_ascii_case("application/json")
}

/// Parses JSON. An error names the line and column.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("invalid body: {error}");
        match error.classify() {
            serde_json::error::Category::Data => Problem::unprocessable(detail),
            _ => Problem::malformed(detail),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    async fn send(bodies: &Bodies, size: usize) -> ApiResult<Sent> {
        let pieces = vec![b' '; size];
        let pieces = pieces.chunks(10_000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec()));
        let pieces: Vec<_> = pieces.map(|piece| piece.map(Bytes::from)).collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let request = Request::post("/").header(CONTENT_TYPE, "application/json; charset=utf-8");
        bodies.json(request.body(body).expect("a request"), NOW).await
    }

    #[tokio::test]
    async fn all_bodies_together_take_no_more_room_than_eight_of_the_largest() {
        let bodies = Bodies::new(5 * STEP);
        let too_large = send(&bodies, 5 * STEP + 1).await.expect_err("one byte too many");
        assert_eq!(too_large.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let mut held = Vec::new();
        for _ in 0..10 {
            held.push(send(&bodies, 5 * STEP).await.expect("there is room"));
        }
        let refused = send(&bodies, STEP + 1).await.expect_err("there is none left");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.retry_at(), Some("1970-01-01T00:00:01.000Z"));
        assert!(send(&bodies, STEP).await.is_ok(), "small requests need no room");
        held.pop();
        assert_eq!(send(&bodies, 5 * STEP).await.expect("there is room again").len(), 5 * STEP);
    }
}
