//! `paceline job show` and `why`: one job as facts, its calls as a table.

use hyper::Method;
use serde_json::Value;

use crate::client::Client;
use crate::exit::Exit;
use crate::follow::reason;
use crate::form::Form;
use crate::output::say;
use crate::table::{aligned, clock, items, joined, span, text};

/// The most characters of a result that a table shows.
const SHOWN: usize = 60;

pub(super) async fn show(client: &Client, id: u64, form: Form) -> anyhow::Result<Exit> {
    let job = client.ask(Method::GET, &format!("/jobs/{id}")).await?;
    form.one(&job, whole)?;
    Ok(Exit::Done)
}

pub(super) async fn why(client: &Client, id: u64, form: Form) -> anyhow::Result<Exit> {
    let response = client.ask(Method::GET, &format!("/jobs/{id}/why")).await?;
    if form == Form::Table && items(&response["why"]).is_empty() {
        let job = client.ask(Method::GET, &format!("/jobs/{id}")).await?;
        say(format_args!("job {id} is {}: none of its calls is waiting", text(&job["state"])));
        return Ok(Exit::Done);
    }
    form.one(&response, |response| whys(items(&response["why"])))?;
    Ok(Exit::Done)
}

/// Several reports, one after another.
pub(super) fn reports(jobs: &[Value]) -> String {
    jobs.iter().map(whole).collect::<Vec<_>>().join("\n")
}

fn whole(job: &Value) -> String {
    let mut facts = vec![["job".to_string(), text(&job["job"])]];
    let mut fact = |name: &str, value: String| {
        if value != "-" {
            facts.push([name.to_string(), value]);
        }
    };
    for name in ["state", "answer", "kind"] {
        fact(name, text(&job[name]));
    }
    fact("lanes", lanes(items(&job["stages"])));
    fact("priority", text(&job["priority"]));
    // The key of a service's run is internal.
    fact("key", if job["kind"] == "service" { "-".to_string() } else { text(&job["key"]) });
    fact("tenant", text(&job["tenant"]));
    for (name, at) in [
        ("submitted", "submitted_at"),
        ("due", "due_at"),
        ("deadline", "deadline_at"),
        ("finished", "finished_at"),
    ] {
        fact(name, clock(&job[at]));
    }
    let mut shown = aligned(&facts);
    let (outcomes, waits) = (items(&job["calls"]), items(&job["why"]));
    if !outcomes.is_empty() {
        shown = format!("{shown}\n{}", calls(outcomes));
    }
    if !waits.is_empty() {
        shown = format!("{shown}\n{}", whys(waits));
    }
    shown
}

fn calls(calls: &[Value]) -> String {
    let head = ["LANE", "OUTCOME", "ATTEMPTS", "WAITED", "RAN", "RESULT"].map(String::from);
    let mut rows = vec![head];
    for call in calls {
        rows.push([
            text(&call["lane"]),
            text(&call["outcome"]),
            call["attempts"].as_u64().unwrap_or(0).to_string(),
            span(&call["waited_ms"]),
            span(&call["ran_ms"]),
            whole_or_short(call),
        ]);
    }
    aligned(&rows)
}

fn whys(whys: &[Value]) -> String {
    let mut rows = vec![["LANE", "WHY", "UNTIL", "AHEAD", "ALSO WAITS FOR"].map(String::from)];
    for why in whys {
        rows.push([
            text(&why["lane"]),
            text(&why["reason"]),
            clock(&why["until"]),
            ahead(&why["ahead"]),
            joined(items(&why["also"]).iter().map(text)),
        ]);
    }
    aligned(&rows)
}

/// The number of calls ahead. The engine stops counting at a thousand.
fn ahead(ahead: &Value) -> String {
    let more = ahead.as_u64() == Some(paceline_core::MOST_AHEAD as u64);
    format!("{}{}", text(ahead), if more { "+" } else { "" })
}

/// The lanes of a job, stage by stage.
pub(super) fn lanes(stages: &[Value]) -> String {
    let stage = |stage: &Value| items(stage).iter().map(text).collect::<Vec<_>>().join(",");
    let stages: Vec<String> = stages.iter().map(stage).collect();
    if stages.is_empty() { "-".to_string() } else { stages.join(" > ") }
}

/// The reason why a job waits, or why it failed or was skipped, in a few words.
pub(crate) fn why_of(job: &Value) -> String {
    if let Some(why) = items(&job["why"]).first() {
        return reason(why);
    }
    let bad = |outcome: &str| items(&job["calls"]).iter().find(|call| call["outcome"] == outcome);
    let call = bad("failed").or_else(|| bad("skipped"));
    match call {
        Some(call) if job["answer"] != "conclusive" => what(call),
        _ => "-".to_string(),
    }
}

/// The result of a call, or the reason why it has none.
fn what(call: &Value) -> String {
    let shown = match call["outcome"].as_str() {
        Some("failed") if call["message"].is_string() => text(&call["message"]),
        Some("failed") => text(&call["class"]),
        Some("skipped") => skip(call),
        Some("moved") => format!("to {}", text(&call["to"])),
        Some("duplicate") => format!("of job {}", call["of"]),
        _ => value(&call["value"]),
    };
    if call["cached"] == true { format!("cached: {shown}") } else { shown }
}

/// A result, shortened to fit. The reason of a failed or skipped call is shown in full, with its
/// remedy.
fn whole_or_short(call: &Value) -> String {
    let shown = what(call);
    let whole = matches!(call["outcome"].as_str(), Some("failed" | "skipped"));
    if whole { shown } else { short(&shown) }
}

/// A text, shortened to fit into a table.
pub(super) fn short(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "..." } else { "" };
    format!("{short}{more}")
}

fn skip(call: &Value) -> String {
    let reason = text(&call["reason"]);
    let (needed, most) = (span(&call["wait_ms"]), span(&call["max_wait_ms"]));
    if call["cause"] == "paused" {
        let lane = text(&call["lane"]);
        format!("{reason}: paused, {most} at most; `paceline lane resume {lane}` resumes it")
    } else if call["wait_ms"].is_u64() && call["max_wait_ms"].is_u64() {
        format!("{reason}: {needed} needed, {most} at most")
    } else {
        reason
    }
}

/// A worker's value: the status and body of a request, the output of a command.
fn value(value: &Value) -> String {
    if let Some(shown) = value["output"].as_str().filter(|_| value["exit"].is_u64()) {
        return shown.to_string();
    }
    match (&value["status"], &value["body"]) {
        (Value::Number(status), Value::Null) => status.to_string(),
        (Value::Number(status), body) => format!("{status} {}", text(body)),
        _ => text(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_says_why_it_waits_or_why_it_failed() {
        let call = |call: Value| why_of(&json!({ "answer": "inconclusive", "calls": [call] }));
        assert_eq!(call(json!({"outcome": "failed", "class": "timeout"})), "timeout");
        let skipped = json!({
            "outcome": "skipped", "reason": "max_wait", "wait_ms": 43_000, "max_wait_ms": 15_000,
        });
        assert_eq!(call(skipped), "max_wait: 43s needed, 15s at most");
        let paused = json!({
            "lane": "doaj", "outcome": "skipped", "reason": "max_wait", "cause": "paused",
            "max_wait_ms": 2_000,
        });
        let remedy = "max_wait: paused, 2s at most; `paceline lane resume doaj` resumes it";
        assert_eq!((call(paused.clone()), whole_or_short(&paused)), (remedy.into(), remedy.into()));
        assert_eq!(call(json!({"outcome": "done", "value": 1})), "-");
        let waits = json!({"why": [{"reason": "gap", "until": null, "ahead": 3}], "calls": []});
        assert_eq!(why_of(&waits), "gap, 3 ahead");
    }

    #[test]
    fn a_long_result_is_shortened() {
        let call = json!({"outcome": "done", "value": {"status": 200, "body": "x".repeat(99)}});
        assert_eq!(short(&what(&call)), format!("200 {}...", "x".repeat(56)));
        assert_eq!(lanes(items(&json!([["a", "b"], ["c"]]))), "a,b > c");
    }
}
