//! Jobs, calls and reasons as the OpenAPI document describes them.

#![expect(missing_docs, reason = "the words of the API, each said in its enum")]

use std::sync::Arc;

use paceline::Paceline;
use paceline::lanes::Why;
use serde::Serialize;
use utoipa::{PartialSchema, ToSchema};

use super::moment::stamp;

/// A job: its report, or how it stands.
#[derive(ToSchema)]
#[schema(as = Job)]
#[expect(dead_code, reason = "it is only described")]
pub struct JobDoc {
    job: u64,
    state: StateWord,
    /// What its outcomes amount to, once it is finished.
    #[schema(required = false)]
    answer: AnswerWord,
    /// Its coverage, lane by lane, once it is finished.
    calls: Vec<CallDoc>,
    /// `true`: the job goes on for other callers, and this is what there was at the deadline of the
    /// request that is answered.
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
    /// Why its calls wait, if they do.
    #[schema(required = false)]
    why: Vec<WhyView>,
}

/// What a call came to.
#[derive(ToSchema)]
#[schema(as = Call)]
#[expect(dead_code, reason = "it is only described")]
pub struct CallDoc {
    lane: String,
    outcome: OutcomeWord,
    #[schema(required = false)]
    conclusive: bool,
    /// Why it was skipped.
    #[schema(required = false)]
    reason: String,
    /// `paused`, if its lane was paused and its `max_wait` did not reach to the end of that.
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
    /// Why it failed: a short stable name.
    #[schema(required = false)]
    class: String,
    #[schema(required = false)]
    retryable: bool,
    /// For people.
    #[schema(required = false)]
    message: String,
    /// The job that is the same work.
    #[schema(required = false)]
    of: u64,
    /// The lane it went to.
    #[schema(required = false)]
    to: String,
    /// Real requests.
    #[schema(required = false)]
    attempts: u32,
    #[schema(required = false)]
    waited_ms: u64,
    #[schema(required = false)]
    ran_ms: u64,
    /// Whether the answer came from the cache.
    #[schema(required = false)]
    cached: bool,
    /// What the worker brought. Of `http`: `status`, `headers`, and `body` or `body_base64`.
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

/// What became of a job.
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

/// What the outcomes amount to.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum AnswerWord {
    Conclusive,
    All,
    Empty,
    Inconclusive,
}

/// What a call came to.
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

/// Why a call waits (W3).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Why)]
pub struct WhyView {
    /// Which call of the job.
    call: u16,
    #[schema(value_type = String)]
    lane: Arc<str>,
    /// What it waits for in the first place.
    #[schema(value_type = Reason)]
    reason: &'static str,
    /// Until then at least, where that is known.
    until: Option<String>,
    /// Calls that go before it on its lane, counted up to 1,000.
    ahead: usize,
    /// What else keeps it.
    #[schema(value_type = Vec<Reason>)]
    also: Vec<&'static str>,
}

/// What a call waits for.
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

/// `interactive`, `rss`, `completion` or `background`, which it is if it is not said.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum PriorityWord {
    Interactive,
    Rss,
    Completion,
    Background,
}
