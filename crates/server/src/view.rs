//! Jobs and lanes as the API shows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use paceline::jobs::{DueAt, JobView};
use paceline::lanes::LaneStatus;
use paceline::report::JobState;
use paceline::{Paceline, Priority, Report, Span, Time};
use serde::Serialize;
use utoipa::ToSchema;

use paceline_apps::api::{Reason, WhyView, stamp, wall, whys};

/// One job: its report if it is finished, else its state.
#[derive(Debug, Serialize)]
pub(crate) struct JobShown {
    #[serde(flatten)]
    outcome: Outcome,
    kind: Arc<str>,
    stages: Vec<Vec<Arc<str>>>,
    priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<Arc<str>>,
    submitted_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<WhyView>,
}

/// A report, or the state before there is one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    Reported(Report),
    Open { job: u64, state: JobState, calls: [(); 0] },
}

impl JobShown {
    pub(crate) fn of(pace: &Paceline, view: JobView) -> JobShown {
        let record = view.stored.record;
        let at = |time| stamp(pace.wall(time));
        let finished_at = view.stored.report.as_ref().map(|report| at(report.finished_at));
        let (job, state) = (record.id.0, view.state);
        let open = Outcome::Open { job, state, calls: [] };
        JobShown {
            why: whys(pace, &view.why),
            outcome: view.stored.report.map_or(open, Outcome::Reported),
            kind: record.spec.kind.clone(),
            stages: record.spec.stages.clone(),
            priority: record.terms.priority.unwrap_or_default(),
            key: record.spec.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned()),
            tenant: record.spec.tenant.clone(),
            submitted_at: at(record.submitted_at),
            due_at: record.terms.due.map(|due| match due {
                DueAt::Wall(date) => stamp(wall(date)),
                DueAt::Engine(moment) => at(moment),
            }),
            deadline_at: Some(record.terms.callers.last()).filter(|it| *it != Time::NEVER).map(at),
            finished_at,
        }
    }
}

/// The state of a lane.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lane)]
pub(crate) struct LaneShown {
    #[schema(value_type = String)]
    name: Arc<str>,
    /// The earliest moment at which the lane lets its next call start.
    open_at: String,
    /// Why the lane is closed; `null` if it is open.
    #[schema(value_type = Option<Reason>)]
    why_closed: Option<&'static str>,
    /// Attempts in flight.
    in_flight: u32,
    /// Waiting calls.
    waiting: usize,
    /// The moment since which its oldest call waits.
    oldest_at: Option<String>,
    /// Its windows, with the attempts in each.
    limits: Vec<Used>,
    /// The end of its cooldown, which the upstream or its failures caused.
    cooldown_until: Option<String>,
    /// `true` if an operator paused the lane.
    paused: bool,
    rules: Rules,
}

/// A window and the attempts in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Used {
    /// The rate, such as `50/s`.
    limit: String,
    used: u64,
}

/// The other rules of a lane.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rules {
    /// The gap between two calls.
    every: Option<String>,
    /// The gap by priority, where `gap_share` makes it smaller.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    gaps: BTreeMap<&'static str, String>,
    /// Calls in flight at most.
    in_flight: u32,
    /// Network jitter that is allowed for: it is added to every gap and window.
    slack: String,
    timeout: Option<String>,
    group: Option<String>,
    /// Failures in a row that start a cooldown.
    fail_after: u32,
    /// Calls that may wait on the lane.
    max_waiting: u32,
}

fn gaps(lane: &LaneStatus) -> BTreeMap<&'static str, String> {
    let paced = Priority::ALL.into_iter().filter(|_| lane.limits.every.is_some());
    paced.map(|rank| (rank.name(), lane.limits.gap(rank).to_string())).collect()
}

impl LaneShown {
    pub(crate) fn of(pace: &Paceline, lane: &LaneStatus) -> LaneShown {
        let text = |span: Option<Span>| span.map(|span| span.to_string());
        let limits = lane.used.iter();
        let limits = limits.map(|(rate, used)| Used { limit: rate.to_string(), used: *used });
        LaneShown {
            name: lane.name.clone(),
            open_at: stamp(pace.wall(lane.open_at)),
            why_closed: lane.why_closed.map(paceline::lanes::Reason::name),
            in_flight: lane.in_flight,
            waiting: lane.waiting,
            oldest_at: lane.oldest_at.map(|at| stamp(pace.wall(at))),
            limits: limits.collect(),
            cooldown_until: lane.cooldown_until.map(|until| stamp(pace.wall(until))),
            paused: lane.paused,
            rules: Rules {
                every: text(lane.limits.every),
                gaps: gaps(lane),
                in_flight: lane.limits.in_flight.get(),
                slack: lane.slack.to_string(),
                timeout: text(lane.limits.timeout),
                group: lane.limits.group.clone(),
                fail_after: lane.limits.fail_after.get(),
                max_waiting: lane.max_waiting,
            },
        }
    }
}
