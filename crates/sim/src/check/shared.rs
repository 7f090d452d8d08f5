//! Calls that share requests by lane and cache key (C2): the effect of one attempt on each of them
//! (R1, L6), and how long each may wait (W1). The call that leads them is not modelled.

use std::sync::Arc;

use paceline_core::{
    AttemptId, AttemptResult, Blob, JobId, Priority, Span, Time, Verdict, backoff,
};

use super::Checker;
use super::jobs::State;
use super::payloads::Move;
use super::reports::brought;

/// A call that is throttled or not processed more often than this has failed (L6, L7).
pub(super) const MOST_AGAIN: u16 = 20;

/// The phase of the calls with one lane and cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not known until the next reservation.
    Unknown,
    Waiting,
    Running(AttemptId),
    /// Until a moment between these: each call has its own backoff, and any of them may lead.
    Backoff(Time, Time),
}

/// Calls that share their requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRequest {
    at: Phase,
    /// When a verdict was last reported.
    told_at: Time,
}

impl SharedRequest {
    fn new(at: Phase) -> SharedRequest {
        SharedRequest { at, told_at: Time::ZERO }
    }

    fn waits(&self, now: Time) -> bool {
        matches!(self.at, Phase::Waiting)
            || matches!(self.at, Phase::Backoff(_, latest) if latest <= now)
    }
}

type SameKey = (Arc<str>, Blob);

/// Returns `true` if a verdict uses up an attempt and allows another one.
fn asks_again(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::NotProcessed => true,
        Verdict::Failed { failure, .. } => failure.retryable,
        _ => false,
    }
}

/// The wait before a retry. A `Retry-After` of at most 10 ms is ignored (R1).
pub(super) fn retry_wait(retry_after: Option<Span>, backoff: Span) -> Span {
    retry_after.filter(|after| *after > Span::millis(10)).unwrap_or(backoff)
}

fn retry_after(verdict: &Verdict) -> Option<Span> {
    match verdict {
        Verdict::Failed { retry_after, .. } => *retry_after,
        _ => None,
    }
}

impl Checker {
    pub(super) fn sharers(&self, key: &SameKey) -> Vec<(JobId, usize)> {
        let jobs = self.jobs.iter().filter(|(_, job)| !job.parked);
        let jobs = jobs.filter(|(_, job)| job.spec.cache_key.as_ref() == Some(&key.1));
        let calls = jobs.flat_map(|(&id, job)| {
            let calls = job.calls.iter().enumerate();
            let shared = calls.filter(|(_, c)| c.state == State::Shared && c.lane == key.0);
            shared.map(move |(place, _)| (id, place))
        });
        calls.collect()
    }

    /// One of the calls gets an attempt.
    pub(super) fn sharer_reserved(&mut self, lane: &Arc<str>, key: Blob, attempt: AttemptId) {
        let now = self.now.time;
        let same =
            self.same.entry((lane.clone(), key)).or_insert(SharedRequest::new(Phase::Unknown));
        let before = std::mem::replace(&mut same.at, Phase::Running(attempt));
        if let Phase::Backoff(until, _) = before
            && until > now
        {
            let early = until.since(now);
            self.broken("R1", format!("{lane}: a shared call was retried {early} too soon"));
        }
    }

    /// Returns `true` if calls share this attempt.
    pub(super) fn is_shared(&self, attempt: AttemptId) -> bool {
        self.same.values().any(|same| same.at == Phase::Running(attempt))
    }

    /// The engine starts again: only the phase of attempts that outlive the process is known.
    pub(super) fn sharers_reopened(&mut self, goes_on: &[AttemptId]) {
        self.same.retain(|_, same| {
            same.told_at = Time::ZERO;
            matches!(same.at, Phase::Running(attempt) if goes_on.contains(&attempt))
        });
    }

    /// Applies the verdict of the shared attempt to each call.
    pub(super) fn apply_to_sharers(&mut self, attempt: AttemptId, told: &AttemptResult, roll: u64) {
        let now = self.now.time;
        let Some(lane) = self.attempts.get(&attempt).cloned() else { return };
        let found = self.lanes.get(&lane).and_then(|lane| lane.find(attempt));
        let Some(key) = found.filter(|t| !t.told).and_then(|t| t.cache_key.clone()) else { return };
        let key = (lane, key);
        if self.same.get(&key).is_none_or(|same| same.at != Phase::Running(attempt)) {
            return;
        }
        let sharers = self.sharers(&key);
        let mut next = Phase::Waiting;
        // While one of them has free repetitions left, the others go on with it.
        let calls = || sharers.iter().map(|&(id, place)| &self.jobs[&id].calls[place]);
        let mut calls = calls().filter(|call| call.joined_at < now);
        let free = calls.any(|call| call.unprocessed < MOST_AGAIN);
        for &(id, place) in &sharers {
            let job = self.jobs.get_mut(&id).expect("listed above");
            let retry = job.spec.retry;
            let call = &mut job.calls[place];
            // A call that came due in this turn asks the cache first, and shares the next attempt.
            if call.joined_at >= now {
                continue;
            }
            let through = match &told.verdict {
                Verdict::Unused => false,
                Verdict::Throttled { again: true, .. } => {
                    call.throttles += 1;
                    call.throttles > MOST_AGAIN
                }
                Verdict::NotProcessed if call.unprocessed < MOST_AGAIN => {
                    call.unprocessed += 1;
                    false
                }
                Verdict::NotProcessed if free => {
                    call.failures += 1;
                    call.failures >= retry.attempts.get()
                }
                verdict if asks_again(verdict) => {
                    call.failures += 1;
                    let wait = backoff(&retry, call.failures, roll);
                    let until = now + retry_wait(retry_after(verdict), wait);
                    let spent = call.failures >= retry.attempts.get();
                    next = match next {
                        _ if spent => next,
                        Phase::Backoff(from, to) => Phase::Backoff(from.min(until), to.max(until)),
                        _ => Phase::Backoff(until, until),
                    };
                    spent
                }
                _ => true,
            };
            call.through = through && !call.unsure;
            call.brought = if call.through { brought(&told.verdict) } else { None };
            job.moves.extend(Move::told(&told.verdict, call.payload.as_ref(), now));
        }
        self.same.insert(key, SharedRequest { at: next, told_at: now });
    }

    /// One of the calls settled. Another takes over its request, and the retry may come earlier.
    pub(super) fn sharer_settled(&mut self, lane: &Arc<str>, key: Blob, through: bool) {
        let (key, now) = ((lane.clone(), key), self.now.time);
        let left = self.sharers(&key);
        let Some(same) = self.same.get_mut(&key) else { return };
        // A call that joins in the same turn may be too late to take over.
        let (mut known, mut shared) = (false, true);
        for (id, place) in left {
            let call = &mut self.jobs.get_mut(&id).expect("listed above").calls[place];
            call.unsure |= call.joined_at >= now;
            known |= !call.unsure;
            shared &= !call.unsure && call.failures > 0;
        }
        if !known {
            self.same.remove(&key);
        } else if matches!(same.at, Phase::Backoff(..)) && !through && !shared {
            // A call that shared no failed request goes at once, if it leads next.
            same.at = Phase::Unknown;
        }
    }

    /// At the end of a turn: registers new calls, and checks how long the others wait (W1).
    pub(super) fn check_sharers(&mut self) {
        let now = self.now.time;
        let (mut new, mut unsure, mut broken) = (Vec::new(), Vec::new(), Vec::new());
        let jobs = self.jobs.iter().filter(|(_, job)| !job.parked);
        for (&id, job) in jobs {
            let Some(key) = &job.spec.cache_key else { continue };
            for (place, call) in job.calls.iter().enumerate() {
                if call.state != State::Shared {
                    continue;
                }
                let key = (call.lane.clone(), key.clone());
                let fresh = call.attempts == 0 && call.joined_at >= self.opened_at;
                match self.same.get(&key) {
                    None => new.push((key, fresh && !call.unsure)),
                    Some(same) if same.told_at == now && call.joined_at >= now => {
                        unsure.push((id, place));
                    }
                    Some(same) if same.waits(now) && !call.unsure => {
                        broken.extend(self.waits_too_long(id, place));
                    }
                    Some(_) => {}
                }
            }
        }
        for (id, place) in unsure {
            self.jobs.get_mut(&id).expect("seen above").calls[place].unsure = true;
        }
        for (key, fresh) in new {
            let at = if fresh { Phase::Waiting } else { Phase::Unknown };
            let same = self.same.entry(key).or_insert(SharedRequest::new(at));
            same.at = if fresh { same.at } else { Phase::Unknown };
        }
        for words in broken {
            self.broken("W1", words);
        }
    }

    /// Whichever call leads, the lane opens no earlier than for the most urgent call of cost 1.
    fn waits_too_long(&self, id: JobId, place: usize) -> Option<String> {
        let (job, now) = (&self.jobs[&id], self.now.time);
        let call = &job.calls[place];
        let lane = self.lanes.get(&call.lane)?;
        if let Some(most) = job.spec.max_wait
            && lane.paused
            && lane.paused_at + most <= now
        {
            return Some(format!(
                "{}: job {id} shares a call and waits for a resume beyond its max_wait",
                call.lane
            ));
        }
        let budget = call.max_wait?.max(self.budget(id, place)?);
        if !lane.plain(now) {
            return None;
        }
        let most_urgent = Priority::Interactive;
        let opens = lane.opening(most_urgent, most_urgent);
        let wait = opens.max(self.group_opening(lane.limits(), 1)).since(now);
        let words = || format!("{}: job {id} shares a call and would wait {wait}", call.lane);
        (wait > budget).then(words)
    }

    /// When the `max_wait` of a call ends while its lane is paused (W1).
    pub(super) fn pause_budget_ends_at(&self, id: JobId, place: usize) -> Option<Time> {
        let job = &self.jobs[&id];
        let most = job.spec.max_wait?;
        let lane = self.lanes.get(&job.calls[place].lane).filter(|lane| lane.paused)?;
        Some(lane.paused_at + most)
    }
}
