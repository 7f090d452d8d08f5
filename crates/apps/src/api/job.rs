//! Jobs, calls and reasons as the OpenAPI document describes them.

#![expect(missing_docs, reason = "the words of the API, each said in its enum")]

use std::sync::Arc;

use paceline::Paceline;
use paceline::lanes::Why;
use serde::Serialize;
use utoipa::{PartialSchema, ToSchema};

use super::moment::stamp;

/// A job: its report if it is finished, else its state.
#[derive(ToSchema)]
#[schema(as = Job)]
#[expect(dead_code, reason = "it is only described")]
pub struct JobDoc {
    job: u64,
    state: StateWord,
    /// The answer of a finished job.
    #[schema(required = false)]
    answer: AnswerWord,
    /// The calls of a finished job, lane by lane.
    calls: Vec<CallDoc>,
    /// `true`: the deadline of this request has passed, and the job continues for other callers.
    /// This is its state at that deadline.
    #[schema(required = false)]
    partial: bool,
    #[schema(required = false)]
    kind: String,
    #[schema(required = false)]
    stages: Vec<Vec<String>>,
    #[schema(required = false)]
    priority: PriorityWord,
    #[schema(required = false)]
    key: String,
    #[schema(required = false)]
    tenant: String,
    #[schema(required = false)]
    submitted_at: String,
    #[schema(required = false)]
    due_at: String,
    #[schema(required = false)]
    deadline_at: String,
    #[schema(required = false)]
    finished_at: String,
    /// Why its waiting calls wait.
    #[schema(required = false)]
    why: Vec<WhyView>,
}

/// A call and its outcome.
#[derive(ToSchema)]
#[schema(as = Call)]
#[expect(dead_code, reason = "it is only described")]
pub struct CallDoc {
    lane: String,
    outcome: OutcomeWord,
    #[schema(required = false)]
    conclusive: bool,
    /// The reason of a skip.
    #[schema(required = false)]
    reason: String,
    /// `paused` if the lane was paused and the call's `max_wait` ended before the pause did.
    #[schema(required = false)]
    cause: String,
    #[schema(required = false)]
    wait_ms: u64,
    #[schema(required = false)]
    max_wait_ms: u64,
    #[schema(required = false)]
    start_within_ms: u64,
    #[schema(required = false)]
    priority: PriorityWord,
    /// The class of a failure: a short, stable name.
    #[schema(required = false)]
    class: String,
    #[schema(required = false)]
    retryable: bool,
    /// The failure in words, for people.
    #[schema(required = false)]
    message: String,
    /// The number of the job that is the same work, for a `duplicate`.
    #[schema(required = false)]
    of: u64,
    /// The lane that the call moved to, for a `moved` call.
    #[schema(required = false)]
    to: String,
    /// Attempts that were sent.
    #[schema(required = false)]
    attempts: u32,
    #[schema(required = false)]
    waited_ms: u64,
    #[schema(required = false)]
    ran_ms: u64,
    /// `true` if the answer came from the cache.
    #[schema(required = false)]
    cached: bool,
    /// The worker's result. For `http`: `status`, `headers`, and `body` or `body_base64`.
    #[schema(required = false, value_type = Anything)]
    value: (),
}

/// Any JSON.
pub struct Anything;

impl PartialSchema for Anything {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, SchemaType};
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).into()
    }
}

impl ToSchema for Anything {}

/// The state of a job.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum StateWord {
    Waiting,
    Running,
    Done,
    Failed,
    Skipped,
    Cancelled,
}

/// The answer of a job: what its outcomes amount to.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum AnswerWord {
    Conclusive,
    All,
    Empty,
    Inconclusive,
}

/// The outcome of a call.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum OutcomeWord {
    Done,
    Empty,
    Skipped,
    Failed,
    Cancelled,
    Duplicate,
    Moved,
}

/// Why a call waits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Why)]
pub struct WhyView {
    /// The number of the call within the job.
    call: u16,
    #[schema(value_type = String)]
    lane: Arc<str>,
    /// The main reason.
    #[schema(value_type = Reason)]
    reason: &'static str,
    /// The earliest moment at which this reason ends, if it is known.
    until: Option<String>,
    /// Calls ahead of it on its lane, counted up to 1,000.
    ahead: usize,
    /// Further reasons.
    #[schema(value_type = Vec<Reason>)]
    also: Vec<&'static str>,
}

/// The reason why a call waits.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Reason {
    Gap,
    Window,
    Keep,
    Group,
    Cooldown,
    Backoff,
    Probe,
    Busy,
    Workers,
    Priority,
    NotBefore,
    Paused,
    Joined,
    Stage,
    Room,
}

pub fn whys(pace: &Paceline, whys: &[(u16, Why)]) -> Vec<WhyView> {
    let view = |(call, why): &(u16, Why)| WhyView {
        call: *call,
        lane: why.lane.clone(),
        reason: why.reason.name(),
        until: why.until.map(|until| stamp(pace.wall(until))),
        ahead: why.ahead,
        also: why.also.iter().map(|reason| reason.name()).collect(),
    };
    whys.iter().map(view).collect()
}

/// `interactive`, `rss`, `completion` or `background`. Default: `background`.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum PriorityWord {
    Interactive,
    Rss,
    Completion,
    Background,
}
