//! `Idempotency-Key`: a request that is repeated, because its response was lost, takes effect once.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use data_encoding::HEXLOWER;
use paceline::jobs::Once;
use paceline::{NotSubmitted, Span};
use sha2::{Digest as _, Sha256};

use paceline_apps::api::Caller;
use paceline_apps::api::{ApiResult, Problem, not_submitted};

/// How long a request is remembered.
const KEPT_FOR: Span = Span::hours(24);
/// The longest key.
const LONGEST: usize = 255;

/// Keys of requests that are being processed.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<[u8; 32]>>>);

/// One such key, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    in_flight: InFlight,
    name: [u8; 32],
    mark: String,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.in_flight.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

impl InFlight {
    /// Takes the key of a request, if it has one. Fails if another request with it is in flight.
    pub(crate) fn enter(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &[u8],
    ) -> ApiResult<Option<Pass>> {
        let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
        let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= LONGEST);
        let Some(key) = key else {
            let detail = format!("`Idempotency-Key` must have 1 to {LONGEST} printable characters");
            return Err(Problem::malformed(detail));
        };
        let owner = [caller.name.as_bytes(), b"\0", key.as_bytes()].concat();
        let name: [u8; 32] = Sha256::digest(&owner).into();
        let mark = HEXLOWER.encode(&Sha256::digest(body));
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name) {
            let detail = "a request with this `Idempotency-Key` is still being processed: wait for its response";
            return Err(Problem::new(StatusCode::CONFLICT, "in_flight", detail));
        }
        Ok(Some(Pass { in_flight: self.clone(), name, mark }))
    }
}

impl Pass {
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Refuses a body that differs from the first one with this key.
    pub(crate) fn compare(&self, mark: &str) -> ApiResult<()> {
        if self.mark == mark {
            return Ok(());
        }
        let detail = "this `Idempotency-Key` was used with another body: use another key";
        Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", detail))
    }

    /// The record to store with the jobs: the key, and the jobs that were refused beforehand.
    pub(crate) fn once(&self, refused: BTreeMap<usize, String>) -> Once {
        let (name, mark) = (self.name.as_slice().into(), self.mark.clone());
        Once { name, mark, keep: KEPT_FOR, refused, words }
    }
}

/// A refusal as stored text, from which the same response can be made again.
fn words(error: &NotSubmitted) -> String {
    // Only permanent refusals are stored. They name no moment, so the clock is not needed.
    not_submitted(error, std::time::SystemTime::UNIX_EPOCH).remembered()
}
