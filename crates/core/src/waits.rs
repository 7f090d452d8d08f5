//! Waiting calls by how long they would wait for a closed lane (W1).

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{ANY_WAIT, Least};
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

    /// The smallest, if there is one.
    pub(crate) fn least(&self) -> Option<Span> {
        self.calls.first().map(|(least, _)| *least)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Span, u32)> {
        self.calls.iter().copied()
    }
}

/// The same by cost: what a call costs decides when it finds room. Costs other than 1 are few, and
/// each of them is looked at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitsByCost {
    one: Waits,
    more: BTreeMap<u32, Waits>,
}

/// A call that would not wait for so long.
pub(crate) struct Impatient {
    pub(crate) call: u32,
    pub(crate) wait: Span,
}

impl WaitsByCost {
    pub(crate) fn insert(&mut self, cost: u32, max_wait: Span, call: u32) {
        if cost == 1 {
            self.one.insert(max_wait, call);
        } else {
            self.more.entry(cost).or_default().insert(max_wait, call);
        }
    }

    pub(crate) fn remove(&mut self, cost: u32, max_wait: Span, call: u32) {
        if cost == 1 {
            return self.one.remove(max_wait, call);
        }
        let waits = self.more.get_mut(&cost).expect("what is removed was inserted");
        waits.remove(max_wait, call);
        if waits.calls.is_empty() {
            self.more.remove(&cost);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.one.calls.is_empty() && self.more.is_empty()
    }

    /// The least patient call that would not wait as long as its cost has to.
    pub(crate) fn impatient(&self, wait_of: impl Fn(u32) -> Span) -> Option<Impatient> {
        let more = self.more.iter().map(|(&cost, waits)| (cost, waits));
        let one = (!self.one.calls.is_empty()).then_some((1, &self.one));
        one.into_iter().chain(more).find_map(|(cost, waits)| {
            let wait = wait_of(cost);
            waits.impatient(wait).map(|(_, call)| Impatient { call, wait })
        })
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Span, u32)> {
        let more = self.more.iter().map(|(&cost, waits)| (cost, waits));
        let all = std::iter::once((1, &self.one)).chain(more);
        all.flat_map(|(cost, waits)| waits.iter().map(move |(span, call)| (cost, span, call)))
    }
}

/// A lane's budgets by priority. The smallest are at hand without looking into the trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    waits: Box<[WaitsByCost; 4]>,
    /// Those that a caller named: a pause counts against them (W1).
    pub(crate) named: Waits,
    /// Which priorities have any, one bit each.
    some: u8,
}

impl Budgets {
    pub(crate) fn insert(&mut self, priority: Priority, cost: u32, least: Least, call: u32) {
        if least.any != ANY_WAIT {
            self.waits[priority.index()].insert(cost, least.any, call);
            self.some |= 1 << priority.index();
        }
        if least.named != ANY_WAIT {
            self.named.insert(least.named, call);
        }
    }

    pub(crate) fn remove(&mut self, priority: Priority, cost: u32, least: Least, call: u32) {
        if least.any != ANY_WAIT {
            let waits = &mut self.waits[priority.index()];
            waits.remove(cost, least.any, call);
            if waits.is_empty() {
                self.some &= !(1 << priority.index());
            }
        }
        if least.named != ANY_WAIT {
            self.named.remove(least.named, call);
        }
    }

    /// The budgets of this priority, if it has any.
    pub(crate) fn of(&self, priority: Priority) -> Option<&WaitsByCost> {
        (self.some & (1 << priority.index()) != 0).then(|| &self.waits[priority.index()])
    }

    /// All, with the cost of their calls.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Span, u32)> {
        self.waits.iter().flat_map(WaitsByCost::iter)
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

    #[test]
    fn w1_each_cost_has_its_own_wait() {
        let mut waits = WaitsByCost::default();
        waits.insert(1, Span(2), 1);
        waits.insert(5, Span(3), 2);
        waits.insert(5, Span(9), 3);
        let impatient = |waits: &WaitsByCost, one: u64, five: u64| {
            waits.impatient(|cost| Span(if cost == 1 { one } else { five })).map(|it| it.call)
        };
        assert_eq!(impatient(&waits, 2, 3), None);
        assert_eq!(impatient(&waits, 2, 4), Some(2));
        assert_eq!(impatient(&waits, 3, 4), Some(1));
        waits.remove(5, Span(3), 2);
        assert_eq!(impatient(&waits, 2, 9), None);
        waits.remove(5, Span(9), 3);
        waits.remove(1, Span(2), 1);
        assert!(waits.is_empty());
    }
}
