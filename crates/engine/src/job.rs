//! The description of a job.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::{Duration, SystemTime};

use paceline_core::{Blob, Due, JobSpec, OnDuplicate, Priority, SpanError, Submission, Until};
use serde::Serialize;

use crate::span::IntoSpan;

/// The description of a job is invalid.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A span of time is invalid.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// The payload cannot be written as JSON.
    #[error("the payload cannot be written as JSON")]
    Payload(#[from] serde_json::Error),
    /// The cost or the number of attempts is zero.
    #[error("`{0}` must be above zero")]
    Zero(&'static str),
}

/// The description of a job: a kind, a payload, the lanes to visit and the terms.
///
/// Mistakes in it, such as a span that is none, are errors of the submission.
#[derive(Debug)]
pub struct Job {
    submission: Submission,
    problem: Option<JobError>,
}

impl Job {
    /// A job of this kind. The payload is stored as JSON and handed to the worker of the kind.
    pub fn new(kind: &str, payload: &(impl Serialize + ?Sized)) -> Job {
        let mut spec = JobSpec::new(kind, &[]);
        spec.stages.clear();
        let (payload, problem) = match serde_json::to_vec(payload) {
            Ok(payload) => (payload, None),
            Err(error) => (Vec::new(), Some(JobError::Payload(error))),
        };
        Job { submission: Submission::new(spec, payload.into()), problem }
    }

    /// Adds a stage: lanes that are asked together, once the stages before have given no conclusive
    /// answer.
    #[must_use]
    pub fn on<L: AsRef<str>>(mut self, lanes: impl IntoIterator<Item = L>) -> Job {
        let lanes = lanes.into_iter().map(|lane| lane.as_ref().into()).collect();
        self.submission.spec.stages.push(lanes);
        self
    }

    /// Sets the priority; background by default.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Job {
        self.submission.priority = Some(priority);
        self
    }

    /// Sets the priority of work that a person waits for. It goes ahead of all other work.
    #[must_use]
    pub fn interactive(self) -> Job {
        self.priority(Priority::Interactive)
    }

    /// Sets the priority of feeds. A second unfinished call of that kind on a lane is a duplicate.
    #[must_use]
    pub fn rss(self) -> Job {
        self.priority(Priority::Rss)
    }

    /// Ends the job at the first conclusive outcome. Other calls are skipped, or aborted.
    #[must_use]
    pub fn first_conclusive(mut self) -> Job {
        self.submission.spec.until = Until::Conclusive;
        self
    }

    /// Sets the key: of jobs with the same key only one is unfinished at a time. A second one joins
    /// it, unless [`Job::on_duplicate`] says otherwise.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Job {
        self.submission.spec.key = Some(key.as_ref().into());
        self
    }

    /// Sets a key that counts only among jobs that are not yet due.
    #[must_use]
    pub fn schedule_key(mut self, key: impl AsRef<[u8]>) -> Job {
        self.submission.spec.schedule_key = Some(key.as_ref().into());
        self
    }

    /// Sets what happens if a job with the same key is under way; it joins by default.
    #[must_use]
    pub fn on_duplicate(mut self, choice: OnDuplicate) -> Job {
        self.submission.spec.on_duplicate = choice;
        self
    }

    /// Sets the key under which answers are cached, lane by lane.
    #[must_use]
    pub fn cache_key(mut self, key: impl AsRef<[u8]>) -> Job {
        self.submission.spec.cache_key = Some(key.as_ref().into());
        self
    }

    /// Sets the tenant. Within one priority of a lane, tenants take turns.
    #[must_use]
    pub fn tenant(mut self, name: &str) -> Job {
        self.submission.spec.tenant = Some(name.into());
        self
    }

    /// Sets what one attempt counts in every window of its lane; 1 by default.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Job {
        match NonZeroU32::new(cost) {
            Some(cost) => self.submission.spec.cost = cost,
            None => self.problem = self.problem.or(Some(JobError::Zero("cost"))),
        }
        self
    }

    /// Sets the number of attempts per call, the first included; 3 by default.
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

    /// Sets the longest wait before the first retry; 1 s by default. It doubles with each retry, and
    /// the wait itself is random below it.
    #[must_use]
    pub fn backoff(self, first: impl IntoSpan) -> Job {
        self.span(first, |job, span| {
            job.spec.retry.backoff = span;
            job.spec.retry.backoff_max = job.spec.retry.backoff_max.max(span);
        })
    }

    /// Skips a call at once if its lane stays closed for longer than this. Waiting behind other calls
    /// does not count.
    #[must_use]
    pub fn max_wait(self, wait: impl IntoSpan) -> Job {
        self.span(wait, |job, span| job.spec.max_wait = Some(span))
    }

    /// Skips calls that have not started within this time after joining the queue.
    #[must_use]
    pub fn start_within(self, budget: impl IntoSpan) -> Job {
        self.span(budget, |job, span| job.spec.start_within = Some(span))
    }

    /// Refuses the job at once if its lanes would not let it start within
    /// [`start_within`](Job::start_within).
    #[must_use]
    pub fn in_time(mut self) -> Job {
        self.submission.in_time = true;
        self
    }

    /// Sets the time after which the job reports what it has and withdraws the rest. A caller that
    /// joins the same work keeps its own deadline, and gets what there is by then.
    #[must_use]
    pub fn deadline(self, after: impl IntoSpan) -> Job {
        self.span(after, |job, span| job.deadline = Some(span))
    }

    /// Starts the job this long after its submission, even if the wall clock is set in the meantime.
    #[must_use]
    pub fn delay(self, delay: impl IntoSpan) -> Job {
        self.span(delay, |job, span| job.due = Due::In(span))
    }

    /// Starts the job at this moment of the wall clock.
    #[must_use]
    pub fn due(mut self, at: SystemTime) -> Job {
        self.submission.due = Due::At(crate::clock::wall_moment(at));
        self
    }

    /// The time from its submission to its deadline, if it has one.
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
