//! Services and rosters: show, run and reset.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use paceline::Time;
use paceline::report::JobState;
use paceline::services::{ResetServiceError, RosterStatus, ServiceStatus};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::output_note;
use crate::api::{
    Admitted, ApiResult, Handle, Problem, StateWord, not_submitted, shown, stamp, wall,
};

/// All routes of services and rosters.
pub(super) fn routes() -> OpenApiRouter<Handle> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(output))
        .routes(routes!(run))
        .routes(routes!(reset))
        .routes(routes!(rosters))
        .routes(routes!(show_roster))
}

/// A service: work that comes again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Service)]
pub(super) struct ServiceShown {
    #[schema(value_type = String)]
    name: Arc<str>,
    /// The lane that paces it; `null` if the service is no longer configured.
    #[schema(value_type = Option<String>)]
    lane: Option<Arc<str>>,
    /// The job that runs it now.
    running: Option<u64>,
    /// When a roster will run it next.
    next_at: Option<String>,
    /// The time until then, in milliseconds.
    left_ms: Option<u64>,
    /// When it last succeeded.
    last_at: Option<String>,
    /// The time since then, in milliseconds.
    passed_ms: Option<u64>,
    /// When its last run ended.
    ended_at: Option<String>,
    /// The state in which its last run ended.
    #[schema(value_type = Option<StateWord>)]
    result: Option<JobState>,
    #[schema(value_type = Option<String>)]
    why: Option<Arc<str>>,
}

/// A roster: a list of services that are run in turn.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Roster)]
pub(super) struct RosterShown {
    #[schema(value_type = String)]
    name: Arc<str>,
    /// When it checks for due services next.
    check_at: Option<String>,
    /// The service that it runs now.
    #[schema(value_type = Option<String>)]
    current: Option<Arc<str>>,
    /// The services that its cycle has not reached yet.
    #[schema(value_type = Vec<String>)]
    remaining: Vec<Arc<str>>,
    completed: usize,
    results: Vec<RunShown>,
}

/// The result of a service in a cycle.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunShown {
    #[schema(value_type = String)]
    service: Arc<str>,
    #[schema(value_type = StateWord)]
    result: JobState,
    #[schema(value_type = Option<String>)]
    why: Option<Arc<str>>,
}

fn service(status: ServiceStatus, now: Time) -> ServiceShown {
    let record = status.record;
    let at = |time: Time| stamp(wall(time));
    let succeeded = record.succeeded_at.map(|at| at.wall);
    ServiceShown {
        name: record.name,
        lane: status.terms.map(|terms| terms.lane),
        running: status.running.map(|job| job.0),
        next_at: status.next_at.map(at),
        left_ms: status.next_at.map(|next| next.since(now).as_millis()),
        last_at: succeeded.map(at),
        passed_ms: succeeded.map(|last| now.since(last).as_millis()),
        ended_at: record.last.as_ref().map(|last| at(last.ended_at)),
        result: record.last.as_ref().map(|last| last.result.state),
        why: record.last.and_then(|last| last.result.why),
    }
}

fn roster(status: RosterStatus) -> RosterShown {
    let record = status.record;
    let run = |(service, result): (Arc<str>, paceline::services::ServiceResult)| RunShown {
        service,
        result: result.state,
        why: result.why,
    };
    RosterShown {
        name: record.name,
        check_at: status.check_at.map(|at| stamp(wall(at))),
        current: record.current.map(|(name, _)| name),
        remaining: record.remaining,
        completed: record.results.len(),
        results: record.results.into_iter().map(run).collect(),
    }
}

/// All services.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Services {
    services: Vec<ServiceShown>,
}

/// All rosters.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rosters {
    rosters: Vec<RosterShown>,
}

async fn all(handle: &Handle) -> ApiResult<Vec<ServiceShown>> {
    let now = handle.pace.now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let now = Time(now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX)));
    let services = handle.pace.services().await?;
    Ok(services.into_iter().map(|it| service(it, now)).collect())
}

async fn one(handle: &Handle, name: &str) -> ApiResult<ServiceShown> {
    let found = all(handle).await?.into_iter().find(|service| *service.name == *name);
    found.ok_or_else(|| no_service(name))
}

fn no_service(name: &str) -> Problem {
    let detail = format!("no service named `{}`", shown(name));
    Problem::new(StatusCode::NOT_FOUND, "unknown_service", detail)
}

/// Lists all services, by name.
#[utoipa::path(
    get, path = "/services", tag = "services",
    responses((status = 200, description = "All services", body = Services)),
)]
pub(super) async fn list(State(handle): State<Handle>) -> ApiResult<Json<Services>> {
    Ok(Json(Services { services: all(&handle).await? }))
}

/// Shows one service.
#[utoipa::path(
    get, path = "/services/{name}", tag = "services",
    params(("name" = String, Path, description = "The service's name")),
    responses(
        (status = 200, description = "The service", body = ServiceShown),
        (status = 404, description = "No such service", body = Problem),
    ),
)]
pub(super) async fn show(
    State(handle): State<Handle>,
    Path(name): Path<String>,
) -> ApiResult<Json<ServiceShown>> {
    Ok(Json(one(&handle, &name).await?))
}

/// Shows the output of the last run of a service: the last 64 KiB of it.
#[utoipa::path(
    get, path = "/services/{name}/output", tag = "services",
    params(("name" = String, Path, description = "The service's name")),
    responses(
        (status = 200, description = "The output, as bytes", body = String, content_type = "application/octet-stream"),
        (status = 404, description = "No such service, or it has no output yet", body = Problem),
    ),
)]
pub(super) async fn output(
    State(handle): State<Handle>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let Some(said) = handle.pace.note(&output_note(&name)).await? else {
        one(&handle, &name).await?;
        let detail = format!("`{}` has no output yet", shown(&name));
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_output", detail));
    };
    Ok(([(CONTENT_TYPE, "application/octet-stream")], said.to_vec()).into_response())
}

/// Runs a service now, whether or not it is due. If it is running already, the request joins that
/// run.
#[utoipa::path(
    post, path = "/services/{name}/run", tag = "services",
    params(("name" = String, Path, description = "The service's name")),
    responses(
        (status = 202, description = "The job that runs it", body = Admitted),
        (status = 404, description = "No such service", body = Problem),
        (status = 422, description = "The service cannot run: its job is invalid", body = Problem),
    ),
)]
pub(super) async fn run(
    State(handle): State<Handle>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let following = handle.pace.run_service(&name).await;
    let following = following.map_err(|error| not_submitted(&error, handle.pace.now()))?;
    let admitted = Admitted::of(Ok(following.admission()), handle.pace.now())?;
    Ok((StatusCode::ACCEPTED, Json(admitted)).into_response())
}

/// Marks a service as never run, so that it is due at the next check.
#[utoipa::path(
    post, path = "/services/{name}/reset", tag = "services",
    params(("name" = String, Path, description = "The service's name")),
    responses(
        (status = 200, description = "The service as it is now", body = ServiceShown),
        (status = 404, description = "No such service", body = Problem),
    ),
)]
pub(super) async fn reset(
    State(handle): State<Handle>,
    Path(name): Path<String>,
) -> ApiResult<Json<ServiceShown>> {
    handle.pace.reset_service(&name).await.map_err(|error| match error {
        ResetServiceError::Unknown(_) => no_service(&name),
        ResetServiceError::Ended(ended) => ended.into(),
    })?;
    Ok(Json(one(&handle, &name).await?))
}

/// Lists all rosters, by name.
#[utoipa::path(
    get, path = "/rosters", tag = "services",
    responses((status = 200, description = "All rosters", body = Rosters)),
)]
pub(super) async fn rosters(State(handle): State<Handle>) -> ApiResult<Json<Rosters>> {
    let rosters = handle.pace.rosters().await?;
    Ok(Json(Rosters { rosters: rosters.into_iter().map(roster).collect() }))
}

/// Shows one roster.
#[utoipa::path(
    get, path = "/rosters/{name}", tag = "services",
    params(("name" = String, Path, description = "The roster's name")),
    responses(
        (status = 200, description = "The roster", body = RosterShown),
        (status = 404, description = "No such roster", body = Problem),
    ),
)]
pub(super) async fn show_roster(
    State(handle): State<Handle>,
    Path(name): Path<String>,
) -> ApiResult<Json<RosterShown>> {
    let rosters = handle.pace.rosters().await?;
    let found = rosters.into_iter().find(|roster| *roster.record.name == *name);
    let found = found.ok_or_else(|| {
        let detail = format!("no roster named `{}`", shown(&name));
        Problem::new(StatusCode::NOT_FOUND, "unknown_roster", detail)
    })?;
    Ok(Json(roster(found)))
}
