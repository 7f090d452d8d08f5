//! The cache, computed from the responses of upstreams and the settings alone (C1, C2).

use std::sync::Arc;

use paceline_core::{AttemptId, AttemptResult, Blob, CachedAnswer, Outcome, Time, Verdict};

use super::Checker;

/// A cached outcome.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    outcome: Outcome,
    until: Time,
    reported_at: Time,
    /// The previous outcome, if both came in one turn.
    before: Option<Outcome>,
}

impl Checker {
    /// A worker reported a result. Found or empty, it is cached for the time in the settings.
    pub(super) fn apply_to_cache(&mut self, attempt: AttemptId, told: &AttemptResult) {
        let now = self.now.time;
        let (outcome, keep) = match &told.verdict {
            Verdict::Done { conclusive, value } => {
                let outcome = Outcome::Done { conclusive: *conclusive, value: value.clone() };
                (outcome, self.setup.settings.found_for)
            }
            Verdict::Empty => (Outcome::Empty, self.setup.settings.empty_for),
            _ => return,
        };
        let Some(lane) = self.attempts.get(&attempt).cloned() else { return };
        let found = self.lanes.get(&lane).and_then(|lane| lane.find(attempt));
        let found = found.filter(|found| !found.told && !found.ended);
        let Some(key) = found.and_then(|found| found.cache_key.clone()) else { return };
        let kept = self.answers.entry((lane, key));
        let before = match &kept {
            std::collections::btree_map::Entry::Occupied(found) => {
                let found = found.get();
                (found.reported_at == now).then(|| found.outcome.clone())
            }
            std::collections::btree_map::Entry::Vacant(_) => None,
        };
        let (until, reported_at) = (now + keep, now);
        kept.insert_entry(Cached { outcome, until, reported_at, before });
    }

    /// Checks an entry that the engine writes: the outcome as reported, and its expiry.
    pub(super) fn check_kept(&mut self, answer: &CachedAnswer) {
        let cached = self.answers.get(&(answer.lane.clone(), answer.key.clone()));
        let value = answer.value.as_ref().map_or(Outcome::Empty, |found| Outcome::Done {
            conclusive: found.conclusive,
            value: found.value.clone(),
        });
        let honest = cached.is_some_and(|cached| {
            let newest = cached.outcome == value && cached.until == answer.expires_at;
            newest || cached.before.as_ref() == Some(&value)
        });
        if !honest {
            let until = crate::clock::seconds(answer.expires_at);
            let words =
                format!("an outcome of {} is cached until {until}, expected was", answer.lane);
            let cached = cached.map(|cached| crate::clock::seconds(cached.until));
            self.broken("C2", format!("{words} {cached:?}"));
        }
    }

    /// Returns `true` if the cache has an outcome for this key.
    pub(super) fn is_answered(&self, lane: &Arc<str>, key: &Blob) -> bool {
        let cached = self.answers.get(&(lane.clone(), key.clone()));
        cached.is_some_and(|cached| self.now.time < cached.until)
    }

    /// Returns `true` if the cache has this outcome for this key.
    pub(super) fn is_from_cache(&self, lane: &Arc<str>, key: Blob, outcome: &Outcome) -> bool {
        let cached = self.answers.get(&(lane.clone(), key));
        cached.filter(|cached| self.now.time < cached.until).is_some_and(|cached| {
            cached.outcome == *outcome || cached.before.as_ref() == Some(outcome)
        })
    }
}
