//! A call, and the one function through which its state changes.

use crate::job::AttemptId;
use crate::outcome::Outcome;
use crate::queue::QueuePlace;
use crate::time::{Span, Time};

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its stage has not started.
    Staged,
    /// The cache is asked for it, within the turn.
    Asking,
    /// Its job is not due yet.
    Due,
    /// It waits on its lane.
    Queued,
    /// It waits for a retry, outside the queue.
    Backoff,
    /// It shares the request of another job's call (C2).
    Joined,
    /// This process cannot run it: no worker for its kind, or its lane is configured no more.
    Parked,
    /// An attempt is on its way.
    Running,
    /// It has its outcome.
    Settled,
}

/// A step in the life of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Delay,
    Park,
    Ask,
    Queue,
    Follow,
    Start,
    Return,
    BackOff,
    TakeOver,
    TakeUp,
    Settle,
}

/// A step that is not allowed in a state: a bug in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IllegalStep(State, Step);

impl State {
    /// The state after a step; a state changes in no other way.
    pub(crate) fn after(self, step: Step) -> Result<State, IllegalStep> {
        use State::{Asking, Backoff, Due, Joined, Parked, Queued, Running, Settled, Staged};
        match (self, step) {
            (Staged | Asking | Due | Queued, Step::Delay) => Ok(Due),
            (Staged, Step::Park) => Ok(Parked),
            (Staged | Due, Step::Ask) => Ok(Asking),
            (Staged | Asking | Queued, Step::Follow) => Ok(Joined),
            (Staged | Asking | Due | Backoff | Joined, Step::Queue) | (Running, Step::Return) => {
                Ok(Queued)
            }
            (Queued, Step::Start) | (Joined, Step::TakeOver) | (Staged, Step::TakeUp) => {
                Ok(Running)
            }
            (Staged | Running | Joined, Step::BackOff) => Ok(Backoff),
            (Settled, _) => Err(IllegalStep(self, step)),
            (_, Step::Settle) => Ok(Settled),
            _ => Err(IllegalStep(self, step)),
        }
    }
}

/// One job's visit to one lane.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) job: u32,
    pub(crate) lane: u32,
    pub(crate) index: u16,
    pub(crate) stage: u16,
    pub(crate) state: State,
    pub(crate) cached: bool,
    /// Whether its lane counts it as its kind's rss call (D3).
    pub(crate) rss: bool,
    pub(crate) place: QueuePlace,
    pub(crate) retry_at: Time,
    /// Its budget for a closed lane; `ANY_WAIT` for none.
    pub(crate) max_wait: Span,
    pub(crate) attempts: u16,
    pub(crate) throttles: u16,
    pub(crate) crashes: u16,
    /// Requests that the upstream did not process (L7).
    pub(crate) unprocessed: u16,
    pub(crate) hops: u16,
    /// The call whose request it shares while `Joined`.
    pub(crate) leader: u32,
    pub(crate) attempt: AttemptId,
    pub(crate) waited: Span,
    pub(crate) ran: Span,
    pub(crate) outcome: Option<Box<Outcome>>,
}

/// The smallest budget among calls that share a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeastBudget {
    /// Among all of them.
    pub(crate) any: Span,
    /// Among those that a caller named.
    pub(crate) named: Span,
}

impl Default for LeastBudget {
    fn default() -> LeastBudget {
        LeastBudget { any: ANY_WAIT, named: ANY_WAIT }
    }
}

impl LeastBudget {
    pub(crate) fn of(self, other: LeastBudget) -> LeastBudget {
        LeastBudget { any: self.any.min(other.any), named: self.named.min(other.named) }
    }
}

/// No bound on waiting.
pub(crate) const ANY_WAIT: Span = Span(u64::MAX);

/// The leader of a call that follows another no longer, until it is settled.
pub(crate) const NO_CALL: u32 = u32::MAX;

impl Call {
    pub(crate) fn new(job: u32, lane: u32, index: u16, stage: u16) -> Call {
        Call {
            job,
            lane,
            index,
            stage,
            state: State::Staged,
            cached: false,
            rss: false,
            place: QueuePlace::default(),
            retry_at: Time::ZERO,
            max_wait: ANY_WAIT,
            attempts: 0,
            throttles: 0,
            crashes: 0,
            unprocessed: 0,
            hops: 0,
            leader: 0,
            attempt: AttemptId(0),
            waited: Span::ZERO,
            ran: Span::ZERO,
            outcome: None,
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.state = self.state.after(step).expect("the rules take only legal steps");
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.state == State::Settled
    }

    /// Counts an attempt.
    pub(crate) fn tried(&mut self) {
        self.attempts += 1;
    }

    /// Notes how long its last request ran, from its start until now.
    pub(crate) fn was_out(&mut self, started_at: Option<Time>, now: Time) {
        self.ran = started_at.map_or(Span::ZERO, |at| now.since(at));
        if self.state == State::Joined {
            self.waited = started_at.unwrap_or(now).since(self.place.joined_at);
        }
    }

    /// Real requests made for it.
    pub(crate) fn requests(&self) -> u32 {
        let made = [self.attempts, self.throttles, self.crashes, self.unprocessed];
        made.into_iter().map(u32::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j1_a_settled_call_never_changes_again() {
        let steps = [
            Step::Delay,
            Step::Park,
            Step::Ask,
            Step::Queue,
            Step::Follow,
            Step::Start,
            Step::Return,
            Step::BackOff,
            Step::TakeOver,
            Step::TakeUp,
            Step::Settle,
        ];
        for step in steps {
            assert_eq!(State::Settled.after(step), Err(IllegalStep(State::Settled, step)));
        }
    }

    #[test]
    fn a_call_starts_only_from_the_queue() {
        for state in [State::Staged, State::Due, State::Backoff, State::Running, State::Parked] {
            assert!(state.after(Step::Start).is_err());
        }
        assert_eq!(State::Queued.after(Step::Start), Ok(State::Running));
    }
}
