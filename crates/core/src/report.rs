//! Reports in JSON, as programs read them.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::job::JobId;
use crate::outcome::{Answer, CallReport, Failure, JobState, Outcome, Report, Skip};
use crate::priority::Priority;
use crate::time::{Span, Time};

#[derive(Serialize, Deserialize)]
struct JobLine {
    job: JobId,
    state: JobState,
    answer: Answer,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    calls: Vec<CallLine>,
}

#[derive(Default, Serialize, Deserialize)]
struct CallLine {
    lane: Arc<str>,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conclusive: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_wait_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_within_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ran_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cached: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Outcome {
    /// Its name in JSON and in output.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Done { .. } => "done",
            Outcome::Empty => "empty",
            Outcome::Skipped(_) => "skipped",
            Outcome::Failed(_) => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Duplicate { .. } => "duplicate",
            Outcome::Moved { .. } => "moved",
        }
    }
}

impl JobState {
    /// Its name in JSON and in output.
    pub const fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Skipped => "skipped",
            JobState::Cancelled => "cancelled",
        }
    }
}

impl Answer {
    /// Its name in JSON and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Answer::Conclusive => "conclusive",
            Answer::All => "all",
            Answer::Empty => "empty",
            Answer::Inconclusive => "inconclusive",
        }
    }
}

impl Skip {
    /// Its name in JSON and in output.
    pub fn reason(&self) -> &'static str {
        match self {
            Skip::MaxWait { .. } | Skip::Paused { .. } => "max_wait",
            Skip::StartWithin { .. } => "start_within",
            Skip::Deadline => "deadline",
            Skip::EarlyExit => "early_exit",
            Skip::NotApplicable => "not_applicable",
            Skip::Stage => "stage",
        }
    }
}

impl From<&CallReport> for CallLine {
    fn from(call: &CallReport) -> CallLine {
        let mut line = CallLine {
            lane: call.lane.clone(),
            outcome: call.outcome.name().to_string(),
            attempts: call.attempts,
            cached: call.cached,
            ..CallLine::default()
        };
        if call.attempts > 0 {
            line.waited_ms = Some(call.waited.as_millis());
            line.ran_ms = Some(call.ran.as_millis());
        }
        match &call.outcome {
            Outcome::Done { conclusive, value } => {
                line.conclusive = Some(*conclusive);
                // A worker's value is JSON because the engine made it so; anything else is shown as
                // null.
                line.value = serde_json::from_slice(value).ok();
            }
            Outcome::Skipped(skip) => {
                line.reason = Some(skip.reason().to_string());
                match *skip {
                    Skip::MaxWait { wait, max_wait, priority } => {
                        line.wait_ms = Some(wait.as_millis());
                        line.max_wait_ms = Some(max_wait.as_millis());
                        line.priority = Some(priority);
                    }
                    Skip::Paused { max_wait, priority } => {
                        line.cause = Some("paused".to_string());
                        line.max_wait_ms = Some(max_wait.as_millis());
                        line.priority = Some(priority);
                    }
                    Skip::StartWithin { start_within } => {
                        line.start_within_ms = Some(start_within.as_millis());
                    }
                    _ => {}
                }
            }
            Outcome::Failed(failure) => {
                line.class = Some(failure.class.clone());
                line.retryable = Some(failure.retryable);
                line.message.clone_from(&failure.message);
            }
            Outcome::Duplicate { of } => line.of = Some(*of),
            Outcome::Moved { to } => line.to = Some(to.clone()),
            Outcome::Empty | Outcome::Cancelled => {}
        }
        line
    }
}

impl TryFrom<CallLine> for CallReport {
    type Error = String;

    fn try_from(line: CallLine) -> Result<CallReport, String> {
        let millis = |ms: Option<u64>| Span::millis(ms.unwrap_or(0));
        let outcome = match (line.outcome.as_str(), line.reason.as_deref()) {
            ("done", _) => Outcome::Done {
                conclusive: line.conclusive.unwrap_or(true),
                value: line.value.map_or(b"null".as_slice().into(), |v| v.get().as_bytes().into()),
            },
            ("empty", _) => Outcome::Empty,
            ("skipped", Some("max_wait")) if line.cause.as_deref() == Some("paused") => {
                Outcome::Skipped(Skip::Paused {
                    max_wait: millis(line.max_wait_ms),
                    priority: line.priority.unwrap_or_default(),
                })
            }
            ("skipped", Some("max_wait")) => Outcome::Skipped(Skip::MaxWait {
                wait: millis(line.wait_ms),
                max_wait: millis(line.max_wait_ms),
                priority: line.priority.unwrap_or_default(),
            }),
            ("skipped", Some("start_within")) => {
                Outcome::Skipped(Skip::StartWithin { start_within: millis(line.start_within_ms) })
            }
            ("skipped", Some("deadline")) => Outcome::Skipped(Skip::Deadline),
            ("skipped", Some("early_exit")) => Outcome::Skipped(Skip::EarlyExit),
            ("skipped", Some("not_applicable")) => Outcome::Skipped(Skip::NotApplicable),
            ("skipped", Some("stage")) => Outcome::Skipped(Skip::Stage),
            ("failed", _) => Outcome::Failed(Failure {
                class: line.class.unwrap_or_default(),
                retryable: line.retryable.unwrap_or(false),
                message: line.message,
            }),
            ("cancelled", _) => Outcome::Cancelled,
            ("duplicate", _) => Outcome::Duplicate { of: line.of.unwrap_or_default() },
            ("moved", _) => Outcome::Moved { to: line.to.unwrap_or_default() },
            (other, _) => return Err(format!("no outcome named `{other}`")),
        };
        Ok(CallReport {
            lane: line.lane,
            outcome,
            attempts: line.attempts,
            waited: millis(line.waited_ms),
            ran: millis(line.ran_ms),
            cached: line.cached,
        })
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        JobLine {
            job: self.job,
            state: self.state,
            answer: self.answer,
            partial: self.partial,
            calls: self.calls.iter().map(CallLine::from).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Report {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Report, D::Error> {
        let line = JobLine::deserialize(deserializer)?;
        let calls = line.calls.into_iter().map(CallReport::try_from).collect::<Result<_, _>>();
        Ok(Report {
            job: line.job,
            state: line.state,
            answer: line.answer,
            // The moment is engine time of the process that finished it: it means nothing
            // elsewhere.
            finished_at: Time::ZERO,
            calls: calls.map_err(serde::de::Error::custom)?,
            partial: line.partial,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(lane: &str, outcome: Outcome, attempts: u32) -> CallReport {
        CallReport {
            lane: lane.into(),
            outcome,
            attempts,
            waited: Span::millis(12),
            ran: Span::millis(340),
            cached: false,
        }
    }

    #[test]
    fn a_report_has_the_shape_that_programs_rely_on_and_reads_back() {
        let max_wait = Skip::MaxWait {
            wait: Span::secs(43),
            max_wait: Span::secs(15),
            priority: Priority::Rss,
        };
        let paused = Skip::Paused { max_wait: Span::secs(2), priority: Priority::Interactive };
        let report = Report {
            job: JobId(17),
            state: JobState::Done,
            answer: Answer::Conclusive,
            finished_at: Time(5),
            calls: vec![
                call(
                    "crossref",
                    Outcome::Done { conclusive: true, value: b"{\"a\":1}".as_slice().into() },
                    1,
                ),
                call("arxiv", Outcome::Skipped(Skip::EarlyExit), 0),
                call("openalex", Outcome::Skipped(max_wait), 0),
                call("doaj", Outcome::Skipped(paused), 0),
                call("dblp", Outcome::Failed(Failure::transient("timeout")), 3),
            ],
            partial: false,
        };
        let text = serde_json::to_string(&report).expect("a report is JSON");
        let expected = concat!(
            r#"{"job":17,"state":"done","answer":"conclusive","calls":["#,
            r#"{"lane":"crossref","outcome":"done","conclusive":true,"attempts":1,"waited_ms":12,"ran_ms":340,"value":{"a":1}},"#,
            r#"{"lane":"arxiv","outcome":"skipped","reason":"early_exit"},"#,
            r#"{"lane":"openalex","outcome":"skipped","reason":"max_wait","wait_ms":43000,"max_wait_ms":15000,"priority":"rss"},"#,
            r#"{"lane":"doaj","outcome":"skipped","reason":"max_wait","cause":"paused","max_wait_ms":2000,"priority":"interactive"},"#,
            r#"{"lane":"dblp","outcome":"failed","class":"timeout","retryable":true,"attempts":3,"waited_ms":12,"ran_ms":340}]}"#,
        );
        assert_eq!(text, expected);
        let back: Report = serde_json::from_str(&text).expect("it reads back");
        assert_eq!(serde_json::to_string(&back).expect("JSON"), text);
        for call in [2, 3] {
            assert_eq!(back.calls[call].outcome, report.calls[call].outcome);
        }
    }
}
