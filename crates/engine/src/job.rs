//! A job as a program describes it.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::{Duration, SystemTime};

use paceline_core::{Blob, Due, JobSpec, OnDuplicate, Priority, SpanError, Submission, Until};
use serde::Serialize;

use crate::span::IntoSpan;

/// A job that was described wrongly.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A span that is none.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// A payload that is not JSON.
    #[error("the payload cannot be written as JSON")]
    Payload(#[from] serde_json::Error),
    /// Nothing to try, or nothing to pay.
    #[error("`{0}` must be above zero")]
    Zero(&'static str),
}

/// What to submit: a kind, a payload, the lanes to visit and the terms.
#[derive(Debug)]
pub struct Job {
    submission: Submission,
    problem: Option<JobError>,
}

impl Job {
    /// A job of this kind. The payload is handed to its worker.
    pub fn new(kind: &str, payload: &(impl Serialize + ?Sized)) -> Job {
        let mut spec = JobSpec::new(kind, &[]);
        spec.stages.clear();
        let (payload, problem) = match serde_json::to_vec(payload) {
            Ok(payload) => (payload, None),
            Err(error) => (Vec::new(), Some(JobError::Payload(error))),
        };
        Job { submission: Submission::new(spec, payload.into()), problem }
    }

    /// Adds a stage: lanes that are asked together, after the stages before found nothing (J3).
    #[must_use]
    pub fn on<L: AsRef<str>>(mut self, lanes: impl IntoIterator<Item = L>) -> Job {
        let lanes = lanes.into_iter().map(|lane| lane.as_ref().into()).collect();
        self.submission.spec.stages.push(lanes);
        self
    }

    /// Names the priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Job {
        self.submission.priority = Some(priority);
        self
    }

    /// Somebody is waiting at a screen.
    #[must_use]
    pub fn interactive(self) -> Job {
        self.priority(Priority::Interactive)
    }

    /// A feed is read: one unfinished call per lane is enough (D3).
    #[must_use]
    pub fn rss(self) -> Job {
        self.priority(Priority::Rss)
    }

    /// Stops at the first conclusive outcome (J2).
    #[must_use]
    pub fn first_conclusive(mut self) -> Job {
        self.submission.spec.until = Until::Conclusive;
        self
    }

    /// Says that jobs with this key are the same work (D1).
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Job {
        self.submission.spec.key = Some(key.as_ref().into());
        self
    }

    /// The same, among jobs not yet due (D2).
    #[must_use]
    pub fn schedule_key(mut self, key: impl AsRef<[u8]>) -> Job {
        self.submission.spec.schedule_key = Some(key.as_ref().into());
        self
    }

    /// What becomes of it if the same work is under way; it joins by default.
    #[must_use]
    pub fn on_duplicate(mut self, choice: OnDuplicate) -> Job {
        self.submission.spec.on_duplicate = choice;
        self
    }

    /// Answers are kept and found under this key, lane by lane (C1).
    #[must_use]
    pub fn cache_key(mut self, key: impl AsRef<[u8]>) -> Job {
        self.submission.spec.cache_key = Some(key.as_ref().into());
        self
    }

    /// Tenants take turns (P4).
    #[must_use]
    pub fn tenant(mut self, name: &str) -> Job {
        self.submission.spec.tenant = Some(name.into());
        self
    }

    /// What one attempt costs in every window (L3).
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Job {
        match NonZeroU32::new(cost) {
            Some(cost) => self.submission.spec.cost = cost,
            None => self.problem = self.problem.or(Some(JobError::Zero("cost"))),
        }
        self
    }

    /// Attempts in all (R1).
    #[must_use]
    pub fn attempts(mut self, attempts: u16) -> Job {
        match NonZeroU16::new(attempts) {
            Some(attempts) => self.submission.spec.retry.attempts = attempts,
            None => self.problem = self.problem.or(Some(JobError::Zero("attempts"))),
        }
        self
    }

    fn span(
        mut self,
        span: impl IntoSpan,
        set: impl FnOnce(&mut Submission, paceline_core::Span),
    ) -> Job {
        match span.into_span() {
            Ok(span) => set(&mut self.submission, span),
            Err(error) => self.problem = self.problem.or(Some(error.into())),
        }
        self
    }

    /// The bound of the first wait before a retry (R1).
    #[must_use]
    pub fn backoff(self, first: impl IntoSpan) -> Job {
        self.span(first, |job, span| {
            job.spec.retry.backoff = span;
            job.spec.retry.backoff_max = job.spec.retry.backoff_max.max(span);
        })
    }

    /// Skips lanes that stay closed for longer (W1).
    #[must_use]
    pub fn max_wait(self, wait: impl IntoSpan) -> Job {
        self.span(wait, |job, span| job.spec.max_wait = Some(span))
    }

    /// Skips calls that have not started so long after joining the queue (W1).
    #[must_use]
    pub fn start_within(self, budget: impl IntoSpan) -> Job {
        self.span(budget, |job, span| job.spec.start_within = Some(span))
    }

    /// Refuses it at once if its lanes would not let it start within `start_within`.
    #[must_use]
    pub fn in_time(mut self) -> Job {
        self.submission.in_time = true;
        self
    }

    /// Reports what it has after so long (W2). A caller that joins the same work keeps its own
    /// deadline, and gets what there is by then.
    #[must_use]
    pub fn deadline(self, after: impl IntoSpan) -> Job {
        self.span(after, |job, span| job.deadline = Some(span))
    }

    /// Starts so long after its submission, whatever becomes of the wall clock meanwhile (W5).
    #[must_use]
    pub fn delay(self, delay: impl IntoSpan) -> Job {
        self.span(delay, |job, span| job.due = Due::In(span))
    }

    /// Starts at this moment of the wall clock (W5).
    #[must_use]
    pub fn due(mut self, at: SystemTime) -> Job {
        self.submission.due = Due::At(crate::clock::wall_moment(at));
        self
    }

    /// How long after its submission its deadline is, if it has one.
    pub fn time_limit(&self) -> Option<Duration> {
        self.submission.deadline.map(Into::into)
    }

    pub(crate) fn build(self) -> Result<Submission, JobError> {
        match self.problem {
            Some(problem) => Err(problem),
            None => Ok(self.submission),
        }
    }

    pub(crate) fn parts(submission: &mut Submission) -> (&Blob, &mut JobSpec) {
        (&submission.payload, &mut submission.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_kept_until_the_submission() {
        let error = Job::new("a", &1).max_wait("soon").deadline("1s").build().expect_err("a span");
        assert!(error.to_string().starts_with("`soon` is not a span"), "{error}");
        assert!(matches!(Job::new("a", &1).cost(0).build(), Err(JobError::Zero("cost"))));
    }
}
