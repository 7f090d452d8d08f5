//! The cache, computed from the responses of upstreams and the settings alone (C1, C2).

use std::sync::Arc;

use paceline_core::{AttemptId, AttemptResult, Blob, CachedAnswer, Outcome, Time, Verdict};

use super::Book;

/// A cached outcome.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    outcome: Outcome,
    until: Time,
    reported_at: Time,
    /// The previous outcome, if both came in one turn.
    before: Option<Outcome>,
}

impl Book {
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
        let known = self.lanes.get(&lane).and_then(|lane| lane.find(attempt));
        let known = known.filter(|known| !known.told && !known.ended);
        let Some(key) = known.and_then(|known| known.cache_key.clone()) else { return };
        let kept = self.answers.entry((lane, key));
        let before = match &kept {
            std::collections::btree_map::Entry::Occupied(known) => {
                let known = known.get();
                (known.reported_at == now).then(|| known.outcome.clone())
            }
            std::collections::btree_map::Entry::Vacant(_) => None,
        };
        let (until, reported_at) = (now + keep, now);
        kept.insert_entry(Cached { outcome, until, reported_at, before });
    }

    /// Checks an entry that the engine writes: the outcome as reported, and its expiry.
    pub(super) fn check_kept(&mut self, answer: &CachedAnswer) {
        let known = self.answers.get(&(answer.lane.clone(), answer.key.clone()));
        let value = answer.value.as_ref().map_or(Outcome::Empty, |found| Outcome::Done {
            conclusive: found.conclusive,
            value: found.value.clone(),
        });
        let honest = known.is_some_and(|known| {
            let newest = known.outcome == value && known.until == answer.expires_at;
            newest || known.before.as_ref() == Some(&value)
        });
        if !honest {
            let until = crate::clock::seconds(answer.expires_at);
            let words =
                format!("an outcome of {} is cached until {until}, expected was", answer.lane);
            let known = known.map(|known| crate::clock::seconds(known.until));
            self.broken("C2", format!("{words} {known:?}"));
        }
    }

    /// Returns `true` if the cache has an outcome for this key.
    pub(super) fn is_answered(&self, lane: &Arc<str>, key: &Blob) -> bool {
        let known = self.answers.get(&(lane.clone(), key.clone()));
        known.is_some_and(|known| self.now.time < known.until)
    }

    /// Returns `true` if the cache has this outcome for this key.
    pub(super) fn is_from_cache(&self, lane: &Arc<str>, key: Blob, outcome: &Outcome) -> bool {
        let known = self.answers.get(&(lane.clone(), key));
        known.filter(|known| self.now.time < known.until).is_some_and(|known| {
            known.outcome == *outcome || known.before.as_ref() == Some(outcome)
        })
    }
}
