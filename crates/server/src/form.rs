//! Jobs as callers ask for them.

use paceline::jobs::OnDuplicate;
use paceline::{Job, Priority};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::kinds::Kinds;
use paceline_apps::api::{PriorityWord, Problem};

/// Jobs in one request.
pub(crate) const MOST_JOBS: usize = 10_000;

/// What to do, where, and on which terms. Spans are written like `90s` or `1h30m`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = JobRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobForm {
    /// Who runs it: `http` or `command`.
    #[schema(example = "http")]
    kind: String,
    /// The lanes that are asked, all together. Either these or `stages`.
    #[schema(example = json!(["shop"]))]
    lanes: Option<Vec<String>>,
    /// Lanes that are asked stage by stage: the next only if the one before settled nothing.
    stages: Option<Vec<Vec<String>>>,
    /// For the worker. Of `http`: a request, as `HttpPayload` describes it. Of `command`:
    /// `{"command": "NAME", "input": ...}`.
    #[schema(value_type = Option<Object>, example = json!({"method": "GET", "path": "/item/1"}))]
    payload: Option<Box<RawValue>>,
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    /// Jobs with this key are the same work, as long as one of them is unfinished.
    key: Option<String>,
    /// The same, among jobs that are not yet due.
    schedule_key: Option<String>,
    /// What becomes of it if the same work is under way: it joins if it is not said.
    #[schema(value_type = Option<OnDuplicateWord>)]
    on_duplicate: Option<OnDuplicate>,
    /// Answers are kept and found under this key, lane by lane.
    cache_key: Option<String>,
    /// Tenants take turns.
    tenant: Option<String>,
    /// What one attempt costs in every window.
    #[schema(minimum = 1)]
    cost: Option<u32>,
    /// Skips lanes that stay closed for longer.
    #[schema(example = "60s")]
    max_wait: Option<String>,
    /// Skips calls that have not started so long after joining the queue.
    start_within: Option<String>,
    /// Reports what it has after so long.
    #[schema(example = "5m")]
    deadline: Option<String>,
    /// Starts so long after its submission.
    delay: Option<String>,
    /// Requests in all, if they fail.
    #[schema(minimum = 1)]
    attempts: Option<u16>,
    /// Whether every lane is asked, or only until one settles the question.
    #[schema(value_type = Option<UntilWord>)]
    until: Option<Until>,
}

/// What becomes of a second job with the same key.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum OnDuplicateWord {
    Join,
    Refuse,
    Replace,
}

/// When a job has its answer.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum UntilWord {
    All,
    Conclusive,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Until {
    All,
    Conclusive,
}

impl JobForm {
    /// The job that is meant, if it can be.
    pub(crate) fn job(self, kinds: &Kinds) -> Result<Job, Problem> {
        let stages = match (self.lanes, self.stages) {
            (Some(lanes), None) => vec![lanes],
            (None, Some(stages)) => stages,
            (Some(_), Some(_)) => {
                return Err(Problem::unprocessable("name either `lanes` or `stages`"));
            }
            (None, None) => Vec::new(),
        };
        if stages.is_empty() || stages.iter().any(Vec::is_empty) {
            return Err(Problem::no_lanes(
                "name at least one lane in `lanes`, or in each of `stages`",
            ));
        }
        let payload = self.payload.as_deref().map_or("null", RawValue::get);
        kinds.check(&self.kind, payload.as_bytes(), stages.iter().flatten())?;
        let mut job = Job::new(&self.kind, &self.payload);
        for stage in &stages {
            job = job.on(stage);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if self.until == Some(Until::Conclusive) {
            job = job.first_conclusive();
        }
        if let Some(choice) = self.on_duplicate {
            job = job.on_duplicate(choice);
        }
        job = with(job, self.key, Job::key);
        job = with(job, self.schedule_key, Job::schedule_key);
        job = with(job, self.cache_key, Job::cache_key);
        job = with(job, self.tenant, |job, tenant| job.tenant(&tenant));
        job = with(job, self.cost, Job::cost);
        job = with(job, self.attempts, Job::attempts);
        job = with(job, self.max_wait, |job, span| job.max_wait(&*span));
        job = with(job, self.start_within, |job, span| job.start_within(&*span));
        job = with(job, self.deadline, |job, span| job.deadline(&*span));
        Ok(with(job, self.delay, |job, span| job.delay(&*span)))
    }
}

fn with<T>(job: Job, value: Option<T>, set: impl FnOnce(Job, T) -> Job) -> Job {
    match value {
        Some(value) => set(job, value),
        None => job,
    }
}
