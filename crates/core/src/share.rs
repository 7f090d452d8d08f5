//! Calls that share one request: which of them leads, which goes on when one leaves, and whose
//! budget counts (C2, R1, W1).
//!
//! The leader waits in the queue, or is on the wire, for all of them; the others are `Joined` and
//! follow it. Each keeps its own place, budgets and attempts, so that sharing
//! shortens none of them.

use std::collections::BTreeSet;

use crate::call::{ANY_WAIT, Call, LeastBudget, NO_CALL, State, Step};
use crate::core::{Core, Moment};
use crate::job::{AttemptId, JobId};
use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::record::Write;
use crate::time::{Now, Span};

/// The smallest budget that there is.
pub(crate) const NO_PATIENCE: LeastBudget = LeastBudget { any: Span::ZERO, named: Span::ZERO };

impl Core {
    pub(crate) fn find_same(&self, lane: u32, key: &[u8]) -> Option<u32> {
        self.same_calls.find(lane, key, |other| {
            let other = &self.calls[other];
            other.lane == lane
                && self.jobs[other.job].cache_key().is_some_and(|other| **other == *key)
        })
    }

    /// Takes a call out of the table of calls by lane and cache key.
    pub(crate) fn forget_same(&mut self, call: u32) {
        let (job, lane) = (self.calls[call].job, self.calls[call].lane);
        if let Some(key) = self.jobs[job].cache_key().cloned()
            && self.find_same(lane, &key) == Some(call)
        {
            self.same_calls.remove(lane, &key, call);
        }
    }

    /// Returns `true` if a waiting call would be made later than another only because of its
    /// priority.
    pub(crate) fn goes_later(&self, waiting: u32, other: u32) -> bool {
        let priority = |call: u32| self.jobs[self.calls[call].job].priority;
        self.calls[waiting].state == State::Queued && priority(other) < priority(waiting)
    }

    pub(crate) fn follow(&mut self, call: u32, leader: u32) {
        self.step(call, Step::Follow);
        self.calls[call].leader = leader;
        let ignored = Mutant::FollowersWait.on();
        self.calls[call].max_wait = if ignored { ANY_WAIT } else { self.max_wait(call) };
        self.followers.entry(leader).or_default().push(call);
        let before = self.held_least(leader);
        self.set_least(leader, before, before.of(self.own_least(call)));
        self.watch_start(call);
    }

    /// Makes a more urgent call lead. If it goes, the others still have their places.
    pub(crate) fn take_the_lead(&mut self, call: u32, leader: u32, key: &[u8]) {
        let lane = self.calls[call].lane;
        self.unqueue(leader);
        self.same_calls.remove(lane, key, leader);
        self.same_calls.insert(lane, key, call);
        let mut followers = self.followers.remove(&leader).unwrap_or_default();
        self.step(leader, Step::Follow);
        followers.insert(0, leader);
        for &follower in &followers {
            self.calls[follower].leader = call;
        }
        self.followers.insert(call, followers);
    }

    /// Makes the most urgent call lead: while the leader was out, more urgent calls may have come
    /// to share it. Returns the leader.
    pub(crate) fn most_urgent(&mut self, leader: u32) -> u32 {
        let followers = self.followers.get(&leader).into_iter().flatten().copied();
        let urgent = followers.min_by_key(|&call| self.jobs[self.calls[call].job].priority);
        let Some(urgent) = urgent.filter(|&call| self.goes_later(leader, call)) else {
            return leader;
        };
        self.overtake(urgent);
        urgent
    }

    /// Makes a call lead that follows a waiting one of lower priority (C2).
    pub(crate) fn overtake(&mut self, call: u32) {
        let Call { state, leader, job, .. } = self.calls[call];
        if state != State::Joined || !self.goes_later(leader, call) {
            return;
        }
        let key = self.jobs[job].cache_key().cloned().expect("only cached calls are shared");
        self.unfollow(call);
        self.take_the_lead(call, leader, &key);
        self.step(call, Step::Queue);
        self.line_up(call);
    }

    /// Applies `act` to a call and to all calls that follow it.
    pub(crate) fn share(
        &mut self,
        leader: u32,
        act: &mut dyn FnMut(&mut Core, u32, &mut Plan),
        plan: &mut Plan,
    ) {
        let followers = self.followers.remove(&leader).unwrap_or_default();
        let jobs: Vec<JobId> = followers.iter().map(|&call| self.call_id(call).job).collect();
        act(self, leader, plan);
        for (call, job) in followers.into_iter().zip(jobs) {
            // Settling one job may have finished another.
            let alive = self.calls.get(call).is_some_and(|c| c.state == State::Joined)
                && self.call_id(call).job == job;
            if alive {
                act(self, call, plan);
            }
        }
    }

    /// Applies `act` to every call that shared an attempt, which counts for each of them (R1, C2).
    pub(crate) fn shared_by(&mut self, leader: u32, act: impl Fn(&mut Call)) {
        act(&mut self.calls[leader]);
        if Mutant::SharedUncounted.on() {
            return;
        }
        for &follower in self.followers.get(&leader).into_iter().flatten() {
            act(&mut self.calls[follower]);
        }
    }

    /// Writes what changed for a call and its followers.
    pub(crate) fn write_shared(&self, leader: u32, plan: &mut Plan) {
        self.write_call(leader, plan);
        for &follower in self.followers.get(&leader).into_iter().flatten() {
            self.write_call(follower, plan);
        }
    }

    /// Divides a call and its followers into those that are through and those that go on. Returns
    /// those that are through, and the leader of the others.
    pub(crate) fn part(
        &mut self,
        leader: u32,
        through: impl Fn(&Core, u32) -> bool,
    ) -> (Vec<(u32, JobId)>, Option<u32>) {
        let sharers = self.followers.remove(&leader).unwrap_or_default();
        let sharers = std::iter::once(leader).chain(sharers);
        let (through, mut rest): (Vec<u32>, Vec<u32>) =
            sharers.partition(|&call| through(self, call));
        let leads = if rest.is_empty() { None } else { Some(rest.remove(0)) };
        if let Some(heir) = leads.filter(|&heir| heir != leader) {
            self.forget_same(leader);
            self.lead(heir, &rest);
        }
        if let Some(leads) = leads.filter(|_| !rest.is_empty()) {
            self.followers.insert(leads, rest);
        }
        // Otherwise each of them would be searched for among the calls that go on.
        for &call in through.iter().filter(|&&call| call != leader) {
            self.calls[call].leader = NO_CALL;
        }
        (through.into_iter().map(|call| (call, self.call_id(call).job)).collect(), leads)
    }

    /// Makes a call the leader of all calls with its cache key, these among them.
    fn lead(&mut self, heir: u32, followers: &[u32]) {
        let Call { lane, job, .. } = self.calls[heir];
        let key = self.jobs[job].cache_key().cloned();
        self.same_calls.insert(lane, &key.expect("only cached calls are shared"), heir);
        for &other in followers {
            self.calls[other].leader = heir;
        }
    }

    /// Hands the place, the attempt or the retry of a call that goes to the first call that shares
    /// it (C2).
    pub(crate) fn hand_over(&mut self, number: u32, now: Now, plan: &mut Plan) {
        self.forget_same(number);
        let Some(heirs) = self.followers.remove(&number) else { return };
        let Call { state, attempt, retry_at, .. } = self.calls[number];
        match state {
            State::Running => {
                let heir = self.pass_on(heirs).expect("calls without followers have no entry");
                self.take_over(heir, number, attempt, plan);
            }
            // The heir shared the request that failed, so it takes over the retry with its moment.
            State::Backoff if self.calls[heirs[0]].requests() > 0 => {
                let heir = self.pass_on(heirs).expect("calls without followers have no entry");
                self.back_off(heir, retry_at);
                self.write_shared(heir, plan);
            }
            _ => {
                // They are settled one after the other, and not each within the settling of the one
                // before: a thousand sharers would need a stack a thousand calls deep.
                let (wait, end): (Vec<u32>, Vec<u32>) =
                    heirs.into_iter().partition(|&heir| self.may_wait(heir, now));
                let end: Vec<(u32, JobId)> =
                    end.into_iter().map(|call| (call, self.call_id(call).job)).collect();
                self.stretch(&wait);
                if let Some(heir) = self.pass_on(wait) {
                    self.enter_queue(heir, now, plan);
                    self.most_urgent(heir);
                    let lane = self.calls[heir].lane;
                    self.touch_lane(lane);
                    self.lanes[lane].group.into_iter().for_each(|group| self.touch_group(group));
                }
                for (call, job) in end {
                    if self.is_open(call, job) && !self.fail_if_impossible(call, now, plan) {
                        self.skip_if_paused(call, now, plan);
                    }
                }
            }
        }
    }

    /// Makes the first of these calls lead the others, and returns it.
    fn pass_on(&mut self, mut heirs: Vec<u32>) -> Option<u32> {
        let heir = if heirs.is_empty() { None } else { Some(heirs.remove(0)) }?;
        self.lead(heir, &heirs);
        if !heirs.is_empty() {
            self.followers.insert(heir, heirs);
        }
        Some(heir)
    }

    /// Gives the attempt of a call that goes to its heir.
    pub(crate) fn take_over(&mut self, heir: u32, from: u32, attempt: AttemptId, plan: &mut Plan) {
        let known = self.attempts.get_mut(&attempt).expect("a running call has an attempt");
        known.call = Some(heir);
        let lane = self.lanes[known.lane].id;
        self.step(heir, Step::TakeOver);
        self.calls[heir].attempt = attempt;
        // After a crash the kind that made the attempt decides about it (B2): a call of another
        // kind does not take it over durably.
        let kind = |call: u32| self.jobs[self.calls[call].job].kind;
        if kind(heir) == kind(from) {
            plan.writes.push(Write::HandOver(lane, attempt, self.call_id(heir)));
        }
    }

    /// Takes a call away from the one that it follows.
    pub(crate) fn unfollow(&mut self, call: u32) {
        let leader = self.calls[call].leader;
        let Some(others) = self.followers.get_mut(&leader) else { return };
        others.retain(|&other| other != call);
        if others.is_empty() {
            self.followers.remove(&leader);
        }
        let (own, least) = (self.own_least(call), self.held_least(leader));
        let held = |own: Span, least: Span| own != ANY_WAIT && own == least;
        if held(own.any, least.any) || held(own.named, least.named) {
            self.share_budgets(leader, least);
        }
    }

    /// Takes calls whose time is over away from the requests that they share. Those that leave in
    /// the same turn cost one look at all sharers together, where each by itself would cost as
    /// much.
    pub(crate) fn leave_together(&mut self, now: Now) {
        let due = self.moments.range(..=(now.time, Moment::LAST)).map(|(_, moment)| *moment);
        let mut gone = BTreeSet::new();
        for moment in due {
            let calls = match moment {
                Moment::Deadline(job) if self.jobs[job].callers.last() <= now.time => {
                    &*self.jobs[job].calls
                }
                Moment::StartWithin(ref call) if !self.runs(*call) => std::slice::from_ref(call),
                _ => &[],
            };
            // A call that was sent in its time is not late, whatever else has passed.
            let leaves = |&&call: &&u32| {
                let Call { state, job, .. } = self.calls[call];
                let late = matches!(moment, Moment::StartWithin(_));
                let may_be_late = self.jobs[job].start_within() != ANY_WAIT;
                let goes = if late { self.calls[call].requests() == 0 } else { !may_be_late };
                state == State::Joined && goes
            };
            gone.extend(calls.iter().filter(leaves));
        }
        if gone.len() < 2 {
            return;
        }
        let leaders: BTreeSet<u32> = gone.iter().map(|&call| self.calls[call].leader).collect();
        for &call in &gone {
            self.count_on_the_wire(call, self.on_the_wire(call), now);
        }
        for leader in leaders {
            self.unfollow_all(leader, |_, call| gone.contains(&call));
        }
    }

    /// Takes some of its followers away from a call, at the cost of one look at all of them.
    pub(crate) fn unfollow_all(&mut self, leader: u32, gone: impl Fn(&Core, u32) -> bool) {
        let Some(followers) = self.followers.remove(&leader) else { return };
        let before = self.held_least(leader);
        let (gone, stay): (Vec<u32>, Vec<u32>) =
            followers.into_iter().partition(|&follower| gone(self, follower));
        for follower in gone {
            self.calls[follower].leader = NO_CALL;
        }
        if !stay.is_empty() {
            self.followers.insert(leader, stay);
        }
        self.share_budgets(leader, before);
    }

    /// Returns `true` if this number still belongs to a call of this job, and the call is not
    /// settled: settling one job may have finished another.
    pub(crate) fn is_open(&self, call: u32, job: JobId) -> bool {
        self.calls.get(call).is_some_and(|it| !it.is_settled()) && self.call_id(call).job == job
    }

    /// The budget of the call itself.
    pub(crate) fn own_least(&self, call: u32) -> LeastBudget {
        let call = &self.calls[call];
        let named = self.jobs[call.job].max_wait.unwrap_or(ANY_WAIT);
        LeastBudget { any: call.max_wait, named }
    }

    /// The smallest budget among a call and those that follow it; none is below `floor`.
    pub(crate) fn shared_least(&self, call: u32, floor: LeastBudget) -> LeastBudget {
        let mut least = self.own_least(call);
        for &follower in self.followers.get(&call).into_iter().flatten() {
            if least == floor {
                break;
            }
            least = least.of(self.own_least(follower));
        }
        least
    }

    /// The smallest budget among a queued call and its followers, and the smallest that a caller
    /// named: the budgets under which its lane's indexes hold it.
    pub(crate) fn held_least(&self, call: u32) -> LeastBudget {
        // Nearly always empty.
        let shared =
            if self.shared_budgets.is_empty() { None } else { self.shared_budgets.get(&call) };
        shared.copied().unwrap_or_else(|| self.own_least(call))
    }

    /// Updates the indexes after budgets of a call or its followers have grown, or some follow no
    /// longer; `before` is the budget that they hold. That must be one that a sharer really has:
    /// otherwise the search for calls that give up finds the same call again and never ends.
    pub(crate) fn share_budgets(&mut self, leader: u32, before: LeastBudget) {
        let least = self.shared_least(leader, before);
        self.set_least(leader, before, least);
    }

    /// Holds a queued call under its new budget. Calls in other states are in no index.
    fn set_least(&mut self, call: u32, before: LeastBudget, least: LeastBudget) {
        if self.calls[call].state != State::Queued {
            return;
        }
        self.remember_least(call, least);
        if before != least {
            self.hold_budget(call, before, least);
            self.touch_lane(self.calls[call].lane);
        }
    }

    pub(crate) fn remember_least(&mut self, call: u32, least: LeastBudget) {
        if least == self.own_least(call) {
            self.shared_budgets.remove(&call);
        } else {
            self.shared_budgets.insert(call, least);
        }
    }

    pub(crate) fn hold_budget(&mut self, call: u32, before: LeastBudget, after: LeastBudget) {
        let (lane, job) = (self.calls[call].lane, &self.jobs[self.calls[call].job]);
        let (priority, cost) = (job.priority, job.cost.get());
        let lane = &mut self.lanes[lane];
        lane.budgets.remove(priority, cost, before, call);
        lane.budgets.insert(priority, cost, after, call);
        if let Some(group) = lane.group.map(|group| &mut self.groups[group]) {
            if before.any != ANY_WAIT {
                group.waits.remove(cost, before.any, call);
            }
            if after.any != ANY_WAIT {
                group.waits.insert(cost, after.any, call);
            }
        }
    }

    /// Lengthens default budgets: the gap of the lane may be longer than when these calls came, and
    /// no default undercuts it (W1).
    pub(crate) fn stretch(&mut self, calls: &[u32]) {
        for &call in calls {
            let budget = self.max_wait(call);
            let max_wait = &mut self.calls[call].max_wait;
            *max_wait = budget.max(*max_wait);
        }
    }
}
