//! Events as they are kept: numbered without gaps, dated, and without the values of answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::job::{CallId, JobId};
use crate::outcome::{Answer, JobState, Outcome};
use crate::plan::Event;
use crate::time::{Now, Span, Time};

/// One event with its number, which no other ever has in one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number; the next event has the next one, through restarts too.
    pub id: u64,
    /// When, by the wall clock.
    pub at: Time,
    /// What.
    pub what: Happened,
}

/// What is kept of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happened {
    /// A new job.
    Accepted {
        /// Which.
        job: JobId,
    },
    /// An attempt begins.
    Started {
        /// Of this job.
        job: JobId,
        /// Of this call of it.
        call: u16,
        /// On this lane.
        lane: Arc<str>,
    },
    /// A call has its outcome.
    Settled {
        /// Of this job.
        job: JobId,
        /// This call of it.
        call: u16,
        /// On this lane.
        lane: Arc<str>,
        /// What it came to, without the value.
        outcome: Outcome,
        /// Requests that it took.
        attempts: u32,
        /// How long it waited.
        waited: Span,
        /// How long it ran.
        ran: Span,
    },
    /// A job has its report.
    Finished {
        /// Which.
        job: JobId,
        /// What became of it.
        state: JobState,
        /// What its outcomes amount to.
        answer: Answer,
    },
    /// A lane is closed.
    Closed {
        /// Which.
        lane: Arc<str>,
        /// Until then, by the wall clock as it was then.
        until: Time,
    },
}

impl Happened {
    /// What is kept of this event.
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
