//! A cache of stored answers in memory, bounded in bytes (C2).

use std::collections::BTreeMap;
use std::sync::Arc;

use paceline_core::{Blob, CachedAnswer, Lookup, Time};

/// Memory per entry besides its bytes: its places in both maps and its shared allocations.
const ENTRY_OVERHEAD: usize = 256;

type Key = (Arc<str>, Blob);

/// The most recently used answers, up to a bound in bytes; the least recently used one goes first.
///
/// It may hold less than the store but never anything else: an entry is replaced or taken out in
/// the same step as the stored answer.
#[derive(Debug)]
pub(crate) struct AnswerCache {
    max_bytes: usize,
    bytes: usize,
    uses: u64,
    answers: BTreeMap<Key, CachedEntry>,
    by_use: BTreeMap<u64, Key>,
}

/// The result of a lookup in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    /// The stored answer.
    Hit(CachedAnswer),
    /// The stored answer has expired.
    Expired,
    /// The cache holds nothing: the store has to be asked.
    Miss,
}

#[derive(Debug)]
struct CachedEntry {
    answer: CachedAnswer,
    used: u64,
}

impl AnswerCache {
    pub(crate) fn new(max_bytes: usize) -> AnswerCache {
        AnswerCache {
            max_bytes,
            bytes: 0,
            uses: 0,
            answers: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Looks without asking the store.
    pub(crate) fn find(&mut self, lookup: &Lookup, now: Time) -> Cached {
        let key = (lookup.lane.clone(), lookup.key.clone());
        let Some(entry) = self.answers.get_mut(&key) else { return Cached::Miss };
        self.uses += 1;
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(self.uses, key);
        if now < entry.answer.expires_at {
            Cached::Hit(entry.answer.clone())
        } else {
            Cached::Expired
        }
    }

    /// Takes the place of any earlier answer to the same question.
    pub(crate) fn keep(&mut self, answer: CachedAnswer) {
        let key = (answer.lane.clone(), answer.key.clone());
        self.forget(&key.0, &key.1);
        let size = size(&answer);
        // One answer must not empty the whole cache only to find that it does not fit either.
        if size > self.max_bytes {
            return;
        }
        while self.bytes + size > self.max_bytes {
            let (_, unused) = self.by_use.pop_first().expect("bytes are held by entries");
            self.bytes -= self.answers.remove(&unused).map_or(0, |entry| self::size(&entry.answer));
        }
        self.uses += 1;
        self.bytes += size;
        self.by_use.insert(self.uses, key.clone());
        self.answers.insert(key, CachedEntry { answer, used: self.uses });
    }

    /// The stored answer is gone, or another one.
    pub(crate) fn forget(&mut self, lane: &Arc<str>, key: &Blob) {
        if let Some(entry) = self.answers.remove(&(lane.clone(), key.clone())) {
            self.by_use.remove(&entry.used);
            self.bytes -= size(&entry.answer);
        }
    }
}

fn size(answer: &CachedAnswer) -> usize {
    let value = answer.value.as_ref().map_or(0, |found| found.value.len());
    ENTRY_OVERHEAD + answer.lane.len() + answer.key.len() + value
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_core::CachedValue;
    use proptest::prelude::*;

    fn answer(key: u8, bytes: usize, expires_at: u64) -> CachedAnswer {
        let value = CachedValue { conclusive: true, value: vec![key; bytes].into() };
        CachedAnswer {
            lane: "arxiv".into(),
            key: [key].as_slice().into(),
            value: Some(value),
            expires_at: Time(expires_at),
        }
    }

    fn lookup(key: u8) -> Lookup {
        Lookup { lane: "arxiv".into(), key: [key].as_slice().into() }
    }

    #[test]
    fn the_answer_unused_for_longest_makes_room() {
        let mut cache = AnswerCache::new(2 * size(&answer(0, 100, 9)));
        cache.keep(answer(1, 100, 9));
        cache.keep(answer(2, 100, 9));
        assert_ne!(cache.find(&lookup(1), Time(0)), Cached::Miss);
        cache.keep(answer(3, 100, 9));
        assert_ne!(cache.find(&lookup(1), Time(0)), Cached::Miss);
        assert_eq!(cache.find(&lookup(2), Time(0)), Cached::Miss);
    }

    #[test]
    fn c2_an_answer_is_not_used_from_the_moment_it_expires() {
        let mut cache = AnswerCache::new(10_000);
        cache.keep(answer(1, 10, 5));
        assert_eq!(cache.find(&lookup(1), Time(4)), Cached::Hit(answer(1, 10, 5)));
        assert_eq!(cache.find(&lookup(1), Time(5)), Cached::Expired);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Keep(u8, usize, u64),
        Find(u8, u64),
        Forget(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..20u8, 0..1_500usize, 0..10u64).prop_map(|(k, bytes, at)| Step::Keep(k, bytes, at)),
            (0..20u8, 0..10u64).prop_map(|(k, now)| Step::Find(k, now)),
            (0..20u8).prop_map(Step::Forget),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bound_and_agrees_with_the_store(steps in steps(), max in 0..5_000usize) {
            let mut cache = AnswerCache::new(max);
            let mut store = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Keep(key, bytes, expires_at) => {
                        cache.keep(answer(key, bytes, expires_at));
                        store.insert(key, answer(key, bytes, expires_at));
                    }
                    Step::Find(key, now) => {
                        let stored = store.get(&key).filter(|a| Time(now) < a.expires_at).cloned();
                        match cache.find(&lookup(key), Time(now)) {
                            Cached::Hit(found) => prop_assert_eq!(Some(found), stored),
                            Cached::Expired => prop_assert_eq!(None, stored),
                            Cached::Miss => {}
                        }
                    }
                    Step::Forget(key) => {
                        cache.forget(&lookup(key).lane, &lookup(key).key);
                        store.remove(&key);
                    }
                }
                let held: usize = cache.answers.values().map(|entry| size(&entry.answer)).sum();
                prop_assert_eq!(held, cache.bytes);
                prop_assert!(cache.bytes <= max);
                prop_assert_eq!(cache.answers.len(), cache.by_use.len());
            }
        }
    }
}
