//! Calls that share their requests by lane and cache key (C2): what one attempt means for each of
//! them (R1, L6), and how long each would wait (W1). Who leads them is not modelled.

use std::sync::Arc;

use paceline_core::{
    AttemptId, AttemptResult, Blob, JobId, Priority, Span, Time, Verdict, backoff,
};

use super::Book;
use super::jobs::State;
use super::payloads::Move;
use super::reports::brought;

/// Throttled or not processed more often than this, a call has failed (L6, L7).
pub(super) const MOST_AGAIN: u16 = 20;

/// Where the calls with one lane and cache key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// Nothing is known until the next promise.
    Unknown,
    Waiting,
    Running(AttemptId),
    /// Until a moment between these: each of them may lead, and waits by itself.
    Backoff(Time, Time),
}

/// Calls that share their requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Same {
    at: Where,
    /// When an attempt was last told.
    told_at: Time,
}

impl Same {
    fn new(at: Where) -> Same {
        Same { at, told_at: Time::ZERO }
    }

    fn waits(&self, now: Time) -> bool {
        matches!(self.at, Where::Waiting)
            || matches!(self.at, Where::Backoff(_, latest) if latest <= now)
    }
}

type SameKey = (Arc<str>, Blob);

/// Whether a verdict asks for another attempt at the cost of this one.
fn asks_again(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::NotProcessed => true,
        Verdict::Failed { failure, .. } => failure.retryable,
        _ => false,
    }
}

/// How long a call waits for its retry: a date that is hardly later than now is none (R1).
pub(super) fn retry_wait(retry_after: Option<Span>, backoff: Span) -> Span {
    retry_after.filter(|after| *after > Span::millis(10)).unwrap_or(backoff)
}

fn retry_after(verdict: &Verdict) -> Option<Span> {
    match verdict {
        Verdict::Failed { retry_after, .. } => *retry_after,
        _ => None,
    }
}

impl Book {
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

    /// One of them is promised an attempt.
    pub(super) fn sharer_reserved(&mut self, lane: &Arc<str>, key: Blob, attempt: AttemptId) {
        let now = self.now.time;
        let same = self.same.entry((lane.clone(), key)).or_insert(Same::new(Where::Unknown));
        let before = std::mem::replace(&mut same.at, Where::Running(attempt));
        if let Where::Backoff(until, _) = before
            && until > now
        {
            let early = until.since(now);
            self.broken("R1", format!("{lane}: a shared call was retried {early} too soon"));
        }
    }

    /// Whether this attempt is the one that calls share.
    pub(super) fn is_shared(&self, attempt: AttemptId) -> bool {
        self.same.values().any(|same| same.at == Where::Running(attempt))
    }

    /// The engine starts anew: only of attempts that go on it is known where their calls are.
    pub(super) fn sharers_reopened(&mut self, goes_on: &[AttemptId]) {
        self.same.retain(|_, same| {
            same.told_at = Time::ZERO;
            matches!(same.at, Where::Running(attempt) if goes_on.contains(&attempt))
        });
    }

    /// What their attempt brought is brought to each.
    pub(super) fn sharers_hear(&mut self, attempt: AttemptId, told: &AttemptResult, roll: u64) {
        let now = self.now.time;
        let Some(lane) = self.tries.get(&attempt).cloned() else { return };
        let known = self.lanes.get(&lane).and_then(|lane| lane.find(attempt));
        let Some(key) = known.filter(|t| !t.told).and_then(|t| t.cache_key.clone()) else { return };
        let key = (lane, key);
        if self.same.get(&key).is_none_or(|same| same.at != Where::Running(attempt)) {
            return;
        }
        let sharers = self.sharers(&key);
        let mut next = Where::Waiting;
        // While one of them may still ask for nothing, all go on with it.
        let calls = || sharers.iter().map(|&(id, place)| &self.jobs[&id].calls[place]);
        let mut calls = calls().filter(|call| call.joined_at < now);
        let free = calls.any(|call| call.unprocessed < MOST_AGAIN);
        for &(id, place) in &sharers {
            let job = self.jobs.get_mut(&id).expect("listed above");
            let retry = job.spec.retry;
            let call = &mut job.calls[place];
            // One that came due in this turn asks the cache first, and shares the next attempt.
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
                        Where::Backoff(from, to) => Where::Backoff(from.min(until), to.max(until)),
                        _ => Where::Backoff(until, until),
                    };
                    spent
                }
                _ => true,
            };
            call.through = through && !call.unsure;
            call.brought = if call.through { brought(&told.verdict) } else { None };
            job.moves.extend(Move::told(&told.verdict, call.payload.as_ref(), now));
        }
        self.same.insert(key, Same { at: next, told_at: now });
    }

    /// One of them has its outcome. Others take over what it had, and a retry that it waited for may
    /// come sooner.
    pub(super) fn sharer_settled(&mut self, lane: &Arc<str>, key: Blob, through: bool) {
        let (key, now) = ((lane.clone(), key), self.now.time);
        let left = self.sharers(&key);
        let Some(same) = self.same.get_mut(&key) else { return };
        // One that comes in the same turn may have come too late to take over.
        let (mut known, mut shared) = (false, true);
        for (id, place) in left {
            let call = &mut self.jobs.get_mut(&id).expect("listed above").calls[place];
            call.unsure |= call.joined_at >= now;
            known |= !call.unsure;
            shared &= !call.unsure && call.failures > 0;
        }
        if !known {
            self.same.remove(&key);
        } else if matches!(same.at, Where::Backoff(..)) && !through && !shared {
            // One that shared no request in vain goes at once, if it is the next to lead.
            same.at = Where::Unknown;
        }
    }

    /// At the end of a turn: who is new, and who waits longer than it would (W1).
    pub(super) fn look_at_sharers(&mut self) {
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
                let fresh = call.tries == 0 && call.joined_at >= self.opened_at;
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
            let at = if fresh { Where::Waiting } else { Where::Unknown };
            let same = self.same.entry(key).or_insert(Same::new(at));
            same.at = if fresh { same.at } else { Where::Unknown };
        }
        for words in broken {
            self.broken("W1", words);
        }
    }

    /// Whoever leads them, the lane opens no sooner than for the most urgent call of cost 1.
    fn waits_too_long(&self, id: JobId, place: usize) -> Option<String> {
        let (job, now) = (&self.jobs[&id], self.now.time);
        let call = &job.calls[place];
        let lane = self.lanes.get(&call.lane)?;
        if let Some(most) = job.spec.max_wait
            && lane.paused
            && lane.paused_at + most <= now
        {
            return Some(format!("{}: job {id} waits for the resume, by another", call.lane));
        }
        let budget = call.max_wait?.max(self.budget(id, place)?);
        if !lane.plain(now) {
            return None;
        }
        let most_urgent = Priority::Interactive;
        let opens = lane.opening(most_urgent, most_urgent);
        let wait = opens.max(self.group_opening(lane.limits(), 1)).since(now);
        let words = || format!("{}: job {id} would wait {wait} by another", call.lane);
        (wait > budget).then(words)
    }

    /// How long a shared or own budget lasts while a lane is stopped by hand (W1).
    pub(super) fn pause_ends_patience(&self, id: JobId, place: usize) -> Option<Time> {
        let job = &self.jobs[&id];
        let most = job.spec.max_wait?;
        let lane = self.lanes.get(&job.calls[place].lane).filter(|lane| lane.paused)?;
        Some(lane.paused_at + most)
    }
}
