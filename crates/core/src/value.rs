//! Values of outcomes, read as the types that workers wrote.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::job::JobId;
use crate::outcome::{CallReport, Outcome, Report};

/// A value that a report does not have, or has in another form.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// No call went to this lane.
    #[error("job {job} has no call on the lane `{lane}`")]
    NoCall {
        /// The job.
        job: JobId,
        /// The lane.
        lane: String,
    },
    /// The call has no value.
    #[error("there is no value: {0}")]
    NoValue(String),
    /// The value has another form.
    #[error("the value is not of the type asked for")]
    Form(#[from] serde_json::Error),
}

impl Outcome {
    /// The value of a call that is done, read as a `T`; an error for every other outcome.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, ValueError> {
        match self {
            Outcome::Done { value, .. } => Ok(serde_json::from_slice(value)?),
            _ => Err(ValueError::NoValue(format!("the call is {self}"))),
        }
    }
}

impl CallReport {
    /// The value of the call, read as a `T`; an error if the call is not done.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, ValueError> {
        match &self.outcome {
            Outcome::Done { .. } => self.outcome.value(),
            _ => Err(ValueError::NoValue(self.to_string())),
        }
    }
}

impl Report {
    /// The value of the call on this lane, read as a `T`. A call that moved is followed to the lane
    /// it moved to.
    pub fn value<T: DeserializeOwned>(&self, lane: &str) -> Result<T, ValueError> {
        let mut lane: Arc<str> = lane.into();
        // Calls may move in a circle, and end on a lane that they have left before.
        let rank = |call: &&CallReport| match call.outcome {
            Outcome::Done { .. } => 0,
            Outcome::Moved { .. } => 2,
            _ => 1,
        };
        for _ in 0..=self.calls.len() {
            let calls = self.calls.iter().filter(|call| call.lane == lane);
            let Some(call) = calls.min_by_key(rank) else { break };
            match &call.outcome {
                Outcome::Moved { to } => lane = to.clone(),
                _ => return call.value(),
            }
        }
        Err(ValueError::NoCall { job: self.job, lane: lane.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Answer, Failure, JobState};
    use crate::time::{Span, Time};

    fn call(lane: &str, outcome: Outcome) -> CallReport {
        let (waited, ran) = (Span::ZERO, Span::ZERO);
        CallReport { lane: lane.into(), outcome, attempts: 1, waited, ran, cached: false }
    }

    fn report() -> Report {
        let done = Outcome::Done { conclusive: true, value: b"[1,2]".as_slice().into() };
        let failure = Failure::transient("timeout").because("no answer in 30s");
        Report {
            job: JobId(17),
            state: JobState::Done,
            answer: Answer::Inconclusive,
            finished_at: Time::ZERO,
            calls: vec![
                call("a", Outcome::Moved { to: "d".into() }),
                call("c", Outcome::Failed(failure)),
                call("d", Outcome::Moved { to: "b".into() }),
                call("b", Outcome::Moved { to: "a".into() }),
                call("b", done),
            ],
            partial: false,
        }
    }

    #[test]
    fn values_are_found_by_lane_and_read_as_their_type() {
        let report = report();
        assert_eq!(report.value::<Vec<u8>>("b").expect("a list"), [1, 2]);
        assert_eq!(report.value::<Vec<u8>>("a").expect("it moved to `b`"), [1, 2]);
        assert_eq!(report.calls[4].outcome.value::<(u8, u8)>().expect("a pair"), (1, 2));
    }

    #[test]
    fn a_missing_value_is_an_error_that_says_why() {
        let report = report();
        let error = |lane: &str| report.value::<Vec<u8>>(lane).expect_err(lane).to_string();
        assert_eq!(error("x"), "job 17 has no call on the lane `x`");
        assert_eq!(error("c"), "there is no value: c: failed (timeout): no answer in 30s");
        let form = report.value::<bool>("b").expect_err("it is a list");
        assert!(matches!(form, ValueError::Form(_)));
    }

    #[test]
    fn a_report_is_shown_line_by_line() {
        let shown = "job 17: done (inconclusive)\n\
                     \x20 a: moved to d\n\
                     \x20 c: failed (timeout): no answer in 30s\n\
                     \x20 d: moved to b\n\
                     \x20 b: moved to a\n\
                     \x20 b: done [1,2]";
        assert_eq!(report().to_string(), shown);
        let partial = Report { partial: true, calls: Vec::new(), ..report() };
        assert_eq!(partial.to_string(), "job 17: done (inconclusive), not finished");
    }
}
