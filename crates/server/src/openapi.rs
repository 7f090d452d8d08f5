//! The OpenAPI document, generated from the code.

use axum::Router;
use paceline_apps::Submitted;
use paceline_apps::api::{Handle, JobDoc};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};

use crate::form::JobForm;
use crate::kinds::Kinds;

/// One job, or a list of them.
#[derive(serde::Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum Jobs {
    /// One job.
    One(Box<JobForm>),
    /// At most 10,000 jobs, accepted in one commit.
    Many(Vec<JobForm>),
}

/// A page of jobs.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) struct JobPage {
    jobs: Vec<JobDoc>,
    /// The `cursor` of the next page; `null` on the last one.
    next: Option<u64>,
}

/// The document before any path is added.
pub(crate) fn beginning() -> OpenApi {
    let about = "Runs work against upstreams you do not own: at their pace, never past their \
                 limits, and without losing any of it.";
    let info = InfoBuilder::new().title("Paceline").version("1").description(Some(about));
    OpenApiBuilder::new().info(info.build()).build()
}

/// The routes of all tools, and the complete document: the paths in `own` and those of the tools.
pub(crate) fn with_tools(mut own: OpenApi, kinds: &Kinds) -> (Router<Handle>, Value) {
    let (mut api, mut whole) = (Router::new(), Router::new());
    for routes in kinds.tools.iter().map(|tool| tool.routes()) {
        let (router, described) = routes.api.split_for_parts();
        own = own.nest("/api/v1", described);
        (api, whole) = (api.merge(router), whole.merge(routes.root));
    }
    let components = own.components.get_or_insert_default();
    for (_, submitted) in kinds.submitted() {
        let (name, schema) = submitted.schema();
        components.schemas.insert(name.to_string(), schema);
    }
    let mut document = complete(&own);
    describe_payloads(&mut document, kinds);
    (whole.nest("/api/v1", api), document)
}

/// Names the kinds that callers may submit, each with the schema of its payload.
fn describe_payloads(document: &mut Value, kinds: &Kinds) {
    let payload = |(kind, submitted): (&str, &Submitted)| {
        format!("for `{kind}` see `{}`", submitted.schema().0)
    };
    let payloads: Vec<String> = kinds.submitted().map(payload).collect();
    let fields = &mut document["components"]["schemas"]["JobRequest"]["properties"];
    fields["kind"]["description"] = format!("The kind of the job: {}.", kinds.names("or")).into();
    fields["payload"]["description"] =
        format!("The input of the worker: {}.", payloads.join(", ")).into();
}

/// Responses that any path may give before its own handler runs.
const COMMON: [(&str, &str); 9] = [
    ("400", "The request is malformed"),
    ("401", "The token is missing or invalid"),
    ("403", "The token's role does not allow it, or the request comes from another site"),
    ("405", "The path does not support this method"),
    ("408", "The body did not arrive in time"),
    ("413", "The body is too large"),
    ("415", "The body is not JSON"),
    ("421", "The `Host` is not a name of this daemon"),
    ("503", "The engine is stopping, or there is no room"),
];

/// The complete document: the paths, and what holds for all of them.
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
            // The macro does not know the media type of problems.
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

/// The document of a daemon with these kinds, as text with line breaks.
pub fn document(kinds: &Kinds) -> String {
    let (_, own) = crate::server::routes().split_for_parts();
    let (_, document) = with_tools(own, kinds);
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}
