//! Groups, modelled a second time: which of them count an attempt, and since when (L9).

use paceline_core::{AttemptId, Limits, Span, Time};

use super::Checker;
use super::lanes::{AttemptModel, LaneModel, window_opening};
use super::wire::held;

/// A group that counts an attempt.
#[derive(Clone, Debug)]
pub(super) struct Member {
    group: String,
    /// Reservations up to this one were made before the group counted the attempt.
    unseen_by: AttemptId,
    /// The lane left the group before the start was known: the group counts the attempt at this
    /// moment.
    left_at: Option<Time>,
}

impl Member {
    /// The group of a new attempt.
    pub(super) fn of_new(limits: &Limits, attempt: AttemptId) -> Vec<Member> {
        let unseen_by = AttemptId(attempt.0 - 1);
        let member = |group: &String| Member { group: group.clone(), unseen_by, left_at: None };
        limits.group.iter().map(member).collect()
    }
}

/// The attempts of a lane that a group counts after a restart.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    group: String,
    first: AttemptId,
    last: AttemptId,
}

impl Membership {
    const LASTS: AttemptId = AttemptId(u64::MAX);

    /// From this attempt on.
    pub(super) fn since(group: &str, first: u64) -> Membership {
        Membership { group: group.into(), first: AttemptId(first), last: Membership::LASTS }
    }

    pub(super) fn counts(&self, attempt: AttemptId) -> Option<Member> {
        let member =
            || Member { group: self.group.clone(), unseen_by: AttemptId(0), left_at: None };
        (self.first..=self.last).contains(&attempt).then(member)
    }
}

impl AttemptModel {
    /// After a restart, the groups that the store names count the attempt. A reservation that a
    /// power cut lost belongs to none, because its number is used again. An attempt that left no
    /// trace in the store is counted only by the groups that counted it before.
    pub(super) fn regrouped(&mut self, memberships: &[Membership]) {
        if self.unused {
            self.groups.iter_mut().for_each(|of| of.left_at = None);
        } else if !self.released {
            self.groups = memberships.iter().filter_map(|of| of.counts(self.id)).collect();
        }
    }
}

impl LaneModel {
    /// The lane changes groups while it runs. Attempts that may still arrive count in both: at the
    /// charged moment in the group that it left, as usual in the new one.
    pub(super) fn regroup(&mut self, to: Option<&String>, newest: AttemptId, now: Time) {
        if self.limits().group.as_ref() == to {
            return;
        }
        let mut first = newest.0 + 1;
        for t in self.attempts.iter_mut().filter(|t| !t.ended && !t.unused) {
            if !t.start_known {
                let counts_at = t.counts_at;
                t.groups.iter_mut().for_each(|of| of.left_at = of.left_at.or(Some(counts_at)));
            }
            if let Some(group) = to.filter(|_| !t.start_known || t.counts_at >= now) {
                first = first.min(t.id.0);
                let group = group.clone();
                t.groups.push(Member { group, unseen_by: newest, left_at: None });
            }
        }
        self.change_membership(to, newest, first);
    }

    /// The configuration names another group than the store. The new group counts later attempts.
    pub(super) fn group_at_start(&mut self, to: Option<&String>, newest: AttemptId) {
        let found = self.memberships.iter().find(|of| of.last == Membership::LASTS);
        if found.map(|of| &of.group) != to {
            self.change_membership(to, newest, newest.0 + 1);
        }
    }

    fn change_membership(&mut self, to: Option<&String>, newest: AttemptId, first: u64) {
        self.grouped_after = newest;
        let lasting = self.memberships.iter_mut().filter(|of| of.last == Membership::LASTS);
        lasting.for_each(|of| of.last = newest);
        self.memberships.extend(to.map(|group| Membership::since(group, first)));
    }
}

impl Checker {
    /// Checks the group of a request that arrives. The attempts that a lane had when it joined the
    /// group bind the reservations made after that.
    pub(super) fn check_group(&mut self, name: &str, attempt: &AttemptModel, at: Time) {
        let Some(group) = self.groups.get(name).cloned() else { return };
        let counts = |t: &&AttemptModel| {
            t.groups.iter().any(|of| of.group == name && of.unseen_by < attempt.id)
        };
        let members = || self.lanes.values().flat_map(|lane| &lane.attempts).filter(counts);
        let others = members().filter(|t| t.id != attempt.id).filter_map(|t| t.sent_at);
        let last = others.filter(|&sent| sent >= group.changed_at).max();
        let gap = group.limits.every.unwrap_or(Span::ZERO);
        let mut broken = Vec::new();
        if gap > Span::ZERO && last.is_some_and(|last| at < last + gap) {
            broken.push(format!("group {name}: less than {gap} after the last request"));
        }
        for window in &group.limits.windows {
            let held = held(members(), window.rate.per, group.changed_at, at);
            if held > u64::from(window.rate.max.get()) {
                broken.push(format!("group {name}: {held} within {}", window.rate));
            }
        }
        // The attempts that a lane had when it joined bind later reservations.
        let lanes = self.lanes.values().filter(|lane| lane.limits().group.as_deref() == Some(name));
        let lanes = lanes.filter(|lane| !lane.gone && lane.grouped_after < attempt.id);
        let seen = lanes.flat_map(LaneModel::on_the_wire).count();
        if group.limits.in_flight.is_some_and(|most| seen as u32 > most.get()) {
            broken.push(format!("group {name}: {seen} requests at once"));
        }
        for words in broken {
            self.violation("L9", at, words);
        }
    }

    /// When the group of a lane opens for a call of this cost.
    pub(super) fn group_opening(&self, limits: &Limits, cost: u32) -> Time {
        let Some(name) = &limits.group else { return Time::ZERO };
        let Some(group) = self.groups.get(name) else { return Time::ZERO };
        let spent = || {
            let attempts = self.lanes.values().flat_map(|lane| &lane.attempts);
            attempts.flat_map(move |t| {
                let members = t.groups.iter().filter(move |of| of.group == *name);
                let counted = members.filter(|of| !t.unused || of.left_at.is_some());
                counted.map(|of| (of.left_at.unwrap_or(t.counts_at), t.cost))
            })
        };
        let gap = group.limits.every.unwrap_or(Span::ZERO);
        let last = spent().map(|(at, _)| at).max();
        let mut at = last.filter(|_| gap > Span::ZERO).map_or(Time::ZERO, |last| last + gap);
        for window in &group.limits.windows {
            let max = u64::from(window.rate.max.get());
            at = at.max(window_opening(spent().collect(), window.rate, max, cost));
        }
        at
    }

    pub(super) fn group_has_room(&self, limits: &Limits) -> bool {
        let Some(group) = limits.group.as_ref().and_then(|name| self.groups.get(name)) else {
            return true;
        };
        let members = self.lanes.values().filter(|lane| lane.limits().group == limits.group);
        let held: u32 = members.filter(|lane| !lane.gone).map(LaneModel::held).sum();
        group.limits.in_flight.is_none_or(|most| held < most.get())
    }

    /// How long an attempt matters to the groups that count it.
    pub(super) fn groups_remember(&self, t: &AttemptModel) -> Span {
        let groups = t.groups.iter().filter_map(|of| self.groups.get(&of.group));
        let windows = groups.flat_map(|group| &group.limits.windows);
        windows.map(|window| window.rate.per).max().unwrap_or(Span::ZERO)
    }
}
