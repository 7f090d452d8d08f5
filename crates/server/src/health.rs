//! The whole at a glance: figures, metrics, alive, ready.

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

/// An engine that takes longer to answer is not ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Ten figures.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Summary)]
pub(crate) struct Figures {
    /// Unfinished jobs.
    jobs: usize,
    /// Calls in the queues of lanes.
    waiting: usize,
    /// Attempts under way.
    running: usize,
    /// Jobs that are due later.
    due: usize,
    /// Calls that nobody here can run.
    parked: usize,
    lanes: usize,
    /// Lanes that their service, or its failures, closed.
    cooling: usize,
    /// Lanes that were stopped by hand.
    paused: usize,
    /// Jobs that were ever accepted.
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

/// Ten figures.
#[utoipa::path(
    get, path = "/summary", tag = "health",
    responses((status = 200, description = "How much there is of everything", body = Figures)),
)]
pub(crate) async fn summary(State(shared): State<Shared>) -> ApiResult<Json<Figures>> {
    Ok(Json(shared.pace.summary().await?.into()))
}

/// Figures as Prometheus reads them.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")),
)]
pub(crate) async fn metrics(State(shared): State<Shared>) -> ApiResult<Response> {
    shared.meters.look(&shared.pace, &shared.kinds).await?;
    let text = shared.meters.render();
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Alive: this process answers.
#[utoipa::path(
    get, path = "/livez", tag = "health",
    responses((status = 200, description = "It answers", body = String, content_type = "text/plain")),
)]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Ready: the engine takes work.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "It takes work", body = String, content_type = "text/plain"),
        (status = 503, description = "It does not, or not now", body = Problem),
    ),
)]
pub(crate) async fn readyz(State(shared): State<Shared>) -> ApiResult<&'static str> {
    let unready = |detail: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", detail);
    if shared.stopping() {
        return Err(unready("it is stopping"));
    }
    let summary = tokio::time::timeout(READY_WITHIN, shared.pace.summary()).await;
    match summary {
        Ok(answer) => answer.map(|_| "ok\n").map_err(Problem::from),
        Err(_) => Err(unready("the engine does not answer in time")),
    }
}
