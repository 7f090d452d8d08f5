//! One lane: its queues, its history, and when it next opens (L1 to L11).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::health::{Health, Recent};
use crate::job::{AttemptId, CallId, LaneId};
use crate::ledger::Ledger;
use crate::limits::{GapFrom, GroupLimits, Limits, MOST_SLACK, MOST_WINDOWS, Portion, Window};
use crate::mutant::Mutant;
use crate::outcome::Announced;
use crate::pending::PendingStarts;
use crate::pool::Need;
use crate::priority::Priority;
use crate::queue::Queues;
use crate::record::{LaneRecord, Membership, SlowRecord};
use crate::room::Room;
use crate::settings::MOST_LATE;
use crate::time::{Span, Time};
use crate::waits::Budgets;

/// The limit that keeps a lane closed, in the words of `why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Gap,
    /// The gap of the call's own priority (P2): calls behind it may pass.
    OwnGap,
    Window,
    /// The rest of a window is kept for higher priorities (L11): they may pass.
    Keep,
    Cooldown,
    Group,
}

/// The moment at which something opens, and the limit that keeps it closed until then. A past
/// moment means open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) at: Time,
    pub(crate) cause: Cause,
}

impl Opening {
    pub(crate) const OPEN: Opening = Opening { at: Time::ZERO, cause: Cause::Gap };

    pub(crate) fn latest(self, other: Opening) -> Opening {
        if other.at > self.at { other } else { self }
    }
}

/// The part of a call that decides when its lane opens for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The priority that was submitted.
    pub(crate) priority: Priority,
    /// The priority after it rose with age (P2).
    pub(crate) rank: Priority,
    pub(crate) cost: u32,
}

/// The part of an opening that is the same for every call at one moment. It is looked up once per
/// visit, because a visit asks for several openings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonOpening {
    /// The moment that gaps run from.
    last: Time,
    every: Span,
    /// The gap that is the same for every priority.
    fixed: Span,
    /// Cooldown, announcements and windows, for a cost of 1 and nothing kept.
    shared: Opening,
    keeps: bool,
}

/// A call that may go, in the order in which calls compete for slots: the smallest goes first (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contender {
    pub(crate) rank: Priority,
    pub(crate) order: u64,
    pub(crate) seq: u64,
    pub(crate) call: u32,
    /// Its need besides its lane.
    pub(crate) need: Need,
}

/// Contenders by their needs.
pub(crate) type Contenders = [BTreeSet<Contender>; 3];

/// A lane's place in the indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its best call that may go now.
    pub(crate) any: Option<Contender>,
    /// Its best interactive call that may go now (P3).
    pub(crate) interactive: Option<Contender>,
    /// When to look again.
    pub(crate) wake_at: Option<Time>,
}

/// One lane and everything that waits on it. There may be ten thousand: a decision then costs what
/// it misses in the caches. So the fields that are read together stand together, in this order, and
/// start at a cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    pub(crate) limits: Arc<Limits>,
    pub(crate) group: Option<u32>,
    /// Calls of unfinished jobs and attempts on the wire that name it.
    pub(crate) users: u32,
    pub(crate) in_flight: u32,
    /// Those of them that keep a worker (P5).
    pub(crate) workers: u32,
    /// Answered attempts, no longer in flight, whose verdict is open.
    pub(crate) unreported: u32,
    pub(crate) dirty: bool,
    pub(crate) paused: bool,
    /// Made by a template: dropped when as good as new (L10).
    pub(crate) made: bool,
    /// Whether the store knows its name.
    pub(crate) stored: bool,
    /// How often the time to send an attempt is doubled now, and was at most: an attempt that came
    /// too late doubles it, one that came early halves it (L4).
    pub(crate) late: u8,
    pub(crate) latest: u8,
    /// Unfinished rss calls, one per kind (D3).
    pub(crate) rss: Vec<(u32, u32)>,
    pub(crate) room: Room,
    pub(crate) queues: Queues,
    /// Waiting calls by their `max_wait` (W1).
    pub(crate) budgets: Budgets,
    /// How long the history of its attempts binds any of its groups.
    pub(crate) group_memory: Span,
    /// Of its limits: the longest window, the gap that spreading adds, and the slack.
    longest: Span,
    spread: Span,
    pub(crate) slack: Span,
    /// The limits that its upstream announced, and when (L8).
    pub(crate) announced: Option<Box<(Announced, Time)>>,
    pub(crate) last_start: [Time; 4],
    pub(crate) ledger: Ledger,
    /// The number of entries from which on the ledger is searched for old ones.
    pub(crate) trim_at: usize,
    /// When each of its windows was introduced (L11).
    pub(crate) since: [Time; MOST_WINDOWS],
    pub(crate) standing: Standing,
    pub(crate) pending: PendingStarts,
    pub(crate) health: Health,
    /// Its starts in the last seconds (L7).
    pub(crate) recent: Recent,

    pub(crate) id: LaneId,
    pub(crate) name: Arc<str>,
    /// By priority, the last finish and its attempt.
    pub(crate) finished: [(Time, AttemptId); 4],
    /// Its place among the idle lanes, if it is one of them (L10).
    pub(crate) idle_from: Time,
    /// The groups that its attempts were charged to, the present one last (L9).
    pub(crate) memberships: Vec<Membership>,
    /// Since when an operator has paused it.
    pub(crate) paused_at: Time,
    /// Calls that failed since its upstream last answered: each counts once (L7). Forgotten by a
    /// restart.
    pub(crate) failed: BTreeSet<CallId>,
    /// The longest slack that its attempts had, and the shortest since its upstream last announced
    /// limits.
    pub(crate) most_slack: Span,
    announced_slack: Span,
    /// Of the calls that take room: those that share another's request, and those that count in
    /// all.
    pub(crate) joined: u32,
    pub(crate) in_all: u32,
}

impl Lane {
    pub(crate) fn new(id: LaneId, name: Arc<str>, limits: Arc<Limits>, now: Time) -> Lane {
        Lane {
            id,
            name,
            since: [now; MOST_WINDOWS],
            longest: longest(&limits),
            spread: limits.spread_gap(),
            slack: Span::ZERO,
            trim_at: 0,
            memberships: Vec::new(),
            group_memory: Span::ZERO,
            paused_at: Time::ZERO,
            failed: BTreeSet::new(),
            recent: Recent::default(),
            most_slack: Span::ZERO,
            announced_slack: Span::ZERO,
            joined: 0,
            in_all: 0,
            limits,
            group: None,
            made: false,
            users: 0,
            idle_from: Time::ZERO,
            stored: false,
            late: 0,
            latest: 0,
            room: Room::default(),
            queues: Queues::default(),
            budgets: Budgets::default(),
            rss: Vec::new(),
            in_flight: 0,
            workers: 0,
            unreported: 0,
            pending: PendingStarts::default(),
            last_start: [Time::ZERO; 4],
            finished: [(Time::ZERO, AttemptId::default()); 4],
            ledger: Ledger::default(),
            health: Health::default(),
            announced: None,
            paused: false,
            standing: Standing::default(),
            dirty: false,
        }
    }

    /// Notes the end of an attempt that was sent.
    pub(crate) fn finished(&mut self, priority: Priority, attempt: AttemptId, at: Time) {
        let last = &mut self.finished[priority.index()];
        if at >= last.0 {
            *last = (at, attempt);
        }
    }

    /// The oldest attempt from whose finish a gap still runs: the history from it on must stay.
    pub(crate) fn binding_finish(&self, memory: Span, now: Time) -> AttemptId {
        let none = AttemptId(u64::MAX);
        if self.limits.gap_from == GapFrom::Start {
            return none;
        }
        let binds = |(at, _): &&(Time, AttemptId)| *at > Time::ZERO && *at + memory > now;
        let binding = self.finished.iter().filter(binds);
        binding.map(|(_, attempt)| *attempt).min().unwrap_or(none)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queues.len()
    }

    fn announced(&self) -> Option<&(Announced, Time)> {
        self.announced.as_deref().filter(|_| !Mutant::AnnouncedIgnored.on())
    }

    fn announced_gap(&self) -> Span {
        self.announced().and_then(|(announced, _)| announced.every).unwrap_or(Span::ZERO)
    }

    /// The gap of a call of this rank. Only the lane's own gap has shares: one that spreading adds,
    /// or that the upstream announced, is the same for all (L2).
    pub(crate) fn gap(&self, rank: Priority) -> Span {
        self.shared_gap(self.limits.gap_share[rank.index()])
    }

    fn shared_gap(&self, share: Portion) -> Span {
        let bent = Span(share.of(self.health.every(&self.limits).0));
        bent.max(self.spread).max(self.announced_gap())
    }

    /// The last moment that a gap runs from, for one priority or for all.
    fn last(&self, only: Option<Priority>) -> Time {
        let moments = match self.limits.gap_from {
            GapFrom::Start => self.last_start,
            GapFrom::Finish => self.finished.map(|(at, _)| at),
        };
        let known = match only {
            Some(priority) => moments[priority.index()],
            None => moments.into_iter().max().unwrap_or(Time::ZERO),
        };
        if self.limits.gap_from == GapFrom::Finish {
            return known;
        }
        // Until its start is known, an attempt counts at the latest moment it could arrive (L4).
        known.max(self.pending.latest(only))
    }

    /// The moment at which a call with this demand could go, whatever is ahead of it.
    pub(crate) fn opening(&self, demand: Demand) -> Opening {
        self.opening_at(&self.common(), demand)
    }

    /// Looks up the part of an opening that all calls have in common.
    pub(crate) fn common(&self) -> CommonOpening {
        let mut shared = Opening { at: self.health.cooldown_until, cause: Cause::Cooldown };
        let mut keeps = false;
        for (window, &since) in self.limits.windows.iter().zip(&self.since) {
            keeps |= window.keep != [Portion::ZERO; 4];
            let max = u64::from(window.rate.max.get());
            let at = self.ledger.opening(window.rate.per, max, since, 1);
            shared = shared.latest(Opening { at, cause: Cause::Window });
        }
        if let Some((announced, at)) = self.announced() {
            shared = shared.latest(self.announced_opening(announced, *at, 1));
        }
        CommonOpening {
            last: self.last(None),
            every: if Mutant::FinishNotSlowed.on() && self.limits.gap_from == GapFrom::Finish {
                self.limits.every.unwrap_or(Span::ZERO)
            } else {
                self.health.every(&self.limits)
            },
            fixed: self.spread.max(self.announced_gap()),
            shared,
            keeps,
        }
    }

    /// Computes an opening from the common part.
    pub(crate) fn opening_at(&self, common: &CommonOpening, demand: Demand) -> Opening {
        let Demand { priority, rank, cost } = demand;
        let gap = |rank: Priority| {
            Span(self.limits.gap_share[rank.index()].of(common.every.0)).max(common.fixed)
        };
        let mut opening = Opening::OPEN;
        let last =
            if Mutant::GapPerPriority.on() { self.last(Some(priority)) } else { common.last };
        let risen_gap = gap(rank);
        if risen_gap > Span::ZERO && last > Time::ZERO {
            opening = Opening { at: last + risen_gap, cause: Cause::Gap };
        }
        let own_gap = gap(priority);
        if rank < priority && own_gap > Span::ZERO {
            let from = self.last(Some(priority));
            if from > Time::ZERO {
                let own = Opening { at: from + own_gap, cause: Cause::OwnGap };
                opening = opening.latest(own);
            }
        }
        opening = opening.latest(common.shared);
        if cost > 1 || common.keeps {
            for (window, &since) in self.limits.windows.iter().zip(&self.since) {
                opening = opening.latest(self.window_opening(window, since, priority, cost));
            }
            if let Some((announced, at)) = self.announced() {
                opening = opening.latest(self.announced_opening(announced, *at, cost));
            }
        }
        opening
    }

    fn window_opening(
        &self,
        window: &Window,
        since: Time,
        priority: Priority,
        cost: u32,
    ) -> Opening {
        let open = |allowed| self.ledger.opening(window.rate.per, allowed, since, cost);
        let max = u64::from(window.rate.max.get());
        let allowed = if Mutant::KeepIgnored.on() { max } else { window.allowed(priority) };
        let at = open(allowed);
        // Closed for this priority alone, or for all?
        if allowed < max && open(max) < at {
            Opening { at, cause: Cause::Keep }
        } else {
            Opening { at, cause: Cause::Window }
        }
    }

    fn announced_opening(&self, announced: &Announced, said_at: Time, cost: u32) -> Opening {
        let mut at = Time::ZERO;
        // The upstream has counted all that started before, the call that it answered among them.
        let since = said_at + self.announced_slack;
        if let Some(rate) = announced.window {
            let max = u64::from(rate.max.get()).max(u64::from(cost));
            at = self.ledger.opening(rate.per, max, since, cost);
        }
        if let Some((left, span)) = announced.left {
            let used = self.ledger.used(Span(u64::MAX), since, since);
            if used + u64::from(cost) > u64::from(left) {
                at = at.max(said_at + span);
            }
        }
        Opening { at, cause: Cause::Window }
    }

    /// The calls in flight that are allowed now.
    pub(crate) fn width(&self) -> u32 {
        if self.health.probing() {
            return 1;
        }
        let configured = self.limits.in_flight.get();
        let narrowed = self.health.narrowed.unwrap_or(configured);
        let announced = self.announced().and_then(|(announced, _)| announced.in_flight);
        let announced = announced.filter(|_| !Mutant::AnnouncedWidthIgnored.on());
        configured.min(narrowed).min(announced.unwrap_or(u32::MAX).max(1))
    }

    /// Slots that are taken. A probe takes the only one until its verdict is known, answered or
    /// not: before that a second call could meet an upstream that is still down (L7).
    pub(crate) fn taken(&self) -> u32 {
        let probes = self.health.probing() && !Mutant::ProbeNotAwaited.on();
        self.in_flight + if probes { self.unreported } else { 0 }
    }

    /// How long its history binds anything, its groups included.
    pub(crate) fn memory(&self) -> Span {
        let shares = self.limits.gap_share;
        let longest_share = shares.into_iter().max().unwrap_or_default();
        let longest_share = if Mutant::BackgroundMemory.on() { shares[3] } else { longest_share };
        let limits = self.longest.max(self.shared_gap(longest_share)).max(self.group_memory);
        let Some((announced, _)) = self.announced.as_deref() else { return limits };
        let window = announced.window.map_or(Span::ZERO, |rate| rate.per);
        let left = announced.left.map_or(Span::ZERO, |(_, span)| span);
        limits.max(window).max(left)
    }

    /// The windows that its ledger serves, for merging; of its groups the longest.
    pub(crate) fn window_spans(&self) -> Vec<Span> {
        let windows = self.limits.windows.iter().map(|window| window.rate.per);
        let announced = self.announced().and_then(|(announced, _)| announced.window);
        let announced = announced.map(|rate| rate.per);
        let of_groups = Some(self.group_memory).filter(|memory| *memory > Span::ZERO);
        windows.chain(announced).chain(of_groups).collect()
    }

    /// Replaces its limits. Windows that are the same keep their history (L11).
    pub(crate) fn reconfigure(&mut self, limits: Arc<Limits>, now: Time) {
        let since = |window: &Window| {
            let same = self.limits.windows.iter().position(|old| old.rate == window.rate);
            same.map_or(now, |place| self.since[place])
        };
        let mut moments = [now; MOST_WINDOWS];
        moments.iter_mut().zip(&limits.windows).for_each(|(at, window)| *at = since(window));
        self.since = moments;
        (self.longest, self.spread) = (longest(&limits), limits.spread_gap());
        self.limits = limits;
        if self.health.narrowed.is_some_and(|narrow| narrow >= self.limits.in_flight.get()) {
            self.health.narrowed = None;
        }
    }

    /// Computes the slack again, after its limits or its group changed.
    pub(crate) fn allow_slack(&mut self, group: Option<&GroupLimits>) {
        self.slack = self.limits.slack(group);
        self.most_slack = self.most_slack.max(self.slack);
        self.announced_slack = self.announced_slack.min(self.slack);
    }

    /// Takes in the limits that its upstream announced (L8).
    pub(crate) fn announce(&mut self, announced: Announced, now: Time) {
        self.announced = Some(Box::new((announced, now)));
        self.announced_slack = self.slack;
    }

    /// Its memory besides its attempts.
    pub(crate) fn record(&self) -> LaneRecord {
        let windows = self.limits.windows.iter().zip(&self.since);
        LaneRecord {
            id: self.id,
            name: self.name.clone(),
            windows: windows.map(|(window, &since)| (window.rate, since)).collect(),
            cooldown_until: self.health.cooldown_until,
            failures: self.health.failures,
            rung: self.health.rung,
            judged: self.health.judged,
            slow: self.health.slow,
            narrowed: self.health.narrowed,
            announced: self.announced.as_deref().copied(),
            paused_at: self.paused.then_some(self.paused_at),
            groups: Some(self.memberships.clone()),
        }
    }

    /// Gives the next attempts longer, after one whose time was doubled `late` times came too late
    /// to be sent (L4).
    pub(crate) fn came_late(&mut self, late: u8) {
        self.late = self.late.max(late + 1).min(MOST_LATE);
        self.latest = self.latest.max(self.late);
    }

    /// Takes up its stored memory.
    pub(crate) fn remember(&mut self, record: &LaneRecord) {
        self.stored = true;
        // The store does not tell how long the attempts of its history had: the longest is assumed.
        (self.latest, self.most_slack) = (MOST_LATE, MOST_SLACK);
        self.id = record.id;
        for (window, since) in self.limits.windows.iter().zip(&mut self.since) {
            let known = record.windows.iter().find(|(rate, _)| *rate == window.rate);
            // A window that is new to the lane is introduced when everything is taken up.
            *since = known.map_or(Time::NEVER, |(_, at)| *at);
        }
        self.health = Health {
            cooldown_until: record.cooldown_until,
            failures: record.failures,
            rung: record.rung,
            judged: record.judged,
            slow: record.slow,
            narrowed: record.narrowed,
            ..Health::default()
        };
        if Mutant::CooldownForgotten.on() {
            self.health.cooldown_until = Time::ZERO;
        }
        if Mutant::NarrowForgotten.on() {
            self.health.narrowed = None;
        }
        self.announced = record.announced.map(Box::new);
        // Attempts that ended before the lane got such a gap may have left no trace: none of them
        // started later than that (L7, L8).
        let announced = record.announced.filter(|(announced, _)| announced.every.is_some());
        let throttled = record.slow.refused;
        let new_gaps = announced.map(|(_, at)| at).into_iter().chain(throttled.map(|(_, at)| at));
        if let Some(at) = new_gaps.max() {
            let background = Priority::Background.index();
            self.last_start[background] = self.last_start[background].max(at);
            self.finished(Priority::Background, AttemptId(0), at);
        }
        self.paused = record.paused_at.is_some();
        if self.paused {
            // Its calls join its queues later.
            self.budgets.pause([]);
        }
        self.paused_at = record.paused_at.unwrap_or_default();
        // Without them all history belongs to the group that is configured now.
        if let Some(groups) = &record.groups {
            self.memberships.clone_from(groups);
        }
    }

    /// Returns `true` if nothing distinguishes it from a new lane (L10).
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        let health = &self.health;
        self.users == 0
            && self.ledger.is_empty()
            && self.pending.is_empty()
            && !self.paused
            && health.cooldown_until <= now
            && ((health.failures, health.rung) == (0, 0) || Mutant::LadderDropped.on())
            && (health.slow == SlowRecord::default() && health.narrowed.is_none()
                || Mutant::SlowedDropped.on())
            && self.announced.is_none()
    }
}

fn longest(limits: &Limits) -> Span {
    limits.windows.iter().map(|window| window.rate.per).max().unwrap_or(Span::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    fn lane(limits: Limits) -> Lane {
        Lane::new(LaneId(1), "a".into(), Arc::new(limits), Time::ZERO)
    }

    /// Ten seconds between calls, fewer for the more urgent.
    fn shared_gap() -> Limits {
        let every = Some(Span::secs(10));
        Limits { every, gap_share: crate::limits::GAP_SHARE, ..Limits::default() }
    }

    fn demand(priority: Priority, rank: Priority) -> Demand {
        Demand { priority, rank, cost: 1 }
    }

    #[track_caller]
    fn check(lane: &Lane, priority: Priority, rank: Priority, after: Span, cause: Cause) {
        let opening = lane.opening(demand(priority, rank));
        assert_eq!(opening, Opening { at: NOW + after, cause });
    }

    use Priority::{Background, Interactive, Rss};

    #[test]
    fn l1_a_lane_without_limits_is_open() {
        let lane = lane(Limits::default());
        assert_eq!(lane.opening(demand(Background, Background)).at, Time::ZERO);
        assert_eq!(lane.width(), 1);
    }

    #[test]
    fn l2_a_gap_runs_from_the_last_start_of_any_priority() {
        let mut lane = lane(shared_gap());
        lane.last_start[Interactive.index()] = NOW;
        check(&lane, Background, Background, Span::secs(10), Cause::Gap);
        check(&lane, Interactive, Interactive, Span::secs(1), Cause::Gap);
    }

    #[test]
    fn l2_a_gap_may_run_from_the_finish() {
        let limits = Limits { every: Some(Span::secs(10)), ..Limits::default() };
        let mut lane = lane(Limits { gap_from: GapFrom::Finish, ..limits });
        lane.last_start[3] = NOW;
        lane.finished[3].0 = NOW + Span::secs(2);
        check(&lane, Background, Background, Span::secs(12), Cause::Gap);
    }

    #[test]
    fn l4_a_gap_runs_from_the_latest_moment_that_a_pending_attempt_could_start() {
        let mut lane = lane(Limits { every: Some(Span::secs(10)), ..Limits::default() });
        lane.pending.insert((NOW + Span::millis(50), AttemptId(1), Background));
        check(&lane, Background, Background, Span::millis(10_050), Cause::Gap);
    }

    #[test]
    fn p2_a_risen_call_needs_its_own_full_gap_since_its_own_priority_started() {
        let mut lane = lane(shared_gap());
        lane.last_start[Background.index()] = NOW;
        lane.last_start[Interactive.index()] = NOW + Span::secs(2);
        check(&lane, Background, Interactive, Span::secs(10), Cause::OwnGap);
        check(&lane, Rss, Interactive, Span::secs(3), Cause::Gap);
    }

    #[test]
    fn l11_a_kept_share_closes_the_window_for_lower_priorities_only() {
        let mut window = Window::new("2/10s".parse().expect("a rate"));
        window.keep[0] = Portion::thousandths(500);
        let mut lane = lane(Limits { windows: vec![window], ..Limits::default() });
        lane.ledger.charge(AttemptId(1), NOW, 1);
        check(&lane, Background, Background, Span::secs(10), Cause::Keep);
        assert_eq!(lane.opening(demand(Interactive, Interactive)).at, Time::ZERO);
        lane.ledger.charge(AttemptId(2), NOW + Span::secs(1), 1);
        check(&lane, Interactive, Interactive, Span::secs(10), Cause::Window);
    }

    #[test]
    fn l8_announced_limits_slow_a_lane_down_and_never_speed_it_up() {
        let mut lane = lane(shared_gap());
        lane.last_start[3] = NOW;
        let announce = |announced: Announced| Some(Box::new((announced, NOW)));
        lane.announced = announce(Announced { every: Some(Span::secs(2)), ..Announced::default() });
        check(&lane, Background, Background, Span::secs(10), Cause::Gap);
        check(&lane, Interactive, Interactive, Span::secs(2), Cause::Gap);
        let left = Some((0, Span::secs(60)));
        lane.announced = announce(Announced { left, ..Announced::default() });
        check(&lane, Interactive, Interactive, Span::secs(60), Cause::Window);
        lane.announced = announce(Announced { in_flight: Some(9), ..Announced::default() });
        assert_eq!(lane.width(), 1);
    }

    #[test]
    fn l11_a_window_that_stays_keeps_its_history_and_a_new_one_starts_fresh() {
        let window = |rate: &str| Window::new(rate.parse().expect("a rate"));
        let mut lane = lane(Limits { windows: vec![window("2/10s")], ..Limits::default() });
        let limits = Limits { windows: vec![window("5/h"), window("2/10s")], ..Limits::default() };
        lane.reconfigure(Arc::new(limits), NOW);
        assert_eq!(lane.since[..2], [NOW, Time::ZERO]);
    }

    #[test]
    fn l10_only_a_lane_that_equals_a_fresh_one_may_be_dropped() {
        let mut lane = lane(Limits::default());
        assert!(lane.is_fresh(NOW));
        lane.health.cooldown_until = NOW + Span(1);
        assert!(!lane.is_fresh(NOW));
        assert!(lane.is_fresh(NOW + Span(1)));
        lane.paused = true;
        assert!(!lane.is_fresh(NOW + Span(1)));
    }

    #[test]
    fn a_lanes_memory_survives_a_restart() {
        let window = Window::new("2/10s".parse().expect("a rate"));
        let many = std::num::NonZeroU32::new(9).expect("above zero");
        let limits = || Limits { windows: vec![window.clone()], in_flight: many, ..shared_gap() };
        let announced = Announced { every: Some(Span::secs(2)), ..Announced::default() };
        let record = LaneRecord {
            id: LaneId(5),
            name: "a".into(),
            windows: vec![(window.rate, NOW)],
            cooldown_until: NOW + Span(1),
            failures: 3,
            rung: 2,
            judged: AttemptId(7),
            slow: SlowRecord {
                gap: Span::secs(4),
                ground: Span::secs(1),
                refused: Some((Span::secs(2), NOW)),
            },
            narrowed: Some(3),
            announced: Some((announced, NOW + Span(2))),
            paused_at: Some(NOW + Span(3)),
            groups: Some(vec![Membership::from("g", AttemptId(4))]),
        };
        let mut after = lane(limits());
        after.remember(&record);
        assert_eq!(after.record(), record);
    }

    #[test]
    fn l2_history_is_kept_for_the_longest_gap_of_any_priority() {
        let every = Some(Span::secs(10));
        for (place, longest) in [(0, 1_000), (1, 400), (3, 700)] {
            let mut gap_share = [Portion::thousandths(100); 4];
            gap_share[place] = Portion::thousandths(longest);
            let lane = lane(Limits { every, gap_share, ..Limits::default() });
            assert_eq!(lane.memory(), Span::millis(u64::from(longest) * 10));
        }
    }
}
