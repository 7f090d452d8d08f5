//! `paceline services status`: when services run next, when they last ran, and with what result.

use hyper::Method;
use serde_json::{Value, json};

use super::{known, services};
use crate::client::Client;
use crate::exit::Exit;
use crate::form::Form;
use crate::output::data;
use crate::table::{aligned, clock, items, joined, lines, rough, text};

pub(super) async fn show(client: &Client, name: Option<&str>, form: Form) -> anyhow::Result<Exit> {
    let mut services = services(client).await?;
    let mut rosters = Vec::new();
    if let Some(name) = name {
        known(&services, name)?;
        services.retain(|service| service["name"] == name);
    } else {
        let response = client.ask(Method::GET, "/rosters").await?;
        rosters = items(&response["rosters"]).to_vec();
    }
    data(&match form {
        Form::Table => table(&services, &rosters, running(client)),
        Form::Json => format!("{}\n", json!({ "services": services, "rosters": rosters })),
        Form::Jsonl => {
            let services = services.iter().map(|it| json!({ "service": it }));
            let rosters = rosters.iter().map(|it| json!({ "roster": it }));
            lines(services.chain(rosters))
        }
    })?;
    Ok(Exit::Done)
}

/// The state of an unfinished run: without a daemon it is interrupted until the next start.
fn running(client: &Client) -> &'static str {
    if client.runs_jobs() { "running" } else { "interrupted" }
}

fn result(service: &Value, running: &str) -> String {
    let mut shown = text(&service["result"]);
    if service["why"].is_string() {
        shown = format!("{shown}: {}", text(&service["why"]));
    }
    if service["running"].is_u64() {
        shown = format!("{running} as job {}; last: {shown}", service["running"]);
    }
    if service["lane"].is_null() {
        shown.push_str(" (no longer configured)");
    }
    shown
}

fn table(services: &[Value], rosters: &[Value], running: &str) -> String {
    let mut rows = vec![["SERVICE", "NEXT", "LEFT", "LAST", "PASSED", "RESULT"].map(String::from)];
    for service in services {
        let (next, left) = match service["left_ms"].as_u64() {
            _ if service["running"].is_u64() => (running.to_string(), "-".to_string()),
            None => ("by hand".to_string(), "-".to_string()),
            Some(0) => ("now".to_string(), "-".to_string()),
            Some(_) => (clock(&service["next_at"]), rough(&service["left_ms"])),
        };
        let last = &service["last_at"];
        let last = if last.is_null() { "never".to_string() } else { clock(last) };
        let passed = rough(&service["passed_ms"]);
        rows.push([text(&service["name"]), next, left, last, passed, result(service, running)]);
    }
    let services = aligned(&rows);
    if rosters.is_empty() {
        return services;
    }
    let head = ["ROSTER", "NEXT CHECK", "CURRENT", "REMAINING", "COMPLETED", "RESULTS"];
    let mut rows = vec![head.map(String::from)];
    for roster in rosters {
        let result = |it: &Value| format!("{} {}", text(&it["service"]), text(&it["result"]));
        rows.push([
            text(&roster["name"]),
            check(&roster["check_at"]),
            text(&roster["current"]),
            joined(items(&roster["remaining"]).iter().map(text)),
            text(&roster["completed"]),
            joined(items(&roster["results"]).iter().map(result)),
        ]);
    }
    format!("{services}\n{}", aligned(&rows))
}

/// The time of a roster's next check: a time in the past is due now.
fn check(moment: &Value) -> String {
    let at = moment.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    if at.is_some_and(|at| at <= jiff::Timestamp::now()) {
        return "now".to_string();
    }
    clock(moment)
}
