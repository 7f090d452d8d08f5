//! What one turn decided: first to be made durable, then to be done.

use std::sync::Arc;

use crate::job::{AttemptId, Blob, CallId, JobId};
use crate::outcome::{CallReport, Report};
use crate::record::{Lookup, Write};
use crate::time::{Span, Time};

/// The decisions of one turn.
#[derive(Debug, Default)]
pub struct Plan {
    /// To be committed before anything else happens.
    pub writes: Vec<Write>,
    /// How many of them tell nobody anything once the machine itself has stopped.
    pub(crate) passing: usize,
    /// Attempts to start, once that is durable.
    pub starts: Vec<Start>,
    /// Attempts whose work is no longer wanted.
    pub aborts: Vec<AttemptId>,
    /// Questions to the cache, to be answered within the turn.
    pub lookups: Vec<CallLookup>,
    /// What to tell, once it is durable.
    pub events: Vec<Event>,
    /// What callers get whose deadline has passed while their job goes on for others (D1).
    pub partials: Vec<Arc<Report>>,
}

impl Plan {
    /// Whether its writes have to outlive the process only. After a power cut nobody misses the
    /// promise of an attempt that no limit counts and that is made again: nothing was said yet.
    pub fn is_passing(&self) -> bool {
        self.passing == self.writes.len()
    }

    /// Empties it for the next turn; the room it has stays.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.passing = 0;
        self.starts.clear();
        self.aborts.clear();
        self.lookups.clear();
        self.events.clear();
        self.partials.clear();
    }
}

/// One call's lookup in the cache of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLookup {
    pub(crate) job: JobId,
    pub(crate) call: u32,
    /// The lane and the cache key.
    pub lookup: Lookup,
}

/// One attempt to be made.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its number.
    pub attempt: AttemptId,
    /// For this call.
    pub call: CallId,
    /// On this lane.
    pub lane: Arc<str>,
    /// By this worker.
    pub kind: Arc<str>,
    /// How many attempts of this call counted before.
    pub before: u16,
    /// Not to be sent before this (W5).
    pub start_at: Time,
    /// Not to be sent later than this (L4).
    pub send_by: Time,
    /// Whether limits wait for the real start. Else it is told only of an attempt that takes its time,
    /// for the report of a call that ends meanwhile (J1).
    pub tell_start: bool,
    /// How long it may take.
    pub timeout: Option<Span>,
    /// When an earlier process began it, at the latest, if one did: it is taken up.
    pub begun_at: Option<Time>,
    /// Its own payload, if it is not the job's (J7).
    pub payload: Option<Blob>,
}

/// What subscribers are told, after it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new job.
    Accepted(JobId),
    /// An attempt begins.
    Started(CallId, Arc<str>),
    /// A call has its outcome.
    Settled(CallId, CallReport),
    /// A job has its report.
    Finished(Arc<Report>),
    /// A lane is closed until this moment.
    Closed(Arc<str>, Time),
}
