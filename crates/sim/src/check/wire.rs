//! Limits, measured at the upstreams (L1 to L11), and the conditions of each reservation.

use std::sync::Arc;

use paceline_core::{AttemptId, GapFrom, MOST_LATE, Priority, Reservation, Span, Time};

use super::Checker;
use super::groups::Member;
use super::lanes::{Announcement, AttemptModel, LaneModel};
use super::slowed::{too_fast, too_wide};

impl Checker {
    /// A request arrives at its upstream, some time after it was sent.
    pub(crate) fn arrives(&mut self, attempt: AttemptId, sent_at: Time, at: Time) {
        self.run_arrives(attempt, at);
        let Some(name) = self.attempts.get(&attempt).cloned() else {
            let words = format!("attempt {} was sent without a durable reservation", attempt.0);
            return self.violation("L4", at, words);
        };
        let lane = self.lane(&name);
        let Some(found) = lane.find_mut(attempt) else { return };
        let again = found.sent_at.replace(at).is_some() || found.unused || found.ended;
        let found = found.clone();
        if again {
            self.violation("B5", at, format!("attempt {} was sent twice or too late", attempt.0));
        }
        if sent_at < found.may_start_at {
            let early = found.may_start_at.since(sent_at);
            self.violation("W5", at, format!("{name}: sent {early} before it was due"));
        }
        self.check_gap(&name, &found, at);
        self.check_windows(&name, &found, at);
        // The limits may have changed between reservations: the newest one took all others into
        // account.
        let on_the_wire = || self.lanes[&name].on_the_wire();
        let newest = on_the_wire().max_by_key(|t| t.id).unwrap_or(&found);
        let (seen, most) = (on_the_wire().count(), newest.rules.limits.in_flight.get());
        if seen > most as usize {
            self.violation("L1", at, format!("{name}: {seen} requests at once, {most} allowed"));
        }
        if let Some(group) = &found.rules.limits.group {
            self.check_group(group, &found, at);
        }
    }

    /// The longest transit time of an attempt: the slack of its lane, but at most a fifth of its
    /// timeout, so that some requests are in time.
    pub(crate) fn longest_way(&self, attempt: AttemptId) -> Span {
        let lane = self.attempts.get(&attempt).and_then(|name| self.lanes.get(name));
        let found = lane.and_then(|lane| lane.find(attempt));
        found.map_or(Span::ZERO, |found| {
            let timeout = found.rules.limits.timeout.map(|timeout| Span(timeout.0 / 5));
            timeout.map_or(found.slack, |most| most.min(found.slack))
        })
    }

    /// A request left the wire.
    pub(crate) fn left_the_wire(&mut self, attempt: AttemptId, at: Time) {
        self.run_left(attempt);
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        if let Some(found) = self.lane(&name).find_mut(attempt) {
            found.left_at.get_or_insert(at);
        }
    }

    fn check_gap(&mut self, name: &Arc<str>, own: &AttemptModel, at: Time) {
        let limits = &own.rules.limits;
        if limits.gap_from == GapFrom::Finish {
            return;
        }
        let before = |only: Option<Priority>| {
            let lane = &self.lanes[name];
            let attempts = lane.attempts.iter().filter(|t| t.id != own.id && own.could_know(t));
            // An attempt without a gap may overtake earlier ones in transit.
            let paced = |t: &AttemptModel| LaneModel::gap(&t.rules.limits, t.rank) > Span::ZERO;
            let attempts = attempts.filter(|t| t.id < own.id || paced(t));
            let attempts = attempts.filter(|t| !lane.was_over(t, own.rules.changed_at));
            let attempts = attempts.filter(|t| only.is_none_or(|p| p == t.priority));
            let sent = attempts.filter_map(|t| t.sent_at);
            sent.filter(|&sent| sent >= own.rules.changed_at).max()
        };
        for (last, rank, rule) in
            [(before(None), own.rank, "L2"), (before(Some(own.priority)), own.priority, "P2")]
        {
            let gap = LaneModel::gap(limits, rank);
            // Without a gap, an attempt that started later may arrive first.
            if let Some(last) = last
                && gap > Span::ZERO
                && at < last + gap
            {
                let got = at.since(last);
                let words = format!("{name}: {got} after the last request, {gap} needed as {rank}");
                return self.violation(rule, at, words);
            }
        }
    }

    fn check_windows(&mut self, name: &Arc<str>, attempt: &AttemptModel, at: Time) {
        let rules = attempt.rules.clone();
        for (window, &since) in rules.limits.windows.iter().zip(&rules.since) {
            let lane = &self.lanes[name];
            let attempts = lane.attempts.iter().filter(|t| attempt.could_know(t));
            let attempts = attempts.filter(|t| !lane.was_over(t, since));
            let held = held(attempts, window.rate.per, since, at);
            let max = u64::from(window.rate.max.get());
            if held > max {
                let words = format!(
                    "{name}: {held} within {}, the limit is {}",
                    window.rate.per, window.rate
                );
                self.violation("L3", at, words);
            }
        }
    }

    /// A reservation became durable: checks that the rules allowed it.
    pub(super) fn reserved(&mut self, reservation: &Reservation) {
        let Some(name) = self.lane_ids.get(&reservation.lane).cloned() else {
            return self
                .broken("B1", "a reservation names a lane that the store does not know".into());
        };
        let rank = self.rank_of(reservation.call, reservation.priority);
        self.check_turn_order(&name, reservation);
        let rules = self.lane(&name).rules.clone();
        let job = self.jobs.get(&reservation.call.job);
        let due = job.and_then(|job| job.due);
        let may_start_at = due.map_or(Time::ZERO, |due| super::jobs::comes_at(due, self.now));
        // A job that has begun does not wait again because the clock was stepped back.
        let may_start_at = may_start_at.min(self.now.time + self.setup.settings.lead);
        let attempt = AttemptModel {
            id: reservation.attempt,
            call: reservation.call,
            owner: reservation.call,
            priority: reservation.priority,
            cost: reservation.cost,
            workers: self.workers_of(reservation.call),
            rank,
            groups: Member::of_new(&rules.limits, reservation.attempt),
            cache_key: job.and_then(|job| job.spec.cache_key.clone()),
            slack: self.slack(&rules.limits),
            rules,
            counts_at: reservation.at,
            durable_at: reservation.at,
            may_start_at,
            start_known: false,
            started_at: Time::ZERO,
            start_told: Time::ZERO,
            unused: false,
            told: false,
            answered: false,
            ended: false,
            end_durable: false,
            released: false,
            crashed: false,
            finished_at: None,
            sent_at: None,
            left_at: None,
        };
        self.check_terms(&name, reservation, &attempt);
        self.check_reservation(&name, &attempt);
        self.newest = self.newest.max(attempt.id);
        self.attempts.insert(attempt.id, name.clone());
        let lane = self.lane(&name);
        lane.running += attempt.workers;
        lane.attempts.push_back(attempt);
        self.call_reserved(reservation);
    }

    /// Checks a reservation against the terms of its call: the charged moment (L4), the cost (L3)
    /// and the priority (L2).
    fn check_terms(&mut self, name: &Arc<str>, reservation: &Reservation, attempt: &AttemptModel) {
        let Some(job) = self.jobs.get(&reservation.call.job) else { return };
        let (cost, priority) = (job.spec.cost.get(), job.priority);
        let send_within = self.setup.settings.send_within(MOST_LATE);
        let start_at = attempt.may_start_at.max(self.now.time);
        if reservation.at > start_at + send_within + attempt.slack {
            self.broken("L4", format!("{name}: charged later than it could arrive"));
        }
        if (reservation.cost, reservation.priority) != (cost, priority) {
            let words = format!("{name}: reserved at cost {} for {priority}", reservation.cost);
            self.broken("L3", format!("{words}, and the call costs {cost}"));
        }
    }

    fn check_reservation(&mut self, name: &Arc<str>, attempt: &AttemptModel) {
        let now = self.now.time;
        let lane = &self.lanes[name];
        let mut broken: Vec<(&'static str, String)> = Vec::new();
        if now < lane.cooldown_until {
            let rest = lane.cooldown_until.since(now);
            broken.push(("L6", format!("{name}: started {rest} before its cooldown was over")));
        }
        if lane.paused {
            broken.push(("W3", format!("{name}: started although paused")));
        }
        if lane.rung > 0 && lane.held() + lane.open_verdicts() > 0 {
            broken.push(("L7", format!("{name}: a second request beside the probe")));
        }
        broken.extend(too_soon(name, lane, attempt, now));
        broken.extend(beyond_announced(name, lane, attempt, now).map(|words| ("L8", words)));
        broken.extend(too_fast(name, lane, attempt, now).map(|words| ("L7", words)));
        broken.extend(too_wide(name, lane).map(|words| ("L7", words)));
        broken.extend(kept(name, lane, attempt, now).map(|words| ("L11", words)));
        self.check_workers(name, attempt, &mut broken);
        for (rule, words) in broken {
            self.broken(rule, words);
        }
    }
}

/// The cost of the requests that arrived in the window that ends at `at`.
pub(super) fn held<'a>(
    attempts: impl Iterator<Item = &'a AttemptModel>,
    per: Span,
    since: Time,
    at: Time,
) -> u64 {
    let sent = attempts.filter_map(|t| t.sent_at.map(|sent| (sent, t.cost)));
    let inside = sent.filter(|(sent, _)| *sent >= since && *sent + per > at);
    inside.map(|(_, cost)| u64::from(cost)).sum()
}

/// L2: if the gap runs from the finish, so do the gaps set by throttling and announcements (L7,
/// L8).
fn too_soon(
    name: &str,
    lane: &LaneModel,
    attempt: &AttemptModel,
    now: Time,
) -> Option<(&'static str, String)> {
    if lane.limits().gap_from == GapFrom::Start || !lane.is_sure(now) {
        return None;
    }
    let all = lane.last_finish.into_iter().max().unwrap_or_default();
    let own = lane.last_finish[attempt.priority.index()];
    let gaps =
        [(all, attempt.rank), (own, attempt.priority)].into_iter().flat_map(|(last, rank)| {
            lane.gaps_after(last, rank).into_iter().map(move |(rule, gap)| (rule, last, gap))
        });
    let mut gaps = gaps.filter(|(_, last, _)| *last > lane.rules.changed_at);
    let (rule, last, gap) = gaps.find(|(_, last, gap)| now < *last + *gap)?;
    Some((rule, format!("{name}: {} after a finish, not {gap}", now.since(last))))
}

/// L8: announced limits hold for every reservation after the announcement.
fn beyond_announced(
    name: &str,
    lane: &LaneModel,
    attempt: &AttemptModel,
    now: Time,
) -> Option<String> {
    let Announcement { announced, at, newest, others } = lane.announced?;
    // A lane always allows one call at once.
    if let Some(most) = announced.in_flight
        && lane.held() >= most.max(1)
    {
        let held = lane.held();
        return Some(format!("{name}: one more than {held} at once, announced were {most}"));
    }
    let later = || lane.attempts.iter().filter(move |t| t.id > newest && !t.unused);
    if let Some((left, span)) = announced.left
        && now < at + span
    {
        let spent: u32 = later().map(|t| t.cost).sum::<u32>() + attempt.cost;
        if spent > left.saturating_sub(others) {
            let words = format!("{name}: {spent} calls where the upstream had {left} left");
            return Some(format!("{words} and may not have seen {others}"));
        }
    }
    let last = lane.attempts.iter().filter_map(|t| t.sent_at).max();
    if let (Some(every), Some(last)) = (announced.every, last)
        && lane.limits().gap_from == GapFrom::Start
        && last > lane.rules.changed_at
        && now < last + every
    {
        return Some(format!("{name}: faster than the announced {every}"));
    }
    let rate = announced.window?;
    let inside = later().filter(|t| t.sent_at.is_some_and(|sent| sent + rate.per > now));
    let spent: u64 = inside.map(|t| u64::from(t.cost)).sum();
    let over = spent > 0 && spent + u64::from(attempt.cost) > u64::from(rate.max.get());
    over.then(|| format!("{name}: more than the announced {rate}"))
}

/// L11: lower priorities do not spend the share that a window keeps for higher ones.
fn kept(name: &str, lane: &LaneModel, attempt: &AttemptModel, now: Time) -> Option<String> {
    lane.limits().windows.iter().zip(&lane.rules.since).find_map(|(window, &since)| {
        let (allowed, max) = (window.allowed(attempt.priority), u64::from(window.rate.max.get()));
        let seen = lane.attempts.iter().filter(|t| t.sent_at.is_some_and(|at| at >= since));
        let seen = seen.filter(|t| !lane.was_over(t, since));
        let inside = seen.filter(|t| t.sent_at.is_some_and(|at| at + window.rate.per > now));
        let spent: u64 = inside.map(|t| u64::from(t.cost)).sum::<u64>() + u64::from(attempt.cost);
        let broken = allowed < max && spent > allowed;
        broken.then(|| {
            format!("{name}: {} spent {spent} of {allowed} in {}", attempt.priority, window.rate)
        })
    })
}
