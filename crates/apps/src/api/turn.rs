//! Turns: code that permits and the relay share while a client waits for a lane.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use paceline::jobs::SubmitError;
use paceline::report::{CallOutcome, Skip};
use paceline::{Job, JobId, NotSubmitted, Paceline, Report, Span};

use super::handle::Handle;
use super::problem::{ApiResult, Problem, not_submitted, shown};

/// The least time to wait: a call that may not wait at all still needs one turn of the engine.
pub const AT_ONCE: Span = Span::millis(100);

/// A job that is cancelled when its client disconnects.
pub struct Leaving {
    pace: Paceline,
    job: JobId,
    stays: bool,
}

impl Leaving {
    fn new(pace: &Paceline, job: JobId) -> Leaving {
        Leaving { pace: pace.clone(), job, stays: false }
    }

    /// Keeps the job, whether or not its client stays.
    pub fn stay(mut self) -> JobId {
        self.stays = true;
        self.job
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.stays {
            self.pace.withdraw(self.job);
        }
    }
}

/// Reads a span from a request, within its bound.
pub fn bounded(what: &str, text: Option<&str>, normal: Span, most: Span) -> ApiResult<Span> {
    let Some(text) = text else { return Ok(normal) };
    match text.parse::<Span>() {
        Ok(span) if span <= most => Ok(span),
        Ok(_) => Err(Problem::unprocessable(format!("`{what}` is at most {most}"))),
        Err(error) => Err(Problem::unprocessable(format!("`{what}`: {error}"))),
    }
}

/// Submits a job for a client that waits. The job is cancelled if the client disconnects.
pub async fn enter(
    handle: &Handle,
    lane: &str,
    job: Job,
) -> ApiResult<(Leaving, impl Future<Output = Result<Arc<Report>, paceline::Ended>> + use<>)> {
    let following = handle.pace.submit(job).await.map_err(|error| match error {
        NotSubmitted::Unacceptable(SubmitError::UnknownLane(_)) => Problem::no_lane(lane),
        // Only a pause has no moment at which it ends.
        NotSubmitted::TooLate { wait: None, .. } => Problem::paused(lane),
        error => not_submitted(&error, handle.pace.now()).about(lane),
    })?;
    Ok((Leaving::new(&handle.pace, following.id()), following.report()))
}

/// The problem of a client whose turn never came.
pub async fn missed(handle: &Handle, lane: &str, report: &Report) -> Problem {
    let lanes = handle.pace.lanes().await.unwrap_or_default();
    let status = lanes.iter().find(|it| *it.name == *lane);
    let paused = status.is_some_and(|it| it.paused);
    let now = handle.pace.now();
    let limited = |reason, wait| {
        let detail = format!("`{}` had no free slot in time", shown(lane));
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, reason, detail);
        problem.about(lane).waiting(wait)
    };
    let problem = match report.calls.first().map(|call| &call.outcome) {
        Some(CallOutcome::Skipped(Skip::Paused { .. })) => return Problem::paused(lane),
        // Its time may have run out before the pause lasted `max_wait`; the remedy is the same.
        Some(CallOutcome::Skipped(_)) if paused => return Problem::paused(lane),
        Some(CallOutcome::Skipped(Skip::MaxWait { wait, .. })) => {
            return limited("max_wait", Some(*wait)).later(Some(now + Duration::from(*wait)), now);
        }
        Some(CallOutcome::Skipped(skip)) => limited(skip.reason(), None),
        Some(CallOutcome::Failed(failure)) => {
            let detail = failure.message.as_deref().unwrap_or(&failure.class).to_string();
            Problem::new(StatusCode::BAD_GATEWAY, "failed", detail).about(lane)
        }
        _ => {
            let detail = "the job was cancelled".to_string();
            Problem::new(StatusCode::CONFLICT, "cancelled", detail).about(lane)
        }
    };
    // The next opening of the lane is the best guess at when to retry.
    let open_at = status.filter(|_| !paused).map(|it| handle.pace.wall(it.open_at));
    problem.later(open_at, now)
}
