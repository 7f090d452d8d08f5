//! The model of a lane or group: its limits through time, its attempts, and the moment it opens,
//! computed from these alone.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use paceline::turn::LaneAct;
use paceline_core::{
    About, Announced, AttemptId, AttemptResult, Blob, CallId, GapFrom, GroupLimits, LADDER, Limits,
    Priority, Rate, Span, Time, Verdict, Window,
};

use super::Checker;
use super::groups::{Member, Membership};
use super::slowed::Slowed;

/// Limits, and since when each of their windows is in force (L11).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LimitsInForce {
    pub(super) limits: Limits,
    pub(super) since: Vec<Time>,
    pub(super) changed_at: Time,
}

/// One attempt, as reserved and as seen on the wire.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about an attempt")]
pub(super) struct AttemptModel {
    pub(super) id: AttemptId,
    pub(super) call: CallId,
    /// The call that the attempt belongs to now.
    pub(super) owner: CallId,
    pub(super) priority: Priority,
    pub(super) cost: u32,
    /// Workers of the pool that it occupies: one or none.
    pub(super) workers: u32,
    /// The highest rank that its age allowed when it was reserved (P2).
    pub(super) rank: Priority,
    pub(super) rules: Arc<LimitsInForce>,
    /// The groups that count it (L9).
    pub(super) groups: Vec<Member>,
    /// The cache key, if its outcome may be cached (C2).
    pub(super) cache_key: Option<Blob>,
    /// The slack: how long the request may be in transit.
    pub(super) slack: Span,
    /// The moment at which the engine must count it: the latest arrival, by the latest start or,
    /// once that is known, by the real start.
    pub(super) counts_at: Time,
    /// The moment at which the store counts it.
    pub(super) durable_at: Time,
    /// The due moment of its job, by the clock at its reservation (W5).
    pub(super) may_start_at: Time,
    pub(super) start_known: bool,
    /// The start that counts, and when it was reported to the engine.
    pub(super) started_at: Time,
    pub(super) start_told: Time,
    pub(super) unused: bool,
    pub(super) told: bool,
    /// The worker reported it as answered, and the engine accepted that.
    pub(super) answered: bool,
    pub(super) ended: bool,
    /// The store knows that it ended.
    pub(super) end_durable: bool,
    /// It left no trace in the store.
    pub(super) released: bool,
    /// Its process died before the store knew of its end.
    pub(super) crashed: bool,
    pub(super) finished_at: Option<Time>,
    pub(super) sent_at: Option<Time>,
    pub(super) left_at: Option<Time>,
}

impl AttemptModel {
    /// The start that the engine assumes.
    pub(super) fn latest_start(&self) -> Time {
        self.counts_at - self.slack
    }

    /// The engine learns the start, or has to assume it.
    pub(super) fn learn_start(&mut self, at: Time, now: Time) {
        if !std::mem::replace(&mut self.start_known, true) {
            (self.started_at, self.start_told) = (at, now);
        }
    }

    /// Returns `true` if its limits count the other attempt. One that was reserved later, under
    /// other limits, may overtake it in transit.
    pub(super) fn could_know(&self, other: &AttemptModel) -> bool {
        other.id <= self.id || Arc::ptr_eq(&self.rules, &other.rules)
    }

    /// Returns `true` until it is answered or has ended (L5).
    pub(super) fn holds_slot(&self) -> bool {
        !self.answered && !self.ended
    }
}

/// A lane.
#[derive(Clone, Debug)]
pub(super) struct LaneModel {
    pub(super) rules: Arc<LimitsInForce>,
    pub(super) attempts: VecDeque<AttemptModel>,
    pub(super) cooldown_until: Time,
    pub(super) failures: u32,
    pub(super) rung: usize,
    /// The newest reservation when throttling or the ladder last changed the lane.
    pub(super) judged: AttemptId,
    pub(super) paused: bool,
    /// When it was last paused, and when it was last resumed.
    pub(super) paused_at: Time,
    pub(super) resumed_at: Time,
    /// It is not configured any more.
    pub(super) gone: bool,
    /// The groups that its attempts were counted in.
    pub(super) memberships: Vec<Membership>,
    /// Reservations up to this one were made before the lane joined its present group.
    pub(super) grouped_after: AttemptId,
    /// Running attempts that occupy a worker (P5).
    pub(super) running: u32,
    /// Throttling or announced limits are in force.
    pub(super) restricted: bool,
    /// The limits and groups before the last start, while that start is not durable.
    before_start: Option<(Arc<LimitsInForce>, Vec<Membership>, AttemptId)>,
    /// When the process last died. Starts that did not matter then may be forgotten.
    pub(super) restarted_at: Time,
    /// When the process last died or the lane was last dropped. Attempts that did not matter then
    /// may have left no trace.
    pub(super) fresh_at: Time,
    /// Until then, newer limits may miss a start that was forgotten.
    unsure_until: Time,
    /// The process died while the lane was restricted: gaps may run from here.
    blurred_at: Time,
    /// When an input last may have moved its opening forward.
    pub(super) eased_at: Time,
    /// The effect of throttling (L7).
    pub(super) slowed: Slowed,
    /// Calls that failed since the last response of the upstream. Each counts once (L7).
    pub(super) failed_calls: BTreeSet<CallId>,
    pub(super) announced: Option<Announcement>,
    /// The last finish that the engine knows, by priority.
    pub(super) last_finish: [Time; 4],
}

/// The limits that an upstream announced (L8).
#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    pub(super) announced: Announced,
    pub(super) at: Time,
    /// The newest reservation before the announcement.
    pub(super) newest: AttemptId,
    /// Attempts that the upstream may not have subtracted from the calls left.
    pub(super) others: u32,
}

/// A group.
#[derive(Clone, Debug)]
pub(super) struct GroupModel {
    pub(super) limits: GroupLimits,
    pub(super) changed_at: Time,
}

impl LaneModel {
    fn new(limits: Limits, now: Time) -> LaneModel {
        let since = vec![now; limits.windows.len()];
        let memberships = limits.group.iter().map(|group| Membership::since(group, 0)).collect();
        LaneModel {
            memberships,
            grouped_after: AttemptId(0),
            rules: Arc::new(LimitsInForce { limits, since, changed_at: now }),
            attempts: VecDeque::new(),
            cooldown_until: Time::ZERO,
            failures: 0,
            rung: 0,
            judged: AttemptId(0),
            paused: false,
            paused_at: Time::ZERO,
            resumed_at: Time::ZERO,
            gone: false,
            running: 0,
            restricted: false,
            before_start: None,
            restarted_at: Time::ZERO,
            fresh_at: Time::ZERO,
            unsure_until: Time::ZERO,
            blurred_at: Time::ZERO,
            eased_at: Time::ZERO,
            slowed: Slowed::default(),
            failed_calls: BTreeSet::new(),
            announced: None,
            last_finish: [Time::ZERO; 4],
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.rules.limits
    }

    /// Returns `true` if the model knows the latest moment of its opening.
    pub(super) fn plain(&self, now: Time) -> bool {
        let gap = LaneModel::longest_gap(self.limits());
        let even = self.even(now) && self.gaps_fall();
        even && now >= self.blurred_at + gap && !self.may_count_more(now)
    }

    /// Returns `true` if no priority has a longer gap than a lower one. Otherwise calls of the
    /// lower priority wait for the longer gap too, and a call that rises may wait longer than
    /// before.
    fn gaps_fall(&self) -> bool {
        self.limits().gap_share.is_sorted()
    }

    /// The longest gap over all ranks.
    fn longest_gap(limits: &Limits) -> Span {
        Priority::ALL
            .map(|rank| LaneModel::gap(limits, rank))
            .into_iter()
            .fold(Span::ZERO, Span::max)
    }

    /// Returns `true` if a new window may count attempts that ended before it: a lane without
    /// limits keeps a history for the groups that it was in.
    fn may_count_more(&self, now: Time) -> bool {
        let windows = self.limits().windows.iter().zip(&self.rules.since);
        let mut new = windows.filter(|(window, since)| now < **since + window.rate.per);
        new.any(|(_, &since)| {
            let mut attempts = self.attempts.iter().rev().take_while(|t| t.durable_at >= since);
            attempts.any(|t| t.counts_at >= since && !t.released && self.was_over(t, since))
        })
    }

    /// Returns `true` if the model knows the earliest moment of its opening.
    pub(super) fn even(&self, now: Time) -> bool {
        !self.restricted && self.is_sure(now)
    }

    /// Returns `true` if no limit may miss attempts from before a restart.
    pub(super) fn is_sure(&self, now: Time) -> bool {
        now >= self.unsure_until
    }

    /// The engine starts again. If the previous start was never durable, its changes are undone.
    fn start_over(&mut self) {
        let before = (self.rules.clone(), self.memberships.clone(), self.grouped_after);
        let before = self.before_start.get_or_insert(before);
        (self.rules, self.memberships, self.grouped_after) = before.clone();
    }

    /// The changes of the start are durable.
    pub(super) fn has_started(&mut self) {
        self.before_start = None;
    }

    pub(super) fn change(&mut self, limits: &Limits, now: Time) {
        if self.rules.limits == *limits {
            return;
        }
        if self.restarted_at > Time::ZERO {
            let windows = limits.windows.iter().map(|window| window.rate.per);
            let binds = windows.fold(LaneModel::longest_gap(limits), Span::max);
            self.unsure_until = self.unsure_until.max(self.restarted_at + binds);
        }
        let since = |window: &Window| {
            let old = self.rules.limits.windows.iter().position(|w| w.rate == window.rate);
            old.map_or(now, |place| self.rules.since[place])
        };
        let since = limits.windows.iter().map(since).collect();
        self.slowed.widened_to(limits.in_flight.get());
        self.rules = Arc::new(LimitsInForce { limits: limits.clone(), since, changed_at: now });
    }

    pub(super) fn find(&self, attempt: AttemptId) -> Option<&AttemptModel> {
        self.attempts.iter().rev().find(|found| found.id == attempt)
    }

    pub(super) fn find_mut(&mut self, attempt: AttemptId) -> Option<&mut AttemptModel> {
        self.attempts.iter_mut().rev().find(|found| found.id == attempt)
    }

    /// The slots that the engine must count as held (L5).
    pub(super) fn held(&self) -> u32 {
        self.attempts.iter().filter(|attempt| attempt.holds_slot()).count() as u32
    }

    /// Pool slots that its attempts hold: the first running call takes none (P5).
    pub(super) fn slots(&self) -> u32 {
        self.running.saturating_sub(1)
    }

    /// Answered attempts without a verdict. No probe goes out while there are any (L7).
    pub(super) fn open_verdicts(&self) -> u32 {
        let open = self.attempts.iter().filter(|t| t.answered && !t.told && !t.ended);
        open.count() as u32
    }

    /// Other attempts that are on the wire, or answered without a verdict.
    fn others(&self, attempt: AttemptId) -> u32 {
        let others = self.attempts.iter().filter(|t| t.id != attempt && !t.ended);
        others.filter(|t| t.holds_slot() || !t.told).count() as u32
    }

    /// Requests that are open at the upstream now.
    pub(super) fn on_the_wire(&self) -> impl Iterator<Item = &AttemptModel> {
        self.attempts.iter().filter(|t| t.sent_at.is_some() && t.left_at.is_none())
    }

    /// The process died. Starts count as the store has them, and an attempt without an end has
    /// ended now, unless it outlives the process.
    pub(super) fn process_died(&mut self, goes_on: &[AttemptId], now: Time) {
        let mut finish = self.last_finish;
        for attempt in &mut self.attempts {
            attempt.counts_at = attempt.durable_at;
            attempt.start_known = true;
            attempt.regrouped(&self.memberships);
            let died_before = attempt.crashed;
            if !attempt.end_durable {
                (attempt.finished_at, attempt.crashed) = (None, !attempt.unused);
            }
            if goes_on.contains(&attempt.id) && !attempt.unused {
                (attempt.told, attempt.answered, attempt.ended) = (false, false, false);
                attempt.crashed = false;
                // The next process takes it up, and its gap runs from the restart (L2).
                finish[attempt.priority.index()] = now;
                continue;
            }
            attempt.ended = true;
            if !attempt.end_durable && died_before {
                // The store has no end of it, so it counts again.
                self.blurred_at = now;
            } else if !attempt.end_durable {
                finish[attempt.priority.index()] = now;
            }
        }
        self.last_finish = finish;
        let open = self.attempts.iter().filter(|attempt| !attempt.ended);
        self.running = open.map(|attempt| attempt.workers).sum();
        (self.restarted_at, self.fresh_at) = (now, now);
        if self.restricted {
            self.blurred_at = now;
        }
        self.slowed.forget_counts(now);
        self.failed_calls.clear();
    }

    /// The configured gap of a rank (L2, L11).
    pub(super) fn gap(limits: &Limits, rank: Priority) -> Span {
        let every = limits.every.unwrap_or(Span::ZERO);
        let of_rank = Span(limits.gap_share[rank.index()].of(every.0));
        let spread = limits.windows.iter().filter(|window| window.spread);
        let spread = spread.map(|w| Span(w.rate.per.0.div_ceil(u64::from(w.rate.max.get()))));
        spread.fold(of_rank, Span::max)
    }

    /// The moment from which a gap runs, for all calls or one priority.
    fn last(&self, only: Option<Priority>) -> Option<Time> {
        if self.limits().gap_from == GapFrom::Finish {
            let of = |p: Priority| self.last_finish[p.index()];
            let last =
                only.map_or_else(|| Priority::ALL.map(of).into_iter().max(), |p| Some(of(p)));
            return last.filter(|at| *at > Time::ZERO);
        }
        let attempts = self.attempts.iter().filter(|t| !t.unused);
        attempts.filter(|t| only.is_none_or(|p| p == t.priority)).map(|t| t.counts_at).max()
    }

    /// When the limits of the lane itself allow a call of cost 1.
    pub(super) fn opening(&self, priority: Priority, rank: Priority) -> Time {
        self.opening_for(priority, rank, 1)
    }

    /// When the limits of the lane itself allow a call of this cost.
    pub(super) fn opening_for(&self, priority: Priority, rank: Priority, cost: u32) -> Time {
        let mut at = self.cooldown_until;
        let gap = LaneModel::gap(self.limits(), rank);
        if gap > Span::ZERO
            && let Some(last) = self.last(None)
        {
            at = at.max(last + gap);
        }
        if rank < priority
            && let Some(last) = self.last(Some(priority))
        {
            at = at.max(last + LaneModel::gap(self.limits(), priority));
        }
        for (window, &since) in self.limits().windows.iter().zip(&self.rules.since) {
            let attempts = self.attempts.iter().filter(|t| !t.unused && t.counts_at >= since);
            let attempts = attempts.filter(|t| !self.was_over(t, since));
            let spent = attempts.map(|t| (t.counts_at, t.cost)).collect();
            at = at.max(window_opening(spent, window.rate, window.allowed(priority), cost));
        }
        at
    }

    /// Returns `true` if an attempt ended before a window was introduced, and left no trace for it:
    /// its lane had no limits then. Its request may still arrive.
    pub(super) fn was_over(&self, t: &AttemptModel, since: Time) -> bool {
        let Limits { every, windows, group, .. } = &t.rules.limits;
        let unlimited = every.is_none() && windows.is_empty() && group.is_none();
        t.finished_at
            .is_some_and(|at| at < since && (t.released || unlimited && at > self.restarted_at))
    }

    /// The most calls at once, by configuration and ladder.
    pub(super) fn width(&self) -> u32 {
        if self.rung > 0 { 1 } else { self.limits().in_flight.get() }
    }

    /// Drops attempts that have ended and do not matter any more.
    pub(super) fn trim(&mut self, longest: Span, now: Time) {
        while let Some(first) = self.attempts.front() {
            let over = first.ended && (first.left_at.is_some() || first.sent_at.is_none());
            let seen = first.sent_at.unwrap_or(first.counts_at).max(first.counts_at);
            if !over || seen + longest > now || self.attempts.len() < 8 {
                break;
            }
            self.attempts.pop_front();
        }
    }
}

/// When a cost fits into `allowed` per window; `Time::NEVER` if it never does.
pub(super) fn window_opening(
    mut spent: Vec<(Time, u32)>,
    rate: Rate,
    allowed: u64,
    cost: u32,
) -> Time {
    let Some(room) = allowed.checked_sub(u64::from(cost)) else { return Time::NEVER };
    spent.sort_unstable();
    let mut held = 0;
    for &(at, cost) in spent.iter().rev() {
        held += u64::from(cost);
        if held > room {
            return at + rate.per;
        }
    }
    Time::ZERO
}

impl Checker {
    /// The slack of a lane: as configured, else 2 ms, but at most a 500th of the shortest window or
    /// gap.
    pub(super) fn slack(&self, limits: &Limits) -> Span {
        let group = limits.group.as_ref().and_then(|name| self.groups.get(name));
        let group = group.map(|group| &group.limits);
        let windows = group.into_iter().flat_map(|group| &group.windows).chain(&limits.windows);
        let gaps = Priority::ALL.map(|rank| LaneModel::gap(limits, rank)).into_iter();
        let spans = windows.map(|window| window.rate.per).chain(gaps);
        let spans = spans.chain(group.and_then(|group| group.every));
        let shortest = spans.filter(|span| *span > Span::ZERO).min().unwrap_or_default();
        limits.slack.unwrap_or(Span(shortest.0 / 500).min(Span::millis(2)))
    }

    /// Applies the configuration at a start.
    pub(super) fn configure_all(&mut self, now: Time) {
        let setup = self.setup.clone();
        for (name, limits) in &setup.groups {
            let group = GroupModel { limits: limits.clone(), changed_at: now };
            let current = self.groups.entry(name.clone()).or_insert_with(|| group.clone());
            if current.limits != *limits {
                *current = group;
            }
        }
        for (name, limits) in &setup.lanes {
            self.lane_at_start(name, limits, now);
        }
        let made: Vec<Arc<str>> = self.lane_names();
        for name in made {
            if setup.lanes.iter().any(|(lane, _)| *lane == name) {
                continue;
            }
            match self.template(&name) {
                Some(limits) => self.lane_at_start(&name, &limits, now),
                None => self.lane(&name).gone = true,
            }
        }
    }

    fn lane_at_start(&mut self, name: &Arc<str>, limits: &Limits, now: Time) {
        let newest = self.newest;
        let lane =
            self.lanes.entry(name.clone()).or_insert_with(|| LaneModel::new(limits.clone(), now));
        lane.gone = false;
        lane.start_over();
        lane.group_at_start(limits.group.as_ref(), newest);
        lane.change(limits, now);
    }

    fn template(&self, name: &str) -> Option<Limits> {
        let templates = self.lanes.iter().filter_map(|(t, l)| Some((t.strip_suffix('*')?, l)));
        let covers = templates.filter(|(prefix, _)| name.starts_with(prefix));
        covers.max_by_key(|(prefix, _)| prefix.len()).map(|(_, lane)| lane.limits().clone())
    }

    /// The lane of this name, created from a template if needed.
    pub(super) fn lane(&mut self, name: &Arc<str>) -> &mut LaneModel {
        if !self.lanes.contains_key(name) {
            let limits = self.template(name).unwrap_or_default();
            self.lanes.insert(name.clone(), LaneModel::new(limits, self.now.time));
        }
        self.lanes.get_mut(name).expect("made above")
    }

    pub(super) fn lane_act(&mut self, name: &Arc<str>, act: &LaneAct) {
        let (now, newest) = (self.now.time, self.newest);
        // A lane that a template created in this turn may appear in an act first.
        let made = !matches!(act, LaneAct::Change(_) | LaneAct::Set(_));
        if self.lanes.get(name).map_or(!made, |lane| lane.gone) {
            return;
        }
        let lane = self.lane(name);
        match act {
            LaneAct::Pause => {
                lane.paused_at = if lane.paused { lane.paused_at } else { now };
                lane.paused = true;
            }
            LaneAct::Resume => {
                lane.resumed_at = if lane.paused { now } else { lane.resumed_at };
                lane.paused = false;
            }
            LaneAct::Reset => {
                (lane.cooldown_until, lane.failures, lane.rung) = (Time::ZERO, 0, 0);
                lane.eased_at = now;
                lane.slowed.reset();
                lane.failed_calls.clear();
                (lane.announced, lane.restricted) = (None, false);
            }
            LaneAct::Change(limits) | LaneAct::Set(limits) => {
                let mut changed = vec![name.clone()];
                if let Some(prefix) = name.strip_suffix('*') {
                    let configured =
                        |lane: &str| self.setup.lanes.iter().any(|(n, _)| **n == *lane);
                    let made = self.lanes.keys().filter(|n| n.starts_with(prefix));
                    changed.extend(made.filter(|n| !configured(n)).cloned());
                }
                for name in changed {
                    let lane = self.lane(&name);
                    lane.regroup(limits.group.as_ref(), newest, now);
                    lane.change(limits, now);
                    lane.eased_at = now;
                    self.stretch_budgets(&name);
                }
            }
        }
    }

    /// Applies the verdict of an attempt to its lane (L6, L7, L8).
    pub(super) fn apply_to_lane(&mut self, attempt: AttemptId, told: &AttemptResult) {
        let (now, newest) = (self.now.time, self.newest);
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        let Some(found) = lane.find_mut(attempt) else { return };
        if std::mem::replace(&mut found.told, true) {
            return;
        }
        if told.verdict == Verdict::Unused {
            found.unused = true;
            lane.eased_at = now;
            return;
        }
        let call = found.call;
        let dated = match &told.verdict {
            Verdict::Throttled { retry_after, .. } | Verdict::Failed { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        };
        if let Some(after) = dated {
            lane.cooldown_until = lane.cooldown_until.max(now + after);
        }
        match &told.verdict {
            Verdict::Throttled { .. } => lane.throttled(attempt, newest, dated, now),
            Verdict::Failed { about: About::Call, .. } => lane.answered(),
            Verdict::Failed { failure, .. } if failure.retryable => {
                if dated.is_none_or(|after| after < Span::secs(1)) {
                    lane.slowed.fails();
                }
                let counts = dated.is_none_or(|after| after < Span::secs(1));
                if attempt > lane.judged && counts {
                    // Retries of one call count once.
                    lane.failures += u32::from(lane.failed_calls.insert(call));
                    if lane.rung > 0 || lane.failures >= lane.limits().fail_after.get() {
                        let rest = LADDER[lane.rung.min(LADDER.len() - 1)];
                        lane.cooldown_until = lane.cooldown_until.max(now + rest);
                        lane.rung += 1;
                        lane.judged = newest;
                    }
                }
            }
            Verdict::Lost { .. } | Verdict::Unused | Verdict::NotProcessed => {}
            _ => lane.succeeded(now),
        }
        if let Some(announced) = told.announced {
            lane.restricted = true;
            lane.announced =
                Some(Announcement { announced, at: now, newest, others: lane.others(attempt) });
        }
    }
}
