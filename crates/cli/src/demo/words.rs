//! The messages between the demo and its worker process: one line of JSON each.

use std::io;

use paceline::Report;
use serde::{Deserialize, Serialize};

use super::wanted::Part;
use crate::output::data;

/// A message to the worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Submit the jobs of this part.
    Submit(Part),
    /// When all work is done, send the jobs of the store and end.
    Finish,
}

/// A message of the worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum News {
    /// The store is open, with these jobs in it.
    Opened { unfinished: Vec<u32>, finished: Vec<u32> },
    /// These jobs are durable.
    Accepted(Vec<u32>),
    /// This job has its report.
    Finished(u32),
    /// A lane is closed for this long; the rung is zero if its upstream asked for that.
    Closed { lane: String, ms: u64, rung: u8 },
    /// An urgent job has its answer while this many earlier calls of its lane still wait.
    Overtook { part: Part, calls: usize, ms: u64 },
    /// The state of the lanes.
    Status(Vec<LaneState>),
    /// A job of the store at the end.
    Kept { number: u32, report: Option<Report> },
    /// All work is done.
    Idle,
    /// The last message.
    Over,
}

/// The state of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaneState {
    pub(super) name: String,
    pub(super) waiting: usize,
    pub(super) in_flight: u32,
    /// The calls in its window, and the most that it allows.
    pub(super) used: Option<(u64, u32)>,
    /// The time until its next call may start.
    pub(super) opens_ms: u64,
    /// The rest of its cooldown.
    pub(super) cooling_ms: Option<u64>,
    /// The reason why its first call waits (W3).
    pub(super) why: Option<String>,
}

/// Sends a message to the parent. In one write, so that a kill cannot cut a line in two.
pub(super) fn send(news: &News) -> io::Result<()> {
    data(&line(news))
}

/// A message as one line.
pub(super) fn line(words: &impl Serialize) -> String {
    let mut line = serde_json::to_string(words).expect("plain words are JSON");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline::report::{Answer, CallOutcome, CallReport, JobState};
    use paceline::{JobId, Span, Time};

    #[test]
    fn a_report_survives_the_way_to_the_parent() {
        let call = CallReport {
            lane: "steady".into(),
            outcome: CallOutcome::Done {
                conclusive: true,
                value: b"\"call 7\\n\"".as_slice().into(),
            },
            attempts: 1,
            waited: Span::millis(5),
            ran: Span::millis(20),
            cached: false,
        };
        let report = Report {
            job: JobId(3),
            state: JobState::Done,
            answer: Answer::Conclusive,
            finished_at: Time(0),
            calls: vec![call],
            partial: false,
        };
        let news = News::Kept { number: 3, report: Some(report) };
        let line = line(&news);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(serde_json::from_str::<News>(&line).expect("the same words"), news);
    }
}
