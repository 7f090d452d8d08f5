//! The workers behind the API: what is asked for here is done there.

use std::sync::Arc;

use axum::http::StatusCode;
use paceline::Builder;
use paceline_apps::call::{HTTP_KIND, HttpWorker};
use paceline_apps::relay::{RELAY_KIND, Relay, RelayWorker};

use crate::permits::{PERMIT_KIND, PermitWorker, Permits};
use crate::problem::{Problem, shown};

/// The worker of requests, the permits and the relay. Made before the engine, which needs workers.
#[derive(Clone)]
pub struct Doors {
    http: Arc<HttpWorker>,
    pub(crate) permits: Permits,
    pub(crate) relay: Relay,
}

impl Doors {
    /// Doors to the places that `http` knows.
    pub fn new(http: Arc<HttpWorker>) -> Doors {
        Doors { permits: Permits::default(), relay: Relay::new(http.clone()), http }
    }

    /// The same engine, with workers for the kinds `http`, `permit` and `relay`.
    #[must_use]
    pub fn register(&self, builder: Builder) -> Builder {
        builder
            .worker(HTTP_KIND, (*self.http).clone())
            .worker(PERMIT_KIND, PermitWorker::new(self.permits.clone()))
            .worker(RELAY_KIND, RelayWorker::new(self.relay.clone()))
    }

    /// What is wrong with a job, as far as that can be said without asking anybody.
    pub(crate) fn check<'a>(
        &self,
        kind: &str,
        payload: &[u8],
        lanes: impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        match kind {
            HTTP_KIND => {
                for lane in lanes {
                    let wrong = |error: paceline_apps::call::AskError| {
                        Problem::unprocessable(error.to_string()).about(lane)
                    };
                    self.http.check(payload, lane).map_err(wrong)?;
                }
                Ok(())
            }
            other => {
                let kind = shown(other);
                let detail = format!("no kind `{kind}` for callers: there is `{HTTP_KIND}`");
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_kind", detail))
            }
        }
    }
}
