//! Waiting calls by how long they would wait for a closed lane (W1).

use std::collections::BTreeSet;

use crate::priority::Priority;
use crate::time::Span;

/// The least patient first; its patience is at hand without looking into the tree.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    calls: BTreeSet<(Span, u32)>,
    least: Span,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { calls: BTreeSet::new(), least: Span(u64::MAX) }
    }
}

impl Waits {
    pub(crate) fn insert(&mut self, max_wait: Span, call: u32) {
        self.calls.insert((max_wait, call));
        self.least = self.least.min(max_wait);
    }

    pub(crate) fn remove(&mut self, max_wait: Span, call: u32) {
        self.calls.remove(&(max_wait, call));
        if max_wait == self.least {
            self.least = self.calls.first().map_or(Span(u64::MAX), |(least, _)| *least);
        }
    }

    /// A call that would not wait for so long.
    pub(crate) fn impatient(&self, wait: Span) -> Option<(Span, u32)> {
        if self.least < wait { self.calls.first().copied() } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Span, u32)> {
        self.calls.iter().copied()
    }
}

/// A lane's budgets by priority. The smallest are at hand without looking into the trees.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    least: [Span; 4],
    waits: Box<[Waits; 4]>,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets { least: [Span(u64::MAX); 4], waits: Box::default() }
    }
}

impl Budgets {
    pub(crate) fn insert(&mut self, priority: Priority, max_wait: Span, call: u32) {
        let place = priority.index();
        self.waits[place].insert(max_wait, call);
        self.least[place] = self.waits[place].least;
    }

    pub(crate) fn remove(&mut self, priority: Priority, max_wait: Span, call: u32) {
        let place = priority.index();
        self.waits[place].remove(max_wait, call);
        self.least[place] = self.waits[place].least;
    }

    /// Whether any call of this priority has a budget.
    pub(crate) fn any(&self, priority: Priority) -> bool {
        self.least[priority.index()] != Span(u64::MAX)
    }

    /// A call of this priority that would not wait for so long.
    pub(crate) fn impatient(&self, priority: Priority, wait: Span) -> Option<(Span, u32)> {
        let place = priority.index();
        if self.least[place] < wait { self.waits[place].impatient(wait) } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Span, u32)> {
        self.waits.iter().flat_map(Waits::iter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_the_least_patient_call_is_found_first() {
        let mut waits = Waits::default();
        assert_eq!(waits.impatient(Span(u64::MAX)), None);
        for (wait, call) in [(30, 1), (10, 2), (20, 3)] {
            waits.insert(Span(wait), call);
        }
        assert_eq!(waits.impatient(Span(10)), None);
        assert_eq!(waits.impatient(Span(11)), Some((Span(10), 2)));
        waits.remove(Span(10), 2);
        assert_eq!(waits.impatient(Span(11)), None);
        assert_eq!(waits.impatient(Span(25)), Some((Span(20), 3)));
    }
}
