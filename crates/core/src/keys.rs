//! Tables that find a job or call by bytes, without holding the bytes (D1, D2, C2).

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Numbers by the hash of their key. The caller of `find` compares the keys themselves.
#[derive(Debug)]
pub(crate) struct Table {
    numbers: HashTable<(u32, u32)>,
    state: FixedState,
}

impl Table {
    pub(crate) fn new(state: FixedState) -> Table {
        Table { numbers: HashTable::new(), state }
    }

    fn hash(&self, space: u32, key: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        space.hash(&mut hasher);
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// The number whose key is `key` in `space`.
    pub(crate) fn find(
        &self,
        space: u32,
        key: &[u8],
        mut is_key: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let hash = self.hash(space, key);
        let found =
            self.numbers.find(spread(hash), |&(short, n)| short == hash as u32 && is_key(n));
        found.map(|&(_, number)| number)
    }

    /// Adds a number under a key that is not there.
    pub(crate) fn insert(&mut self, space: u32, key: &[u8], number: u32) {
        let hash = self.hash(space, key);
        // Growing needs the hash again; half of it is kept beside the number, and the half
        // spread out again is as good a hash.
        self.numbers.insert_unique(spread(hash), (hash as u32, number), |&(short, _)| {
            spread(u64::from(short))
        });
    }

    /// Removes a number from under its key.
    pub(crate) fn remove(&mut self, space: u32, key: &[u8], number: u32) {
        let hash = self.hash(space, key);
        if let Ok(entry) = self.numbers.find_entry(spread(hash), |&(_, n)| n == number) {
            entry.remove();
        }
    }
}

fn spread(hash: u64) -> u64 {
    u64::from(hash as u32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_until_it_is_removed_whatever_else_is_there() {
        let mut table = Table::new(FixedState::with_seed(7));
        let key = |n: u32| n.to_le_bytes();
        for n in 0..10_000 {
            assert_eq!(table.find(0, &key(n), |m| m == n), None);
            table.insert(0, &key(n), n);
        }
        for n in 0..10_000 {
            assert_eq!(table.find(0, &key(n), |m| m == n), Some(n));
            assert_eq!(table.find(1, &key(n), |m| m == n), None);
            table.remove(0, &key(n), n);
            assert_eq!(table.find(0, &key(n), |m| m == n), None);
        }
    }
}
