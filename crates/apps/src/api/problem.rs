//! Problems: errors of the API as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use paceline::jobs::{FollowError, RetryError, SubmitError};
use paceline::lanes::ChangeError;
use paceline::{Ended, JobId, NotSubmitted, Span};
use serde::{Deserialize, Serialize};
use utoipa::{PartialSchema, ToSchema};

use super::moment::stamp;

/// The `Retry-After` of a response that knows no moment. Without the header, clients retry at once.
const UNKNOWN: Duration = Duration::from_secs(30);

/// The reason of a request that would not wait for a paused lane. Its response has no
/// `Retry-After`: only an operator ends a pause.
const PAUSED: &str = "paused";

/// The reason of a job for which there is no room. Without a moment, the lane is paused or full of
/// running calls.
const ROOM: &str = "room";

/// An error of the API. Boxed, because results are mostly `Ok`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Problem(Box<Details>);

/// An error (RFC 9457).
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
struct Details {
    /// The name of the status.
    #[schema(value_type = String)]
    title: Cow<'static, str>,
    /// The status of the response.
    status: u16,
    /// A stable word for programs.
    #[schema(value_type = String)]
    reason: Cow<'static, str>,
    /// A sentence for people: what is wrong, and what to do about it.
    detail: String,
    /// The lane in question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<String>,
    /// The job in question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    /// When to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    /// How long the wait would be, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip)]
    retry_after: Option<Duration>,
}

impl PartialSchema for Problem {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        Details::schema()
    }
}

impl ToSchema for Problem {}

/// The result of a route.
pub type ApiResult<T> = Result<T, Problem>;

impl Problem {
    /// A problem with this status, stable word and sentence.
    pub fn new(status: StatusCode, reason: &'static str, detail: impl Into<String>) -> Problem {
        Problem(Box::new(Details {
            title: status.canonical_reason().unwrap_or("Problem").into(),
            status: status.as_u16(),
            reason: reason.into(),
            detail: detail.into(),
            lane: None,
            job: None,
            retry_at: None,
            wait_ms: None,
            retry_after: None,
        }))
    }

    /// 400: the request cannot be read.
    pub fn malformed(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// 422: the request can be read, and can never be accepted as it is.
    pub fn unprocessable(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unacceptable", detail)
    }

    /// 404: there is no such job.
    pub fn no_job(job: u64) -> Problem {
        let detail =
            format!("no job {job}: it never existed, or was forgotten after `keep_finished`");
        Problem::new(StatusCode::NOT_FOUND, "unknown_job", detail).about_job(JobId(job))
    }

    /// 404: there is no such lane.
    pub fn no_lane(lane: &str) -> Problem {
        let detail = format!(
            "no lane named `{}`: configure it, or a template such as `host:*` that covers it",
            shown(lane)
        );
        Problem::new(StatusCode::NOT_FOUND, "unknown_lane", detail).about(lane)
    }

    /// 422: a job names no lane.
    pub fn no_lanes(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "no_lanes", detail)
    }

    /// 429: the lane is paused, and only an operator can resume it.
    pub fn paused(lane: &str) -> Problem {
        let name = shown(lane);
        let detail =
            format!("the lane `{name}` is paused: resume it with `paceline lane resume {name}`");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, PAUSED, detail).about(lane)
    }

    /// Names the lane in question.
    #[must_use]
    pub fn about(mut self, lane: &str) -> Problem {
        self.0.lane = Some(shown(lane));
        self
    }

    /// Names the job in question.
    #[must_use]
    pub fn about_job(mut self, job: JobId) -> Problem {
        self.0.job = Some(job.0);
        self
    }

    /// Says how long the wait would be.
    #[must_use]
    pub fn waiting(mut self, wait: Option<Span>) -> Problem {
        self.0.wait_ms = wait.map(Span::as_millis);
        self
    }

    /// Says when to retry. `now` is the wall clock's.
    #[must_use]
    pub fn later(mut self, at: Option<SystemTime>, now: SystemTime) -> Problem {
        if let Some(at) = at {
            self.0.retry_at = Some(stamp(at));
            self.0.retry_after = Some(at.duration_since(now).unwrap_or_default());
        }
        self
    }

    /// When to retry, if a moment is known.
    pub fn retry_at(&self) -> Option<&str> {
        self.0.retry_at.as_deref()
    }

    /// The problem as text, to be read back by [`of`](Problem::of).
    pub fn remembered(&self) -> String {
        serde_json::to_string(self).expect("plain words are JSON")
    }

    /// Reads a problem that [`remembered`](Problem::remembered) wrote.
    pub fn of(remembered: &str) -> Problem {
        serde_json::from_str(remembered).unwrap_or_else(|_| Problem::unprocessable(remembered))
    }

    /// The stable word for programs.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Text from outside, cut to 100 characters for use in a message.
pub fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("plain words are JSON");
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let later =
            matches!(self.0.status, 429 | 503) && ![PAUSED, ROOM].contains(&&*self.0.reason);
        if let Some(after) = self.0.retry_after.or(later.then_some(UNKNOWN)) {
            // Whole seconds, and never too early.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

impl From<Ended> for Problem {
    fn from(ended: Ended) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", ended.to_string())
    }
}

impl From<FollowError> for Problem {
    fn from(error: FollowError) -> Problem {
        match error {
            FollowError::Span(error) => Problem::unprocessable(error.to_string()),
            FollowError::Ended(ended) => ended.into(),
        }
    }
}

/// The problem of a job that was not submitted.
pub fn not_submitted(error: &NotSubmitted, now: SystemTime) -> Problem {
    let detail = error.to_string();
    match error {
        NotSubmitted::Full { lane, retry_at } => {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ROOM, detail);
            let problem = problem.later(*retry_at, now);
            match lane {
                Some(lane) => problem.about(lane),
                None => problem,
            }
        }
        NotSubmitted::TooLate { wait, retry_at } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "start_within", detail)
                .waiting(*wait)
                .later(*retry_at, now)
        }
        NotSubmitted::Duplicate(job) => {
            Problem::new(StatusCode::CONFLICT, "duplicate", detail).about_job(*job)
        }
        NotSubmitted::Unacceptable(error) => submit_error(error),
        NotSubmitted::Described(_) => Problem::unprocessable(detail),
        NotSubmitted::UnknownService(_) => {
            Problem::new(StatusCode::NOT_FOUND, "unknown_service", detail)
        }
        NotSubmitted::Ended(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", detail),
    }
}

fn submit_error(error: &SubmitError) -> Problem {
    let problem = Problem::unprocessable(error.to_string());
    match error {
        SubmitError::Stopping => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string())
        }
        SubmitError::UnknownLane(lane) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Problem::new(status, "unknown_lane", error.to_string()).about(lane)
        }
        SubmitError::NoLanes => Problem::no_lanes(error.to_string()),
        SubmitError::LaneTwice(lane) | SubmitError::CostTooHigh { lane, .. } => problem.about(lane),
        SubmitError::TooManyLanes { lane, .. } => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "lanes", error.to_string()).about(lane)
        }
        SubmitError::PayloadTooLarge { .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string())
        }
        _ => problem,
    }
}

/// The problem of a job that was not retried.
pub fn not_retried(error: &RetryError) -> Problem {
    let detail = error.to_string();
    match error {
        RetryError::Unknown(job) => Problem::no_job(job.0),
        RetryError::Unfinished(job) => {
            Problem::new(StatusCode::CONFLICT, "unfinished", detail).about_job(*job)
        }
        RetryError::Complete(job) => {
            Problem::new(StatusCode::CONFLICT, "complete", detail).about_job(*job)
        }
        RetryError::Submit(error) => submit_error(error),
        RetryError::Ended(ended) => ended.clone().into(),
    }
}

/// The problem of limits that were not changed.
pub fn not_changed(error: &ChangeError, lane: &str) -> Problem {
    match error {
        ChangeError::Unknown(_) => Problem::no_lane(lane),
        ChangeError::Lane(_) | ChangeError::UnknownGroup { .. } => {
            Problem::unprocessable(error.to_string()).about(lane)
        }
        ChangeError::Ended(ended) => ended.clone().into(),
    }
}
