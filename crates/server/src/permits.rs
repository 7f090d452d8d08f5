//! Permits, for programs that make their own calls: a turn on a lane, charged and durable.
//!
//! A permit is a job whose worker waits until its holder says how the call went. One that is not
//! settled in its time counts as unknown, and its slot is free again: nobody here can know whether
//! the call is over. That is the one exception to the rule that a slot is held to the real end (L5).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use paceline::{
    Call, CallOutcome, Failed, Failure, Job, JobId, OnCrash, Outcome, Paceline, Priority, Report,
    Skip, Span, Work, Worker,
};
use paceline_apps::http::announced::{announced, retry_after};
use paceline_apps::http::{Refusal, refusal};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::form::{json_body, read};
use crate::jobs::number;
use crate::openapi::OutcomeWord;
use crate::problem::{Answer, Problem, not_submitted, shown};
use crate::server::Shared;
use crate::view::stamp;

/// The kind of these jobs.
pub(crate) const PERMIT_KIND: &str = "permit";
/// How long one waits for its turn, unless it is said, and at most.
const MAX_WAIT: Span = Span::secs(30);
const LONGEST_WAIT: Span = Span::mins(10);
/// How long a holder may take, unless it is said, and at most.
const TTL: Span = Span::secs(60);
const LONGEST_TTL: Span = Span::hours(1);
/// Whoever would not wait at all still has to be looked at.
pub(crate) const AT_ONCE: Span = Span::millis(100);
/// Beyond a permit's own time.
const BEYOND: Duration = Duration::from_mins(1);

/// Those that wait for their turn, and those that have it.
#[derive(Clone, Default)]
pub(crate) struct Permits(Arc<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    waiting: HashMap<u64, oneshot::Sender<()>>,
    granted: HashMap<JobId, oneshot::Sender<Settling>>,
    next: u64,
}

/// How a call went.
struct Settling {
    work: Work,
    heard: oneshot::Sender<()>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Payload {
    permit: u64,
    ttl_ms: u64,
}

impl Permits {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Waiting {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        let (grant, granted) = oneshot::channel();
        let mut desk = self.desk();
        if desk.next == 0 {
            // Numbers start where no earlier process was.
            desk.next = RandomState::new().build_hasher().finish() >> 16;
        }
        desk.next += 1;
        let number = desk.next;
        desk.waiting.insert(number, grant);
        Waiting { permits: self.clone(), number, granted }
    }
}

/// One who waits for its turn. Dropped, it does no longer.
struct Waiting {
    permits: Permits,
    number: u64,
    granted: oneshot::Receiver<()>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.permits.desk().waiting.remove(&self.number);
    }
}

/// One who has it. Dropped, it can no longer be settled.
struct Holding<'a>(&'a Permits, JobId);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.desk().granted.remove(&self.1);
    }
}

/// Holds permits until they are settled.
pub(crate) struct PermitWorker(Permits);

impl PermitWorker {
    pub(crate) fn new(permits: Permits) -> PermitWorker {
        PermitWorker(permits)
    }
}

fn lost(class: &str, why: &str) -> Failed {
    Failed::lost(Failure::permanent(class).because(why))
}

impl Worker for PermitWorker {
    async fn run(&self, call: Call) -> Work {
        let Payload { permit, ttl_ms } = call.payload()?;
        let (settle, settled) = oneshot::channel();
        let job = call.id().job;
        {
            let mut desk = self.0.desk();
            let Some(waiter) = desk.waiting.remove(&permit) else {
                return Err(lost("gone", "nobody waits for it any more"));
            };
            desk.granted.insert(job, settle);
            if waiter.send(()).is_err() {
                desk.granted.remove(&job);
                return Err(lost("gone", "its caller has left"));
            }
        }
        let _holding = Holding(&self.0, job);
        let settled = tokio::time::timeout(Duration::from_millis(ttl_ms), settled).await;
        match settled {
            Ok(Ok(Settling { work, heard })) => {
                let _ = heard.send(());
                work
            }
            _ => Err(lost("unknown", "the permit was not settled in its time")),
        }
    }

    fn keeps_worker(&self) -> bool {
        false
    }

    fn on_crash(&self) -> OnCrash {
        OnCrash::End
    }

    fn timeout(&self, payload: &[u8], _lane: &str) -> Option<Duration> {
        let Payload { ttl_ms, .. } = serde_json::from_slice(payload).ok()?;
        Some(Duration::from_millis(ttl_ms) + BEYOND)
    }
}

/// What kind of turn is wanted.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PermitRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitForm {
    #[schema(value_type = Option<crate::form::PriorityWord>)]
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

/// A job that is withdrawn if whoever asked for it goes away.
pub(crate) struct Leaving {
    pace: Paceline,
    job: Option<JobId>,
}

impl Leaving {
    pub(crate) fn new(pace: &Paceline, job: JobId) -> Leaving {
        Leaving { pace: pace.clone(), job: Some(job) }
    }

    /// From here on it goes its own way.
    pub(crate) fn stay(mut self) {
        self.job = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(job) = self.job {
            self.pace.withdraw(job);
        }
    }
}

/// A span of the caller's, within its bound.
pub(crate) fn bounded(what: &str, text: Option<&str>, normal: Span, most: Span) -> Answer<Span> {
    let Some(text) = text else { return Ok(normal) };
    match text.parse::<Span>() {
        Ok(span) if span <= most => Ok(span),
        Ok(_) => Err(Problem::unprocessable(format!("`{what}` is at most {most}"))),
        Err(error) => Err(Problem::unprocessable(format!("`{what}`: {error}"))),
    }
}

/// Waits for a turn on a lane.
///
/// The attempt is charged and durable when this answers. A wait that would be longer than `max_wait`
/// is refused at once, with the time it would take.
#[utoipa::path(
    post, path = "/lanes/{name}/permits", tag = "permits",
    params(("name" = String, Path, description = "The lane")),
    request_body(content = PermitForm, content_type = "application/json"),
    responses(
        (status = 201, description = "A permit", body = Granted),
        (status = 404, description = "No such lane", body = Problem),
        (status = 422, description = "Not a wish that can be fulfilled", body = Problem),
        (status = 429, description = "The lane is closed for longer", body = Problem),
    ),
)]
pub(crate) async fn grant(
    State(shared): State<Shared>,
    Path(lane): Path<String>,
    request: Request<Body>,
) -> Answer<Response> {
    let body = json_body(request, shared.terms.max_body).await?;
    let form: PermitForm = read(&body)?;
    let max_wait = bounded("max_wait", form.max_wait.as_deref(), MAX_WAIT, LONGEST_WAIT)?;
    let ttl = bounded("ttl", form.ttl.as_deref(), TTL, LONGEST_TTL)?;
    if ttl == Span::ZERO {
        return Err(Problem::unprocessable("`ttl` is zero: no call could be made"));
    }
    let mut waiting = shared.doors.permits.wait();
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
    let number = leaving.job.map_or(0, |job| job.0);
    leaving.stay();
    let settle_by = stamp(shared.pace.now() + Duration::from(ttl));
    Ok((StatusCode::CREATED, Json(Granted { permit: number, lane, settle_by })).into_response())
}

/// Submits a job that somebody waits for; it is withdrawn if that somebody leaves.
pub(crate) async fn enter(
    shared: &Shared,
    lane: &str,
    job: Job,
) -> Answer<(Leaving, impl Future<Output = Result<Arc<Report>, paceline::Ended>> + use<>)> {
    let following = shared.pace.submit(job).await.map_err(|error| {
        let unknown = matches!(
            &error,
            paceline::NotSubmitted::Unacceptable(paceline::SubmitError::UnknownLane(_))
        );
        if unknown {
            return Problem::no_lane(lane);
        }
        not_submitted(&error, shared.pace.now()).about(lane)
    })?;
    Ok((Leaving::new(&shared.pace, following.id()), following.report()))
}

/// Why a turn never came.
pub(crate) async fn missed(shared: &Shared, lane: &str, report: &Report) -> Problem {
    let limited = |reason, wait| {
        let detail = format!("`{}` had no place in time", shown(lane));
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, reason, detail);
        problem.about(lane).waiting(wait)
    };
    let problem = match report.calls.first().map(|call| &call.outcome) {
        Some(CallOutcome::Skipped(Skip::MaxWait { wait, .. })) => {
            let now = shared.pace.now();
            return limited("max_wait", Some(*wait)).later(Some(now + Duration::from(*wait)), now);
        }
        Some(CallOutcome::Skipped(skip)) => limited(skip.reason(), None),
        Some(CallOutcome::Failed(failure)) => {
            let detail = failure.message.as_deref().unwrap_or(&failure.class).to_string();
            Problem::new(StatusCode::BAD_GATEWAY, "failed", detail).about(lane)
        }
        _ => {
            let detail = "it was cancelled".to_string();
            Problem::new(StatusCode::CONFLICT, "cancelled", detail).about(lane)
        }
    };
    // When the lane opens next is the best guess at when to come again.
    let lanes = shared.pace.lanes().await.unwrap_or_default();
    let open_at = lanes.iter().find(|it| *it.name == *lane).map(|it| shared.pace.wall(it.open_at));
    problem.later(open_at, shared.pace.now())
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
) -> Answer<Json<Settled>> {
    let id = number(&id)?;
    let body = json_body(request, shared.terms.max_body).await?;
    let (work, outcome) = work(&read(&body)?, shared.pace.now())?;
    let (heard, hears) = oneshot::channel();
    let holder = shared.doors.permits.desk().granted.remove(&JobId(id));
    let sent = holder.is_some_and(|holder| holder.send(Settling { work, heard }).is_ok());
    if sent && hears.await.is_ok() {
        // The slot is free when this answers.
        if let Some(following) = shared.pace.follow(JobId(id)).await? {
            following.report().await?;
        }
        return Ok(Json(Settled { permit: id, outcome }));
    }
    let known = shared.pace.job(JobId(id)).await?;
    let known = known.filter(|job| *job.stored.record.spec.kind == *PERMIT_KIND);
    let Some(known) = known else {
        let detail = format!("no permit {id}");
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_permit", detail));
    };
    let detail = match known.stored.report {
        Some(_) => format!("permit {id} is settled: its time was over, or somebody was faster"),
        None => format!("permit {id} is not granted yet"),
    };
    Err(Problem::new(StatusCode::CONFLICT, "settled", detail).about_job(JobId(id)))
}

/// What a settlement makes of the call.
fn work(form: &SettleForm, now: std::time::SystemTime) -> Answer<(Work, &'static str)> {
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
        Some(status) => match refusal(status, wait) {
            Refusal::Throttled(wait) => (Outcome::refused(wait), "failed"),
            Refusal::Failed(failure, Some(wait)) => {
                (Err(Failed::of(failure).retry_after(wait)), "failed")
            }
            Refusal::Failed(failure, None) => (Outcome::failed(failure), "failed"),
        },
    };
    let work = match (work, said) {
        (Ok(outcome), Some(said)) => Ok(outcome.announcing(said)),
        (Err(failed), Some(said)) => Err(failed.announcing(said)),
        (work, None) => work,
    };
    Ok((work, outcome))
}

fn no_retry_after() -> Problem {
    Problem::unprocessable("`retry_after` is a number of seconds, or a date of HTTP")
}
