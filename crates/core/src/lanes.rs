//! Lanes by name: configured, made by templates, changed and dropped while running (L10, L11).

use std::sync::Arc;

use crate::call::ANY_WAIT;
use crate::core::Core;
use crate::job::{AttemptId, LaneId, SubmitError};
use crate::lane::Lane;
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::plan::{Event, Plan};
use crate::record::{Membership, Write};
use crate::time::{Now, Span, Time};
use crate::why::Reason;

/// There is no lane of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no lane named `{0}`")]
pub struct UnknownLane(pub Arc<str>);

/// The present state of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Waiting calls.
    pub waiting: usize,
    /// The most calls that may wait on it.
    pub max_waiting: u32,
    /// When its oldest waiting call joined the queue.
    pub oldest_at: Option<Time>,
    /// Attempts on the wire.
    pub in_flight: u32,
    /// When its next call could go, whatever is ahead of it.
    pub open_at: Time,
    /// The reason why it is closed until then; `None` if it is open.
    pub why_closed: Option<Reason>,
    /// Its windows, and the attempts that each of them holds.
    pub used: Vec<(crate::rate::Rate, u64)>,
    /// The end of its cooldown, if it is in one.
    pub cooldown_until: Option<Time>,
    /// Its rung on the ladder of cooldowns; 0 is the ground.
    pub rung: u8,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Whether a template made it. It is dropped when it is as good as new and room is needed.
    pub made: bool,
    /// Its configured limits.
    pub limits: Arc<Limits>,
    /// How much later than its start a call counts; the default where the limits name none.
    pub slack: Span,
}

impl Core {
    /// Sets the limits of a lane, or of a template if the name ends in `*`. Lanes that a template
    /// made follow it. Returns the lanes that are concerned.
    pub(crate) fn configure(&mut self, name: Arc<str>, limits: Limits, now: Time) -> Vec<u32> {
        let limits = Limits { every: limits.every.filter(|every| *every > Span::ZERO), ..limits };
        // Lanes with the same limits share them: ten thousand lanes are smaller that way.
        let shared = self.last_limits.as_ref().filter(|last| ***last == limits).cloned();
        let limits = shared.unwrap_or_else(|| Arc::new(limits));
        self.last_limits = Some(limits.clone());
        let Some(prefix) = name.strip_suffix('*') else {
            return vec![match self.lane_names.get(&name) {
                Some(&lane) => {
                    self.reconfigure(lane, &limits, now);
                    lane
                }
                None => self.add_lane(name, &limits, now),
            }];
        };
        self.templates.retain(|(known, _)| **known != *prefix);
        self.templates.push((prefix.into(), limits.clone()));
        // The longest prefix wins, so the closest template is found first.
        self.templates.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        let made: Vec<(u32, Arc<str>)> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.made)
            .map(|(number, lane)| (number, lane.name.clone()))
            .collect();
        for (lane, name) in &made {
            if let Some(limits) = self.template_for(name) {
                self.reconfigure(*lane, &limits, now);
            }
        }
        made.into_iter().map(|(lane, _)| lane).collect()
    }

    /// Adds a lane while running, or changes its limits. Fails for a lane that the store knows and
    /// that was not configured at the start: its history was not read, so it has to wait for the
    /// next start.
    pub fn set_lane(
        &mut self,
        name: &Arc<str>,
        limits: Limits,
        now: Now,
        plan: &mut Plan,
    ) -> Result<(), UnknownLane> {
        if self.unconfigured.contains_key(name) || self.stand_ins.contains_key(name) {
            return Err(UnknownLane(name.clone()));
        }
        let full = self.lanes.len() >= self.settings.max_lanes.get() as usize;
        if !self.knows_lane(name) && !name.ends_with('*') {
            if full {
                return Err(UnknownLane(name.clone()));
            }
            self.configure(name.clone(), limits, now.time);
            return Ok(());
        }
        self.change_limits(name, limits, now, plan)
    }

    /// Changes a lane's limits while running. A window that stays keeps its history.
    pub fn change_limits(
        &mut self,
        name: &str,
        limits: Limits,
        now: Now,
        plan: &mut Plan,
    ) -> Result<(), UnknownLane> {
        let known = self.lane_names.contains_key(name) || name.ends_with('*');
        if !known && !self.knows_lane(name) {
            return Err(UnknownLane(name.into()));
        }
        for lane in self.configure(name.into(), limits, now.time) {
            // The store must know since when each window binds.
            if self.lanes[lane].stored {
                self.write_lane(lane, plan);
            }
            self.fail_impossible(lane, now, plan);
        }
        Ok(())
    }

    fn reconfigure(&mut self, lane: u32, limits: &Arc<Limits>, now: Time) {
        if self.lanes[lane].limits == *limits {
            return;
        }
        self.leave_indexes(lane);
        let remembered = self.lanes[lane].memory() > Span::ZERO;
        let group = limits.group.as_deref().and_then(|name| self.group_named(name));
        let moved = std::mem::replace(&mut self.lanes[lane].group, group);
        if moved != group {
            self.move_waits(lane, moved, group);
            self.move_attempts(lane, moved, group, now);
        }
        self.lanes[lane].reconfigure(limits.clone(), now);
        self.allow_slack(lane);
        self.stretch_budgets(lane);
        self.bound_lane(lane);
        if !remembered && self.lanes[lane].memory() > Span::ZERO {
            self.charge_promised(lane, now);
        }
        self.touch_lane(lane);
    }

    /// Charges what a lane without limits has reserved, and what may not have arrived yet, to its
    /// new limits (L11). Such a lane kept no history, and the upstream may still count these
    /// attempts.
    fn charge_promised(&mut self, number: u32, now: Time) {
        let ledger = &mut self.lanes[number].ledger;
        let attempts = self.attempts.iter().filter(|(_, known)| known.lane == number && known.used);
        for (&attempt, known) in attempts {
            match known.started_at.map(|at| known.counts_at(at)) {
                None => ledger.reserve(attempt, known.charged_at(), known.cost),
                Some(arrives) if arrives >= now => ledger.charge(attempt, arrives, known.cost),
                Some(_) => {}
            }
        }
    }

    /// Gives calls that wait, or may come back, longer default budgets if the lane's gap is longer
    /// now: a default never undercuts it. A shorter gap shortens no budget (W1).
    fn stretch_budgets(&mut self, lane: u32) {
        if Mutant::BudgetsKept.on() {
            return;
        }
        let waiting = self.lanes[lane].queues.iter().map(|waiting| waiting.call);
        let running = self.attempts.values().filter(|attempt| attempt.lane == lane);
        let calls: Vec<u32> = waiting.chain(running.filter_map(|attempt| attempt.call)).collect();
        for leader in calls {
            let before = self.held_least(leader);
            let followers = self.followers.get(&leader).cloned().unwrap_or_default();
            self.stretch(&followers);
            self.stretch(&[leader]);
            self.share_budgets(leader, before);
        }
    }

    /// Moves the budgets of a lane's waiting calls to its new group.
    fn move_waits(&mut self, lane: u32, from: Option<u32>, to: Option<u32>) {
        for (cost, max_wait, call) in self.lanes[lane].budgets.iter() {
            if let Some(from) = from {
                self.groups[from].waits.remove(cost, max_wait, call);
            }
            if let Some(to) = to {
                self.groups[to].waits.insert(cost, max_wait, call);
            }
        }
    }

    /// Moves the attempts of a lane that changes groups: those on the wire hold slots of the new
    /// group, and those that may still arrive count in both (L9, L11).
    fn move_attempts(&mut self, number: u32, from: Option<u32>, to: Option<u32>, now: Time) {
        let next = AttemptId(self.next.attempt);
        let pending = self.lanes[number].pending.clone();
        let in_flight = self.lanes[number].in_flight;
        if let Some(from) = from.map(|from| &mut self.groups[from]) {
            from.in_flight -= in_flight;
            for entry in pending.iter() {
                let (at, attempt, _) = entry;
                from.pending.remove(&entry);
                // Only the new group learns its real start. Here it counts where it was charged.
                from.last_start = from.last_start.max(at);
                from.ledger.started(attempt, at, at);
            }
        }
        let mut first = next;
        if let Some(to) = to.map(|to| &mut self.groups[to]) {
            to.in_flight += in_flight;
            for (&attempt, known) in &self.attempts {
                let started = known.started_at.map(|at| known.counts_at(at));
                let arrives = started.unwrap_or(known.charged_at());
                if known.lane != number || !known.used || started.is_some_and(|at| at < now) {
                    continue;
                }
                if Mutant::JoinsUncharged.on() {
                    continue;
                }
                first = first.min(attempt);
                let remembers = to.memory() > Span::ZERO;
                if started.is_some() {
                    to.last_start = to.last_start.max(arrives);
                } else {
                    to.pending.insert((arrives, attempt, known.priority));
                }
                if remembers && started.is_some() {
                    to.ledger.charge(attempt, arrives, known.cost);
                } else if remembers {
                    to.ledger.reserve(attempt, arrives, known.cost);
                }
            }
        }
        from.into_iter().chain(to).for_each(|group| self.touch_group(group));
        let joined = to.map(|to| Membership::from(&*self.groups[to].name, first));
        let memberships = &mut self.lanes[number].memberships;
        memberships
            .iter_mut()
            .filter(|of| of.lasts())
            .for_each(|of| of.last = AttemptId(next.0 - 1));
        memberships.extend(joined);
        self.measure_groups(number);
    }

    /// Computes how long the history of a lane binds any group that counts it.
    pub(crate) fn measure_groups(&mut self, lane: u32) {
        let of = self.lanes[lane].memberships.iter();
        let groups = of.filter_map(|of| self.group_named(&of.group));
        let memory = groups.map(|group| self.groups[group].memory()).max();
        self.lanes[lane].group_memory = memory.unwrap_or(Span::ZERO);
    }

    /// Compares a lane's groups in the store with the configuration, which wins from now on.
    /// Returns `true` if they differ.
    pub(crate) fn settle_membership(&mut self, number: u32) -> bool {
        let next = AttemptId(self.next.attempt);
        let lane = &mut self.lanes[number];
        let present = lane.group.map(|group| &*self.groups[group].name);
        let known = lane.memberships.iter().find(|of| of.lasts()).map(|of| &*of.group);
        let differs = known != present;
        if differs {
            let last = AttemptId(next.0 - 1);
            let joined = present.map(|group| Membership::from(group, next));
            lane.memberships.iter_mut().filter(|of| of.lasts()).for_each(|of| of.last = last);
            lane.memberships.extend(joined);
        }
        self.measure_groups(number);
        differs
    }

    pub(crate) fn group_named(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(_, group)| group.name == name).map(|(number, _)| number)
    }

    pub(crate) fn template_for(&self, name: &str) -> Option<Arc<Limits>> {
        let mut templates = self.templates.iter();
        templates.find(|(prefix, _)| name.starts_with(&**prefix)).map(|(_, limits)| limits.clone())
    }

    fn add_lane(&mut self, name: Arc<str>, limits: &Arc<Limits>, now: Time) -> u32 {
        // Zero until the lane is first written: only then does it get a number.
        let id = self.unconfigured.remove(&name).unwrap_or(LaneId(0));
        let mut lane = Lane::new(id, name.clone(), limits.clone(), now);
        lane.group = limits.group.as_deref().and_then(|name| self.group_named(name));
        let group = lane.group.map(|group| &*self.groups[group].name);
        lane.memberships.extend(group.map(|group| Membership::from(group, AttemptId(0))));
        let number = self.lanes.insert(lane);
        self.measure_groups(number);
        self.allow_slack(number);
        self.bound_lane(number);
        self.lane_names.insert(name, number);
        number
    }

    fn allow_slack(&mut self, lane: u32) {
        let lane = &mut self.lanes[lane];
        lane.allow_slack(lane.group.map(|group| &self.groups[group].limits));
    }

    /// The lane of this name, made from a template if need be.
    pub(crate) fn lane_for(
        &mut self,
        name: &Arc<str>,
        now: Time,
        plan: &mut Plan,
    ) -> Result<u32, SubmitError> {
        if let Some(&lane) = self.lane_names.get(name) {
            return Ok(lane);
        }
        let limits = self.template_for(name);
        let limits = limits.ok_or_else(|| SubmitError::UnknownLane(name.clone()))?;
        crate::name::check_name("lane", name)?;
        let max = self.settings.max_lanes.get();
        if self.lanes.len() >= max as usize && !self.drop_idle_lane(now, plan) {
            return Err(SubmitError::TooManyLanes { lane: name.clone(), max });
        }
        let number = self.add_lane(name.clone(), &limits, now);
        self.lanes[number].made = true;
        self.idle_from(number, now);
        Ok(number)
    }

    /// Returns `true` if a lane of this name exists or could be made.
    pub(crate) fn knows_lane(&self, name: &str) -> bool {
        self.lane_names.contains_key(name) || self.template_for(name).is_some()
    }

    /// Makes room by dropping a lane that equals a new one. Looks at a few of the lanes that have
    /// been idle for longest: each look drops one, or moves it to the moment at which it could
    /// equal a new one.
    fn drop_idle_lane(&mut self, now: Time, plan: &mut Plan) -> bool {
        for _ in 0..16 {
            let Some(&(idle_since, number)) = self.idle_lanes.first() else { return false };
            if idle_since > now {
                return false;
            }
            self.idle_lanes.remove(&(idle_since, number));
            if self.lanes[number].users > 0 {
                continue;
            }
            self.trim_lane(number, now, plan);
            let lane = &self.lanes[number];
            if lane.is_fresh(now) {
                self.drop_lane(number, plan);
                return true;
            }
            let rest = lane.memory().max(lane.health.cooldown_until.since(now));
            self.idle_from(number, now + rest.max(Span::secs(1)));
        }
        false
    }

    /// Puts a lane among the idle ones at this moment, and nowhere else.
    fn idle_from(&mut self, number: u32, at: Time) {
        let before = std::mem::replace(&mut self.lanes[number].idle_from, at);
        self.idle_lanes.remove(&(before, number));
        self.idle_lanes.insert((at, number));
    }

    fn drop_lane(&mut self, number: u32, plan: &mut Plan) {
        self.leave_indexes(number);
        let lane = self.lanes.remove(number);
        self.unbound_lane(&lane);
        self.idle_lanes.remove(&(lane.idle_from, number));
        self.lane_names.remove(&lane.name);
        self.dirty_lanes.retain(|dirty| *dirty != number);
        if lane.stored {
            plan.writes.push(Write::DropLane(lane.id));
        }
    }

    /// Removes a user. A lane that a template made may be idle then.
    pub(crate) fn release_lane(&mut self, number: u32, now: Time) {
        let lane = &mut self.lanes[number];
        lane.users -= 1;
        if lane.made && lane.users == 0 {
            self.idle_from(number, now);
        }
    }

    fn named(&self, name: &str) -> Result<u32, UnknownLane> {
        self.lane_names.get(name).copied().ok_or_else(|| UnknownLane(name.into()))
    }

    /// Pauses a lane: running calls go on, and no new one starts.
    pub fn pause(&mut self, name: &str, now: Now, plan: &mut Plan) -> Result<(), UnknownLane> {
        let number = self.named(name)?;
        if !self.lanes[number].paused {
            self.lanes[number].paused_at = now.time;
        }
        self.set_paused(number, plan, true);
        Ok(())
    }

    /// Resumes a paused lane.
    pub fn resume(&mut self, name: &str, plan: &mut Plan) -> Result<(), UnknownLane> {
        let number = self.named(name)?;
        self.set_paused(number, plan, false);
        Ok(())
    }

    fn set_paused(&mut self, lane: u32, plan: &mut Plan, to: bool) {
        if to {
            let calls = self.lanes[lane].budgets.iter().map(|(_, _, call)| call);
            let named = calls.map(|call| (self.held_least(call).named, call));
            let named: Vec<_> = named.filter(|(named, _)| *named != ANY_WAIT).collect();
            self.lanes[lane].budgets.pause(named);
        } else {
            self.lanes[lane].budgets.resume();
        }
        self.lanes[lane].paused = to;
        self.write_lane(lane, plan);
        self.touch_lane(lane);
    }

    /// Lifts the cooldown and the ladder of a lane, and forgets what throttling and announcements
    /// did to it. The history of its attempts stays, so no configured limit is exceeded.
    pub fn reset(&mut self, name: &str, plan: &mut Plan) -> Result<(), UnknownLane> {
        let number = self.named(name)?;
        let lane = &mut self.lanes[number];
        lane.health = crate::health::Health { judged: lane.health.judged, ..Default::default() };
        lane.announced = None;
        lane.failed.clear();
        self.write_lane(number, plan);
        self.touch_lane(number);
        Ok(())
    }

    /// The present state of all lanes, by name.
    pub fn lane_statuses(&self, now: Now) -> Vec<LaneStatus> {
        let lanes = self.lane_names.values().map(|&lane| self.status_of(&self.lanes[lane], now));
        let mut lanes: Vec<LaneStatus> = lanes.collect();
        lanes.sort_by(|a, b| a.name.cmp(&b.name));
        lanes
    }

    fn status_of(&self, lane: &Lane, now: Now) -> LaneStatus {
        let heads = crate::priority::Priority::ALL.into_iter();
        let best =
            heads.filter_map(|priority| lane.queues.head(priority)).min().map(|head| head.call);
        let queues = crate::priority::Priority::ALL.map(|priority| lane.queues.of(priority));
        let oldest = queues.into_iter().filter_map(crate::queue::Queue::oldest).min();
        let priority =
            best.map_or_else(Default::default, |c| self.jobs[self.calls[c].job].priority);
        let demand = crate::lane::Demand { priority, rank: priority, cost: 1 };
        let opening = lane.opening(demand).latest(self.group_opening(lane, 1));
        let windows = lane.limits.windows.iter().zip(&lane.since);
        let used = windows.map(|(window, &since)| {
            (window.rate, lane.ledger.used(window.rate.per, since, now.time))
        });
        let cooldown = lane.health.cooldown_until;
        let why_closed = match opening.at > now.time {
            _ if lane.paused => Some(Reason::Paused),
            true => Some(opening.cause.into()),
            false if lane.taken() < lane.width() => None,
            false if lane.health.probing() => Some(Reason::Probe),
            false => Some(Reason::Busy),
        };
        LaneStatus {
            name: lane.name.clone(),
            waiting: lane.waiting(),
            max_waiting: lane.room.bound(),
            oldest_at: oldest.map(|place| place.joined_at),
            made: lane.made,
            in_flight: lane.in_flight,
            open_at: opening.at.max(now.time),
            why_closed,
            used: used.collect(),
            cooldown_until: (cooldown > now.time).then_some(cooldown),
            rung: lane.health.rung,
            paused: lane.paused,
            limits: lane.limits.clone(),
            slack: lane.slack,
        }
    }

    pub(crate) fn tell_closed(&self, lane: u32, before: Time, plan: &mut Plan) {
        let lane = &self.lanes[lane];
        if lane.health.cooldown_until > before {
            plan.events.push(Event::Closed(lane.name.clone(), lane.health.cooldown_until));
        }
    }
}
