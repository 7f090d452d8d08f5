//! Job requests, as callers send them.

use paceline::jobs::OnDuplicate;
use paceline::{Job, Priority};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::kinds::Kinds;
use paceline_apps::api::{PriorityWord, Problem};

/// Jobs in one request at most.
pub(crate) const MOST_JOBS: usize = 10_000;

/// A job to submit. Spans are written like `90s` or `1h30m`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = JobRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobForm {
    /// The kind of the job: `http` or `command`.
    #[schema(example = "http")]
    kind: String,
    /// The lanes to ask, all at once. Give either `lanes` or `stages`.
    #[schema(example = json!(["shop"]))]
    lanes: Option<Vec<String>>,
    /// Lanes to ask stage by stage: a stage starts only if the one before did not settle the job.
    stages: Option<Vec<Vec<String>>>,
    /// The input of the worker. For `http`: a request, as `HttpPayload` describes it. For
    /// `command`: `{"command": "NAME", "input": ...}`.
    #[schema(value_type = Option<Object>, example = json!({"method": "GET", "path": "/item/1"}))]
    payload: Option<Box<RawValue>>,
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    /// Unfinished jobs with the same key are the same work.
    key: Option<String>,
    /// Like `key`, among jobs that are not yet due.
    schedule_key: Option<String>,
    /// What to do if an unfinished job has the same key. Default: `join`.
    #[schema(value_type = Option<OnDuplicateWord>)]
    on_duplicate: Option<OnDuplicate>,
    /// The key under which results are cached, lane by lane.
    cache_key: Option<String>,
    /// The tenant. Tenants take turns at the same priority.
    tenant: Option<String>,
    /// The cost of one attempt in every window. Default: 1.
    #[schema(minimum = 1)]
    cost: Option<u32>,
    /// Skips a call whose lane stays closed for longer than this.
    #[schema(example = "60s")]
    max_wait: Option<String>,
    /// Skips a call that has not started this long after it joined the queue.
    start_within: Option<String>,
    /// The time after which the job is reported as it stands.
    #[schema(example = "5m")]
    deadline: Option<String>,
    /// Starts the job this long after its submission.
    delay: Option<String>,
    /// Attempts per call at most, the first included.
    #[schema(minimum = 1)]
    attempts: Option<u16>,
    /// `all`: ask every lane. `conclusive`: stop at the first conclusive outcome.
    #[schema(value_type = Option<UntilWord>)]
    until: Option<Until>,
}

/// What to do with a second job of the same key: join the first, refuse the second, or replace the
/// payload of the first.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum OnDuplicateWord {
    Join,
    Refuse,
    Replace,
}

/// When a job is finished: after all lanes, or after the first conclusive outcome.
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
    /// The job that this form describes, or the problem with it.
    pub(crate) fn job(self, kinds: &Kinds) -> Result<Job, Problem> {
        let stages = match (self.lanes, self.stages) {
            (Some(lanes), None) => vec![lanes],
            (None, Some(stages)) => stages,
            (Some(_), Some(_)) => {
                return Err(Problem::unprocessable("give either `lanes` or `stages`, not both"));
            }
            (None, None) => Vec::new(),
        };
        if stages.is_empty() || stages.iter().any(Vec::is_empty) {
            return Err(Problem::no_lanes(
                "give at least one lane in `lanes`, or in each of `stages`",
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
