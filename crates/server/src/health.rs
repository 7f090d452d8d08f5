//! Health: a summary, metrics, liveness and readiness.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use paceline::jobs::Summary;
use serde::Serialize;
use utoipa::ToSchema;

use crate::server::Shared;
use paceline_apps::api::{ApiResult, Problem};

/// An engine that takes longer to respond is not ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Counts of jobs, calls and lanes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summary)]
pub(crate) struct Figures {
    /// Unfinished jobs.
    jobs: usize,
    /// Calls in the queues of lanes.
    waiting: usize,
    /// Attempts in flight.
    running: usize,
    /// Jobs that are due later.
    due: usize,
    /// Calls whose lane or kind is not configured.
    parked: usize,
    lanes: usize,
    /// Lanes in a cooldown, which their upstream or its failures caused.
    cooling: usize,
    /// Lanes that an operator paused.
    paused: usize,
    /// Jobs accepted since the store was made.
    accepted: u64,
    /// The number of the last event.
    events: u64,
}

impl From<Summary> for Figures {
    fn from(it: Summary) -> Figures {
        Figures {
            jobs: it.jobs,
            waiting: it.waiting,
            running: it.running,
            due: it.due,
            parked: it.parked,
            lanes: it.lanes,
            cooling: it.cooling,
            paused: it.paused,
            accepted: it.accepted,
            events: it.events,
        }
    }
}

/// Shows counts of jobs, calls and lanes.
#[utoipa::path(
    get, path = "/summary", tag = "health",
    responses((status = 200, description = "The counts", body = Figures)),
)]
pub(crate) async fn summary(State(shared): State<Shared>) -> ApiResult<Json<Figures>> {
    Ok(Json(shared.pace.summary().await?.into()))
}

/// Metrics in Prometheus text format.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")),
)]
pub(crate) async fn metrics(State(shared): State<Shared>) -> ApiResult<Response> {
    shared.meters.look(&shared.pace, &shared.kinds).await?;
    let text = shared.meters.render();
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Liveness: the process responds.
#[utoipa::path(
    get, path = "/livez", tag = "health",
    responses((status = 200, description = "The process responds", body = String, content_type = "text/plain")),
)]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Readiness: the engine accepts work.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "The engine accepts work", body = String, content_type = "text/plain"),
        (status = 503, description = "The engine is stopping, or does not respond", body = Problem),
    ),
)]
pub(crate) async fn readyz(State(shared): State<Shared>) -> ApiResult<&'static str> {
    let unready = |detail: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", detail);
    if shared.stopping() {
        return Err(unready("the daemon is stopping"));
    }
    let summary = tokio::time::timeout(READY_WITHIN, shared.pace.summary()).await;
    match summary {
        Ok(answer) => answer.map(|_| "ok\n").map_err(Problem::from),
        Err(_) => Err(unready("the engine does not respond in time")),
    }
}
