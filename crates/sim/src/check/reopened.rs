//! The effect of a restart on jobs and calls: some go on, some wait again, some have no lane.

use std::sync::Arc;

use paceline_core::{AttemptId, JobId, JobSpec, KindTerms, OnCrash, Time};

use super::Checker;
use super::jobs::{CallModel, State, comes_at};

impl Checker {
    /// Returns `true` if an attempt outlives its process.
    pub(crate) fn goes_on(&self, attempt: AttemptId) -> bool {
        let lane = self.attempts.get(&attempt).and_then(|lane| self.lanes.get(lane));
        let Some(id) = lane.and_then(|lane| lane.find(attempt)).map(|found| found.owner) else {
            return false;
        };
        let Some(job) = self.jobs.get(&id.job) else { return false };
        let runs = job.calls.get(usize::from(id.index)).is_some_and(|call| match call.state {
            State::Running(own) => own == attempt,
            State::Shared => self.is_shared(attempt),
            _ => false,
        });
        runs && outlives(&self.setup.kinds, &job.spec)
    }

    /// The engine starts again: nothing runs, and a job that was never tried may be delayed again.
    pub(super) fn jobs_reopened(&mut self) {
        let now = self.now;
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let kinds = &self.setup.kinds;
            let job = self.jobs.get_mut(&id).expect("listed above");
            job.parked = !kinds.iter().any(|kind| kind.name == job.spec.kind);
            let goes_on = outlives(kinds, &job.spec);
            let begun = |call: &CallModel| {
                let shared = call.state == State::Shared && call.attempts > 0;
                shared || call.recorded || matches!(call.state, State::Settled | State::Running(_))
            };
            let untouched = !job.calls.iter().any(begun);
            let due = job.due.map_or(Time::ZERO, |due| comes_at(due, now));
            let place = due.max(job.submitted_at).min(now.time);
            for call in &mut job.calls {
                if matches!(call.state, State::Running(_)) && !goes_on {
                    call.state = State::Waiting;
                    // Its open reservation is a record of it, even if this start is never durable.
                    call.recorded = true;
                }
                if !call.place_durable && call.joined_at > Time::ZERO {
                    call.joined_at = place;
                }
            }
            let delayed = job.delayed;
            if untouched && job.due.is_some_and(|due| comes_at(due, now) > now.time) {
                self.delay(id);
            } else if delayed {
                self.begin(id, place);
            }
            for place in 0..self.jobs[&id].calls.len() {
                let budget = self.budget(id, place);
                self.jobs.get_mut(&id).expect("listed above").calls[place].max_wait = budget;
            }
        }
    }

    /// Parks jobs and calls whose lane is not configured, and resumes those whose lane is back.
    pub(super) fn park_jobs_without_lanes(&mut self) {
        let gone: Vec<Arc<str>> =
            self.lanes.iter().filter(|(_, lane)| lane.gone).map(|(name, _)| name.clone()).collect();
        for (&id, job) in &mut self.jobs {
            let given = job.spec.stages.iter().map(Vec::len).sum();
            let open = job.calls.iter().take(given).any(|call| call.state != State::Settled);
            if open && job.spec.stages.iter().flatten().any(|lane| gone.contains(lane)) {
                // When its lane is back, it joins the queue without a submission.
                (job.parked, job.replaced) = (true, true);
                self.was_parked.insert(id);
                continue;
            }
            let shared = job.spec.cache_key.is_some();
            for call in job.calls.iter_mut().filter(|call| call.state != State::Settled) {
                let parked = call.state == State::Parked;
                if gone.contains(&call.lane) {
                    call.was = if parked { call.was } else { call.state };
                    call.state = State::Parked;
                } else if parked {
                    call.state = match call.was {
                        State::Backoff(_) => call.was,
                        _ if shared => State::Shared,
                        _ => State::Waiting,
                    };
                }
            }
        }
    }
}

fn outlives(kinds: &[KindTerms], spec: &JobSpec) -> bool {
    let kind = kinds.iter().find(|kind| kind.name == spec.kind);
    kind.is_some_and(|kind| kind.on_crash == OnCrash::TakeUp)
}
