//! `paceline services status`: when services run next, when they last did, what came of it.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use paceline::{JobState, RosterStatus, ServiceStatus, Span, Time};
use serde_json::{Value, json};

use super::{Form, no_service};
use crate::config::Config;
use crate::engine::{For, start};
use crate::exit::Exit;
use crate::output::data;

pub(super) async fn show(config: &Config, name: Option<&str>, form: Form) -> anyhow::Result<Exit> {
    let pace = start(config, For::Looking).await?;
    let (mut services, rosters) = (pace.services().await?, pace.rosters().await?);
    let now = wall();
    pace.stop(std::time::Duration::ZERO).await?;
    if let Some(name) = name {
        services.retain(|service| *service.record.name == *name);
        if services.is_empty() {
            return Err(no_service(config, name).into());
        }
    }
    let rosters = if name.is_some() { Vec::new() } else { rosters };
    data(&match form {
        Form::Table => table(&services, &rosters, now),
        Form::Json => format!("{}\n", as_json(&services, &rosters, now)),
    })?;
    Ok(Exit::Done)
}

/// What the clock on the wall shows, as the engine counts it.
fn wall() -> Time {
    Time(Timestamp::now().as_microsecond().unsigned_abs())
}

/// A moment for programs.
pub(super) fn stamp(at: Time) -> Value {
    let at = i64::try_from(at.0).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
    at.map_or(Value::Null, |at| format!("{at:.3}").into())
}

/// A moment for people.
fn clock(at: Time) -> String {
    let at = i64::try_from(at.0).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
    let at = at.map(|at| at.to_zoned(TimeZone::system()));
    at.map_or_else(|| "-".to_string(), |at| at.strftime("%a %Y-%m-%d %H:%M:%S").to_string())
}

/// A span for people: its two largest units.
fn rough(span: Span) -> String {
    let seconds = span.0 / 1_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

pub(super) fn word(state: JobState) -> String {
    format!("{state:?}").to_lowercase()
}

fn result(service: &ServiceStatus) -> String {
    let last = service.record.last.as_ref().map(|last| &last.result);
    let mut text = match last {
        None => "-".to_string(),
        Some(result) => match &result.why {
            Some(why) => format!("{}: {why}", word(result.state)),
            None => word(result.state),
        },
    };
    if let Some(job) = service.running {
        text = format!("running as job {job}; last: {text}");
    }
    if service.terms.is_none() {
        text.push_str(" (no longer configured)");
    }
    text
}

fn table(services: &[ServiceStatus], rosters: &[RosterStatus], now: Time) -> String {
    let mut rows = vec![["SERVICE", "NEXT", "LEFT", "LAST", "PASSED", "RESULT"].map(String::from)];
    for service in services {
        let (next, left) = match service.next_at {
            _ if service.running.is_some() => ("running".to_string(), "-".to_string()),
            None => ("by hand".to_string(), "-".to_string()),
            Some(at) if at <= now => ("now".to_string(), "-".to_string()),
            Some(at) => (clock(at), rough(at.since(now))),
        };
        let (last, passed) = match service.record.succeeded_at {
            None => ("never".to_string(), "-".to_string()),
            Some(at) => (clock(at.wall), rough(now.since(at.wall))),
        };
        rows.push([service.record.name.to_string(), next, left, last, passed, result(service)]);
    }
    let mut text = aligned(&rows);
    if rosters.is_empty() {
        return text;
    }
    let mut rows = vec![
        ["ROSTER", "NEXT CHECK", "CURRENT", "REMAINING", "COMPLETED", "RESULTS"].map(String::from),
    ];
    for roster in rosters {
        let record = &roster.record;
        let next = roster
            .check_at
            .map_or("-".to_string(), |at| if at <= now { "now".into() } else { clock(at) });
        let current = record.current.as_ref().map_or("-".to_string(), |(name, _)| name.to_string());
        let remaining = joined(record.remaining.iter().map(ToString::to_string));
        let results = record.results.iter().map(|(name, it)| format!("{name} {}", word(it.state)));
        let completed = record.results.len().to_string();
        rows.push([record.name.to_string(), next, current, remaining, completed, joined(results)]);
    }
    text.push('\n');
    text.push_str(&aligned(&rows));
    text
}

fn joined(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "-".to_string() } else { words.join(", ") }
}

/// Columns as wide as their widest entry; the last one is not padded.
fn aligned(rows: &[[String; 6]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ").expect("a string takes everything");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn as_json(services: &[ServiceStatus], rosters: &[RosterStatus], now: Time) -> Value {
    let services = services.iter().map(|service| service_json(service, now));
    let rosters = rosters.iter().map(roster_json);
    json!({ "services": services.collect::<Vec<_>>(), "rosters": rosters.collect::<Vec<_>>() })
}

fn service_json(service: &ServiceStatus, now: Time) -> Value {
    let record = &service.record;
    let last = record.last.as_ref();
    json!({
        "name": record.name,
        "lane": service.terms.as_ref().map(|terms| &terms.lane),
        "running": service.running,
        "next_at": service.next_at.map(stamp),
        "left_ms": service.next_at.map(|at| at.since(now).as_millis()),
        "last_at": record.succeeded_at.map(|at| stamp(at.wall)),
        "passed_ms": record.succeeded_at.map(|at| now.since(at.wall).as_millis()),
        "ended_at": last.map(|last| stamp(last.ended_at)),
        "result": last.map(|last| word(last.result.state)),
        "why": last.and_then(|last| last.result.why.as_ref()),
    })
}

fn roster_json(roster: &RosterStatus) -> Value {
    let record = &roster.record;
    let result = |(service, result): &(std::sync::Arc<str>, paceline::ServiceResult)| json!({ "service": service, "result": word(result.state), "why": result.why });
    json!({
        "name": record.name,
        "check_at": roster.check_at.map(stamp),
        "current": record.current.as_ref().map(|(name, _)| name),
        "remaining": record.remaining,
        "completed": record.results.len(),
        "results": record.results.iter().map(result).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_their_two_largest_units() {
        let told = |span: &str| rough(span.parse().expect("a span"));
        assert_eq!(["9s", "61s", "3h5m9s", "50h"].map(told), ["9s", "1m 1s", "3h 5m", "2d 2h"]);
    }
}
