//! The OpenAPI document, made from the code.

use serde_json::{Value, json};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa::{PartialSchema, ToSchema};

use crate::form::JobForm;
use crate::view::WhyView;

/// One job, or a list of them.
#[derive(serde::Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum Jobs {
    /// One.
    One(Box<JobForm>),
    /// At most 10,000, in one commit.
    Many(Vec<JobForm>),
}

/// A job: its report, or how it stands.
#[derive(ToSchema)]
#[schema(as = Job)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) struct JobDoc {
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
    priority: crate::form::PriorityWord,
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
pub(crate) struct CallDoc {
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
    priority: crate::form::PriorityWord,
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
    #[schema(required = false, value_type = crate::openapi::Anything)]
    value: (),
}

/// Any JSON.
pub(crate) struct Anything;

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
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum StateWord {
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
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum AnswerWord {
    Conclusive,
    All,
    Empty,
    Inconclusive,
}

/// What a call came to.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum OutcomeWord {
    Done,
    Empty,
    Skipped,
    Failed,
    Cancelled,
    Duplicate,
    Moved,
}

/// A page of jobs.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) struct JobPage {
    jobs: Vec<JobDoc>,
    /// The `cursor` of the next page, if there is one.
    next: Option<u64>,
}

/// The payload of a job of the kind `http`: one request.
#[derive(ToSchema)]
#[schema(as = HttpPayload)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) struct HttpPayload {
    /// `GET` if it is not said.
    method: Option<String>,
    /// A path, with its query, below the url of the lane.
    #[schema(example = "/item/1")]
    path: Option<String>,
    /// A whole address: of the lane's own server, or anywhere public on a lane without a url.
    url: Option<String>,
    /// Headers beside those of the lane.
    headers: Option<std::collections::HashMap<String, String>>,
    /// A text as it is, anything else as JSON.
    #[schema(value_type = Option<Object>)]
    body: Option<Value>,
    /// A body of any bytes, in place of `body`.
    body_base64: Option<String>,
    /// Which answers are conclusive, empty or failed, each a list of a status like 404, a hundred like
    /// `4xx`, or `{"contains": "words"}`.
    #[schema(value_type = Option<Object>, example = json!({"empty": [404], "failed": [{"contains": "error"}]}))]
    expect: Option<Value>,
    /// `follow`, if it is not said, or `keep`.
    redirects: Option<String>,
}

/// What is known before any path is.
pub(crate) fn beginning() -> OpenApi {
    let about = "Runs work against services you do not own: at their pace, never past their \
                 limits, and without losing any of it.";
    let info = InfoBuilder::new().title("Paceline").version("1").description(Some(about));
    let payload = ComponentsBuilder::new().schema("HttpPayload", HttpPayload::schema()).build();
    OpenApiBuilder::new().info(info.build()).components(Some(payload)).build()
}

/// Answers that any path may give, before its own handler is asked.
const COMMON: [(&str, &str); 9] = [
    ("400", "Not a request that can be read"),
    ("401", "No token, or one that is not known"),
    ("403", "The token's role does not allow it, or the request comes from another site"),
    ("405", "Not a method of this path"),
    ("408", "The body did not arrive in time"),
    ("413", "The body is too large"),
    ("415", "The body is not JSON"),
    ("421", "The host is not a name of this daemon"),
    ("503", "The engine is stopping, or there is no room"),
];

/// The whole document: what the paths say, and what holds for all of them.
pub(crate) fn complete(openapi: &OpenApi) -> Value {
    let mut document = serde_json::to_value(openapi).unwrap_or_default();
    let problem = json!({ "application/problem+json": {
        "schema": { "$ref": "#/components/schemas/Problem" },
    }});
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for path in paths {
        let operations = path.as_object_mut().into_iter().flat_map(|path| path.values_mut());
        for operation in operations.filter(|it| it["responses"].is_object()) {
            let responses = operation["responses"].as_object_mut().expect("looked at above");
            for (status, _) in COMMON {
                let entry = responses.entry(status);
                entry.or_insert_with(
                    || json!({ "$ref": format!("#/components/responses/{status}") }),
                );
            }
            // Problems have a type of their own, whatever the macro thinks.
            for (status, response) in responses.iter_mut() {
                if status.starts_with(['4', '5']) && response.get("$ref").is_none() {
                    response["content"] = problem.clone();
                }
            }
        }
    }
    let common = COMMON.iter().map(|(status, description)| {
        ((*status).to_string(), json!({ "description": description, "content": problem }))
    });
    document["components"]["responses"] = common.collect::<serde_json::Map<_, _>>().into();
    let schemes = json!({ "token": { "type": "http", "scheme": "bearer" } });
    document["components"]["securitySchemes"] = schemes;
    document["security"] = json!([{}, { "token": [] }]);
    document
}

/// The document as it is served, with line breaks for people.
pub fn document() -> String {
    let (_, openapi) = crate::server::routes().split_for_parts();
    let text = serde_json::to_string_pretty(&complete(&openapi));
    text.unwrap_or_default() + "\n"
}
