//! Reserve: the promise of one attempt, and the news of its start and end (L4, L5).
//!
//! An attempt is charged before it starts, at the latest moment at which it could arrive. While its
//! start is not known every limit assumes that moment, so nothing that happens between the decision
//! and the wire can break one: not a slow commit, not a paused process, not a crash. When the start
//! becomes known the charge moves there, which is earlier and never later. A charge is given back
//! only if the worker itself says that nothing was sent.
//!
//! Three parties rely on this: the lane and its group, which count the attempt (`Ledger`,
//! `PendingStarts`), the store, which keeps the reservation for the next process, and the worker,
//! which sends nothing past `send_by`.

use crate::call::{ANY_WAIT, Call, State, Step};
use crate::core::{Attempt, Core, Job, Moment, OnCrash};
use crate::job::{AttemptId, Blob};
use crate::mutant::Mutant;
use crate::plan::{Event, Plan, Start};
use crate::record::{Reservation, Write};
use crate::time::{Now, Span, Time};

impl Core {
    /// Reserves one attempt of a queued call, charged at the latest moment it could arrive.
    ///
    /// The write and the start are in the same plan. The engine hands the start to a worker only
    /// after the commit, so no request is on the wire whose reservation a crash could lose.
    pub(crate) fn reserve(&mut self, number: u32, now: Now, plan: &mut Plan) {
        let attempt = AttemptId(self.next.attempt);
        self.next.attempt += 1;
        let start_at = self.may_start_at(self.calls[number].job, now);
        let late = self.lanes[self.calls[number].lane].late;
        let send_by = start_at + self.settings.send_within(late);
        self.dequeue_to_run(number, attempt, now);
        let (job, lane_number) = (self.calls[number].job, self.calls[number].lane);
        let (priority, cost) = (self.jobs[job].priority, self.jobs[job].cost.get());
        if !self.lanes[lane_number].stored {
            self.write_lane(lane_number, plan);
        }
        let slack = self.lanes[lane_number].slack;
        let slack = if Mutant::SlackIgnored.on() { Span::ZERO } else { slack };
        let latest = if Mutant::ChargedAtReserve.on() { start_at } else { send_by };
        let charged_at = latest + slack;
        let group = self.lanes[lane_number].group;
        let lane = &mut self.lanes[lane_number];
        lane.pending.insert((charged_at, attempt, priority));
        let remembers = lane.memory() > Span::ZERO;
        if remembers {
            lane.ledger.reserve(attempt, charged_at, cost);
        }
        if let Some(group) = group.map(|group| &mut self.groups[group])
            && !Mutant::GroupUncharged.on()
        {
            group.pending.insert((charged_at, attempt, priority));
            if group.memory() > Span::ZERO {
                group.ledger.reserve(attempt, charged_at, cost);
            }
        }
        let call = &self.calls[number];
        let id = self.call_id(number);
        let kind = &self.kinds[self.jobs[job].kind as usize];
        // A reservation that no limit counts, of work that is repeated, binds nothing after a power
        // cut: the turn need not wait for the disk. If a limit counts it, or if the work must not
        // be made twice, the next process has to find it.
        let lasts = remembers || kind.on_crash != OnCrash::Repeat;
        plan.passing += usize::from(!lasts || Mutant::PromisesPass.on());
        plan.writes.push(Write::Reserve(Reservation {
            lane: self.lanes[lane_number].id,
            attempt,
            call: id,
            priority,
            cost,
            at: charged_at,
            ended_at: None,
        }));
        let lane = &self.lanes[lane_number];
        plan.starts.push(Start {
            attempt,
            call: id,
            lane: lane.name.clone(),
            kind: kind.name.clone(),
            before: call.attempts,
            start_at: if Mutant::StartsEarly.on() { now.time } else { start_at },
            send_by,
            tell_start: remembers,
            timeout: lane.limits.timeout,
            begun_at: None,
            payload: self.own_payload(number),
        });
        plan.events.push(Event::Started(id, lane.name.clone()));
        self.hold_slot(attempt, number, latest, slack);
    }

    /// The call's own payload, where a move gave it one (J7).
    fn own_payload(&self, call: u32) -> Option<Blob> {
        self.added.get(&call).and_then(|added| added.payload.as_deref()).map(Into::into)
    }

    /// Takes the slots of an attempt: in its lane, its group and, if its kind keeps a worker, the
    /// pool. From here until `leave_slot` the attempt counts as in flight, whatever becomes of its
    /// call (L5).
    fn hold_slot(&mut self, attempt: AttemptId, call: u32, send_by: Time, slack: Span) {
        let Call { job, lane: number, .. } = self.calls[call];
        let Job { priority, cost, kind, .. } = self.jobs[job];
        let keeps_worker = self.kinds[kind as usize].keeps_worker;
        let lane = &mut self.lanes[number];
        lane.users += 1;
        lane.in_flight += 1;
        if keeps_worker {
            self.pool.take(lane.workers);
            lane.workers += 1;
        }
        if let Some(group) = lane.group {
            self.groups[group].in_flight += 1;
            self.touch_group(group);
        }
        let known = Attempt {
            made_for: self.call_id(call),
            call: Some(call),
            lane: number,
            priority,
            cost: cost.get(),
            send_by,
            late: self.lanes[number].late,
            slack,
            started_at: None,
            answered_at: None,
            used: true,
            keeps_worker,
            reported: false,
            cache_key: self.jobs[job].cache_key().cloned(),
        };
        self.attempts.insert(attempt, known);
        self.touch_lane(number);
    }

    /// Takes up an attempt that outlived the process which made it, such as a permit. It is charged
    /// already, and it holds its slot until it is over (L5).
    pub(crate) fn take_up(&mut self, call: u32, held: &Reservation, now: Now, plan: &mut Plan) {
        let Reservation { attempt, at, .. } = *held;
        self.step(call, Step::TakeUp);
        self.calls[call].attempt = attempt;
        self.hold_slot(attempt, call, at, Span::ZERO);
        // The attempt may have been answered before the process died, and then its gap from the
        // finish ran from there. Nothing durable tells; the restart is later, so it is never too
        // early (L2).
        let lane = &mut self.lanes[self.calls[call].lane];
        if !Mutant::TakenUpUnfinished.on() {
            lane.finished(held.priority, attempt, now.time);
        }
        let known = self.attempts.get_mut(&attempt).expect("it holds its slot");
        // Its job may have been raised since. The gap after it is that of the priority at which it
        // was reserved, or its end would bind another priority than its start did (P2).
        (known.started_at, known.priority) = (Some(at), held.priority);
        if Mutant::TakenUpFree.on() {
            self.answered(attempt, now);
        }
        let job = &self.jobs[self.calls[call].job];
        let lane = &self.lanes[self.calls[call].lane];
        plan.starts.push(Start {
            attempt,
            call: self.call_id(call),
            lane: lane.name.clone(),
            kind: self.kinds[job.kind as usize].name.clone(),
            before: self.calls[call].attempts,
            start_at: at,
            send_by: at,
            tell_start: false,
            timeout: lane.limits.timeout,
            begun_at: Some(at),
            payload: self.own_payload(call),
        });
    }

    fn dequeue_to_run(&mut self, number: u32, attempt: AttemptId, now: Now) {
        let job = &self.jobs[self.calls[number].job];
        let (tenant, priority, within) = (job.tenant, job.priority, job.start_within());
        let (lane, place) = (self.calls[number].lane, self.calls[number].place);
        self.lanes[lane].queues.serve(priority, tenant, place);
        self.unwait(number);
        if within != ANY_WAIT {
            self.moments.remove(&(place.joined_at + within, Moment::StartWithin(number)));
        }
        self.step(number, Step::Start);
        let call = &mut self.calls[number];
        call.attempt = attempt;
        call.waited = now.time.since(place.joined_at);
    }

    /// Returns `true` if an attempt is on its way for this call, its own or one that it shares.
    pub(crate) fn runs(&self, call: u32) -> bool {
        let call = &self.calls[call];
        let leads = || self.calls.get(call.leader).is_some_and(|it| it.state == State::Running);
        call.state == State::Running || call.state == State::Joined && leads()
    }

    /// Takes in the real start of an attempt. From now on it counts by that moment, which makes
    /// room: its lane and its group may open earlier than the reservation said.
    pub fn started(&mut self, attempt: AttemptId, at: Time) {
        let Some(known) = self.attempts.get_mut(&attempt) else { return };
        if known.started_at.is_some() || !known.used {
            return;
        }
        known.started_at = Some(at);
        let (lane_number, priority, late) = (known.lane, known.priority, known.late);
        let (charged_at, counts_at) = (known.charged_at(), known.counts_at(at));
        let lane = &mut self.lanes[lane_number];
        // It needed less than half of the time that attempts of this lane have now: the disk has
        // recovered, and a shorter promise costs the lane less of its windows. Only an attempt with
        // the present time says so; one from before a doubling had less to begin with.
        let send_by = known.send_by;
        if late > 0 && late == lane.late && at + self.settings.send_within(late - 1) < send_by {
            lane.late -= 1;
        }
        lane.recent.count(at);
        lane.pending.remove(&(charged_at, attempt, priority));
        let last = &mut lane.last_start[priority.index()];
        *last = counts_at.max(*last);
        lane.ledger.started(attempt, charged_at, counts_at);
        if let Some(number) = lane.group {
            let group = &mut self.groups[number];
            group.pending.remove(&(charged_at, attempt, priority));
            group.last_start = group.last_start.max(counts_at);
            group.ledger.started(attempt, charged_at, counts_at);
            self.touch_group(number);
        }
        self.touch_lane(lane_number);
    }

    /// Gives back an attempt that was never sent: nothing counts it any more. Only the worker knows
    /// that, and it alone may say so ([`Verdict::Unused`](crate::outcome::Verdict::Unused)); an
    /// attempt whose fate is unknown stays charged.
    pub(crate) fn give_back(&mut self, attempt: AttemptId, now: Now) {
        let known = self.attempts.get_mut(&attempt).expect("reported attempts are known");
        known.used = false;
        let (lane_number, priority, charged_at) = (known.lane, known.priority, known.charged_at());
        let lane = &mut self.lanes[lane_number];
        // A worker may also give an attempt back in time, having thought better of it: that says
        // nothing about the disk. Attempts that came too late double the time that they had
        // themselves, so that one stall under many attempts doubles it once.
        if now.time > known.send_by {
            lane.came_late(known.late);
        }
        lane.pending.remove(&(charged_at, attempt, priority));
        lane.ledger.give_back(attempt, charged_at);
        if let Some(number) = lane.group {
            let group = &mut self.groups[number];
            group.pending.remove(&(charged_at, attempt, priority));
            group.ledger.give_back(attempt, charged_at);
            self.touch_group(number);
        }
        self.touch_lane(lane_number);
    }

    /// Takes in that the upstream has answered an attempt in full and sees nothing of it any more.
    /// Its slots are free, and a gap from the finish runs from here. The call still runs until its
    /// result comes: the worker may write to disk, which costs the upstream nothing.
    ///
    /// Nothing is written. A crash repeats the call like any other that was not settled, and counts
    /// its finish at the restart, which is later. Beyond
    /// [`max_answered`](crate::Settings::max_answered) the call changes nothing: workers that fall
    /// behind on their own side get no more work.
    pub fn answered(&mut self, attempt: AttemptId, now: Now) {
        let Some(known) = self.attempts.get(&attempt) else { return };
        let known_already = known.reported || known.answered_at.is_some();
        if known_already || self.answered >= self.settings.max_answered {
            return;
        }
        self.start_where_charged(attempt);
        let known = self.attempts.get_mut(&attempt).expect("found above");
        known.answered_at = Some(now.time);
        let (number, priority, keeps_worker) = (known.lane, known.priority, known.keeps_worker);
        self.answered += 1;
        let lane = &mut self.lanes[number];
        lane.unreported += 1;
        lane.finished(priority, attempt, now.time);
        if !Mutant::SlotLost.on() {
            self.free_slot(number, keeps_worker);
        }
        self.touch_lane(number);
    }

    /// Fixes an attempt whose start was never reported where it was charged. That is the latest
    /// moment it could have been, so limits stay on the safe side.
    fn start_where_charged(&mut self, attempt: AttemptId) {
        let known = &self.attempts[&attempt];
        if known.used && known.started_at.is_none() {
            self.started(attempt, known.send_by);
        }
    }

    /// Takes in that an attempt has really ended: its slots are free, and it is history.
    ///
    /// This may come long after its result: a call that timed out settles at once, while its
    /// request may still hang on the wire and hold its slot.
    pub fn ended(&mut self, attempt: AttemptId, now: Now, plan: &mut Plan) {
        if !self.attempts.contains_key(&attempt) {
            return;
        }
        self.start_where_charged(attempt);
        let known = self.attempts.remove(&attempt).expect("found above");
        let number = known.lane;
        self.leave_slot(&known);
        let lane = &mut self.lanes[number];
        let ended_at = known.answered_at.unwrap_or(now.time);
        if known.used {
            lane.finished(known.priority, attempt, ended_at);
        }
        let (lane_id, memory) = (lane.id, lane.memory());
        if known.used && memory > Span::ZERO {
            if let Some(at) = known.started_at {
                plan.writes.push(Write::Started(lane_id, attempt, known.counts_at(at)));
            }
            plan.writes.push(Write::Ended(lane_id, attempt, ended_at));
        } else {
            plan.writes.push(Write::Release(lane_id, attempt));
        }
        if self.lanes[number].ledger.len() > self.lanes[number].trim_at {
            self.trim_lane(number, now.time, plan);
        }
        self.touch_lane(number);
        self.release_lane(number, now.time);
    }

    /// Gives back the slots that an attempt still holds at its end. One that was answered has given
    /// them back already; a second time would let one call too many go out.
    fn leave_slot(&mut self, known: &Attempt) {
        if known.answered_at.is_none() {
            self.free_slot(known.lane, known.keeps_worker);
            return;
        }
        self.answered -= 1;
        let lane = &mut self.lanes[known.lane];
        lane.unreported -= u32::from(!known.reported);
        if Mutant::SlotFreedTwice.on() && lane.in_flight > 0 {
            self.free_slot(known.lane, known.keeps_worker);
        }
    }

    fn free_slot(&mut self, lane: u32, keeps_worker: bool) {
        let lane = &mut self.lanes[lane];
        lane.in_flight -= 1;
        if keeps_worker {
            lane.workers -= 1;
            self.pool.give_back(lane.workers);
        }
        if let Some(group) = lane.group {
            self.groups[group].in_flight -= 1;
            self.touch_group(group);
        }
    }

    /// Forgets history that binds nothing any more, in memory and in the store.
    pub(crate) fn trim_lane(&mut self, number: u32, now: Time, plan: &mut Plan) {
        // The store forgets by number: all attempts of the lane below one. Numbers and moments may
        // disagree by as long as any attempt had to be sent and to arrive. With that as a margin no
        // attempt with a lower number is still needed (L4).
        let lane = &self.lanes[number];
        let margin = self.settings.send_within(lane.latest) + lane.most_slack;
        let memory = lane.memory() + margin;
        let lane = &mut self.lanes[number];
        let forgotten = lane.ledger.trim(memory, now, lane.binding_finish(memory, now));
        if lane.ledger.len() > crate::ledger::EXACT_ENTRIES {
            let spans = lane.window_spans();
            lane.ledger.merge(&spans, now);
        }
        if lane.memberships.len() > 1 {
            let oldest = lane.ledger.oldest().unwrap_or(AttemptId(u64::MAX));
            lane.memberships.retain(|of| of.lasts() || of.last >= oldest);
            self.measure_groups(number);
        }
        let lane = &mut self.lanes[number];
        // The next trim is paid for by the entries that come until then: each costs O(1) on
        // average.
        lane.trim_at = (2 * lane.ledger.len()).clamp(32, crate::ledger::EXACT_ENTRIES);
        if let Some(below) = forgotten {
            plan.writes.push(Write::Forget(lane.id, below));
        }
        if let Some(group) = lane.group.map(|group| &mut self.groups[group]) {
            group.ledger.trim(group.memory() + margin, now, AttemptId(u64::MAX));
            let spans = group.window_spans();
            group.ledger.merge(&spans, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{KindTerms, Setup};
    use crate::job::{JobSpec, Submission};
    use crate::limits::{GroupLimits, Limits, Window};
    use crate::outcome::Verdict;
    use crate::settle::AttemptResult;
    use std::num::NonZeroU32;

    fn at(time: Time) -> Now {
        Now { time, wall: time }
    }

    fn wide_lane() -> Core {
        let window = Window::new("100/10s".parse().expect("a rate"));
        let many = NonZeroU32::new(100).expect("above zero");
        let limits = Limits { windows: vec![window], in_flight: many, ..Limits::default() };
        let limits = Limits { slack: Some(Span::ZERO), ..limits };
        let kinds = vec![KindTerms { keeps_worker: false, ..KindTerms::new("k", OnCrash::Repeat) }];
        Core::new(Setup { lanes: vec![("a".into(), limits)], kinds, ..Setup::default() })
    }

    fn promise(core: &mut Core, jobs: usize, now: Time) -> Vec<AttemptId> {
        let mut plan = Plan::default();
        for _ in 0..jobs {
            let job = Submission::new(JobSpec::new("k", &["a"]), Blob::default());
            core.submit(job, at(now), &mut plan).expect("there is room");
        }
        core.decide(at(now), &mut plan);
        plan.starts.iter().map(|start| start.attempt).collect()
    }

    fn end(core: &mut Core, attempt: AttemptId, now: Time) -> Vec<Write> {
        let mut plan = Plan::default();
        let result = AttemptResult { verdict: Verdict::Empty, announced: None };
        core.report(attempt, result, at(now), 0, &mut plan);
        core.ended(attempt, at(now), &mut plan);
        plan.writes
    }

    #[test]
    fn w3_a_lane_tells_its_waiting_calls_and_those_on_the_wire() {
        let mut core = wide_lane();
        let begin = Time(1_000_000_000);
        let attempts = promise(&mut core, 102, begin);
        let of = |core: &Core| {
            let lane = &core.lane_statuses(at(begin))[0];
            (lane.waiting, lane.in_flight)
        };
        assert_eq!(of(&core), (2, 100));
        end(&mut core, attempts[0], begin);
        assert_eq!(of(&core), (2, 99), "its window is full");
    }

    #[test]
    fn l4_an_early_attempt_halves_the_time_that_a_late_one_doubled() {
        let late_after = |sent_after: Span| {
            let mut core = wide_lane();
            let lane = core.lanes.iter().next().expect("it is there").0;
            core.lanes[lane].came_late(0);
            let begin = Time(1_000_000_000);
            let attempts = promise(&mut core, 2, begin);
            // Two that were as early count once: the second had the time of both.
            for attempt in attempts {
                core.started(attempt, begin + sent_after);
            }
            core.lanes[lane].late
        };
        assert_eq!(late_after(Span::millis(40)), 0);
        assert_eq!(late_after(Span::millis(50)), 1);
    }

    #[test]
    fn l5_attempts_that_are_over_make_room_for_others_to_be_answered() {
        let kinds = vec![KindTerms::new("k", OnCrash::Repeat)];
        let lanes = vec![("a".into(), Limits::default())];
        let settings = crate::settings::Settings { max_answered: 1, ..Default::default() };
        let mut core = Core::new(Setup { settings, lanes, kinds, ..Setup::default() });
        for n in 0..3 {
            let now = Time(1_000_000_000 + n);
            let attempt = promise(&mut core, 1, now)[0];
            core.started(attempt, now);
            core.answered(attempt, at(now));
            assert_eq!(core.lane_statuses(at(now))[0].in_flight, 0, "call {n} holds its slot");
            end(&mut core, attempt, now);
        }
    }

    #[test]
    fn b1_an_attempt_that_no_limit_counts_leaves_nothing_in_the_store() {
        let kinds = vec![KindTerms::new("k", OnCrash::Repeat)];
        let lanes = vec![("a".into(), Limits::default())];
        let mut core = Core::new(Setup { lanes, kinds, ..Setup::default() });
        let now = Time(1_000_000_000);
        let attempt = promise(&mut core, 1, now)[0];
        core.started(attempt, now);
        let writes = end(&mut core, attempt, now);
        let released = |write: &Write| matches!(write, Write::Release(_, id) if *id == attempt);
        assert!(writes.iter().any(released), "{writes:?}");
    }

    #[test]
    fn l3_the_history_of_a_lane_and_of_a_group_is_bounded_where_a_window_is_long() {
        let window = || vec![Window::new("100000/h".parse().expect("a rate"))];
        let of_lane = Limits { windows: window(), ..Limits::default() };
        let of_group = Limits { group: Some("g".into()), ..Limits::default() };
        for limits in [of_lane, of_group] {
            let kinds = vec![KindTerms::new("k", OnCrash::Repeat)];
            let groups =
                vec![("g".into(), GroupLimits { windows: window(), ..GroupLimits::default() })];
            let lanes = vec![("a".into(), limits)];
            let mut core = Core::new(Setup { lanes, groups, kinds, ..Setup::default() });
            let begin = Time(1_000_000_000);
            for n in 0..12_000 {
                let now = begin + Span::millis(100 * n);
                let attempt = promise(&mut core, 1, now)[0];
                core.started(attempt, now);
                end(&mut core, attempt, now);
            }
            let of_lanes = core.lanes.iter().map(|(_, lane)| lane.ledger.len());
            let of_groups = core.groups.iter().map(|(_, group)| group.ledger.len());
            let entries: Vec<usize> = of_lanes.chain(of_groups).collect();
            let bound = 2 * crate::ledger::EXACT_ENTRIES;
            assert!(entries.iter().all(|entries| *entries < bound), "{entries:?}");
        }
    }

    #[test]
    fn l4_history_is_not_forgotten_while_an_attempt_with_a_lower_number_still_counts() {
        let mut core = wide_lane();
        let begin = Time(1_000_000_000);
        let attempts = promise(&mut core, 60, begin);
        // The first is the last to be sent.
        for &attempt in &attempts {
            let late = if attempt == attempts[0] { Span::millis(40) } else { Span::ZERO };
            core.started(attempt, begin + late);
        }
        for &attempt in &attempts {
            end(&mut core, attempt, begin + Span::secs(1));
        }
        let later = begin + Span::secs(10);
        for attempt in promise(&mut core, 99, later) {
            let writes = end(&mut core, attempt, later);
            let forgets = writes.iter().any(|write| matches!(write, Write::Forget(..)));
            assert!(!forgets, "the first attempt counts for 40 ms more");
        }
    }
}
