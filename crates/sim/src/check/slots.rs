//! The course of an attempt: when it started, when its slot was freed, when it ended (L4, L5).

use paceline_core::{AttemptId, CallId, LaneId, Reservation, Span, Time};

use super::Checker;

impl Checker {
    /// A power cut lost these reservations. The engine cannot count them any more, but upstreams
    /// saw their requests, which must break no limit.
    pub(crate) fn never_promised(&mut self, gone: &[Reservation]) {
        for reservation in gone {
            let name = self.attempts[&reservation.attempt].clone();
            if let Some(found) = self.lane(&name).find_mut(reservation.attempt) {
                (found.unused, found.end_durable) = (true, true);
            }
            self.call_never_reserved(reservation);
        }
        // Their numbers are used again.
        if let Some(first) = gone.first() {
            self.newest = AttemptId(first.attempt.0 - 1);
        }
    }

    pub(super) fn start_known(&mut self, attempt: AttemptId, at: Time) {
        let now = self.now.time;
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        if let Some(found) = lane.find_mut(attempt)
            && !found.start_known
            && !found.unused
        {
            found.counts_at = at + found.slack;
            found.learn_start(at, now);
            lane.eased_at = now;
        }
    }

    /// The store knows that an attempt belongs to another call now.
    pub(super) fn handed_over(&mut self, attempt: AttemptId, to: CallId) {
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        if let Some(found) = self.lane(&name).find_mut(attempt) {
            found.owner = to;
        }
    }

    pub(super) fn start_durable(&mut self, attempt: AttemptId, at: Time) {
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        let Some(found) = self.lane(&name).find_mut(attempt) else { return };
        found.durable_at = at;
        let counts_at = found.counts_at;
        if at != counts_at {
            let off = Span(at.0.abs_diff(counts_at.0));
            self.broken("L4", format!("{name}: written as started {off} off"));
        }
    }

    /// The store knows that an attempt ended, and when, if that may matter.
    pub(super) fn end_durable(&mut self, attempt: AttemptId, ended_at: Option<Time>) {
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        let restarted_at = lane.restarted_at;
        let Some(found) = lane.find_mut(attempt) else { return };
        (found.end_durable, found.released) = (true, ended_at.is_none());
        let finished_at = found.finished_at.unwrap_or(restarted_at);
        let (call, crashed) = (found.owner, std::mem::take(&mut found.crashed));
        if let Some(ended_at) = ended_at.filter(|at| *at != finished_at) {
            let off = Span(ended_at.0.abs_diff(finished_at.0));
            self.broken("L2", format!("{name}: written as finished {off} off"));
        }
        if crashed {
            self.call_crashed(call);
        }
    }

    /// Checks that the history which the engine drops does not matter any more.
    pub(super) fn check_forgotten(&mut self, lane: LaneId, below: AttemptId) {
        let now = self.now.time;
        let Some(name) = self.lane_ids.get(&lane).cloned() else { return };
        let lane = self.lane(&name).clone();
        let over = lane.attempts.iter().filter(|t| t.id < below && t.end_durable && !t.unused);
        let bound = over.filter(|t| {
            let windows = lane.limits().windows.iter().zip(&lane.rules.since);
            let windows = windows.filter(|(_, since)| t.durable_at >= **since);
            let longest = windows.map(|(window, _)| window.rate.per).max();
            let longest = longest.unwrap_or_default().max(self.groups_remember(t));
            t.durable_at + longest > now
        });
        if let Some(still) = bound.map(|t| t.id).next() {
            let words = format!("{name}: attempt {} is forgotten and still counts", still.0);
            self.broken("L3", words);
        }
    }

    pub(super) fn slot_freed(&mut self, attempt: AttemptId) {
        let now = self.now.time;
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        let Some(found) = lane.find_mut(attempt) else { return };
        if std::mem::replace(&mut found.ended, true) {
            return;
        }
        found.learn_start(found.latest_start(), now);
        let (unused, priority, answered) = (found.unused, found.priority, found.answered);
        let workers = found.workers;
        found.finished_at.get_or_insert(now);
        if answered {
            self.answered_early -= 1;
            return;
        }
        if !unused {
            lane.last_finish[priority.index()] = now;
        }
        lane.running -= workers;
    }

    /// L5: the upstream has responded, so the slot is free and the attempt finishes now, if this is
    /// the first report of it and the bound on answered attempts is not reached.
    pub(super) fn slot_freed_early(&mut self, attempt: AttemptId) {
        let now = self.now.time;
        let full = self.answered_early >= self.setup.settings.max_answered;
        let Some(name) = self.attempts.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        let Some(found) = lane.find_mut(attempt) else { return };
        if full || found.told || !found.holds_slot() {
            return;
        }
        (found.answered, found.finished_at) = (true, Some(now));
        found.learn_start(found.latest_start(), now);
        let (priority, workers) = (found.priority, found.workers);
        lane.last_finish[priority.index()] = now;
        lane.running -= workers;
        self.answered_early += 1;
    }
}
