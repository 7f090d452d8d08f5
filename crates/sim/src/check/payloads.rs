//! Payloads of attempts: the one submitted last (D1), or the one of a move (J7).

use std::sync::Arc;

use paceline_core::{AddedCall, Blob, CallId, JobId, Time, Verdict};

use super::Checker;

/// A move that an upstream asked for, with its payload if that is not the job's.
#[derive(Clone, Debug)]
pub(super) struct Move {
    to: Arc<str>,
    payload: Option<Blob>,
    at: Time,
}

impl Move {
    /// The move that a verdict asks for, from a call with this payload.
    pub(super) fn told(verdict: &Verdict, carried: Option<&Blob>, at: Time) -> Option<Move> {
        let Verdict::Moved { lane, payload } = verdict else { return None };
        Some(Move { to: lane.clone(), payload: payload.as_ref().or(carried).cloned(), at })
    }
}

impl Checker {
    /// The store has another payload for a job that was replaced.
    pub(super) fn payload_written(&mut self, id: JobId, payload: &Blob) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.payload = payload.clone();
        }
    }

    /// J7: an upstream asked for the move behind an added call, with the same payload.
    pub(super) fn move_goes_on(&mut self, id: JobId, place: usize, added: &AddedCall) {
        let now = self.now.time;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let written = added.payload.as_deref();
        job.moves.retain(|it| it.at == now);
        let mut asked = job.moves.iter();
        let asked = asked.position(|it| it.to == added.lane && it.payload.as_deref() == written);
        if let Some(asked) = asked {
            job.calls[place].payload = job.moves.swap_remove(asked).payload;
        } else if job.spec.cache_key.is_some() {
            // The model does not always know which calls shared the request that was moved.
            job.calls[place].payload = written.map(Blob::from);
        } else {
            let words = format!("job {id} moved to {}, and no upstream asked for that", added.lane);
            self.broken("J7", words);
        }
    }

    /// Checks that a worker gets the payload that was submitted for its call.
    pub(crate) fn carries(&mut self, call: CallId, payload: &Blob, at: Time) {
        let Some(job) = self.jobs.get(&call.job) else { return };
        let own = job.calls.get(usize::from(call.index)).and_then(|call| call.payload.as_ref());
        if own.unwrap_or(&job.payload) != payload {
            self.violation("D1", at, format!("job {} is made with another payload", call.job));
        }
    }
}
