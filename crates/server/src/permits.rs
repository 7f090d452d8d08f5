//! Permits, for programs that make their own calls: a turn on a lane, charged and durable.
//!
//! A permit is a job whose worker waits until its holder says how the call went. It outlives this
//! process: the next one holds its slot on, and hears of it. One that is not settled in its time
//! counts as unknown, and its slot is free again: nobody here can know whether the call is over.
//! That is the one exception to the rule that a slot is held to the real end (L5).

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
/// How long one waits for its turn, unless it is said, and at most.
const MAX_WAIT: Span = Span::secs(30);
const LONGEST_WAIT: Span = Span::mins(10);
/// How long a holder may take, unless it is said, and at most.
const TTL: Span = Span::secs(60);
const LONGEST_TTL: Span = Span::hours(1);
/// How long a permit of an earlier process may take to be taken up.
const SOON: Duration = Duration::from_secs(2);

/// What kind of turn is wanted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = PermitRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitForm {
    #[schema(value_type = Option<paceline_apps::api::PriorityWord>)]
    priority: Option<Priority>,
    /// How long to wait for the turn: 30 s if it is not said, 10 min at most.
    #[schema(example = "10s")]
    max_wait: Option<String>,
    /// How long the call may take until it is settled: 60 s if it is not said, 1 h at most.
    #[schema(example = "30s")]
    ttl: Option<String>,
    /// What the call costs in every window.
    #[schema(minimum = 1)]
    cost: Option<u32>,
}

/// A turn on a lane: make the call now, and say how it went.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Permit)]
pub(crate) struct Granted {
    /// Its number, which is that of its job.
    permit: u64,
    lane: String,
    /// Beyond it the permit counts as unknown, and its slot is free again.
    settle_by: String,
}

/// Waits for a turn on a lane.
///
/// The attempt is charged and durable when this answers. A wait that would be longer than `max_wait`
/// is refused at once, with the time it would take; so is any wait on a paused lane, which ends only
/// when the lane is resumed.
#[utoipa::path(
    post, path = "/lanes/{name}/permits", tag = "permits",
    params(("name" = String, Path, description = "The lane")),
    request_body(content = PermitForm, content_type = "application/json"),
    responses(
        (status = 201, description = "A permit", body = Granted),
        (status = 404, description = "No such lane", body = Problem),
        (status = 422, description = "Not a wish that can be fulfilled", body = Problem),
        (status = 429, description = "The lane is closed for longer, or paused: then `reason` is `paused`, and there is no `Retry-After`", body = Problem),
    ),
)]
pub(crate) async fn grant(
    State(shared): State<Shared>,
    Path(lane): Path<String>,
    request: Request<Body>,
) -> ApiResult<Response> {
    // Whoever has no wish sends nothing.
    let form = if request.body().is_end_stream() {
        PermitForm::default()
    } else {
        read(&shared.json(request).await?)?
    };
    let max_wait = bounded("max_wait", form.max_wait.as_deref(), MAX_WAIT, LONGEST_WAIT)?;
    let ttl = bounded("ttl", form.ttl.as_deref(), TTL, LONGEST_TTL)?;
    if ttl == Span::ZERO {
        return Err(Problem::unprocessable("`ttl` is zero: no call could be made"));
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

/// How the call went.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Settlement)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleForm {
    /// The status of the service's answer; left out if there was none.
    #[schema(minimum = 100, maximum = 599)]
    status: Option<u16>,
    /// Its `Retry-After`: seconds, or a date.
    #[schema(example = "30")]
    retry_after: Option<String>,
    /// Other headers of it that speak of limits, such as `RateLimit`.
    headers: Option<HashMap<String, String>>,
    /// Whether it failed without a status: no connection, no answer.
    failed: Option<bool>,
}

/// What a permit came to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Settled {
    permit: u64,
    #[schema(value_type = OutcomeWord)]
    outcome: &'static str,
}

/// Says how the call of a permit went, and frees its slot.
#[utoipa::path(
    post, path = "/permits/{id}/settle", tag = "permits",
    params(("id" = u64, Path, description = "The permit", minimum = 1)),
    request_body(content = SettleForm, content_type = "application/json"),
    responses(
        (status = 200, description = "It is settled", body = Settled),
        (status = 404, description = "No such permit", body = Problem),
        (status = 409, description = "It is settled already, or its time is over", body = Problem),
        (status = 422, description = "Not an answer that a service gives", body = Problem),
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
        // One of an earlier process is taken up in a moment.
        let comes = async { tokio::time::timeout(SOON, permits.held(permit)).await.is_ok() };
        let comes = state == JobState::Running && comes.await;
        if !comes || !permits.settle(permit, work).await {
            return Err(not_settled(permit, state));
        }
    }
    // The slot is free when this answers.
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
        JobState::Running => "is being settled by somebody else",
        _ => "is settled: its time was over, or somebody was faster",
    };
    let detail = format!("permit {permit} {why}");
    Problem::new(StatusCode::CONFLICT, "settled", detail).about_job(permit)
}

/// What a settlement makes of the call.
fn work(form: &SettleForm, now: std::time::SystemTime) -> ApiResult<(Work, &'static str)> {
    let mut headers = HeaderMap::new();
    for (name, value) in form.headers.iter().flatten() {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) else {
            return Err(Problem::unprocessable("`headers` has something that is no header"));
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
    let status = status.map_err(|_| Problem::unprocessable("`status` is from 100 to 599"))?;
    let good = |status: &StatusCode| !status.is_client_error() && !status.is_server_error();
    let (work, outcome) = match status {
        _ if form.failed == Some(true) => (Outcome::failed(Failure::transient("failed")), "failed"),
        None => (Outcome::done(serde_json::json!({})), "done"),
        Some(status) if good(&status) => {
            (Outcome::done(serde_json::json!({ "status": status.as_u16() })), "done")
        }
        Some(status) => {
            let work = match refusal(status, wait) {
                // Its holder made the call: there is nothing to send again.
                Refusal::Throttled(wait) => Outcome::refused(wait),
                refused @ Refusal::Failed(..) => refused.into_work(),
            };
            (work, "failed")
        }
    };
    Ok((announcing(work, said), outcome))
}

fn no_retry_after() -> Problem {
    Problem::unprocessable("`retry_after` is a number of seconds, or a date of HTTP")
}
