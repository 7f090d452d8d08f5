//! Outcomes that the engine chose itself must be true: skipped, cancelled, duplicate.

use paceline_core::{JobId, Outcome, Skip, Span};

use super::Checker;
use super::jobs::{CallModel, JobModel, State};

impl Checker {
    /// Checks an outcome that the engine chose itself.
    pub(super) fn check_outcome(
        &mut self,
        id: JobId,
        place: usize,
        call: &CallModel,
        outcome: &Outcome,
    ) {
        let now = self.now.time;
        let job = &self.jobs[&id];
        let wrong: Option<(&'static str, String)> = match outcome {
            Outcome::Skipped(Skip::MaxWait { wait, max_wait, priority }) => {
                let budget = self.budget(id, place);
                // The call may have joined before the limits changed in the same turn, with a
                // budget by the old limits.
                let sooner = self.lanes[&call.lane].rules.changed_at == now
                    && (call.joined_at == now || Some(*wait) > budget);
                let honest = wait > max_wait
                    && self.longest_wait(job, call).is_none_or(|longest| *wait <= longest)
                    && *priority == job.priority
                    && (call.max_wait == Some(*max_wait)
                        || budget == Some(*max_wait)
                        || call.state == State::Staged
                        || sooner);
                (!honest).then(|| {
                    (
                        "W1",
                        format!(
                            "job {id} skipped for {wait} over {max_wait}, not {:?}",
                            call.max_wait
                        ),
                    )
                })
            }
            Outcome::Skipped(Skip::StartWithin { start_within }) => {
                let early = call.joined_at + *start_within > now;
                early.then(|| ("W1", format!("job {id} skipped before its start_within")))
            }
            Outcome::Skipped(Skip::Paused { max_wait, priority }) => {
                let lane = &self.lanes[&call.lane];
                let since = if call.joined_at < lane.paused_at { *max_wait } else { Span::ZERO };
                let honest = (lane.paused || lane.resumed_at == now)
                    && lane.paused_at + since <= now
                    && job.spec.max_wait == Some(*max_wait)
                    && *priority == job.priority;
                (!honest)
                    .then(|| ("W1", format!("job {id} skipped for a pause that is not in force")))
            }
            Outcome::Skipped(Skip::Deadline) => {
                let early = job.callers.iter().any(|deadline| *deadline > now);
                early.then(|| ("W2", format!("job {id} has no deadline that passed")))
            }
            Outcome::Skipped(Skip::NotApplicable) => {
                let applies = !job.spec.not_applicable.contains(&(place as u16));
                applies.then(|| ("J6", format!("call {place} of job {id} does apply")))
            }
            Outcome::Cancelled => (!self.cancelled.contains(&id))
                .then(|| ("W4", format!("job {id} is cancelled, and no caller asked for it"))),
            Outcome::Duplicate { of } => {
                let other = self.jobs.get(of).filter(|other| other.spec.kind == job.spec.kind);
                // The move of the other call may be written after this.
                let there = |c: &CallModel| {
                    let to = |o: &Outcome| matches!(o, Outcome::Moved { to } if *to == call.lane);
                    c.lane == call.lane || c.outcome.as_ref().is_some_and(to)
                };
                let same = other.is_some_and(|other| other.calls.iter().any(there));
                let gone = self.finished.contains(of);
                let itself = *of == id && job.calls.len() < 2;
                ((!same && !gone) || itself)
                    .then(|| ("D3", format!("job {id} is no duplicate of job {of}")))
            }
            _ => None,
        };
        if let Some((rule, words)) = wrong {
            self.broken(rule, words);
        }
    }

    /// The time until the lane and group of a call open, where the model knows it. Inputs of this
    /// turn may have opened them earlier since the call was skipped.
    fn longest_wait(&self, job: &JobModel, call: &CallModel) -> Option<Span> {
        let now = self.now.time;
        let lane = self.lanes.get(&call.lane).filter(|lane| lane.plain(now))?;
        let eased = match lane.limits().group {
            Some(_) => self.lanes.values().any(|lane| lane.eased_at == now),
            None => lane.eased_at == now,
        };
        if eased || call.state == State::Shared || job.spec.cache_key.is_some() {
            return None;
        }
        let cost = job.spec.cost.get();
        let opens = lane.opening_for(job.priority, job.priority, cost);
        Some(opens.max(self.group_opening(lane.limits(), cost)).since(now))
    }
}
