//! Submission of jobs: one or many, in one commit, once per idempotency key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{HeaderName, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use paceline::jobs::Remembered;
use paceline::{Job, JobId, Report};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::form::{JobForm, MOST_JOBS};
use crate::idempotency::Pass;
use crate::openapi::Jobs;
use crate::server::Shared;
use crate::wait::{applied, preferred_wait};
use paceline_apps::api::Admitted;
use paceline_apps::api::Caller;
use paceline_apps::api::read;
use paceline_apps::api::{ApiResult, Problem};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The admissions of submitted jobs, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Admissions {
    pub(crate) jobs: Vec<Admitted>,
}

/// Submits jobs.
///
/// The body is one job, or a list of jobs that are accepted in one commit. An accepted job is
/// durable. In a list, each job is accepted or refused by itself; a refused single job gives a
/// problem response.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs",
    request_body(content = Jobs, content_type = "application/json"),
    params(
        ("Prefer" = Option<String>, Header, description = "`wait=30` holds the response until all jobs are finished, for at most 30 seconds"),
        ("Idempotency-Key" = Option<String>, Header, description = "A request that is repeated with the same key and body within 24 hours takes effect once"),
    ),
    responses(
        (status = 202, description = "One admission per job", body = Admissions),
        (status = 200, description = "One admission per job, with all reports. A `partial` report is the state at the deadline of this request; its job continues for other callers", body = Admissions),
        (status = 409, description = "The same work is unfinished and `on_duplicate` is `refuse`, or a request with this idempotency key is in flight", body = Problem),
        (status = 422, description = "The job is invalid, or the idempotency key was used with another body", body = Problem),
        (status = 503, description = "No room: retry after `Retry-After`; without that header the moment is unknown", body = Problem),
    ),
)]
pub(crate) async fn submit(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> ApiResult<Response> {
    let headers = request.headers().clone();
    let (wait, arrived_at) = (preferred_wait(&headers), Instant::now());
    let body = shared.json(request).await?;
    let alone = body.trim_ascii_start().first() != Some(&b'[');
    let pass = shared.in_flight.enter(&caller, &headers, &body)?;
    let known = match &pass {
        Some(pass) => shared.pace.remembered(pass.name()).await?,
        None => None,
    };
    let replayed = known.is_some();
    let mut told = match (known, &pass) {
        (Some(known), Some(pass)) => again(&shared, &body, known, pass)?,
        _ => admit(&shared, jobs_of(&body, &shared)?, pass.as_ref()).await?,
    };
    // A request that waits for reports holds no room for its body.
    drop((pass, body));
    if alone && let Some(problem) = told[0].problem.take() {
        return Err(problem);
    }
    let mut status = StatusCode::ACCEPTED;
    if let Some(wait) = wait
        && attend(&shared, &mut told, wait, arrived_at).await?
    {
        status = StatusCode::OK;
    }
    let mut response = (status, Json(Admissions { jobs: told })).into_response();
    let headers = response.headers_mut();
    applied(headers, wait);
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

type ParsedJob = Result<Job, Problem>;

/// The jobs of a body. An invalid single job is an error of the whole request.
fn jobs_of(body: &[u8], shared: &Shared) -> ApiResult<Vec<ParsedJob>> {
    if body.trim_ascii_start().first() != Some(&b'[') {
        let job = read::<JobForm>(body)?.job(&shared.kinds)?;
        return Ok(vec![Ok(job)]);
    }
    let forms: Vec<JobForm> = read(body)?;
    if forms.len() > MOST_JOBS {
        let detail = format!("{} jobs in one request; the limit is {MOST_JOBS}", forms.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
    }
    Ok(forms.into_iter().map(|form| form.job(&shared.kinds)).collect())
}

/// Submits jobs; each is accepted or refused by itself.
async fn admit(
    shared: &Shared,
    parsed_jobs: Vec<ParsedJob>,
    pass: Option<&Pass>,
) -> ApiResult<Vec<Admitted>> {
    let (mut good, mut problems) = (Vec::with_capacity(parsed_jobs.len()), BTreeMap::new());
    let count = parsed_jobs.len();
    for (place, parsed) in parsed_jobs.into_iter().enumerate() {
        match parsed {
            Ok(job) => good.push(job),
            Err(problem) => {
                problems.insert(place, problem);
            }
        }
    }
    let refused = || problems.iter().map(|(place, it)| (*place, it.remembered())).collect();
    let limits: Vec<_> = good.iter().map(Job::time_limit).collect();
    let told = shared.pace.hand_in(good, pass.map(|pass| pass.once(refused()))).await?;
    let now = shared.pace.now();
    let mut told = told.into_iter().zip(limits).map(|(it, time_limit)| {
        Admitted::of(it, now).map(|admitted| Admitted { time_limit, ..admitted })
    });
    let each = (0..count).map(|place| {
        let refused = problems.remove(&place).map(Err);
        let told = refused.unwrap_or_else(|| told.next().expect("one for each that is good"));
        told.unwrap_or_else(Admitted::refused)
    });
    Ok(each.collect())
}

/// Added to the deadline of a repeated request. The job does not keep that deadline, so this
/// request has to watch it.
const GRACE: Duration = Duration::from_millis(100);

/// The admissions of the first request with this key.
fn again(shared: &Shared, body: &[u8], known: Remembered, pass: &Pass) -> ApiResult<Vec<Admitted>> {
    pass.compare(&known.mark)?;
    let now = shared.pace.now();
    // The body is the same as the first time, and so are the deadlines in it.
    let parsed_jobs = jobs_of(body, shared).unwrap_or_default();
    let limits = parsed_jobs.iter().map(|parsed| parsed.as_ref().ok().and_then(Job::time_limit));
    let limits = limits.chain(std::iter::repeat(None));
    let each = known.jobs.into_iter().zip(limits).map(|(it, time_limit)| {
        let told = match it {
            Ok(admission) => Admitted::of(Ok(admission), now),
            Err(problem) => Err(Problem::of(&problem)),
        };
        told.map(|admitted| Admitted { time_limit, ..admitted })
    });
    Ok(each.map(|told| told.unwrap_or_else(Admitted::refused)).collect())
}

/// Waits for reports, each until its caller's deadline at most. Returns `true` if all jobs are
/// reported.
async fn attend(
    shared: &Shared,
    told: &mut [Admitted],
    wait: Duration,
    arrived_at: Instant,
) -> ApiResult<bool> {
    let until = Instant::now() + wait;
    let mut following = Vec::with_capacity(told.len());
    for admitted in told.iter() {
        following.push(match admitted.job {
            Some(job) => match admitted.time_limit {
                Some(limit) => {
                    let left = limit.saturating_sub(arrived_at.elapsed());
                    shared.pace.follow_within(JobId(job), left).await?
                }
                None => shared.pace.follow(JobId(job)).await?,
            },
            None => None,
        });
    }
    let mut all = true;
    for (admitted, following) in told.iter_mut().zip(following) {
        let Some(following) = following else { continue };
        let own = admitted.time_limit.map(|limit| arrived_at + limit + GRACE);
        let patience = own.map_or(until, |own| own.min(until));
        match tokio::time::timeout_at(patience, following.report()).await {
            Ok(report) => admitted.report = Some(report?),
            Err(_) if patience < until => admitted.report = so_far(shared, admitted).await?,
            Err(_) => all = false,
        }
    }
    Ok(all)
}

/// The partial report for a caller whose deadline has passed.
async fn so_far(shared: &Shared, admitted: &Admitted) -> ApiResult<Option<Arc<Report>>> {
    let job = admitted.job.expect("only accepted jobs are followed");
    match shared.pace.follow_within(JobId(job), Duration::ZERO).await? {
        Some(following) => Ok(Some(following.report().await?)),
        None => Ok(None),
    }
}
