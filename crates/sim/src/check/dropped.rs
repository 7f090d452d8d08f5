//! Lanes of a template are dropped only if their state equals a fresh one (L10).

use paceline_core::{LaneId, Time};

use super::Checker;
use super::lanes::LaneModel;

impl Checker {
    /// Checks that a lane which the engine drops has no state that matters.
    pub(super) fn dropped(&mut self, id: LaneId) {
        let Some(name) = self.lane_ids.remove(&id) else { return };
        let now = self.now.time;
        let lane = self.lane(&name);
        lane.slowed.forget_counts(now);
        lane.fresh_at = now;
        if let Some(words) = remembers(lane, now) {
            self.broken("L10", format!("{name} is dropped, {words}"));
        }
    }
}

/// The difference between a lane and a fresh one, if there is one.
fn remembers(lane: &LaneModel, now: Time) -> Option<&'static str> {
    let windows = lane.limits().windows.iter().zip(&lane.rules.since);
    let mut spent = windows.flat_map(|(window, &since)| {
        let attempts = lane.attempts.iter().filter(move |t| !t.unused && t.counts_at >= since);
        let attempts = attempts.filter(move |t| !lane.was_over(t, since));
        attempts.map(|t| t.counts_at + window.rate.per)
    });
    let binds = [
        (lane.held() > 0, "with a request under way"),
        (lane.paused, "paused"),
        (lane.cooldown_until > now, "cooling"),
        (lane.failures > 0 || lane.rung > 0, "after failures"),
        (!lane.slowed.is_over(), "slowed"),
        (lane.announced.is_some(), "with announced limits"),
        (spent.any(|until| until > now), "with attempts that count"),
    ];
    binds.into_iter().find_map(|(binds, words)| binds.then_some(words))
}
