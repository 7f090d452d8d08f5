//! Events as they are kept: numbered without gaps, dated, and without the values of answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::{CallId, JobId};
use crate::outcome::{Answer, JobState, Outcome};
use crate::plan::Event;
use crate::time::{Now, Span, Time};

/// One event with its number, which is unique in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number. The next event has the next number, through restarts too.
    pub id: u64,
    /// When it happened, by the wall clock.
    pub at: Time,
    /// The event.
    pub what: Happened,
}

/// An event in the form in which it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happened {
    /// A new job was accepted.
    Accepted {
        /// The job.
        job: JobId,
    },
    /// An attempt began.
    Started {
        /// The job.
        job: JobId,
        /// The number of its call.
        call: u16,
        /// The lane.
        lane: Arc<str>,
    },
    /// A call got its outcome.
    Settled {
        /// The job.
        job: JobId,
        /// The number of its call.
        call: u16,
        /// The lane.
        lane: Arc<str>,
        /// The outcome, without its value.
        outcome: Outcome,
        /// Requests that were made.
        attempts: u32,
        /// How long it waited.
        waited: Span,
        /// How long its last attempt ran.
        ran: Span,
    },
    /// A job got its report.
    Finished {
        /// The job.
        job: JobId,
        /// Its state.
        state: JobState,
        /// The sum of its outcomes.
        answer: Answer,
    },
    /// A lane went into cooldown.
    Closed {
        /// The lane.
        lane: Arc<str>,
        /// The end of the cooldown, by the wall clock as it was then.
        until: Time,
    },
}

impl Happened {
    /// The form in which this event is kept.
    pub fn of(event: &Event, now: Now) -> Happened {
        match event {
            Event::Accepted(job) => Happened::Accepted { job: *job },
            Event::Started(CallId { job, index }, lane) => {
                Happened::Started { job: *job, call: *index, lane: lane.clone() }
            }
            Event::Settled(CallId { job, index }, report) => Happened::Settled {
                job: *job,
                call: *index,
                lane: report.lane.clone(),
                outcome: without_value(&report.outcome),
                attempts: report.attempts,
                waited: report.waited,
                ran: report.ran,
            },
            Event::Finished(report) => {
                Happened::Finished { job: report.job, state: report.state, answer: report.answer }
            }
            Event::Closed(lane, until) => {
                Happened::Closed { lane: lane.clone(), until: now.wall_time(*until) }
            }
        }
    }
}

fn without_value(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Done { conclusive, .. } => {
            Outcome::Done { conclusive: *conclusive, value: crate::job::Blob::default() }
        }
        other => other.clone(),
    }
}
