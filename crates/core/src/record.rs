//! Records: the form in which the rules hand their promises to a store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::happened::Numbered;
use crate::job::{AttemptId, Blob, CallId, JobId, JobSpec, LaneId, Terms};
use crate::outcome::{Announced, Outcome, Report};
use crate::priority::Priority;
use crate::rate::Rate;
use crate::service::{RosterRecord, ServiceRecord};
use crate::time::{Span, Time};

/// One durable change. A turn's writes are committed together or not at all, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A job was accepted, with this payload.
    Job(JobRecord, Blob),
    /// A job has new terms.
    Terms(JobId, Terms),
    /// A job has a new payload.
    Payload(JobId, Blob),
    /// A call of an unfinished job moved on. Replaces its earlier record.
    Call(CallRecord),
    /// An attempt is reserved.
    Reserve(Reservation),
    /// The call of an attempt left it to this other call, which shared it.
    HandOver(LaneId, AttemptId, CallId),
    /// The real start of an attempt is known: it counts at this moment.
    Started(LaneId, AttemptId, Time),
    /// An attempt has ended and is history.
    Ended(LaneId, AttemptId, Time),
    /// An attempt was not used, or its lane keeps no history: it leaves no trace.
    Release(LaneId, AttemptId),
    /// The history of a lane below this attempt binds nothing any more. Reservations without an end
    /// stay.
    Forget(LaneId, AttemptId),
    /// The memory of a lane besides its history. Replaces its earlier record.
    Lane(LaneRecord),
    /// A lane is as good as new, and its name may be forgotten.
    DropLane(LaneId),
    /// A job has its report: it and its calls are finished.
    Finish(Arc<Report>),
    /// The job that was finished just before had this key, and is found by it from now on.
    FinishedKey(JobId, Blob),
    /// An answer for the cache.
    Answer(CachedAnswer),
    /// The memory of a service. Replaces its earlier record.
    Service(ServiceRecord),
    /// The memory of a roster. Replaces its earlier record.
    Roster(RosterRecord),
    /// A note that a worker or a tool keeps under a name, or deletes.
    Note(Arc<str>, Option<Blob>),
    /// Events in the order of their numbers, which follow one another. At least one.
    Events(Vec<Numbered>),
}

/// An unfinished job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Its number.
    pub id: JobId,
    /// When it was accepted.
    pub submitted_at: Time,
    /// The part that may change.
    pub terms: Terms,
    /// The part that never changes.
    pub spec: Arc<JobSpec>,
}

/// The record of a call whose state its job's record alone does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its job.
    pub job: JobId,
    /// Its position in the job.
    pub index: u16,
    /// For a call that a move added: its stage, lane and payload.
    pub added: Option<AddedCall>,
    /// When it joined the queue, once it did.
    pub joined_at: Option<Time>,
    /// Attempts that counted.
    pub attempts: u16,
    /// Times it was throttled.
    pub throttles: u16,
    /// Times the process died during it.
    pub crashes: u16,
    /// Requests that the upstream did not process.
    pub unprocessed: u16,
    /// When a waiting retry comes back.
    pub retry_at: Option<Time>,
    /// Its outcome, once it has one.
    pub settled: Option<SettledCall>,
}

/// A call that a move added to its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedCall {
    /// The stage that it belongs to.
    pub stage: u16,
    /// Its lane.
    pub lane: Arc<str>,
    /// Moves that led here.
    pub hops: u16,
    /// Its own payload, if it has one.
    pub payload: Option<Vec<u8>>,
}

/// A settled call of an unfinished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledCall {
    /// Its outcome.
    pub outcome: Outcome,
    /// Microseconds waited.
    pub waited: u64,
    /// Microseconds run.
    pub ran: u64,
    /// Whether the answer came from the cache.
    pub cached: bool,
}

/// The durable promise of one attempt. After its end it stays as history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its lane.
    pub lane: LaneId,
    /// Its number.
    pub attempt: AttemptId,
    /// Its call.
    pub call: CallId,
    /// The priority that was submitted.
    pub priority: Priority,
    /// Its cost in every window.
    pub cost: u32,
    /// The moment at which it counts: its latest possible arrival, by its start once that is known.
    pub at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// The memory of a lane besides its attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRecord {
    /// Its number.
    pub id: LaneId,
    /// Its name.
    pub name: Arc<str>,
    /// Its windows, and the moment at which each was introduced.
    pub windows: Vec<(Rate, Time)>,
    /// The end of its cooldown.
    pub cooldown_until: Time,
    /// Failures in a row.
    pub failures: u32,
    /// Its rung on the ladder; 0 is the ground.
    pub rung: u8,
    /// The last attempt that was reserved when the lane was last slowed or closed. Up to it results
    /// say nothing new about throttling or failing.
    pub judged: AttemptId,
    /// The gap that throttling set.
    pub slow: SlowRecord,
    /// The calls in flight that throttling left.
    pub narrowed: Option<u32>,
    /// The limits that its upstream announced, and when.
    pub announced: Option<(Announced, Time)>,
    /// Since when an operator has paused it.
    pub paused_at: Option<Time>,
    /// The groups that its attempts were charged to, which may be others than the one that the
    /// configuration names now. `None`: written by a version that did not keep them.
    pub groups: Option<Vec<Membership>>,
}

/// The slowed gap of a lane that was throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)] // in memory each look at a lane needs the gap
pub struct SlowRecord {
    /// The gap between calls; zero for a lane that is not slowed.
    pub gap: Span,
    /// At this gap or below the lane is what it was.
    pub ground: Span,
    /// The last gap at which the upstream still throttled, zero if its rate was not known, and
    /// when.
    pub refused: Option<(Span, Time)>,
}

/// The attempts of a lane that one group counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The group.
    pub group: Arc<str>,
    /// Its first attempt.
    pub first: AttemptId,
    /// Its last; the largest number while the lane is in the group.
    pub last: AttemptId,
}

impl Membership {
    /// From this attempt on, without an end.
    pub fn from(group: impl Into<Arc<str>>, first: AttemptId) -> Membership {
        Membership { group: group.into(), first, last: AttemptId(u64::MAX) }
    }

    /// Returns `true` if the lane is in the group still.
    pub fn lasts(&self) -> bool {
        self.last == AttemptId(u64::MAX)
    }

    /// Returns `true` if the group counts this attempt.
    pub fn counts(&self, attempt: AttemptId) -> bool {
        (self.first..=self.last).contains(&attempt)
    }
}

/// A cached answer of one lane for one cache key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedAnswer {
    /// The lane that answered.
    pub lane: Arc<str>,
    /// The cache key.
    pub key: Blob,
    /// The answer; `None` for an empty one.
    pub value: Option<CachedValue>,
    /// Not used from this moment on.
    pub expires_at: Time,
}

/// An answer that found something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedValue {
    /// Whether it settled the question.
    pub conclusive: bool,
    /// JSON text.
    pub value: Blob,
}

/// One lookup in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The lane.
    pub lane: Arc<str>,
    /// The cache key.
    pub key: Blob,
}

/// One record as it comes back from a store. Lanes come first, then jobs, calls, reservations,
/// services and rosters.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A lane.
    Lane(LaneRecord),
    /// An unfinished job.
    Job(JobRecord),
    /// A call of an unfinished job.
    Call(CallRecord),
    /// A reservation, open or ended.
    Reservation(Reservation),
    /// A service.
    Service(ServiceRecord),
    /// A roster.
    Roster(RosterRecord),
}

/// The clocks and the counters at a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Engine time.
    pub time: Time,
    /// The wall clock.
    pub wall: Time,
    /// Identifies the boot of the machine.
    pub boot: u64,
    /// Microseconds since that boot.
    pub since_boot: u64,
    /// The next numbers to give out.
    pub next: Counters,
}

/// The next numbers to give out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// For jobs.
    pub job: u64,
    /// For attempts.
    pub attempt: u64,
    /// For lanes.
    pub lane: u64,
    /// For events that are kept.
    pub event: u64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { job: 1, attempt: 1, lane: 1, event: 1 }
    }
}
