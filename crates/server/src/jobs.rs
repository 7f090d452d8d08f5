//! Jobs: submitted, looked at, withdrawn, tried again.

use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use paceline::{Cancelled, Filter, Job, JobId, JobState};
use paceline_apps::call::HTTP_KIND;
use paceline_apps::command::COMMAND_KIND;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use crate::access::Caller;
use crate::form::{JobForm, MOST_JOBS, json_body, read};
use crate::idempotency::Pass;
use crate::openapi::{JobDoc, JobPage, Jobs};
use crate::problem::{Answer, Problem, not_retried};
use crate::server::Shared;
use crate::view::{Admitted, JobShown, WhyView, whys};

/// The longest that an answer is held back.
const LONGEST_WAIT: u64 = 300;
/// Jobs of one page, unless it is said.
const PAGE: usize = 100;
/// Jobs of one page at most.
const LARGEST_PAGE: usize = 1_000;
/// Questions that are asked for one page, so that it is seldom empty.
const MOST_LOOKS: usize = 25;

/// What became of submitted jobs, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Admissions {
    jobs: Vec<Admitted>,
}

/// Submits jobs.
///
/// One job, or a list of them in one commit. Accepted means durable. In a list each job is refused
/// for itself; a job that comes alone is refused with a problem.
#[utoipa::path(
    post, path = "/jobs", tag = "jobs",
    request_body(content = Jobs, content_type = "application/json"),
    params(
        ("Prefer" = Option<String>, Header, description = "`wait=30` holds the answer until the reports are there, at most so many seconds"),
        ("Idempotency-Key" = Option<String>, Header, description = "Sent again with the same key and body, a request does nothing twice, for 24 hours"),
    ),
    responses(
        (status = 202, description = "What became of each", body = Admissions),
        (status = 200, description = "The same, with all reports", body = Admissions),
        (status = 409, description = "The same work is under way and `on_duplicate` is `refuse`, or a request with this key is being answered", body = Problem),
        (status = 422, description = "A job that can never be accepted as it is, or a key that was used with another body", body = Problem),
        (status = 503, description = "No room: try again then", body = Problem),
    ),
)]
pub(crate) async fn submit(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Answer<Response> {
    let headers = request.headers().clone();
    let wait = wait_of(&headers);
    let body = json_body(request, shared.terms.max_body).await?;
    let (jobs, alone) = jobs_of(&body, &shared)?;
    let pass = shared.in_flight.enter(&caller, &headers, &body)?;
    let (mut told, replayed) = admit(&shared, jobs, pass.as_ref()).await?;
    drop(pass);
    if alone && let Some(problem) = told[0].problem.take() {
        return Err(problem);
    }
    let mut status = StatusCode::ACCEPTED;
    if let Some(wait) = wait
        && attend(&shared, &mut told, wait).await?
    {
        status = StatusCode::OK;
    }
    let mut response = (status, Json(Admissions { jobs: told })).into_response();
    let headers = response.headers_mut();
    if let Some(wait) = wait {
        let applied = HeaderValue::from_str(&format!("wait={}", wait.as_secs()));
        headers.insert(PREFERENCE_APPLIED, applied.expect("a number is plain"));
    }
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

type Wish = Result<Job, Problem>;

/// The jobs of a body, and whether it is one that came alone.
fn jobs_of(body: &Bytes, shared: &Shared) -> Answer<(Vec<Wish>, bool)> {
    if body.trim_ascii_start().first() != Some(&b'[') {
        let job = read::<JobForm>(body)?.job(&shared.doors)?;
        return Ok((vec![Ok(job)], true));
    }
    let forms: Vec<JobForm> = read(body)?;
    if forms.len() > MOST_JOBS {
        let detail = format!("{} jobs in one request: at most {MOST_JOBS}", forms.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
    }
    Ok((forms.into_iter().map(|form| form.job(&shared.doors)).collect(), false))
}

/// Hands jobs in, or finds what became of them the first time.
async fn admit(
    shared: &Shared,
    jobs: Vec<Wish>,
    pass: Option<&Pass>,
) -> Answer<(Vec<Admitted>, bool)> {
    let pace = &shared.pace;
    let mut good = Vec::with_capacity(jobs.len());
    let problems: Vec<Option<Problem>> =
        jobs.into_iter().map(|job| job.map(|job| good.push(job)).err()).collect();
    let known = match pass {
        Some(pass) => pace.remembered(pass.name()).await?,
        None => None,
    };
    let replayed = known.is_some();
    let now = pace.now();
    let told: Vec<Result<Admitted, Problem>> = if let (Some(known), Some(pass)) = (known, pass) {
        pass.compare(&known.mark)?;
        if known.jobs.len() != good.len() {
            return Err(forgotten());
        }
        let admitted = |it: Result<_, String>| match it {
            Ok(admission) => Admitted::of(Ok(admission), now),
            Err(detail) => Err(Problem::unprocessable(detail)),
        };
        known.jobs.into_iter().map(admitted).collect()
    } else {
        let told = pace.hand_in(good, pass.map(Pass::once)).await?;
        told.into_iter().map(|it| Admitted::of(it, now)).collect()
    };
    let mut told = told.into_iter();
    let each = problems.into_iter().map(|problem| {
        let told = problem.map_or_else(|| told.next().unwrap_or_else(|| Err(forgotten())), Err);
        told.unwrap_or_else(Admitted::refused)
    });
    Ok((each.collect(), replayed))
}

/// What was acceptable when it was first sent is no longer, or the other way round.
fn forgotten() -> Problem {
    Problem::new(StatusCode::CONFLICT, "changed", "the lanes have changed since it was first sent")
}

/// `wait=30` of `Prefer` (RFC 7240).
fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let said = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut words = said.flat_map(|said| said.split([',', ';']));
    let seconds = words.find_map(|word| {
        let (name, value) = word.trim().split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().parse::<u64>().ok())?
    });
    seconds.map(|seconds| Duration::from_secs(seconds.min(LONGEST_WAIT)))
}

/// Waits for reports; says whether all came.
async fn attend(shared: &Shared, told: &mut [Admitted], wait: Duration) -> Answer<bool> {
    let until = Instant::now() + wait;
    let mut following = Vec::with_capacity(told.len());
    for admitted in told.iter() {
        following.push(match admitted.job {
            Some(job) => shared.pace.follow(JobId(job)).await?,
            None => None,
        });
    }
    let mut all = true;
    for (admitted, following) in told.iter_mut().zip(following) {
        let Some(following) = following else { continue };
        match tokio::time::timeout_at(until, following.report()).await {
            Ok(report) => admitted.report = Some(report?),
            Err(_) => all = false,
        }
    }
    Ok(all)
}

/// Which jobs are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// In this state.
    #[param(value_type = Option<crate::openapi::StateWord>)]
    state: Option<JobState>,
    /// With a call on this lane.
    lane: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// With this key: the newest finished one and the unfinished one.
    key: Option<String>,
    /// Of this tenant.
    tenant: Option<String>,
    /// `next` of the page before.
    cursor: Option<u64>,
    /// Jobs of one page: 100 if it is not said.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Page {
    jobs: Vec<JobShown>,
    next: Option<u64>,
}

/// Lists jobs.
///
/// By their numbers, the oldest first, without the values of answers. A page may be short though
/// there is a next one.
#[utoipa::path(
    get, path = "/jobs", tag = "jobs", params(Wanted),
    responses((status = 200, description = "A page", body = JobPage)),
)]
pub(crate) async fn list(
    State(shared): State<Shared>,
    wanted: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
) -> Answer<Json<Page>> {
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
        next = None;
    } else {
        for _ in 0..MOST_LOOKS {
            (jobs, next) = pace.list(next, most, filter.clone()).await?;
            if !jobs.is_empty() || next.is_none() {
                break;
            }
        }
    }
    let jobs = jobs.into_iter().map(|job| JobShown::of(pace, job.without_values())).collect();
    Ok(Json(Page { jobs, next: next.map(|job| job.0) }))
}

/// Reads a number of a path.
pub(crate) fn number(text: &str) -> Answer<u64> {
    // Beyond what the store can count there is no job.
    let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    number.ok_or_else(|| Problem::malformed("it is known by a whole number"))
}

/// One job: its report, or how it stands and why it waits.
#[utoipa::path(
    get, path = "/jobs/{id}", tag = "jobs",
    params(("id" = u64, Path, description = "Its number", minimum = 1)),
    responses(
        (status = 200, description = "The job", body = JobDoc),
        (status = 404, description = "No such job", body = Problem),
    ),
)]
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Answer<Json<JobShown>> {
    let id = number(&id)?;
    let view = shared.pace.job(JobId(id)).await?.ok_or_else(|| Problem::no_job(id))?;
    Ok(Json(JobShown::of(&shared.pace, view)))
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
) -> Answer<Json<Whys>> {
    let id = number(&id)?;
    let view = shared.pace.job(JobId(id)).await?.ok_or_else(|| Problem::no_job(id))?;
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
) -> Answer<Json<Withdrawn>> {
    let id = number(&id)?;
    let cancelled = match shared.pace.cancel(JobId(id)).await? {
        Cancelled::Job => "job",
        Cancelled::Detached => "caller",
        Cancelled::Unknown => {
            shared.pace.job(JobId(id)).await?.ok_or_else(|| Problem::no_job(id))?;
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
        (status = 503, description = "No room: try again then", body = Problem),
    ),
)]
pub(crate) async fn retry(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Answer<Response> {
    let id = number(&id)?;
    let view = shared.pace.job(JobId(id)).await?.ok_or_else(|| Problem::no_job(id))?;
    let kind = &view.stored.record.spec.kind;
    if ![HTTP_KIND, COMMAND_KIND].contains(&&**kind) {
        let detail = format!("a job of the kind `{kind}` is done once: ask for it anew");
        return Err(Problem::new(StatusCode::CONFLICT, "once", detail).about_job(JobId(id)));
    }
    let admission = shared.pace.retry(JobId(id)).await?.map_err(|error| not_retried(&error))?;
    let admitted = Admitted::of(Ok(admission), shared.pace.now())?;
    Ok((StatusCode::ACCEPTED, Json(Admissions { jobs: vec![admitted] })).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_to_wait_is_read_where_it_stands_and_bounded() {
        let wait = |said: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(said));
            wait_of(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("wait=30"), Some(30));
        assert_eq!(wait("respond-async, Wait = 5"), Some(5));
        assert_eq!(wait("wait=99999"), Some(300));
        assert_eq!(wait("wait=soon"), None);
        assert_eq!(wait("return=minimal"), None);
    }
}
