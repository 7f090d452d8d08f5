//! Decide: which call goes next (P1 to P5, W1, W5).
//!
//! A turn handles the moments that have come, looks once at every lane that changed, and then
//! starts the best calls of open lanes until no slot or no call is left. Nothing here is a scan, so
//! the cost of an event does not grow with what waits: a lane is found by the moment it opens, and
//! its calls by standing at the head of one of four queues.
//!
//! Every lane has one *standing*: its best call that may go now, its best interactive one, and the
//! moment to look at it again. The indexes hold standings and nothing else. A lane whose state
//! changes is marked dirty (`touch_lane`), and its standing is computed again before the next call
//! is picked; a change without that mark leaves a call that may go where no turn finds it.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use crate::call::State;
use crate::core::{Core, Moment};
use crate::group::GroupStanding;
use crate::job::SubmitError;
use crate::lane::{Cause, CommonOpening, Contender, Contenders, Demand, Lane, Standing};
use crate::mutant::Mutant;
use crate::outcome::{Failure, Outcome, Skip};
use crate::plan::Plan;
use crate::pool::{Need, SlotAccess};
use crate::priority::Priority;
use crate::queue::{QueuePlace, Waiting};
use crate::settings::AcrossLanes;
use crate::time::{Now, Span, Time};
use crate::timetable::Timetable;
use crate::waits::Impatient;

/// The call at the head of one of a lane's queues.
#[derive(Clone, Copy)]
struct Head {
    rank: Priority,
    priority: Priority,
    /// The call that goes.
    call: u32,
    cost: NonZeroU32,
    /// The place of its queue's oldest call. With several tenants that may be another call: the
    /// queue ranks by its oldest one, so that a tenant's turn never makes the queue look younger.
    oldest: QueuePlace,
    /// When the queue ranks higher, or other tenants take turns; never for most queues.
    rises_at: Time,
}

const NO_HEAD: Head = Head {
    rank: Priority::Background,
    priority: Priority::Background,
    call: 0,
    cost: NonZeroU32::MIN,
    oldest: QueuePlace { joined_at: Time::NEVER, seq: u64::MAX },
    rises_at: Time::NEVER,
};

impl Head {
    fn goes_before(&self, other: &Head) -> bool {
        (self.rank, self.oldest) < (other.rank, other.oldest)
    }

    fn demand(&self) -> Demand {
        Demand { priority: self.priority, rank: self.rank, cost: self.cost.get() }
    }
}

impl Core {
    /// Brings everything up to `now` and starts the calls that may start.
    pub fn decide(&mut self, now: Now, plan: &mut Plan) {
        loop {
            self.catch_up(now, plan);
            self.pass_openings(now);
            self.pool.adjust(self.fill(), now.time);
            self.start_all(now, plan);
            // A run that was skipped just now lets its roster go on in this turn.
            if self.halted || !self.rosters.can_step() {
                return;
            }
        }
    }

    fn start_all(&mut self, now: Now, plan: &mut Plan) {
        loop {
            self.settle_standings(now, plan);
            let Some(call) = self.next_to_start(now) else { return };
            self.reserve(call, now, plan);
        }
    }

    /// Handles due work, retries and deadlines up to `now`.
    ///
    /// The engine does this before it takes in new submissions: those must not use the room, nor
    /// the openings, that earlier work waits for.
    pub fn catch_up(&mut self, now: Now, plan: &mut Plan) {
        self.come_due(now, plan);
        self.pass_moments(now, plan);
        self.turn_rosters(now, plan);
    }

    fn come_due(&mut self, now: Now, plan: &mut Plan) {
        while let Some(job) = self.due.first_within(self.settings.lead, now) {
            self.leave_due(job);
            self.begin_stage(job, now, plan);
        }
    }

    fn pass_moments(&mut self, now: Now, plan: &mut Plan) {
        self.leave_together(now);
        while let Some(&(at, moment)) = self.moments.first() {
            if at > now.time {
                break;
            }
            self.moments.remove(&(at, moment));
            match moment {
                Moment::Retry(call) => self.retry(call, now, plan),
                Moment::Deadline(job) => self.deadline_passes(job, now, plan),
                // It started in its time: a request was made for it, or for a call that it shares.
                Moment::StartWithin(call) if self.runs(call) || self.calls[call].requests() > 0 => {
                }
                Moment::StartWithin(call) => {
                    let start_within = self.jobs[self.calls[call].job].start_within();
                    let skip = Skip::StartWithin { start_within };
                    self.settle(call, Outcome::Skipped(skip), now, plan);
                }
            }
        }
    }

    fn pass_openings(&mut self, now: Now) {
        let mut due = std::mem::take(&mut self.passing);
        self.openings.due(now.time, &mut due);
        due.drain(..).for_each(|lane| self.touch_lane(lane));
        self.group_openings.due(now.time, &mut due);
        due.drain(..).for_each(|group| self.touch_group(group));
        self.passing = due;
    }

    /// Gives every lane and group that changed its new standing, until none is dirty.
    ///
    /// Calls are skipped here too, and a skip changes its lane, its group, and lanes of other jobs
    /// that it ends. So this is a loop, and the next call is picked only after it: the pick
    /// compares standings, which must all be of this moment.
    fn settle_standings(&mut self, now: Now, plan: &mut Plan) {
        loop {
            if let Some(lane) = self.dirty_lanes.pop() {
                self.lanes[lane].dirty = false;
                let common = self.lanes[lane].common();
                self.skip_hopeless(lane, &common, now, plan);
                if !Mutant::NoAgeing.on() {
                    self.lanes[lane].queues.age(self.settings.age_after, now.time);
                }
                self.stand_lane(lane, &common, now);
            } else if let Some(group) = self.dirty_groups.pop() {
                self.groups[group].dirty = false;
                self.skip_hopeless_in_group(group, now, plan);
                if self.dirty_lanes.is_empty() {
                    self.stand_group(group, now);
                } else {
                    // A call that was skipped may still stand for its lane in this group. Starting
                    // it would start a settled call, so lanes are looked at first.
                    self.touch_group(group);
                }
            } else {
                return;
            }
        }
    }

    /// Skips every call that would not wait until its lane opens (W1). Budgets stand in trees that
    /// are popped from the small end: a call whose budget is long enough is not looked at, so a
    /// lane that closes costs what it skips and not what it holds.
    fn skip_hopeless(&mut self, lane: u32, common: &CommonOpening, now: Now, plan: &mut Plan) {
        if Mutant::MaxWaitIgnored.on() {
            return;
        }
        let mut some = self.lanes[lane].budgets.some();
        while some != 0 {
            let priority = Priority::ALL[some.trailing_zeros() as usize];
            some &= some - 1;
            while let Some(Impatient { call, wait }) = self.impatient(lane, priority, common, now) {
                self.skip_impatient(call, wait, now, plan);
            }
        }
        if self.lanes[lane].paused && !Mutant::PauseIgnored.on() {
            let paused_for = now.time.since(self.lanes[lane].paused_at);
            let impatient =
                |core: &Core| core.lanes[lane].budgets.impatient_named(paused_for + Span(1));
            while let Some(call) = impatient(self) {
                self.skip_paused(call, paused_for, now, plan);
            }
        }
    }

    fn impatient(
        &self,
        lane: u32,
        priority: Priority,
        common: &CommonOpening,
        now: Now,
    ) -> Option<Impatient> {
        let lane = &self.lanes[lane];
        lane.budgets.impatient(priority, |cost| {
            let demand = Demand { priority, rank: priority, cost };
            lane.opening_at(common, demand).at.since(now.time)
        })
    }

    fn skip_hopeless_in_group(&mut self, group: u32, now: Now, plan: &mut Plan) {
        let impatient = |core: &Core| {
            let group = &core.groups[group];
            group.waits.impatient(|cost| group.opening(cost).at.since(now.time))
        };
        while let Some(Impatient { call, wait }) = impatient(self) {
            if Mutant::MaxWaitIgnored.on() {
                break;
            }
            self.skip_impatient(call, wait, now, plan);
        }
    }

    /// Fills in the heads of a lane's queues, by rank and age (P1, P2), and returns their number.
    fn heads(&self, lane: &Lane, now: Now, heads: &mut [Head; 4]) -> usize {
        let mut count = 0;
        for priority in Priority::ALL {
            let Some(mut waiting) = lane.queues.head(priority) else { continue };
            let turns = lane.queues.turns(priority, self.settings.age_after);
            let (mut oldest, turns_at) = turns.unwrap_or((waiting.place, Time::NEVER));
            if Mutant::YoungestFirst.on() {
                waiting = lane.queues.of(priority).tail().unwrap_or(waiting);
                oldest = waiting.place;
            }
            let (rank, rises_at) = self.rank(priority, oldest.joined_at, now.time);
            let Waiting { call, cost, .. } = waiting;
            let rises_at = rises_at.min(turns_at);
            let head = Head { rank, priority, call, cost, oldest, rises_at };
            // At most four: sorting them as they come costs less than a sort.
            let mut at = count;
            while at > 0 && head.goes_before(&heads[at - 1]) {
                heads[at] = heads[at - 1];
                at -= 1;
            }
            heads[at] = head;
            count += 1;
        }
        count
    }

    /// The rank of a call that joined at `joined_at`, and the moment at which it rises next (P2).
    ///
    /// Ranks are computed and never stored. A call that ages moves nowhere, so ageing a million
    /// calls costs nothing until a lane is looked at.
    pub(crate) fn rank(&self, priority: Priority, joined_at: Time, now: Time) -> (Priority, Time) {
        if priority == Priority::Interactive || Mutant::NoAgeing.on() {
            return (priority, Time::NEVER);
        }
        // At most three steps: additions are faster than a division, and this runs at every look.
        let mut rank = priority;
        let mut rises_at = joined_at + self.settings.age_after;
        while rank > Priority::Interactive && now >= rises_at {
            rank = rank.risen(1);
            rises_at = rises_at + self.settings.age_after;
        }
        (rank, if rank == Priority::Interactive { Time::NEVER } else { rises_at })
    }

    /// Puts a lane where it belongs: among the lanes that are ready, and at the moment to look
    /// again. Indexes are touched only where the standing differs, because most looks change
    /// nothing.
    fn stand_lane(&mut self, number: u32, common: &CommonOpening, now: Now) {
        let standing = self.lane_standing(number, common, now);
        let before = self.lanes[number].standing;
        if standing == before {
            return;
        }
        self.lanes[number].standing = standing;
        if standing.wake_at != before.wake_at {
            move_opening(&mut self.openings, number, standing.wake_at);
        }
        if (standing.any, standing.interactive) == (before.any, before.interactive) {
            return;
        }
        match self.lanes[number].group {
            None => self.move_ready(&before, &standing),
            Some(group) => {
                let sets = &mut self.groups[group];
                swap(&mut sets.any, before.any, standing.any);
                swap(&mut sets.interactive, before.interactive, standing.interactive);
                self.touch_group(group);
            }
        }
    }

    fn lane_standing(&self, number: u32, common: &CommonOpening, now: Now) -> Standing {
        let lane = &self.lanes[number];
        let mut standing = Standing::default();
        // Neither a lane without calls nor a full or paused one has a moment to wake at: a call
        // that comes, an attempt that ends and an operator who resumes the lane touch it.
        let full = lane.taken() >= lane.width();
        if lane.paused {
            // Calls with a budget that a caller named are skipped during the pause (W1).
            standing.wake_at = lane.budgets.least_named().map(|least| lane.paused_at + least);
        }
        if lane.paused || full {
            return standing;
        }
        let mut heads = [NO_HEAD; 4];
        let count = self.heads(lane, now, &mut heads);
        let heads = &heads[..count];
        let mut wake_at = Time::NEVER;
        // A call that rises may pass the calls before it.
        let rises_at = heads.iter().map(|head| head.rises_at).min().unwrap_or(Time::NEVER);
        let mut blocked = false;
        // A call that waits for a kept share lets calls of higher priorities pass, for which it is
        // kept. Calls of its own priority and below must not: they would spend what it waits for.
        let mut kept_from = None;
        for head in heads {
            if kept_from.is_some_and(|held| head.priority >= held) {
                continue;
            }
            let opening = lane.opening_at(common, head.demand());
            if opening.at <= now.time {
                standing.any = self.contender(lane, head);
                break;
            }
            wake_at = wake_at.min(opening.at);
            // A gap, a window or a cooldown closes the lane for every call behind this one as well:
            // at most it would let a cheaper one through, and then this one never got its whole
            // cost (L3).
            match opening.cause {
                Cause::OwnGap => {}
                Cause::Keep => kept_from = Some(head.priority),
                Cause::Gap | Cause::Window | Cause::Cooldown | Cause::Group => {
                    blocked = true;
                    break;
                }
            }
        }
        // The interactive call behind the best one matters only where the best one may lack a slot
        // (P3). One that needs none starts in this turn, and then the lane is looked at again.
        let goes = standing.any.is_some_and(|contender| contender.need == Need::Nothing);
        let mut interactive = heads.iter().filter(|head| head.priority == Priority::Interactive);
        if let Some(head) = interactive.next().filter(|_| !blocked && !goes) {
            let opening = lane.opening_at(common, head.demand());
            if opening.at <= now.time {
                standing.interactive = self.contender(lane, head);
            } else {
                wake_at = wake_at.min(opening.at);
            }
        }
        // A call that rises changes the order of the calls that are ready, and the gap of those
        // that are not. While a cooldown holds the lane neither matters before its end, and a lane
        // that wakes for nothing every few minutes costs as much as one that works.
        let held = if standing.any.is_some() { Time::ZERO } else { lane.health.cooldown_until };
        wake_at = wake_at.min(rises_at.max(held));
        standing.wake_at = (wake_at != Time::NEVER).then_some(wake_at);
        standing
    }

    /// The place of a lane's head among the calls that compete for slots; `None` if its lane has
    /// its share of the pool (P5).
    fn contender(&self, lane: &Lane, head: &Head) -> Option<Contender> {
        let need = self.need(lane, head.call);
        if need == Need::Slot && lane.workers > self.pool.lane_cap() {
            return None;
        }
        let order = match self.settings.across_lanes {
            AcrossLanes::Oldest => head.oldest.joined_at,
            AcrossLanes::Turns => {
                lane.last_start.into_iter().max().unwrap_or(Time::ZERO) - lane.slack
            }
        };
        let Head { rank, oldest, call, .. } = *head;
        Some(Contender { rank, order: order.0, seq: oldest.seq, call, need })
    }

    /// The need of a call besides its lane (P5): nothing, a first call's place, or a slot
    /// of the pool. Each need has ready sets of its own: while no slot is free, a call that needs
    /// none is found without passing over those that do.
    pub(crate) fn need(&self, lane: &Lane, call: u32) -> Need {
        let keeps_worker = self.all_keep_workers || {
            let kind = self.jobs[self.calls[call].job].kind;
            self.kinds[kind as usize].keeps_worker
        };
        match keeps_worker {
            false => Need::Nothing,
            true if lane.workers == 0 && !Mutant::FirstCallPooled.on() => Need::First,
            true => Need::Slot,
        }
    }

    /// Gives a group its new standing: the best calls of its lanes, while the group itself is open
    /// (L9).
    fn stand_group(&mut self, number: u32, now: Now) {
        let group = &self.groups[number];
        let mut standing = GroupStanding::default();
        if !group.is_full() {
            let cost = |contender: &Contender| self.jobs[self.calls[contender.call].job].cost.get();
            // The best call that waits for its whole cost bars all calls behind it, whatever slots
            // they need (L3). Otherwise a stream of cheap ones, permits among them, would keep it
            // waiting.
            let mut barrier: Option<Contender> = None;
            for (sets, slots) in
                [(&group.any, &mut standing.any), (&group.interactive, &mut standing.interactive)]
            {
                for head in sets.iter().filter_map(BTreeSet::first) {
                    let opening = group.opening(cost(head));
                    if opening.at > now.time {
                        barrier = Some(barrier.map_or(*head, |before| before.min(*head)));
                        let sooner = standing.wake_at.is_none_or(|wake| opening.at < wake);
                        standing.wake_at = if sooner { Some(opening.at) } else { standing.wake_at };
                    }
                }
                let goes = |head: &&Contender| barrier.is_none_or(|barrier| **head < barrier);
                for (set, slot) in sets.iter().zip(slots) {
                    *slot = set.first().filter(goes).copied();
                }
            }
        }
        let before = std::mem::replace(&mut self.groups[number].standing, standing);
        move_opening(&mut self.group_openings, number, standing.wake_at);
        for need in 0..Need::ALL.len() {
            swap(&mut self.ready, before.any[need], standing.any[need]);
            let (before, after) = (before.interactive[need], standing.interactive[need]);
            swap(&mut self.ready_interactive, before, after);
        }
    }

    fn move_ready(&mut self, before: &Standing, after: &Standing) {
        swap(&mut self.ready, before.any, after.any);
        swap(&mut self.ready_interactive, before.interactive, after.interactive);
    }

    /// Takes a lane out of every index. Its standing names the places where it is found there, so
    /// this comes before the lane changes its group or is dropped.
    pub(crate) fn leave_indexes(&mut self, number: u32) {
        let before = std::mem::take(&mut self.lanes[number].standing);
        self.openings.remove(number);
        match self.lanes[number].group {
            None => self.move_ready(&before, &Standing::default()),
            Some(group) => {
                swap(&mut self.groups[group].any, before.any, None);
                swap(&mut self.groups[group].interactive, before.interactive, None);
                self.unstand(group, &before);
                self.touch_group(group);
            }
        }
    }

    /// The calls of a lane that leaves its group no longer stand for the group. The lane may put
    /// them among the ready calls itself before the group is looked at, and the group, with its old
    /// standing, would then remove them.
    fn unstand(&mut self, group: u32, lane: &Standing) {
        let standing = &mut self.groups[group].standing;
        for (slots, sets, contender) in [
            (&mut standing.any, &mut self.ready, lane.any),
            (&mut standing.interactive, &mut self.ready_interactive, lane.interactive),
        ] {
            if let Some(contender) = contender
                && slots[contender.need as usize] == Some(contender)
            {
                slots[contender.need as usize] = None;
                sets[contender.need as usize].remove(&contender);
            }
        }
    }

    /// The call that starts next, if there is a slot for it. The pool grows if a call on an open
    /// lane lacks one (P3, Q3).
    fn next_to_start(&mut self, now: Now) -> Option<u32> {
        while !self.halted {
            let best = Need::ALL.map(|need| self.first_ready(need));
            if let Some(contender) = best.iter().flatten().min() {
                return Some(contender.call);
            }
            if !self.lacks_workers() || !self.pool.grow(now.time) {
                break;
            }
        }
        None
    }

    /// The best call with this need, if it may go.
    fn first_ready(&self, need: Need) -> Option<&Contender> {
        let (any, interactive) =
            (&self.ready[need as usize], &self.ready_interactive[need as usize]);
        // Most sets are empty: then the pool need not be asked.
        if any.is_empty() && interactive.is_empty() {
            return None;
        }
        match self.pool.access(need)? {
            SlotAccess::Any => any.first(),
            SlotAccess::Interactive => interactive.first(),
        }
    }

    /// Returns `true` if a call on an open lane lacks a slot of the pool.
    pub(crate) fn lacks_workers(&self) -> bool {
        let slot = Need::Slot as usize;
        self.pool.access(Need::Slot) != Some(SlotAccess::Any)
            && !(self.ready[slot].is_empty() && self.ready_interactive[slot].is_empty())
    }

    /// Fails the calls that their lane's new limits can never admit: at the head of a queue such a
    /// call would wait for ever and let no other pass (L3, L11).
    pub(crate) fn fail_impossible(&mut self, lane: u32, now: Now, plan: &mut Plan) {
        // Limits that admit no cost of 1 are refused where they are set.
        let queued = self.lanes[lane].queues.iter().filter(|waiting| waiting.cost.get() > 1);
        for call in queued.map(|waiting| waiting.call).collect::<Vec<u32>>() {
            if self.calls.get(call).is_some_and(|call| call.state == State::Queued) {
                self.fail_if_impossible(call, now, plan);
            }
        }
    }

    /// The error of a call whose cost its lane or group can never admit.
    pub(crate) fn impossible(&self, call: u32) -> Option<SubmitError> {
        let job = &self.jobs[self.calls[call].job];
        let lane = &self.lanes[self.calls[call].lane];
        self.check_cost(&lane.name, &lane.limits, job.priority, job.cost.get()).err()
    }

    /// Fails a waiting call that can never start. Returns `true` if it did.
    pub(crate) fn fail_if_impossible(&mut self, call: u32, now: Now, plan: &mut Plan) -> bool {
        let Some(error) = self.impossible(call) else { return false };
        let failure = Failure::permanent("cost").because(&error.to_string());
        self.settle(call, Outcome::Failed(failure), now, plan);
        true
    }
}

fn move_opening(openings: &mut Timetable, number: u32, to: Option<Time>) {
    match to {
        Some(at) => openings.set(number, at),
        None => openings.remove(number),
    }
}

/// Replaces one contender by another, each in the set of what it needs.
fn swap(sets: &mut Contenders, before: Option<Contender>, after: Option<Contender>) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        sets[before.need as usize].remove(&before);
    }
    if let Some(after) = after {
        sets[after.need as usize].insert(after);
    }
}
