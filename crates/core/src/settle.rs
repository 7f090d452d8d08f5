//! Settle: the result of an attempt, and its consequences for its lane, its call and its job
//! (J1 to J7, R1, L6 to L8, C2, W2, W4).
//!
//! A result goes three ways, in this order. The lane is judged first, also by attempts whose calls
//! have gone: a job that was cancelled says nothing about the upstream, its response does. Then the
//! answer goes to the cache, and then the call gets its outcome or another attempt. All three are
//! in one plan, and so in one commit: a crash finds all of them or none.

use std::sync::Arc;

use crate::call::{ANY_WAIT, Call, State, Step};
use crate::core::{Attempt, Core, Moment};
use crate::health::{Health, NO_GAP, SOON};
use crate::job::{AttemptId, Blob, JobId, Until};
use crate::mutant::Mutant;
use crate::outcome::{About, Announced, Failure, Outcome, Skip, Verdict};
use crate::plan::{Event, Plan};
use crate::record::{AddedCall, CachedAnswer, CachedValue, Write};
use crate::retry::backoff;
use crate::settings::Settings;
use crate::time::{Now, Span, Time};

/// A call that is throttled more often than this has failed (L6). Throttles cost no attempt, so
/// this is the only thing that ends a call whose upstream never lets it through.
const MOST_THROTTLES: u16 = 20;
/// A request that is not processed more often than this has failed (L7), for the same reason.
const MOST_UNPROCESSED: u16 = 20;
/// Calls per lane whose retries are remembered, so that their failures count once. Retries of
/// further calls count every time (L7): the set is bounded, and a lane with that many failing calls
/// is on its ladder already.
const MOST_FAILED: usize = 4_096;
/// A chain of moves is no longer than this (J7): two upstreams that redirect to each other would
/// otherwise keep a job for ever.
const MOST_HOPS: u16 = 40;

/// The result of one attempt, as its worker reports it.
#[derive(Clone, Debug)]
pub struct AttemptResult {
    /// The result itself.
    pub verdict: Verdict,
    /// The limits that the upstream announced with it.
    pub announced: Option<Announced>,
}

impl Core {
    /// Takes in the result of an attempt. Only the first one counts. `roll` is the random number of
    /// a possible retry.
    pub fn report(
        &mut self,
        attempt: AttemptId,
        result: AttemptResult,
        now: Now,
        roll: u64,
        plan: &mut Plan,
    ) {
        let Some(known) = self.attempts.get_mut(&attempt) else { return };
        if std::mem::replace(&mut known.reported, true) {
            return;
        }
        let result = bounded(result, self.settings.max_payload);
        let (call, lane) = (known.call.take(), known.lane);
        let started_at = known.started_at;
        let answered = known.answered_at.is_some();
        self.judge(attempt, &result, now, plan);
        // A worker that announced the whole response has sent its request, whatever it says now.
        // The upstream has counted it, so it stays charged (L4).
        if result.verdict == Verdict::Unused && !answered {
            self.give_back(attempt, now);
        } else {
            self.cache(attempt, &result.verdict, now, plan);
        }
        self.lanes[lane].unreported -= u32::from(answered);
        if let Some(call) = call {
            self.shared_by(call, |call| call.was_out(started_at, now.time));
            self.conclude(call, result.verdict, now, roll, plan);
        }
        self.touch_lane(lane);
    }

    /// Draws the consequences for the lane (L6 to L8).
    ///
    /// Attempts that were on the wire when the lane was last slowed or closed say nothing new:
    /// sixteen calls in flight that meet a throttle together slow the lane down once. `newest`
    /// marks them: the last attempt that was reserved by now.
    fn judge(&mut self, attempt: AttemptId, result: &AttemptResult, now: Now, plan: &mut Plan) {
        let Attempt { lane: number, made_for, .. } = self.attempts[&attempt];
        let newest = AttemptId(self.next.attempt - 1);
        let lane = &mut self.lanes[number];
        let before = (lane.health.clone(), lane.announced.clone());
        let limits = lane.limits.clone();
        let recent = &lane.recent;
        let health = &mut lane.health;
        let dated = match &result.verdict {
            Verdict::Throttled { retry_after, .. } | Verdict::Failed { retry_after, .. } => {
                retry_after.map(|after| after.min(crate::time::LONGEST_SPAN))
            }
            _ => None,
        };
        if let Some(after) = dated {
            health.cool(now.time + after);
        }
        match &result.verdict {
            // A date sooner than the slowed gap would open the lane at its old pace: `Retry-After:
            // 0` from an upstream that throttles would make it go on at full speed (L7).
            Verdict::Throttled { .. } => {
                let by_rate = recent.gap(now.time);
                if dated.is_none_or(|after| after < health.throttled_gap(&limits, by_rate)) {
                    health.throttled(attempt, newest, &limits, by_rate, now.time);
                }
            }
            Verdict::Failed { about: About::Call, .. } => health.answered(),
            Verdict::Failed { failure, .. } if failure.retryable => {
                // An upstream that says when to come again is up: its date is the whole
                // consequence.
                if dated.is_none_or(|after| after < SOON) {
                    let again = lane.failed.contains(&made_for);
                    let counted = health.failed(attempt, newest, again, &limits, now.time);
                    if counted && lane.failed.len() < MOST_FAILED {
                        lane.failed.insert(made_for);
                    }
                }
            }
            // An upstream that refuses one request answers requests: a 404 clears the ladder.
            Verdict::Done { .. }
            | Verdict::Empty
            | Verdict::Moved { .. }
            | Verdict::Failed { .. } => health.succeeded(&limits, now.time),
            Verdict::Lost { .. } | Verdict::Unused | Verdict::NotProcessed => {}
        }
        if lane.health.failures == 0 && before.0.failures > 0 {
            lane.failed.clear();
        }
        if let Some(mut announced) = result.announced {
            // Requests that are on the wire, or were answered since, may not be counted in the
            // number that the upstream says is left. Taken as left, they would be spent twice.
            let others = (lane.in_flight + lane.unreported).saturating_sub(1);
            let others = if Mutant::LeftUncut.on() { 0 } else { others };
            announced.left = announced.left.map(|(left, span)| (left.saturating_sub(others), span));
            lane.announce(announced, now.time);
        }
        let remembered = |health: &Health| Health { streak: 0, ..health.clone() };
        if (remembered(&lane.health), &lane.announced) != (remembered(&before.0), &before.1) {
            self.write_lane(number, plan);
            self.tell_closed(number, before.0.cooldown_until, plan);
        }
    }

    /// Keeps an answer, and gives it at once to a call that waits for the same one (C1, C2). This
    /// is the second look into the cache, turned into an event: the store is not asked again before
    /// each start, because an answer that arrives here finds the calls that could use it.
    fn cache(&mut self, attempt: AttemptId, verdict: &Verdict, now: Now, plan: &mut Plan) {
        let known = &self.attempts[&attempt];
        let Some(key) = known.cache_key.clone() else { return };
        let (value, keep) = match verdict {
            Verdict::Done { conclusive, value } => {
                let value = CachedValue { conclusive: *conclusive, value: value.clone() };
                let Settings { found_for, empty_for, .. } = self.settings;
                (Some(value), if Mutant::FoundAsEmpty.on() { empty_for } else { found_for })
            }
            Verdict::Empty => (None, self.settings.empty_for),
            _ => return,
        };
        let lane = known.lane;
        let name = self.lanes[lane].name.clone();
        let answer =
            CachedAnswer { lane: name, key: key.clone(), value, expires_at: now.time + keep };
        plan.writes.push(Write::Answer(answer.clone()));
        // The attempt's own call is settled in `conclude`. This is for a call that came after the
        // attempt's job had left: it found no call to share, and waits in the queue.
        if let Some(other) = self.find_same(lane, &key)
            && self.calls[other].attempt != attempt
        {
            self.share(
                other,
                &mut |core, call, plan| core.settle_cached(call, &answer, now, plan),
                plan,
            );
        }
    }

    /// Gives the call its outcome, or another attempt.
    fn conclude(&mut self, call: u32, verdict: Verdict, now: Now, roll: u64, plan: &mut Plan) {
        match verdict {
            Verdict::Unused => {
                self.return_to_queue(call);
                self.watch_starts(call);
                let leads = self.most_urgent(call);
                // Limits may have changed while it was out: a cost that no longer fits would stand
                // at the head of its queue for ever.
                self.fail_if_impossible(leads, now, plan);
            }
            Verdict::Throttled { again: true, .. } => {
                self.shared_by(call, |call| call.throttles += 1);
                if Mutant::PlaceLost.on() {
                    self.calls[call].place.joined_at = now.time;
                }
                let too_often = |core: &Core, call: u32| {
                    let throttles = core.calls[call].throttles;
                    throttles > MOST_THROTTLES && !Mutant::ThrottledForEver.on()
                };
                self.send_again(call, too_often, "throttled", now, plan);
            }
            Verdict::NotProcessed => self.not_processed(call, now, roll, plan),
            Verdict::Throttled { again: false, .. } => {
                let outcome = Outcome::Failed(Failure::transient("throttled"));
                self.settle_all(call, &outcome, now, plan);
            }
            Verdict::Failed { failure, retry_after, .. } => {
                self.fail(call, failure, retry_after, now, roll, plan);
            }
            Verdict::Done { conclusive, value } => {
                let conclusive = conclusive || Mutant::HintsConclude.on();
                self.settle_all(call, &Outcome::Done { conclusive, value }, now, plan);
            }
            Verdict::Empty => self.settle_all(call, &Outcome::Empty, now, plan),
            Verdict::Lost { failure } => {
                self.settle_all(call, &Outcome::Failed(failure), now, plan);
            }
            Verdict::Moved { lane, payload } => {
                self.shared_by(call, Call::tried);
                let mut act = |core: &mut Core, call: u32, plan: &mut Plan| {
                    core.move_call(call, &lane, payload.clone(), now, plan);
                };
                self.share(call, &mut act, plan);
            }
        }
    }

    /// Repeats a request that its upstream did not process, at no cost for the call, up to a bound
    /// (L7). Calls share a request as long as one of them may still repeat it at no cost; for the
    /// others it then counts as an attempt.
    fn not_processed(&mut self, call: u32, now: Now, roll: u64, plan: &mut Plan) {
        let free =
            |call: &Call| call.unprocessed < MOST_UNPROCESSED || Mutant::UnprocessedForEver.on();
        let followers = self.followers.get(&call).into_iter().flatten();
        if !followers.chain([&call]).any(|&sharer| free(&self.calls[sharer])) {
            let failure = Failure::transient("not_processed");
            return self.fail(call, failure, None, now, roll, plan);
        }
        self.shared_by(call, |call| if free(call) { call.unprocessed += 1 } else { call.tried() });
        self.send_again(call, Core::is_spent, "not_processed", now, plan);
    }

    /// Returns `true` if a call has had all its attempts (R1).
    fn is_spent(&self, call: u32) -> bool {
        let Call { job, attempts, .. } = self.calls[call];
        attempts >= self.jobs[job].retry().attempts.get()
    }

    /// Settles each of these calls that is still open. Settling one may finish its job, and with it
    /// others of them; their numbers may then belong to new calls, so each is known by its job as
    /// well.
    fn settle_each(
        &mut self,
        calls: Vec<(u32, JobId)>,
        outcome: &Outcome,
        now: Now,
        plan: &mut Plan,
    ) {
        for (call, job) in calls {
            if self.is_open(call, job) {
                self.settle(call, outcome.clone(), now, plan);
            }
        }
    }

    /// Handles a failed attempt: of the calls that shared it, those with attempts left wait for one
    /// retry, and the others have failed (R1).
    ///
    /// One call leads those that go on, and its backoff is the one that counts. So an attempt that
    /// many shared is repeated once and not once per job.
    fn fail(
        &mut self,
        call: u32,
        failure: Failure,
        retry_after: Option<Span>,
        now: Now,
        roll: u64,
        plan: &mut Plan,
    ) {
        if !failure.retryable && !Mutant::RetriesEverything.on() {
            return self.settle_all(call, &Outcome::Failed(failure), now, plan);
        }
        self.shared_by(call, Call::tried);
        let spent = |core: &Core, other: u32| {
            core.is_spent(if Mutant::FailsWithLeader.on() { call } else { other })
        };
        let (through, leads) = self.part(call, spent);
        if let Some(leads) = leads {
            let retry = self.jobs[self.calls[leads].job].retry();
            let wait = backoff(&retry, self.calls[leads].attempts, roll);
            // A date that is hardly later than now names no pace: without the backoff, an upstream
            // that fails with `Retry-After: 0` would get all attempts of the call at once.
            let wait = match retry_after.filter(|after| *after > NO_GAP) {
                Some(after) => after.min(crate::time::LONGEST_SPAN),
                None => wait,
            };
            self.back_off(leads, now.time + wait);
            self.write_shared(leads, plan);
        }
        let failure =
            if Mutant::FailureRenamed.on() { Failure::transient("failed") } else { failure };
        self.settle_each(through, &Outcome::Failed(failure), now, plan);
    }

    /// Returns calls to their places at the cost of no attempt; those that were sent too often have
    /// failed (L6).
    ///
    /// The place is the old one: a throttled call has waited its turn, and behind the queue it
    /// would wait for it again each time that its upstream is busy.
    fn send_again(
        &mut self,
        call: u32,
        too_often: impl Fn(&Core, u32) -> bool,
        class: &str,
        now: Now,
        plan: &mut Plan,
    ) {
        let (through, leads) = self.part(call, too_often);
        if let Some(leads) = leads {
            if leads == call {
                self.return_to_queue(call);
            } else {
                self.step(leads, Step::Queue);
                self.line_up(leads);
            }
            self.write_shared(leads, plan);
            let leads = self.most_urgent(leads);
            if !self.fail_if_impossible(leads, now, plan) {
                self.skip_if_hopeless(leads, now, plan);
            }
        }
        self.settle_each(through, &Outcome::Failed(Failure::transient(class)), now, plan);
    }

    /// Puts a call whose backoff is over into its lane's queue again.
    pub(crate) fn retry(&mut self, call: u32, now: Now, plan: &mut Plan) {
        let followers = self.followers.get(&call).cloned().unwrap_or_default();
        self.stretch(&followers);
        self.enter_queue(call, now, plan);
        let leads = self.most_urgent(call);
        self.judge_waiting(leads, now, plan);
    }

    /// Settles a call and all that shared its attempt, which counts for each of them.
    fn settle_all(&mut self, call: u32, outcome: &Outcome, now: Now, plan: &mut Plan) {
        self.shared_by(call, Call::tried);
        let mut act = |core: &mut Core, call: u32, plan: &mut Plan| {
            core.settle(call, outcome.clone(), now, plan);
        };
        self.share(call, &mut act, plan);
    }

    /// Returns a call to its place. Its attempt is over and no longer its own.
    fn return_to_queue(&mut self, call: u32) {
        self.step(call, Step::Return);
        self.calls[call].attempt = AttemptId(0);
        self.line_up(call);
    }

    /// Makes a call wait for its next attempt outside the queue (R1). It holds no slot there, and
    /// takes no room: a lane that fails must not refuse new work because of its own retries.
    pub(crate) fn back_off(&mut self, call: u32, until: Time) {
        self.step(call, Step::BackOff);
        self.calls[call].attempt = AttemptId(0);
        self.calls[call].retry_at = until;
        self.moments.insert((until, Moment::Retry(call)));
        let job = self.calls[call].job;
        if Mutant::KeyReleasedOnRetry.on()
            && let Some(key) = self.jobs[job].key.take()
        {
            self.keys.remove(0, &key, job);
        }
    }

    /// Settles a call as moved and adds one on the other lane to the same stage (J7).
    fn move_call(
        &mut self,
        call: u32,
        to: &Arc<str>,
        payload: Option<Blob>,
        now: Now,
        plan: &mut Plan,
    ) {
        let (job, stage, hops) =
            (self.calls[call].job, self.calls[call].stage, self.calls[call].hops + 1);
        let full = self.jobs[job].calls.len() >= usize::from(u16::MAX);
        let lane = if hops > MOST_HOPS || full {
            Err(Failure::permanent("moved").because("moved too often"))
        } else {
            let lane = self.lane_for(to, now.time, plan);
            lane.map_err(|error| Failure::permanent("moved").because(&error.to_string()))
        };
        let lane = match lane {
            Ok(lane) => lane,
            Err(failure) => return self.settle(call, Outcome::Failed(failure), now, plan),
        };
        self.lanes[lane].users += 1;
        let index = self.jobs[job].calls.len() as u16;
        let mut added = Call::new(job, lane, index, stage);
        added.hops = hops;
        let number = self.calls.insert(added);
        let inherited = || self.added.get(&call).and_then(|added| added.payload.clone());
        let payload = payload.filter(|_| !Mutant::MovedPayloadLost.on());
        let payload = payload.map_or_else(inherited, |payload| Some(payload.to_vec()));
        self.added.insert(number, AddedCall { stage, lane: to.clone(), hops, payload });
        let job_state = &mut self.jobs[job];
        job_state.calls.push(number);
        job_state.left += 1;
        job_state.stage_left += 1;
        self.unsettled += 1;
        let id = job_state.id;
        self.settle(call, Outcome::Moved { to: to.clone() }, now, plan);
        if self.jobs.get(job).is_some_and(|job| job.id == id) {
            self.begin_call(number, now, plan);
        }
    }

    /// Gives a call its one outcome (J1), and draws the consequences for its job.
    ///
    /// Exactly one of four things follows: the job is being closed and its closer reports it, the
    /// job has its first conclusive answer, the stage is over, or the outcome alone becomes
    /// durable. Each of the first three writes a record that contains this outcome, so the call's
    /// own record is left out.
    pub(crate) fn settle(&mut self, number: u32, outcome: Outcome, now: Now, plan: &mut Plan) {
        let job = self.calls[number].job;
        let conclusive = outcome.is_conclusive();
        self.settle_quietly(number, outcome, now, plan);
        let wants_first = self.jobs[job].until == Until::Conclusive && !Mutant::EarlyExitLate.on();
        if self.jobs[job].closing {
            // `settle_rest` settles all calls of the job, and its caller reports it.
        } else if conclusive && wants_first {
            self.withdraw(job, Skip::EarlyExit, now, plan);
            self.finish(job, now, plan);
        } else if self.jobs[job].stage_left == 0 {
            self.stage_over(job, Some(number), now, plan);
        } else {
            self.write_call(number, plan);
        }
    }

    /// Gives a call its outcome without consequences for its job. The calls that shared its request
    /// go on first (`hand_over`): the state that they take over is gone once the call is settled.
    pub(crate) fn settle_quietly(
        &mut self,
        number: u32,
        outcome: Outcome,
        now: Now,
        plan: &mut Plan,
    ) {
        self.leave_waiting(number, now);
        self.hand_over(number, now, plan);
        let Call { job, lane, .. } = self.calls[number];
        self.step(number, Step::Settle);
        self.calls[number].outcome = Some(Box::new(outcome));
        if self.calls[number].rss {
            self.lanes[lane].rss.retain(|(_, other)| *other != number);
        }
        self.unsettled -= 1;
        let same_stage = self.calls[number].stage == self.jobs[job].stage;
        let job = &mut self.jobs[job];
        job.left -= 1;
        job.stage_left -= u16::from(same_stage && job.stage_left > 0);
        plan.events.push(Event::Settled(self.call_id(number), self.call_report(number)));
    }

    /// Takes a call out of every index of its state. A running call loses its attempt, which goes
    /// on without it: its slot and its charge are the lane's business until it ends (L5).
    fn leave_waiting(&mut self, number: u32, now: Now) {
        let Call { state, job, attempt, retry_at, place, .. } = self.calls[number];
        match state {
            State::Queued => {
                self.unqueue(number);
                self.calls[number].waited = now.time.since(place.joined_at);
            }
            State::Backoff => {
                self.moments.remove(&(retry_at, Moment::Retry(number)));
            }
            State::Joined => {
                self.count_on_the_wire(number, self.on_the_wire(number), now);
                self.unfollow(number);
            }
            State::Parked => self.parked -= 1,
            State::Running => {
                if let Some(known) = self.attempts.get_mut(&attempt) {
                    known.call = None;
                    let started_at = known.on_the_wire();
                    self.count_on_the_wire(number, started_at, now);
                }
            }
            State::Staged | State::Asking | State::Due | State::Settled => {}
        }
        let within = self.jobs[job].start_within();
        if within != ANY_WAIT {
            self.moments.remove(&(place.joined_at + within, Moment::StartWithin(number)));
        }
    }

    /// Counts the request of a call that settles while its attempt, or the one that it shares, is
    /// on the wire: it was made if its start is known (J1). A report must not say that nothing was
    /// asked where the upstream has counted a request.
    pub(crate) fn count_on_the_wire(&mut self, number: u32, started_at: Option<Time>, now: Now) {
        if started_at.is_some() {
            self.calls[number].was_out(started_at, now.time);
            self.calls[number].tried();
        }
    }

    /// The start of the attempt that a call makes or shares, if that is known and the attempt is
    /// not over.
    pub(crate) fn on_the_wire(&self, number: u32) -> Option<Time> {
        let Call { state, attempt, leader, .. } = self.calls[number];
        let attempt = match state {
            State::Running => attempt,
            State::Joined => self.calls.get(leader)?.attempt,
            _ => return None,
        };
        self.attempts.get(&attempt)?.on_the_wire()
    }
}

/// Holds a worker's value or payload to the same bound as a caller's: both are kept in the store.
fn bounded(mut result: AttemptResult, max: usize) -> AttemptResult {
    let size = match &result.verdict {
        Verdict::Done { value, .. } => value.len(),
        Verdict::Moved { payload: Some(payload), .. } => payload.len(),
        _ => 0,
    };
    if size > max {
        let message = format!("{size} bytes are too many: at most {max}");
        let failure = Failure::permanent("too_large").because(&message);
        let about = About::Call;
        result.verdict = Verdict::Failed { failure, retry_after: None, about };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_over_the_bound_is_a_failure_that_says_so() {
        let done = |size: usize| AttemptResult {
            verdict: Verdict::Done { conclusive: true, value: vec![b'1'; size].into() },
            announced: None,
        };
        assert!(matches!(bounded(done(10), 10).verdict, Verdict::Done { .. }));
        let Verdict::Failed { failure, .. } = bounded(done(11), 10).verdict else {
            panic!("it is too large");
        };
        assert_eq!(failure.message.as_deref(), Some("11 bytes are too many: at most 10"));
    }
}
