//! Waiting calls by their budgets for a closed lane (W1).

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{ANY_WAIT, LeastBudget};
use crate::priority::Priority;
use crate::time::Span;

/// Calls by budget, the smallest first. The smallest is kept beside the tree.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    calls: BTreeSet<(Span, u32)>,
    least: Span,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { calls: BTreeSet::new(), least: ANY_WAIT }
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
            self.least = self.calls.first().map_or(ANY_WAIT, |(least, _)| *least);
        }
    }

    /// A call whose budget is below `wait`.
    pub(crate) fn impatient(&self, wait: Span) -> Option<(Span, u32)> {
        if self.least < wait { self.calls.first().copied() } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Span, u32)> {
        self.calls.iter().copied()
    }
}

/// Calls by cost and budget: the cost decides when a window has room.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitsByCost {
    one: Waits,
    more: BTreeMap<u32, Waits>,
    /// The smallest budget of each cost in `more`.
    least: BTreeSet<(Span, u32)>,
}

/// A call whose budget is below the wait that it would have.
pub(crate) struct Impatient {
    pub(crate) call: u32,
    pub(crate) wait: Span,
}

impl WaitsByCost {
    pub(crate) fn insert(&mut self, cost: u32, max_wait: Span, call: u32) {
        if cost == 1 {
            return self.one.insert(max_wait, call);
        }
        let waits = self.more.entry(cost).or_default();
        let before = waits.least;
        waits.insert(max_wait, call);
        self.least_was(cost, before);
    }

    pub(crate) fn remove(&mut self, cost: u32, max_wait: Span, call: u32) {
        if cost == 1 {
            return self.one.remove(max_wait, call);
        }
        let waits = self.more.get_mut(&cost).expect("what is removed was inserted");
        let before = waits.least;
        waits.remove(max_wait, call);
        self.least_was(cost, before);
        if self.more[&cost].calls.is_empty() {
            self.more.remove(&cost);
        }
    }

    fn least_was(&mut self, cost: u32, before: Span) {
        let after = self.more[&cost].least;
        if before != after {
            self.least.remove(&(before, cost));
            if after != ANY_WAIT {
                self.least.insert((after, cost));
            }
        }
    }

    /// The smallest of all; `ANY_WAIT` if there is none.
    fn least(&self) -> Span {
        self.least.first().map_or(self.one.least, |(least, _)| self.one.least.min(*least))
    }

    /// A call whose budget is below the wait of its cost. A higher cost never waits less, so only
    /// costs are looked at whose smallest budget is below the wait of the highest cost.
    pub(crate) fn impatient(&self, wait_of: impl Fn(u32) -> Span) -> Option<Impatient> {
        let found = |cost: u32, waits: &Waits| {
            let wait = wait_of(cost);
            waits.impatient(wait).map(|(_, call)| Impatient { call, wait })
        };
        let one = if self.one.calls.is_empty() { None } else { found(1, &self.one) };
        one.or_else(|| {
            let longest = wait_of(*self.more.last_key_value()?.0);
            let tried = self.least.iter().take_while(|(least, _)| *least < longest);
            tried.into_iter().find_map(|(_, cost)| found(*cost, &self.more[cost]))
        })
    }

    fn iter(&self) -> impl Iterator<Item = (u32, Span, u32)> {
        let more = self.more.iter().map(|(&cost, waits)| (cost, waits));
        let all = std::iter::once((1, &self.one)).chain(more);
        all.flat_map(|(cost, waits)| waits.iter().map(move |(span, call)| (cost, span, call)))
    }
}

/// A lane's budgets by priority. The smallest ones are kept beside the trees.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    least: [Span; 4],
    /// The priorities that have any, and those with calls that cost more than 1, one bit each.
    some: u8,
    costly: u8,
    by_priority: Box<[WaitsByCost; 4]>,
    /// The budgets that callers named, while the lane is paused. Only a pause needs them by
    /// themselves (W1), and otherwise every call would pay for a second tree.
    named: Option<Box<Waits>>,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            least: [ANY_WAIT; 4],
            some: 0,
            costly: 0,
            by_priority: Box::default(),
            named: None,
        }
    }
}

impl Budgets {
    pub(crate) fn insert(&mut self, priority: Priority, cost: u32, least: LeastBudget, call: u32) {
        if least.any != ANY_WAIT {
            self.by_priority[priority.index()].insert(cost, least.any, call);
            self.look_at(priority);
        }
        if let Some(named) = self.named.as_mut().filter(|_| least.named != ANY_WAIT) {
            named.insert(least.named, call);
        }
    }

    pub(crate) fn remove(&mut self, priority: Priority, cost: u32, least: LeastBudget, call: u32) {
        if least.any != ANY_WAIT {
            self.by_priority[priority.index()].remove(cost, least.any, call);
            self.look_at(priority);
        }
        if let Some(named) = self.named.as_mut().filter(|_| least.named != ANY_WAIT) {
            named.remove(least.named, call);
        }
    }

    fn look_at(&mut self, priority: Priority) {
        let (place, waits) = (priority.index(), &self.by_priority[priority.index()]);
        let (least, bit) = (waits.least(), 1 << place);
        self.least[place] = least;
        self.some = if least == ANY_WAIT { self.some & !bit } else { self.some | bit };
        self.costly = if waits.more.is_empty() { self.costly & !bit } else { self.costly | bit };
    }

    /// Begins a pause: from now on the budgets that callers named are held, of the calls that wait
    /// and of all that come.
    pub(crate) fn pause(&mut self, named: impl IntoIterator<Item = (Span, u32)>) {
        let mut waits = Waits::default();
        named.into_iter().for_each(|(budget, call)| waits.insert(budget, call));
        self.named = Some(Box::new(waits));
    }

    /// Ends a pause.
    pub(crate) fn resume(&mut self) {
        self.named = None;
    }

    /// The priorities that have any, one bit each.
    pub(crate) fn some(&self) -> u8 {
        self.some
    }

    /// A call of this priority whose budget is below the wait of its cost.
    pub(crate) fn impatient(
        &self,
        priority: Priority,
        wait_of: impl Fn(u32) -> Span,
    ) -> Option<Impatient> {
        let (place, bit) = (priority.index(), 1 << priority.index());
        let none = self.some & bit == 0;
        if none || self.costly & bit == 0 && self.least[place] >= wait_of(1) {
            return None;
        }
        self.by_priority[place].impatient(wait_of)
    }

    /// During a pause: the smallest budget that a caller named.
    pub(crate) fn least_named(&self) -> Option<Span> {
        self.named.as_ref().map(|named| named.least).filter(|least| *least != ANY_WAIT)
    }

    /// During a pause: a call whose caller named a budget below `wait`.
    pub(crate) fn impatient_named(&self, wait: Span) -> Option<u32> {
        self.named.as_ref()?.impatient(wait).map(|(_, call)| call)
    }

    /// All, with the cost of their calls.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Span, u32)> {
        self.by_priority.iter().flat_map(WaitsByCost::iter)
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
        assert_eq!(waits.least(), ANY_WAIT);
    }
}
