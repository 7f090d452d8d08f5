//! The scheduled events of a world, in the order of their moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use paceline::turn::LaneAct;
use paceline_core::{AttemptId, JobId, Setup, Span, Submission, Time};

use crate::disk::Fault;
use crate::upstream::Behaviour;

/// An action on a world, by an operator, a caller, or chance.
#[derive(Debug)]
pub(crate) enum Act {
    Submit(Vec<Submission>),
    Cancel(JobId),
    /// An operator runs a service by hand.
    RunService(Arc<str>),
    /// Cancels a random unfinished job.
    CancelSome,
    Lane(Arc<str>, LaneAct),
    /// The process shuts down: it starts nothing new, gets this grace, and restarts.
    Stop(Span),
    /// The process dies and restarts this much later.
    Crash(Span),
    /// The machine loses power and restarts this much later.
    Reboot(Span),
    /// A reboot soon after the next reservation that is not synced.
    RebootAtPromise(Span),
    /// The process dies and restarts with another configuration.
    Restart(Box<Setup>),
    StepWall(i64),
    /// The upstream of a lane changes its behaviour.
    Behaviour(Arc<str>, Behaviour),
    /// Commits take up to this long.
    CommitTime(Span),
    /// The next commit fails.
    FailCommit(Fault),
    /// Faults end: upstreams respond, and hanging requests complete.
    Heal,
}

/// A scheduled event.
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

/// All scheduled events. Those of the same moment come in the order in which they were scheduled.
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

    /// The process died, and its scheduled events are void.
    pub(crate) fn end_life(&mut self) {
        self.life += 1;
    }

    /// The moment of the first event.
    pub(crate) fn first_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(slot)| slot.at)
    }

    /// Takes the first event; `None` if a process that died had scheduled it.
    pub(crate) fn take(&mut self) -> Option<Next> {
        let Reverse(slot) = self.heap.pop()?;
        slot.life.is_none_or(|life| life == self.life).then_some(slot.next)
    }
}

#[derive(Debug)]
struct Slot {
    at: Time,
    seq: u64,
    /// The process that it belongs to; `None` for events that outlive processes.
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
