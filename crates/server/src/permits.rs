//! Permits, for programs that make their own calls: a turn on a lane, charged and durable.
//!
//! A permit is a job whose worker waits until the permit's holder reports the result. It outlives
//! this process: the next one keeps its slot and accepts its settlement. A permit that is not
//! settled within its `ttl` counts as unknown, and its slot is free again: the daemon cannot know
//! whether the call is over. This is the one exception to the rule that a slot is held to the real
//! end (L5).

mod desk;

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use paceline::report::JobState;
use paceline::{Failure, Job, JobId, Outcome, Priority, Span, Work};
use paceline_apps::http::announced::{announced, retry_after};
use paceline_apps::http::{Refusal, announcing, refusal};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::desk::Payload;
use crate::jobs::number;
use crate::server::Shared;
use paceline_apps::api::OutcomeWord;
use paceline_apps::api::read;
use paceline_apps::api::stamp;
use paceline_apps::api::{AT_ONCE, bounded, enter, missed};
use paceline_apps::api::{ApiResult, Problem};

pub(crate) use self::desk::{PermitWorker, Permits};

/// The kind of these jobs.
pub(crate) const PERMIT_KIND: &str = "permit";
/// The wait for a turn: the default and the maximum.
const MAX_WAIT: Span = Span::secs(30);
const LONGEST_WAIT: Span = Span::mins(10);
/// The time for the holder's call: the default and the maximum.
const TTL: Span = Span::secs(60);
const LONGEST_TTL: Span = Span::hours(1);
/// The time within which this process takes up a permit of an earlier one.
const SOON: Duration = Duration::from_secs(2);

/// A request for a permit.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = PermitRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitForm {
    #[schema(value_type = Option<paceline_apps::api::PriorityWord>)]
    priority: Option<Priority>,
    /// How long to wait for the turn. Default: 30 s. At most 10 min.
    #[schema(example = "10s")]
    max_wait: Option<String>,
    /// How long the call may take until it is settled. Default: 60 s. At most 1 h.
    #[schema(example = "30s")]
    ttl: Option<String>,
    /// The cost of the call in every window. Default: 1.
    #[schema(minimum = 1)]
    cost: Option<u32>,
}

/// A turn on a lane: make the call now, then settle the permit with its result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Permit)]
pub(crate) struct Granted {
    /// The permit's number, which is that of its job.
    permit: u64,
    lane: String,
    /// The moment after which an unsettled permit counts as unknown and its slot is free again.
    settle_by: String,
}

/// Waits for a turn on a lane, and grants a permit.
///
/// The attempt is charged and durable before the response is sent. If the wait would be longer than
/// `max_wait`, the request is refused at once, with the length of the wait. A request on a paused
/// lane is refused too: the pause ends only when an operator resumes the lane.
#[utoipa::path(
    post, path = "/lanes/{name}/permits", tag = "permits",
    params(("name" = String, Path, description = "The lane's name")),
    request_body(content = PermitForm, content_type = "application/json"),
    responses(
        (status = 201, description = "The permit", body = Granted),
        (status = 404, description = "No such lane", body = Problem),
        (status = 422, description = "The request is invalid", body = Problem),
        (status = 429, description = "The lane is closed for longer than `max_wait`, or paused. If it is paused, `reason` is `paused` and there is no `Retry-After`", body = Problem),
    ),
)]
pub(crate) async fn grant(
    State(shared): State<Shared>,
    Path(lane): Path<String>,
    request: Request<Body>,
) -> ApiResult<Response> {
    // A request without a body takes the defaults.
    let form = if request.body().is_end_stream() {
        PermitForm::default()
    } else {
        read(&shared.json(request).await?)?
    };
    let max_wait = bounded("max_wait", form.max_wait.as_deref(), MAX_WAIT, LONGEST_WAIT)?;
    let ttl = bounded("ttl", form.ttl.as_deref(), TTL, LONGEST_TTL)?;
    if ttl == Span::ZERO {
        return Err(Problem::unprocessable("`ttl` must not be zero"));
    }
    let mut waiting = shared.kinds.permits.wait();
    let payload = Payload { permit: waiting.number, ttl_ms: ttl.as_millis() };
    let mut job = Job::new(PERMIT_KIND, &payload).on([&lane]).attempts(1);
    job = job.priority(form.priority.unwrap_or_default());
    job = job.max_wait(max_wait).start_within(max_wait.max(AT_ONCE)).in_time();
    if let Some(cost) = form.cost {
        job = job.cost(cost);
    }
    let (leaving, report) = enter(&shared, &lane, job).await?;
    tokio::select! {
        biased;
        Ok(()) = &mut waiting.granted => {}
        report = report => return Err(missed(&shared, &lane, &*report?).await),
    }
    let JobId(number) = leaving.stay();
    let settle_by = stamp(shared.pace.now() + Duration::from(ttl));
    Ok((StatusCode::CREATED, Json(Granted { permit: number, lane, settle_by })).into_response())
}

/// The result of the call of a permit.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Settlement)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleForm {
    /// The status of the upstream's response; left out if there was none.
    #[schema(minimum = 100, maximum = 599)]
    status: Option<u16>,
    /// The `Retry-After` header of the response: seconds, or a date.
    #[schema(example = "30")]
    retry_after: Option<String>,
    /// Other headers of the response that announce limits, such as `RateLimit`.
    headers: Option<HashMap<String, String>>,
    /// `true` if the call failed without a status: no connection, or no response.
    failed: Option<bool>,
}

/// A settled permit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Settled {
    permit: u64,
    #[schema(value_type = OutcomeWord)]
    outcome: &'static str,
}

/// Settles a permit with the result of its call, and frees its slot.
#[utoipa::path(
    post, path = "/permits/{id}/settle", tag = "permits",
    params(("id" = u64, Path, description = "The permit's number", minimum = 1)),
    request_body(content = SettleForm, content_type = "application/json"),
    responses(
        (status = 200, description = "The permit is settled", body = Settled),
        (status = 404, description = "No such permit", body = Problem),
        (status = 409, description = "The permit is already settled, or its `ttl` has passed", body = Problem),
        (status = 422, description = "The result is invalid", body = Problem),
    ),
)]
pub(crate) async fn settle(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> ApiResult<Json<Settled>> {
    let id = number(&id)?;
    let form: SettleForm = read(&shared.json(request).await?)?;
    let (work, outcome) = work(&form, shared.pace.now())?;
    let (permits, permit) = (&shared.kinds.permits, JobId(id));
    if !permits.settle(permit, work.clone()).await {
        let state = permit_state(&shared, permit).await?;
        // A permit of an earlier process is taken up in a moment.
        let comes = async { tokio::time::timeout(SOON, permits.held(permit)).await.is_ok() };
        let comes = state == JobState::Running && comes.await;
        if !comes || !permits.settle(permit, work).await {
            return Err(not_settled(permit, state));
        }
    }
    // The slot is free before the response is sent.
    if let Some(following) = shared.pace.follow(permit).await? {
        following.report().await?;
    }
    Ok(Json(Settled { permit: id, outcome }))
}

async fn permit_state(shared: &Shared, permit: JobId) -> ApiResult<JobState> {
    let known = shared.pace.job(permit).await?;
    let known = known.filter(|job| *job.stored.record.spec.kind == *PERMIT_KIND);
    known.map(|job| job.state).ok_or_else(|| {
        let detail = format!("no permit {permit}");
        Problem::new(StatusCode::NOT_FOUND, "unknown_permit", detail)
    })
}

fn not_settled(permit: JobId, state: JobState) -> Problem {
    let why = match state {
        JobState::Waiting => "is not granted yet",
        JobState::Running => "is being settled by another request",
        _ => "is already settled, or its `ttl` has passed",
    };
    let detail = format!("permit {permit} {why}");
    Problem::new(StatusCode::CONFLICT, "settled", detail).about_job(permit)
}

/// The verdict and the outcome of a settlement.
fn work(form: &SettleForm, now: std::time::SystemTime) -> ApiResult<(Work, &'static str)> {
    let mut headers = HeaderMap::new();
    for (name, value) in form.headers.iter().flatten() {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) else {
            return Err(Problem::unprocessable("`headers` contains an invalid header"));
        };
        headers.insert(name, value);
    }
    if let Some(text) = &form.retry_after {
        let value = HeaderValue::from_str(text);
        headers.insert("retry-after", value.map_err(|_| no_retry_after())?);
        if retry_after(&headers, now).is_none() {
            return Err(no_retry_after());
        }
    }
    let said = announced(&headers, now);
    let wait = retry_after(&headers, now);
    let status = form.status.map(StatusCode::from_u16).transpose();
    let status = status.map_err(|_| Problem::unprocessable("`status` must be from 100 to 599"))?;
    let good = |status: &StatusCode| !status.is_client_error() && !status.is_server_error();
    let (work, outcome) = match status {
        _ if form.failed == Some(true) => (Outcome::failed(Failure::transient("failed")), "failed"),
        None => (Outcome::done(serde_json::json!({})), "done"),
        Some(status) if good(&status) => {
            (Outcome::done(serde_json::json!({ "status": status.as_u16() })), "done")
        }
        Some(status) => {
            let work = match refusal(status, wait) {
                // The holder made the call: the daemon has nothing to retry.
                Refusal::Throttled(wait) => Outcome::refused(wait),
                refused @ Refusal::Failed(..) => refused.into_work(),
            };
            (work, "failed")
        }
    };
    Ok((announcing(work, said), outcome))
}

fn no_retry_after() -> Problem {
    Problem::unprocessable("`retry_after` must be a number of seconds or an HTTP date")
}
