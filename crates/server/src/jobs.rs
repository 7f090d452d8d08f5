//! Jobs: looked at, withdrawn, tried again.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use paceline::jobs::{Cancelled, Cursor, Filter, JobView, StoredJob};
use paceline::report::JobState;
use paceline::{JobId, Report};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::openapi::JobPage;
use crate::server::Shared;
use crate::submit::Admissions;
use crate::view::JobShown;
use crate::wait::{applied, preferred_wait};
use paceline_apps::api::JobDoc;
use paceline_apps::api::{Admitted, WhyView, whys};
use paceline_apps::api::{ApiResult, Problem, not_retried};

/// Jobs of one page, unless it is said.
const PAGE: usize = 100;
/// Jobs of one page at most.
const LARGEST_PAGE: usize = 1_000;
/// Questions that are asked for one page, so that it is seldom empty.
const MOST_LOOKS: usize = 25;

/// Which jobs are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// In this state.
    #[param(value_type = Option<paceline_apps::api::StateWord>)]
    state: Option<JobState>,
    /// With a call on this lane.
    lane: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// With this key: the newest finished one and the unfinished one.
    key: Option<String>,
    /// Of this tenant.
    tenant: Option<String>,
    /// Which come first: `oldest` if it is not said.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// `next` of the page before, with the same `order`.
    cursor: Option<u64>,
    /// Jobs of one page: 100 if it is not said.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Which jobs come first.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Oldest,
    Newest,
}

impl Order {
    /// Where a list begins, or goes on.
    fn from(self, last: Option<JobId>) -> Cursor {
        match self {
            Order::Oldest => last.into(),
            Order::Newest => last.map_or(Cursor::NEWEST, Cursor::Before),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Page {
    jobs: Vec<JobShown>,
    next: Option<u64>,
}

/// Lists jobs.
///
/// By their numbers, without the values of answers. A page may be short though
/// there is a next one.
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", params(Wanted),
    responses((status = 200, description = "A page", body = JobPage)),
)]
pub(crate) async fn list(
    State(shared): State<Shared>,
    wanted: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
) -> ApiResult<Json<Page>> {
    let Query(wanted) = wanted.map_err(|error| Problem::malformed(error.body_text()))?;
    let pace = &shared.pace;
    let most = wanted.limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&most) {
        return Err(Problem::malformed(format!("`limit` is from 1 to {LARGEST_PAGE}")));
    }
    let filter = Filter {
        state: wanted.state,
        lane: wanted.lane.map(Into::into),
        kind: wanted.kind.map(Into::into),
        tenant: wanted.tenant.map(Into::into),
    };
    let (mut jobs, mut next) = (Vec::new(), wanted.cursor.map(JobId));
    if let Some(key) = wanted.key {
        jobs = pace.keyed(key).await?;
        jobs.retain(|job| filter.fits(job));
        if matches!(wanted.order, Order::Newest) {
            jobs.reverse();
        }
        jobs.truncate(most);
        next = None;
    } else {
        for _ in 0..MOST_LOOKS {
            (jobs, next) = pace.list(wanted.order.from(next), most, filter.clone()).await?;
            if !jobs.is_empty() || next.is_none() {
                break;
            }
        }
    }
    let jobs = jobs.into_iter().map(|job| JobShown::of(pace, job.without_values())).collect();
    Ok(Json(Page { jobs, next: next.map(|job| job.0) }))
}

/// Reads a number of a path.
pub(crate) fn number(text: &str) -> ApiResult<u64> {
    // Beyond what the store can count there is no job.
    let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    number.ok_or_else(|| Problem::malformed("it is known by a whole number"))
}

/// One job: its report, or how it stands and why it waits.
#[utoipa::path(
    get, path = "/jobs/{id}", tag = "jobs",
    params(
        ("id" = u64, Path, description = "Its number", minimum = 1),
        ("Prefer" = Option<String>, Header, description = "`wait=30` holds the response until the job is finished, at most so many seconds"),
    ),
    responses(
        (status = 200, description = "The job", body = JobDoc),
        (status = 202, description = "The job as it is after the preferred wait: it is not finished", body = JobDoc),
        (status = 404, description = "No such job", body = Problem),
    ),
)]
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let id = number(&id)?;
    let mut view = job(&shared, id).await?;
    let wait = preferred_wait(&headers);
    let mut status = StatusCode::OK;
    if let Some(wait) = wait
        && view.stored.report.is_none()
    {
        view = match finished_within(&shared, id, wait).await? {
            // The report itself, not another look: the engine may have stopped right after it.
            Some(report) => {
                let (state, report) = (report.state, Some(Report::clone(&report)));
                JobView { state, why: Vec::new(), stored: StoredJob { report, ..view.stored } }
            }
            None => job(&shared, id).await?,
        };
        if view.stored.report.is_none() {
            status = StatusCode::ACCEPTED;
        }
    }
    let mut response = (status, Json(JobShown::of(&shared.pace, view))).into_response();
    applied(response.headers_mut(), wait);
    Ok(response)
}

/// The report of an unfinished job, if it comes in time.
async fn finished_within(
    shared: &Shared,
    id: u64,
    wait: Duration,
) -> ApiResult<Option<Arc<Report>>> {
    let Some(following) = shared.pace.follow(JobId(id)).await? else { return Ok(None) };
    let report = tokio::time::timeout(wait, following.report()).await;
    Ok(report.ok().transpose()?)
}

async fn job(shared: &Shared, id: u64) -> ApiResult<JobView> {
    shared.pace.job(JobId(id)).await?.ok_or_else(|| Problem::no_job(id))
}

/// Why the calls of a job wait.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Whys {
    job: u64,
    /// By call; empty if none waits.
    why: Vec<WhyView>,
}

/// Why the calls of a job wait, until when, and behind how many.
#[utoipa::path(
    get, path = "/jobs/{id}/why", tag = "jobs",
    params(("id" = u64, Path, description = "Its number", minimum = 1)),
    responses(
        (status = 200, description = "Each call that waits", body = Whys),
        (status = 404, description = "No such job", body = Problem),
    ),
)]
pub(crate) async fn why(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> ApiResult<Json<Whys>> {
    let id = number(&id)?;
    let view = job(&shared, id).await?;
    Ok(Json(Whys { job: id, why: whys(&shared.pace, &view.why) }))
}

/// What became of the wish to cancel.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Withdrawn {
    job: u64,
    /// `job`: it is cancelled. `caller`: others still wait for it.
    #[schema(value_type = WithdrawnWord)]
    cancelled: &'static str,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum WithdrawnWord {
    Job,
    Caller,
}

/// Withdraws from a job.
///
/// The last caller to do so cancels it: what waits is over, what runs is ended.
#[utoipa::path(
    post, path = "/jobs/{id}/cancel", tag = "jobs",
    params(("id" = u64, Path, description = "Its number", minimum = 1)),
    responses(
        (status = 200, description = "It is done", body = Withdrawn),
        (status = 404, description = "No such job", body = Problem),
        (status = 409, description = "It is finished", body = Problem),
    ),
)]
pub(crate) async fn cancel(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> ApiResult<Json<Withdrawn>> {
    let id = number(&id)?;
    let cancelled = match shared.pace.cancel(JobId(id)).await? {
        Cancelled::Job => "job",
        Cancelled::Detached => "caller",
        Cancelled::Unknown => return Err(Problem::no_job(id)),
        Cancelled::Finished => {
            let detail = format!("job {id} is finished: there is nothing to cancel");
            let problem = Problem::new(StatusCode::CONFLICT, "finished", detail);
            return Err(problem.about_job(JobId(id)));
        }
    };
    Ok(Json(Withdrawn { job: id, cancelled }))
}

/// Tries a finished job again, for the lanes that gave no answer: a new job.
#[utoipa::path(
    post, path = "/jobs/{id}/retry", tag = "jobs",
    params(("id" = u64, Path, description = "Its number", minimum = 1)),
    responses(
        (status = 202, description = "The new job", body = Admissions),
        (status = 404, description = "No such job", body = Problem),
        (status = 409, description = "It is not finished, or nothing failed", body = Problem),
        (status = 422, description = "It can no longer be accepted as it was", body = Problem),
        (status = 503, description = "No room: try again after `Retry-After`; without one, no moment is known", body = Problem),
    ),
)]
pub(crate) async fn retry(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let id = number(&id)?;
    let view = job(&shared, id).await?;
    let kind = &view.stored.record.spec.kind;
    if !shared.kinds.submitted().any(|(name, _)| name == &**kind) {
        let detail = format!("job {id} is of the kind `{kind}`, done once: ask for it anew");
        return Err(Problem::new(StatusCode::CONFLICT, "once", detail).about_job(JobId(id)));
    }
    let admission = shared.pace.retry(JobId(id)).await.map_err(|error| not_retried(&error))?;
    let admitted = Admitted::of(Ok(admission), shared.pace.now())?;
    Ok((StatusCode::ACCEPTED, Json(Admissions { jobs: vec![admitted] })).into_response())
}
