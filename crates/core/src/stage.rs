//! Queue: the calls of a stage ask the cache, join their lanes' queues, or share a request
//! (J3, J6, C1, C2, D3, W1).

use crate::call::{ANY_WAIT, Call, LeastBudget, State, Step};
use crate::core::{Core, Moment};
use crate::job::JobId;
use crate::lane::{Cause, Demand, Lane, Opening};
use crate::mutant::Mutant;
use crate::outcome::{Outcome, Skip};
use crate::plan::{CallLookup, Plan};
use crate::priority::Priority;
use crate::queue::Waiting;
use crate::record::{CachedAnswer, CallRecord, Lookup, SettledCall, Write};
use crate::settings::MOST_LATE;
use crate::share::NO_PATIENCE;
use crate::time::{Now, Span, Time};

/// The budgets of callers who named a priority but no `max_wait` (W1).
const RSS_MAX_WAIT: Span = Span::secs(15);
const BACKGROUND_MAX_WAIT: Span = Span::secs(60);

impl Core {
    /// Starts the job's current stage. Each of its calls is settled, asks the cache, or joins a
    /// queue in this turn.
    pub(crate) fn begin_stage(&mut self, job: u32, now: Now, plan: &mut Plan) {
        let (id, stage) = (self.jobs[job].id, self.jobs[job].stage);
        let begins = |core: &Core, call: u32| {
            let begins = core.calls[call].stage == stage || Mutant::StagesAtOnce.on();
            begins && !core.calls[call].is_settled()
        };
        let calls = self.jobs[job].calls.iter();
        let count = calls.filter(|&&call| begins(self, call)).count();
        self.jobs[job].stage_left = count as u16;
        if count == 0 {
            self.stage_over(job, None, now, plan);
            return;
        }
        // Calls that a move adds begin by themselves.
        for at in 0..self.jobs[job].calls.len() {
            let call = self.jobs[job].calls[at];
            if begins(self, call) {
                self.begin_call(call, now, plan);
            }
            // That may have settled the whole job, or led to its next stage.
            if self.jobs.get(job).is_none_or(|job| job.id != id || job.stage != stage) {
                return;
            }
        }
    }

    pub(crate) fn begin_call(&mut self, call: u32, now: Now, plan: &mut Plan) {
        let job = self.calls[call].job;
        if !self.jobs[job].applies(self.calls[call].index) {
            self.settle(call, Outcome::Skipped(Skip::NotApplicable), now, plan);
        } else if let Some(of) = self.same_rss(call) {
            self.settle(call, Outcome::Duplicate { of }, now, plan);
        } else if let Some(key) = self.jobs[job].cache_key().cloned() {
            self.hold_rss(call);
            self.step(call, Step::Ask);
            let lane = self.lanes[self.calls[call].lane].name.clone();
            let job = self.jobs[job].id;
            plan.lookups.push(CallLookup { job, call, lookup: Lookup { lane, key } });
        } else {
            self.hold_rss(call);
            self.join_queue(call, now, plan);
        }
    }

    /// The unfinished rss job that already visits this lane with this kind (D3).
    fn same_rss(&self, call: u32) -> Option<crate::job::JobId> {
        let call = &self.calls[call];
        let job = &self.jobs[call.job];
        if job.priority != Priority::Rss || Mutant::RssTwice.on() {
            return None;
        }
        let mut rss = self.lanes[call.lane].rss.iter();
        let other = rss.find(|(kind, _)| *kind == job.kind).map(|(_, other)| *other)?;
        Some(self.jobs[self.calls[other].job].id)
    }

    pub(crate) fn hold_rss(&mut self, call: u32) {
        let job = &self.jobs[self.calls[call].job];
        if job.priority == Priority::Rss {
            self.lanes[self.calls[call].lane].rss.push((job.kind, call));
            self.calls[call].rss = true;
        }
    }

    /// Takes in the cache's answers to a plan's lookups: hits are outcomes, misses become calls.
    pub fn looked_up(
        &mut self,
        lookups: Vec<CallLookup>,
        answers: Vec<Option<CachedAnswer>>,
        now: Now,
        plan: &mut Plan,
    ) {
        for (CallLookup { job, call, lookup }, answer) in lookups.into_iter().zip(answers) {
            // Its job may have ended within the turn, and its number may be another's by now.
            let still_asks = self.calls.get(call).is_some_and(|found| {
                found.state == State::Asking && self.jobs[found.job].id == job
            });
            match answer {
                _ if !still_asks => {}
                Some(answer) if !Mutant::CacheIgnored.on() => {
                    self.settle_cached(call, &answer, now, plan);
                }
                _ => self.join_same(call, &lookup, now, plan),
            }
        }
    }

    pub(crate) fn settle_cached(
        &mut self,
        call: u32,
        answer: &CachedAnswer,
        now: Now,
        plan: &mut Plan,
    ) {
        self.calls[call].cached = true;
        let outcome = match &answer.value {
            Some(found) => {
                Outcome::Done { conclusive: found.conclusive, value: found.value.clone() }
            }
            None => Outcome::Empty,
        };
        self.settle(call, outcome, now, plan);
    }

    /// Joins the lane's queue, or shares the request of an unfinished call with the same lane and
    /// cache key (C2).
    fn join_same(&mut self, call: u32, lookup: &Lookup, now: Now, plan: &mut Plan) {
        let lane = self.calls[call].lane;
        let leader = self.find_same(lane, &lookup.key);
        if let Some(leader) = leader.filter(|&leader| self.goes_later(leader, call)) {
            self.take_the_lead(call, leader, &lookup.key);
            self.join_queue(call, now, plan);
        } else if let Some(leader) = leader {
            self.take_place(call, now);
            self.follow(call, leader);
            // The job's record does not tell of a call that a move added.
            if self.begins_late(call) {
                self.write_call(call, plan);
            }
            if self.calls[leader].state != State::Running && !self.skip_if_paused(call, now, plan) {
                self.skip_if_hopeless(call, now, plan);
            }
        } else {
            self.same_calls.insert(lane, &lookup.key, call);
            self.join_queue(call, now, plan);
        }
    }

    /// Joins the lane's queue, or is skipped at once if the lane opens too late (W1).
    pub(crate) fn join_queue(&mut self, call: u32, now: Now, plan: &mut Plan) {
        self.enter_queue(call, now, plan);
        self.judge_waiting(call, now, plan);
    }

    /// Settles a call that may not wait for its lane, or would not wait until it opens.
    pub(crate) fn judge_waiting(&mut self, call: u32, now: Now, plan: &mut Plan) {
        // Limits may have changed since it was submitted, and a move may lead to any lane.
        if !self.fail_if_impossible(call, now, plan) && !self.skip_if_paused(call, now, plan) {
            self.skip_if_hopeless(call, now, plan);
        }
    }

    /// Joins the lane's queue without a judgement, with the budget that the lane's present gap
    /// gives it.
    pub(crate) fn enter_queue(&mut self, call: u32, now: Now, plan: &mut Plan) {
        self.take_place(call, now);
        self.calls[call].max_wait = self.max_wait(call);
        if matches!(self.calls[call].state, State::Staged | State::Asking | State::Due) {
            self.watch_start(call);
        }
        self.step(call, Step::Queue);
        self.line_up(call);
        if self.begins_late(call) {
            self.write_call(call, plan);
        }
    }

    /// Gives a call its place when it first waits. It keeps that while it follows another call,
    /// through retries and through restarts.
    fn take_place(&mut self, call: u32, now: Now) {
        if self.calls[call].place.joined_at == Time::ZERO {
            self.calls[call].place.joined_at = self.may_start_at(self.calls[call].job, now);
        }
    }

    /// Returns `true` if the call needs a record of its own to tell when it joined the queue.
    pub(crate) fn begins_late(&self, call: u32) -> bool {
        self.jobs[self.calls[call].job].stage > 0 || self.calls[call].hops > 0
    }

    /// Comes back to the queue after a restart, at its old place; the lane is looked at later.
    pub(crate) fn rejoin(&mut self, call: u32) {
        self.calls[call].max_wait = self.max_wait(call);
        if self.calls[call].requests() == 0 {
            self.watch_start(call);
        }
        self.step(call, Step::Queue);
        self.line_up(call);
    }

    /// The skip of a call whose caller named a budget, if its lane was paused before the call
    /// joined it, or has been paused for that budget since.
    fn paused_out(&self, call: u32, now: Now) -> Option<Skip> {
        let found = &self.calls[call];
        let (job, lane) = (&self.jobs[found.job], &self.lanes[found.lane]);
        let max_wait = job.max_wait.filter(|_| lane.paused)?;
        let joined_paused = found.place.joined_at >= lane.paused_at;
        let waits = !joined_paused
            && !Mutant::PauseAtOnce.on()
            && now.time.since(lane.paused_at) < max_wait;
        let skipped = !waits && !Mutant::MaxWaitIgnored.on();
        skipped.then_some(Skip::Paused { max_wait, priority: job.priority })
    }

    /// Skips such a call. Returns `true` if it did.
    pub(crate) fn skip_if_paused(&mut self, call: u32, now: Now, plan: &mut Plan) -> bool {
        let skip = self.paused_out(call, now);
        if let Some(skip) = skip {
            self.settle(call, Outcome::Skipped(skip), now, plan);
        }
        skip.is_some()
    }

    /// Returns `true` if a call may join its lane's queue at all.
    pub(crate) fn may_wait(&self, call: u32, now: Now) -> bool {
        self.impossible(call).is_none() && self.paused_out(call, now).is_none()
    }

    /// Skips, of a queued call and its followers, those that would not wait for `wait`.
    pub(crate) fn skip_impatient(&mut self, call: u32, wait: Span, now: Now, plan: &mut Plan) {
        self.skip_those(
            call,
            |core, call| core.own_least(call).any < wait,
            now,
            plan,
            |core, call| {
                let found = &core.calls[call];
                let (max_wait, priority) = (found.max_wait, core.jobs[found.job].priority);
                let wait = if Mutant::WaitOverstated.on() { wait.times(2) } else { wait };
                Skip::MaxWait { wait, max_wait, priority }
            },
        );
    }

    /// Skips, of a queued call and its followers, those that would not wait for a lane that has
    /// been paused for `since`.
    pub(crate) fn skip_paused(&mut self, call: u32, since: Span, now: Now, plan: &mut Plan) {
        self.skip_those(
            call,
            |core, call| core.own_least(call).named <= since,
            now,
            plan,
            |core, call| {
                let found = &core.calls[call];
                let (max_wait, priority) = (found.max_wait, core.jobs[found.job].priority);
                Skip::Paused { max_wait, priority }
            },
        );
    }

    fn skip_those(
        &mut self,
        leader: u32,
        gives_up: impl Fn(&Core, u32) -> bool,
        now: Now,
        plan: &mut Plan,
        skip: impl Fn(&Core, u32) -> Skip,
    ) {
        let followers = self.followers.get(&leader).into_iter().flatten().copied();
        let sharers = followers.chain([leader]).filter(|&call| gives_up(self, call));
        let sharers: Vec<(u32, JobId)> =
            sharers.map(|call| (call, self.call_id(call).job)).collect();
        if sharers.is_empty() {
            // The lane holds the call under a budget that no sharer has any more. A release build
            // mends that, because the search would find the call again without end.
            debug_assert!(
                false,
                "call {leader} is held with a budget that none of its sharers has"
            );
            self.share_budgets(leader, self.held_least(leader));
        }
        self.unfollow_all(leader, gives_up);
        for (call, job) in sharers {
            if self.is_open(call, job) {
                let skip = skip(self, call);
                self.settle(call, Outcome::Skipped(skip), now, plan);
            }
        }
    }

    /// Skips a waiting call whose lane or group opens later than it would wait, and its followers;
    /// a follower by itself, for the request that it waits for.
    pub(crate) fn skip_if_hopeless(&mut self, call: u32, now: Now, plan: &mut Plan) {
        let Call { state, leader, .. } = self.calls[call];
        let (request, least) = match state {
            State::Joined => (leader, self.own_least(call).any),
            _ => (call, self.held_least(call).any),
        };
        if least == ANY_WAIT || Mutant::MaxWaitIgnored.on() {
            return;
        }
        let job = &self.jobs[self.calls[request].job];
        let (priority, cost) = (job.priority, job.cost.get());
        let lane = &self.lanes[self.calls[call].lane];
        let demand = Demand { priority, rank: priority, cost };
        let opening = lane.opening(demand).latest(self.group_opening(lane, cost));
        let wait = opening.at.since(now.time);
        if wait > least {
            self.skip_impatient(call, wait, now, plan);
        }
    }

    /// The moment at which the lane's group opens. A lane without a group is always open.
    pub(crate) fn group_opening(&self, lane: &Lane, cost: u32) -> Opening {
        lane.group.map_or(Opening { at: Time::ZERO, cause: Cause::Group }, |group| {
            self.groups[group].opening(cost)
        })
    }

    /// How long the call would wait for a closed lane: as its caller named, or a default that never
    /// undercuts the lane's gap (W1). With a default below the gap no call of that priority would
    /// ever start behind another.
    pub(crate) fn max_wait(&self, call: u32) -> Span {
        let job = &self.jobs[self.calls[call].job];
        if Mutant::CostlyWait.on() && job.cost.get() > 1 {
            return ANY_WAIT;
        }
        if let Some(named) = job.max_wait {
            return named;
        }
        let default = match job.priority {
            Priority::Rss => RSS_MAX_WAIT,
            Priority::Background => BACKGROUND_MAX_WAIT,
            Priority::Interactive | Priority::Completion => ANY_WAIT,
        };
        let lane = &self.lanes[self.calls[call].lane];
        if job.named {
            // The gap may run from the latest moment that a reserved attempt could arrive.
            let gap = lane.limits.gap(job.priority).max(lane.limits.spread_gap());
            default.max(gap + self.settings.send_within(MOST_LATE) + lane.slack)
        } else {
            ANY_WAIT
        }
    }

    /// Watches `start_within` again for a call and its followers: their request was not sent after
    /// all, so they may still start too late.
    pub(crate) fn watch_starts(&mut self, leader: u32) {
        let followers = self.followers.get(&leader).cloned().unwrap_or_default();
        for call in followers.into_iter().chain([leader]) {
            if self.calls[call].requests() == 0 {
                self.watch_start(call);
            }
        }
    }

    pub(crate) fn watch_start(&mut self, call: u32) {
        let within = self.jobs[self.calls[call].job].start_within();
        if within != ANY_WAIT {
            let at = self.calls[call].place.joined_at + within;
            self.moments.insert((at, Moment::StartWithin(call)));
        }
    }

    /// Puts a queued call into its lane's indexes.
    pub(crate) fn line_up(&mut self, call: u32) {
        let Call { lane, index, .. } = self.calls[call];
        let job = &self.jobs[self.calls[call].job];
        // Calls may join at the same moment, but their numbers differ: no two have the same place.
        self.calls[call].place.seq = (job.id.0 << 16) | u64::from(index);
        let place = self.calls[call].place;
        let lane_state = &mut self.lanes[lane];
        let waiting = Waiting { place, call, cost: job.cost };
        let first = lane_state.queues.push(job.priority, job.tenant, waiting);
        let mut least = self.own_least(call);
        if self.followers.contains_key(&call) {
            least = self.shared_least(call, NO_PATIENCE);
            self.remember_least(call, least);
        }
        if least != LeastBudget::default() {
            self.hold_budget(call, LeastBudget::default(), least);
        }
        self.waiting += 1;
        // Only a new head changes the standing of the lane, or whose turn it is. A budget matters
        // only while the lane is paused.
        if first || self.lanes[lane].paused {
            self.touch_lane(lane);
        }
    }

    /// Takes a queued call out of its lane's indexes.
    pub(crate) fn unqueue(&mut self, call: u32) {
        let Call { lane, place, .. } = self.calls[call];
        let job = &self.jobs[self.calls[call].job];
        let (tenant, priority) = (job.tenant, job.priority);
        self.lanes[lane].queues.remove(priority, tenant, place);
        self.unwait(call);
        self.touch_lane(lane);
    }

    /// Removes a call from the counts and budgets of waiting calls.
    pub(crate) fn unwait(&mut self, call: u32) {
        let least = self.held_least(call);
        self.shared_budgets.remove(&call);
        if least != LeastBudget::default() {
            self.hold_budget(call, least, LeastBudget::default());
        }
        self.waiting -= 1;
    }

    /// Writes the record of a call of an unfinished job.
    pub(crate) fn write_call(&self, number: u32, plan: &mut Plan) {
        let call = &self.calls[number];
        let settled = call.outcome.as_ref().map(|outcome| SettledCall {
            outcome: (**outcome).clone(),
            waited: call.waited.0,
            ran: call.ran.0,
            cached: call.cached,
        });
        let joined = call.place.joined_at;
        plan.writes.push(Write::Call(CallRecord {
            job: self.jobs[call.job].id,
            index: call.index,
            added: self.added.get(&number).cloned(),
            joined_at: (joined > Time::ZERO).then_some(joined),
            attempts: call.attempts,
            throttles: call.throttles,
            crashes: call.crashes,
            unprocessed: call.unprocessed,
            retry_at: (call.state == State::Backoff).then_some(call.retry_at),
            settled,
        }));
    }
}
