//! What must survive: the form in which the rules hand their promises to a store.

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
    /// A job was accepted (B1).
    Job(JobRecord, Blob),
    /// Its terms changed.
    Terms(JobId, Terms),
    /// Its payload was replaced (D1).
    Payload(JobId, Blob),
    /// A call of an unfinished job moved on; replaces its earlier record.
    Call(CallRecord),
    /// An attempt is promised (L4).
    Reserve(Reservation),
    /// Its call went for reasons of its own; it is made for another that shared it (C2).
    HandOver(LaneId, AttemptId, CallId),
    /// Its real start is known, and so where it counts.
    Started(LaneId, AttemptId, Time),
    /// It has ended and is now history.
    Ended(LaneId, AttemptId, Time),
    /// It was not used, or its lane remembers nothing: no trace is needed.
    Release(LaneId, AttemptId),
    /// History of a lane below this attempt binds nothing any more; reservations without an end stay.
    Forget(LaneId, AttemptId),
    /// What a lane must remember besides its history; replaces its earlier record.
    Lane(LaneRecord),
    /// The lane is as good as new and its name may be forgotten (L10).
    DropLane(LaneId),
    /// The job has its report: it and its calls are finished (J1).
    Finish(Arc<Report>),
    /// The job that was finished just before had this key (D1), and is found by it from now on.
    FinishedKey(JobId, Blob),
    /// An answer for the cache (C2).
    Answer(CachedAnswer),
    /// What is remembered of a service; replaces its earlier record (S1).
    Service(ServiceRecord),
    /// Where a roster stands; replaces its earlier record (S2).
    Roster(RosterRecord),
    /// What a worker or a tool keeps under a name; nothing forgets it.
    Note(Arc<str>, Option<Blob>),
    /// Events in the order of their numbers, which follow one another; at least one.
    Events(Vec<Numbered>),
}

/// An unfinished job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Its number.
    pub id: JobId,
    /// When it was accepted.
    pub submitted_at: Time,
    /// What may change.
    pub terms: Terms,
    /// What never changes.
    pub spec: Arc<JobSpec>,
}

/// A call that is no longer what its job's record alone would make it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its job.
    pub job: JobId,
    /// Its place in the job.
    pub index: u16,
    /// For a call that `moved` added: its stage, lane and payload (J7).
    pub added: Option<AddedCall>,
    /// When it joined the queue, once it did.
    pub joined_at: Option<Time>,
    /// Attempts that counted.
    pub attempts: u16,
    /// Times it was throttled (L6).
    pub throttles: u16,
    /// Times the process died under it (B2).
    pub crashes: u16,
    /// Requests that the upstream did not process (L7).
    pub unprocessed: u16,
    /// When a waiting retry comes back (R1).
    pub retry_at: Option<Time>,
    /// What it came to, with how it went.
    pub settled: Option<SettledCall>,
}

/// Where a moved call went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedCall {
    /// The stage that it belongs to.
    pub stage: u16,
    /// Its lane.
    pub lane: Arc<str>,
    /// How many moves led here.
    pub hops: u16,
    /// Its own payload, if it has one.
    pub payload: Option<Vec<u8>>,
}

/// A settled call of an unfinished job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledCall {
    /// What it came to.
    pub outcome: Outcome,
    /// Microseconds waited.
    pub waited: u64,
    /// Microseconds run.
    pub ran: u64,
    /// Whether the answer came from the cache.
    pub cached: bool,
}

/// The durable promise of one attempt, and then its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// On this lane.
    pub lane: LaneId,
    /// Its number.
    pub attempt: AttemptId,
    /// For this call.
    pub call: CallId,
    /// The priority that was submitted.
    pub priority: Priority,
    /// What it costs in every window.
    pub cost: u32,
    /// Where it counts: when it arrives at the latest, by its start once that is known.
    pub at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// What a lane remembers besides its attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRecord {
    /// Its number.
    pub id: LaneId,
    /// Its name.
    pub name: Arc<str>,
    /// Its windows and the moment each was introduced (L11).
    pub windows: Vec<(Rate, Time)>,
    /// Closed until then (L6, L7).
    pub cooldown_until: Time,
    /// Failures in a row.
    pub failures: u32,
    /// How far up the ladder; 0 is the ground.
    pub rung: u8,
    /// Attempts reserved up to this one say nothing new about throttling or failing.
    pub judged: AttemptId,
    /// The gap that throttling set, and what is known of it (L7).
    pub slow: SlowRecord,
    /// `in_flight` is halved to this (L7).
    pub narrowed: Option<u32>,
    /// What the service announced, and when (L8).
    pub announced: Option<(Announced, Time)>,
    /// Stopped by hand, since then.
    pub paused_at: Option<Time>,
    /// The groups that its attempts were charged to (L9), which may be others than the one that the
    /// configuration names now. `None`: written by a version that did not keep them.
    pub groups: Option<Vec<Membership>>,
}

/// How far throttling has slowed a lane down (L7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)] // in memory each look at a lane needs the gap
pub struct SlowRecord {
    /// The gap between calls; zero for a lane that is not slowed.
    pub gap: Span,
    /// At this gap or below the lane is what it was.
    pub ground: Span,
    /// The last gap at which the upstream still throttled, zero if its rate was not known, and when.
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

    /// Whether the lane is in the group still.
    pub fn lasts(&self) -> bool {
        self.last == AttemptId(u64::MAX)
    }

    /// Whether the group counts this attempt.
    pub fn counts(&self, attempt: AttemptId) -> bool {
        (self.first..=self.last).contains(&attempt)
    }
}

/// One answer of one lane to one question (C2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedAnswer {
    /// Who answered.
    pub lane: Arc<str>,
    /// The question.
    pub key: Blob,
    /// The answer; `None` is that there is nothing.
    pub value: Option<CachedValue>,
    /// Not used from then on.
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

/// One question to the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Whom.
    pub lane: Arc<str>,
    /// What.
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
    /// A reservation or its trace.
    Reservation(Reservation),
    /// A service.
    Service(ServiceRecord),
    /// A roster.
    Roster(RosterRecord),
}

/// Where the clocks and the counters stood at a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Engine time.
    pub time: Time,
    /// The wall clock.
    pub wall: Time,
    /// Which boot of the machine.
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
