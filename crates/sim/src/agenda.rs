//! What is to come in a world, in the order of its moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use paceline::turn::LaneAct;
use paceline_core::{AttemptId, JobId, Setup, Span, Submission, Time};

use crate::disk::Fault;
use crate::service::Temper;

/// What people and fate do to a world.
#[derive(Debug)]
pub(crate) enum Act {
    Submit(Vec<Submission>),
    Cancel(JobId),
    /// Somebody runs a service by hand.
    RunService(Arc<str>),
    /// Some unfinished job, by chance.
    CancelSome,
    Lane(Arc<str>, LaneAct),
    /// The process is stopped: it starts nothing any more, is given so long, and comes back.
    Stop(Span),
    /// The process dies and comes back so much later.
    Crash(Span),
    /// The same, with the whole machine.
    Reboot(Span),
    /// A reboot soon after the next promise that is not synced.
    RebootAtPromise(Span),
    /// It comes back with another configuration.
    Restart(Box<Setup>),
    StepWall(i64),
    Temper(Arc<str>, Temper),
    /// Commits take up to this.
    CommitTime(Span),
    /// The next commit fails.
    FailCommit(Fault),
    /// Faults end: services answer, what hangs lets go.
    Heal,
}

/// What is to come.
#[derive(Debug)]
pub(crate) enum Next {
    Send(AttemptId),
    TellStart(AttemptId),
    Answer(AttemptId),
    Settle(AttemptId),
    Timeout(AttemptId),
    End(AttemptId),
    TellEnd(AttemptId),
    Effects,
    Open,
    Act(Box<Act>),
}

/// Everything to come; among equals, what was planned first.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<Slot>>,
    seq: u64,
    life: u64,
}

impl Agenda {
    pub(crate) fn plan(&mut self, at: Time, next: Next) {
        self.seq += 1;
        let lasting = matches!(next, Next::Act(_) | Next::Open);
        let life = (!lasting).then_some(self.life);
        self.heap.push(Reverse(Slot { at, seq: self.seq, life, next }));
    }

    /// The process is gone, and what it had planned with it.
    pub(crate) fn end_life(&mut self) {
        self.life += 1;
    }

    /// When the first of it comes.
    pub(crate) fn first_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(slot)| slot.at)
    }

    /// Takes the first; `None` if it was planned by a process that is gone.
    pub(crate) fn take(&mut self) -> Option<Next> {
        let Reverse(slot) = self.heap.pop()?;
        slot.life.is_none_or(|life| life == self.life).then_some(slot.next)
    }
}

#[derive(Debug)]
struct Slot {
    at: Time,
    seq: u64,
    /// The process that it belongs to; `None` for what outlives processes.
    life: Option<u64>,
    next: Next,
}

impl PartialEq for Slot {
    fn eq(&self, other: &Slot) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl Eq for Slot {}
impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Slot) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Slot {
    fn cmp(&self, other: &Slot) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}
