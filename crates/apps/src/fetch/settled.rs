//! The result of a finished job for its file.

use paceline::report::{CallOutcome, Skip};
use paceline::{Failure, Report};

use super::progress::Failed;
use super::task::{Saved, Task};

/// The result of a job.
pub(super) enum Settled {
    Saved(Saved),
    Failed(Failure),
    Deferred(&'static str, String),
}

/// Reads a report.
pub(super) fn settled(report: &Report) -> Settled {
    let (mut failure, mut deferred) = (None, None);
    for call in &report.calls {
        match &call.outcome {
            CallOutcome::Done { value, .. } => match serde_json::from_slice(value) {
                Ok(saved) => return Settled::Saved(saved),
                Err(error) => {
                    let odd = Failure::permanent("value").because(&error.to_string());
                    failure = Some(odd);
                }
            },
            CallOutcome::Failed(found) if &*found.class == "throttled" => {
                let message = format!(
                    "`{}` throttled this file more than 20 times; left for the next run",
                    call.lane
                );
                deferred = Some(("throttled", message));
            }
            CallOutcome::Failed(found) => failure = Some(found.clone()),
            CallOutcome::Skipped(Skip::MaxWait { wait, .. }) => {
                let host = call.lane.strip_prefix("host:").unwrap_or(&call.lane);
                let wait = paceline::Span::secs(wait.0.div_ceil(1_000_000));
                let message = format!(
                    "`{host}` stays closed for {wait}, after failures or because it asked for a wait; \
                     raise `--max-wait` to wait for it"
                );
                deferred = Some(("closed", message));
            }
            CallOutcome::Skipped(_) | CallOutcome::Cancelled => {
                deferred = deferred.or(Some(("withdrawn", "not requested".to_string())));
            }
            CallOutcome::Empty | CallOutcome::Duplicate { .. } | CallOutcome::Moved { .. } => {}
        }
    }
    match (failure, deferred) {
        (_, Some((class, message))) => Settled::Deferred(class, message),
        (Some(failure), None) => Settled::Failed(failure),
        (None, None) => Settled::Failed(
            Failure::permanent("nothing").because("the job ended without a response"),
        ),
    }
}

/// A task without a saved file.
pub(super) fn failed(task: Task, class: &str, message: &str) -> Failed {
    let Task { urls, target, checksum, .. } = task;
    Failed { urls, target, checksum, class: class.to_string(), message: message.to_string() }
}
