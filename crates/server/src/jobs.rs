//! Jobs: list, show, cancel and retry.

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

/// Jobs of one page by default.
const PAGE: usize = 100;
/// Jobs of one page at most.
const LARGEST_PAGE: usize = 1_000;
/// Queries for one page at most, so that a page is seldom empty.
const MOST_LOOKS: usize = 25;

/// Filters and order of a list of jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only jobs in this state.
    #[param(value_type = Option<paceline_apps::api::StateWord>)]
    state: Option<JobState>,
    /// Only jobs with a call on this lane.
    lane: Option<String>,
    /// Only jobs of this kind.
    kind: Option<String>,
    /// Only jobs with this key: the newest finished one and the unfinished one.
    key: Option<String>,
    /// Only jobs of this tenant.
    tenant: Option<String>,
    /// The order. Default: `oldest` first.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// The `next` of the previous page, with the same `order`.
    cursor: Option<u64>,
    /// Jobs per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The order of a list of jobs.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Oldest,
    Newest,
}

impl Order {
    /// The cursor from which a page is read.
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
/// In the order of their numbers, without the values of their calls. A page may have fewer jobs
/// than `limit` although `next` is set.
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", params(Wanted),
    responses((status = 200, description = "A page of jobs", body = JobPage)),
)]
pub(crate) async fn list(
    State(shared): State<Shared>,
    wanted: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
) -> ApiResult<Json<Page>> {
    let Query(wanted) = wanted.map_err(|error| Problem::malformed(error.body_text()))?;
    let pace = &shared.pace;
    let most = wanted.limit.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&most) {
        return Err(Problem::malformed(format!("`limit` must be from 1 to {LARGEST_PAGE}")));
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

/// Parses a number from a path.
pub(crate) fn number(text: &str) -> ApiResult<u64> {
    // The store counts with signed 64 bits: no job has a larger number.
    let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    number.ok_or_else(|| Problem::malformed("the id must be a whole number"))
}

/// Shows one job: its report, or its state and why it waits.
#[utoipa::path(
    get, path = "/jobs/{id}", tag = "jobs",
    params(
        ("id" = u64, Path, description = "The job's number", minimum = 1),
        ("Prefer" = Option<String>, Header, description = "`wait=30` holds the response until the job is finished, for at most 30 seconds"),
    ),
    responses(
        (status = 200, description = "The job", body = JobDoc),
        (status = 202, description = "The job is not finished after the preferred wait", body = JobDoc),
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
            // Use this report and do not read the job again: the engine may have stopped since.
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

/// The report of an unfinished job, if it finishes in time.
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
    /// One entry per waiting call.
    why: Vec<WhyView>,
}

/// Explains why the calls of a job wait, until when, and behind how many calls.
#[utoipa::path(
    get, path = "/jobs/{id}/why", tag = "jobs",
    params(("id" = u64, Path, description = "The job's number", minimum = 1)),
    responses(
        (status = 200, description = "The waiting calls", body = Whys),
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

/// The effect of a cancellation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Withdrawn {
    job: u64,
    /// `job`: the job is cancelled. `caller`: other callers still wait for it, so it continues.
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

/// Cancels a job.
///
/// A job with several callers is cancelled when the last of them cancels it. Its waiting calls then
/// end, and its running calls are aborted.
#[utoipa::path(
    post, path = "/jobs/{id}/cancel", tag = "jobs",
    params(("id" = u64, Path, description = "The job's number", minimum = 1)),
    responses(
        (status = 200, description = "The job is cancelled, or this caller has left it", body = Withdrawn),
        (status = 404, description = "No such job", body = Problem),
        (status = 409, description = "The job is already finished", body = Problem),
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
            let detail = format!("job {id} is already finished");
            let problem = Problem::new(StatusCode::CONFLICT, "finished", detail);
            return Err(problem.about_job(JobId(id)));
        }
    };
    Ok(Json(Withdrawn { job: id, cancelled }))
}

/// Retries a finished job: submits a new job for the lanes without a result.
#[utoipa::path(
    post, path = "/jobs/{id}/retry", tag = "jobs",
    params(("id" = u64, Path, description = "The job's number", minimum = 1)),
    responses(
        (status = 202, description = "The new job", body = Admissions),
        (status = 404, description = "No such job", body = Problem),
        (status = 409, description = "The job is not finished, or every lane has a result", body = Problem),
        (status = 422, description = "The job is no longer valid", body = Problem),
        (status = 503, description = "No room: retry after `Retry-After`; without that header the moment is unknown", body = Problem),
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
        let detail = format!("jobs of the kind `{kind}` cannot be retried: submit a new one");
        return Err(Problem::new(StatusCode::CONFLICT, "once", detail).about_job(JobId(id)));
    }
    let admission = shared.pace.retry(JobId(id)).await.map_err(|error| not_retried(&error))?;
    let admitted = Admitted::of(Ok(admission), shared.pace.now())?;
    Ok((StatusCode::ACCEPTED, Json(Admissions { jobs: vec![admitted] })).into_response())
}
