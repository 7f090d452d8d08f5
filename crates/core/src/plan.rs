//! The decisions of one turn: first to be made durable, then to be acted on.

use std::sync::Arc;

use crate::job::{AttemptId, Blob, CallId, JobId};
use crate::outcome::{CallReport, Report};
use crate::record::{Lookup, Write};
use crate::time::{Span, Time};

/// The decisions of one turn.
#[derive(Debug, Default)]
pub struct Plan {
    /// Changes to commit before anything else happens.
    pub writes: Vec<Write>,
    /// The number of writes that bind nothing after a power cut.
    pub(crate) passing: usize,
    /// Attempts to start, after the commit.
    pub starts: Vec<Start>,
    /// Attempts to abort: no call wants their result.
    pub aborts: Vec<AttemptId>,
    /// Lookups in the cache, to be answered within the turn
    /// ([`Core::looked_up`](crate::Core::looked_up)).
    pub lookups: Vec<CallLookup>,
    /// Events to publish, after the commit.
    pub events: Vec<Event>,
    /// Snapshots for callers whose deadline has passed while their job goes on for others.
    pub partials: Vec<Arc<Report>>,
}

impl Plan {
    /// Returns `true` if its writes have to outlive the process only. Such a plan holds nothing but
    /// reservations that no limit counts, of calls that are made again: after a power cut they bind
    /// nothing, so no start need wait for the disk.
    pub fn is_passing(&self) -> bool {
        self.passing == self.writes.len()
    }

    /// Empties it for the next turn, and keeps its allocations.
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
    /// Its call.
    pub call: CallId,
    /// Its lane.
    pub lane: Arc<str>,
    /// Its kind, which names the worker.
    pub kind: Arc<str>,
    /// The attempts of this call that counted before.
    pub before: u16,
    /// Not to be sent earlier.
    pub start_at: Time,
    /// Not to be sent later.
    pub send_by: Time,
    /// Whether limits wait for the real start. Otherwise the start is needed only for the report of
    /// a call that ends while its request is on the wire.
    pub tell_start: bool,
    /// How long it may take.
    pub timeout: Option<Span>,
    /// For an attempt of an earlier process that is taken up: the latest moment at which it began.
    pub begun_at: Option<Time>,
    /// The call's own payload, if it is not the job's.
    pub payload: Option<Blob>,
}

/// News for subscribers, published after it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new job was accepted.
    Accepted(JobId),
    /// An attempt begins on this lane.
    Started(CallId, Arc<str>),
    /// A call has its outcome.
    Settled(CallId, CallReport),
    /// A job has its report.
    Finished(Arc<Report>),
    /// A lane is in cooldown until this moment.
    Closed(Arc<str>, Time),
}
