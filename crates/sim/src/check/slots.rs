//! What becomes of an attempt: when it started, when its slot was free, when it ended (L4, L5).

use paceline_core::{AttemptId, Reservation, Time};

use super::Book;

impl Book {
    /// A power cut took these promises with it. The engine cannot count them any more; what the
    /// services saw of them stays seen, and must break no limit.
    pub(crate) fn never_promised(&mut self, gone: &[Reservation]) {
        for reservation in gone {
            let name = self.tries[&reservation.attempt].clone();
            if let Some(known) = self.lane(&name).find_mut(reservation.attempt) {
                (known.unused, known.end_durable) = (true, true);
            }
            self.call_never_reserved(reservation);
        }
        // Their numbers are given out again.
        if let Some(first) = gone.first() {
            self.newest = AttemptId(first.attempt.0 - 1);
        }
    }

    pub(super) fn start_known(&mut self, attempt: AttemptId, at: Time) {
        let now = self.now.time;
        let Some(name) = self.tries.get(&attempt).cloned() else { return };
        if let Some(known) = self.lane(&name).find_mut(attempt)
            && !known.start_known
            && !known.unused
        {
            known.counts_at = at + known.slack;
            known.learn_start(at, now);
        }
    }

    pub(super) fn start_durable(&mut self, attempt: AttemptId, at: Time) {
        let Some(name) = self.tries.get(&attempt).cloned() else { return };
        if let Some(known) = self.lane(&name).find_mut(attempt) {
            known.durable_at = at;
        }
    }

    pub(super) fn end_durable(&mut self, attempt: AttemptId) {
        let Some(name) = self.tries.get(&attempt).cloned() else { return };
        if let Some(known) = self.lane(&name).find_mut(attempt) {
            known.end_durable = true;
        }
    }

    pub(super) fn slot_freed(&mut self, attempt: AttemptId) {
        let now = self.now.time;
        let Some(name) = self.tries.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        let Some(known) = lane.find_mut(attempt) else { return };
        if std::mem::replace(&mut known.ended, true) {
            return;
        }
        known.learn_start(known.latest_start(), now);
        let (unused, priority, answered) = (known.unused, known.priority, known.answered);
        let workers = known.workers;
        if answered {
            self.answered_early -= 1;
            return;
        }
        if !unused {
            lane.last_finish[priority.index()] = now;
        }
        lane.running -= workers;
    }

    /// L5: the service is done with it, so the slot is free and the finish is now, if it is the
    /// first word of it and not too many have said so.
    pub(super) fn slot_freed_early(&mut self, attempt: AttemptId) {
        let now = self.now.time;
        let full = self.answered_early >= self.setup.settings.max_answered;
        let Some(name) = self.tries.get(&attempt).cloned() else { return };
        let lane = self.lane(&name);
        let Some(known) = lane.find_mut(attempt) else { return };
        if full || known.told || !known.holds_slot() {
            return;
        }
        known.answered = true;
        known.learn_start(known.latest_start(), now);
        let (priority, workers) = (known.priority, known.workers);
        lane.last_finish[priority.index()] = now;
        lane.running -= workers;
        self.answered_early += 1;
    }
}
