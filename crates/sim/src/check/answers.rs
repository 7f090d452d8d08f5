//! What the cache must know: from what upstreams said and from the settings alone (C1, C2).

use std::sync::Arc;

use paceline_core::{AttemptId, AttemptResult, Blob, CachedAnswer, Outcome, Time, Verdict};

use super::Book;

/// An answer that is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    outcome: Outcome,
    until: Time,
    heard_at: Time,
    /// What was known before, if both came in one turn.
    before: Option<Outcome>,
}

impl Book {
    /// A worker brought an answer: found or empty, it is kept for as long as the settings say.
    pub(super) fn answer_heard(&mut self, attempt: AttemptId, told: &AttemptResult) {
        let now = self.now.time;
        let (outcome, keep) = match &told.verdict {
            Verdict::Done { conclusive, value } => {
                let outcome = Outcome::Done { conclusive: *conclusive, value: value.clone() };
                (outcome, self.setup.settings.found_for)
            }
            Verdict::Empty => (Outcome::Empty, self.setup.settings.empty_for),
            _ => return,
        };
        let Some(lane) = self.tries.get(&attempt).cloned() else { return };
        let known = self.lanes.get(&lane).and_then(|lane| lane.find(attempt));
        let known = known.filter(|known| !known.told && !known.ended);
        let Some(key) = known.and_then(|known| known.cache_key.clone()) else { return };
        let kept = self.answers.entry((lane, key));
        let before = match &kept {
            std::collections::btree_map::Entry::Occupied(known) => {
                let known = known.get();
                (known.heard_at == now).then(|| known.outcome.clone())
            }
            std::collections::btree_map::Entry::Vacant(_) => None,
        };
        let (until, heard_at) = (now + keep, now);
        kept.insert_entry(Kept { outcome, until, heard_at, before });
    }

    /// The engine keeps an answer: as it was heard, and no longer or shorter than it may.
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
            let words = format!("an answer of {} is kept until {until}, known is", answer.lane);
            let known = known.map(|known| crate::clock::seconds(known.until));
            self.broken("C2", format!("{words} {known:?}"));
        }
    }

    /// Whether the cache knows the answer to this.
    pub(super) fn is_answered(&self, lane: &Arc<str>, key: &Blob) -> bool {
        let known = self.answers.get(&(lane.clone(), key.clone()));
        known.is_some_and(|known| self.now.time < known.until)
    }

    /// Whether this is what the cache says.
    pub(super) fn is_from_cache(&self, lane: &Arc<str>, key: Blob, outcome: &Outcome) -> bool {
        let known = self.answers.get(&(lane.clone(), key));
        known.filter(|known| self.now.time < known.until).is_some_and(|known| {
            known.outcome == *outcome || known.before.as_ref() == Some(outcome)
        })
    }
}
