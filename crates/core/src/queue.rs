//! The calls of one priority that wait on one lane: by age, tenants in turn (P1, P4).

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

/// A call's place: who joined the queue first, then who was submitted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) joined_at: Time,
    /// Job and call number in one.
    pub(crate) seq: u64,
}

/// The waiting calls of one tenant.
#[derive(Clone, Debug, Default)]
struct Line {
    calls: BTreeMap<Place, u32>,
    /// When its last turn was, in turns.
    served: u64,
}

/// Waiting calls, the next one first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    lines: BTreeMap<u32, Line>,
    /// Each tenant by its last turn, then by its oldest call.
    turns: BTreeSet<(u64, Place, u32)>,
    turn: u64,
    len: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Who is next.
    pub(crate) fn head(&self) -> Option<(Place, u32)> {
        let &(_, place, tenant) = self.turns.first()?;
        Some((place, self.lines[&tenant].calls[&place]))
    }

    /// Lines a call up at its place; says whether it is the head now.
    pub(crate) fn push(&mut self, tenant: u32, place: Place, call: u32) -> bool {
        let turn = self.turn;
        let line = self.lines.entry(tenant);
        // A tenant that comes new or again starts behind those who wait for their turn.
        let line = line.or_insert_with(|| Line { calls: BTreeMap::new(), served: turn });
        let before = line.calls.first_key_value().map(|(place, _)| *place);
        line.calls.insert(place, call);
        self.len += 1;
        if before.is_none_or(|before| place < before) {
            if let Some(before) = before {
                self.turns.remove(&(line.served, before, tenant));
            }
            self.turns.insert((line.served, place, tenant));
        }
        self.turns.first().is_some_and(|first| first.1 == place)
    }

    /// Takes a call out; its tenant keeps its turn.
    pub(crate) fn remove(&mut self, tenant: u32, place: Place) {
        self.take_out(tenant, place, None);
    }

    /// Takes a call out because it goes; its tenant has had its turn.
    pub(crate) fn serve(&mut self, tenant: u32, place: Place) {
        self.turn += 1;
        self.take_out(tenant, place, Some(self.turn));
    }

    fn take_out(&mut self, tenant: u32, place: Place, served: Option<u64>) {
        let line = self.lines.get_mut(&tenant).expect("a queued call stands in its tenant's line");
        let first = *line.calls.first_key_value().expect("lines are never empty").0;
        line.calls.remove(&place).expect("a queued call stands at its place");
        self.len -= 1;
        if first == place || served.is_some() {
            self.turns.remove(&(line.served, first, tenant));
            line.served = served.unwrap_or(line.served);
            match line.calls.first_key_value() {
                Some((next, _)) => {
                    self.turns.insert((line.served, *next, tenant));
                }
                None => {
                    self.lines.remove(&tenant);
                }
            }
        }
    }

    /// How many go before the call at `place`, counting up to `most`.
    pub(crate) fn ahead(&self, tenant: u32, place: Place, most: usize) -> usize {
        let Some(own) = self.lines.get(&tenant) else { return 0 };
        let Some((&own_first, _)) = own.calls.first_key_value() else { return 0 };
        let mut ahead = own.calls.range(..place).take(most).count();
        let rounds = ahead;
        for &(served, first, other) in &self.turns {
            if other == tenant || ahead >= most {
                continue;
            }
            // Who stands before us in the round gets one more turn than we had.
            let earlier = (served, first, other) < (own.served, own_first, tenant);
            ahead += self.lines[&other].calls.len().min(rounds + usize::from(earlier));
        }
        ahead.min(most)
    }

    /// Calls by age, whatever the tenant's turn.
    pub(crate) fn before(&self, limit: impl Fn(Place) -> bool, most: usize) -> usize {
        let lines = self.lines.values();
        let count =
            |line: &Line| line.calls.keys().take(most).take_while(|&&place| limit(place)).count();
        lines.map(count).sum::<usize>().min(most)
    }

    /// The youngest call; only a broken rule asks for it.
    pub(crate) fn tail(&self) -> Option<(Place, u32)> {
        let lines = self.lines.values();
        lines.filter_map(|line| line.calls.last_key_value()).map(|(p, c)| (*p, *c)).max()
    }

    /// All calls, in no order that means anything.
    pub(crate) fn calls(&self) -> impl Iterator<Item = u32> {
        self.lines.values().flat_map(|line| line.calls.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seq: u64) -> Place {
        Place { joined_at: Time(seq), seq }
    }

    fn drain(queue: &mut Queue, tenant_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some((place, call)) = queue.head() {
            queue.serve(tenant_of(call), place);
            order.push(call);
        }
        order
    }

    #[test]
    fn p1_older_calls_go_first_and_a_returning_one_finds_its_place() {
        let mut queue = Queue::default();
        for call in [1, 2, 3] {
            queue.push(0, place(u64::from(call)), call);
        }
        queue.serve(0, place(1));
        assert!(queue.push(0, place(1), 1));
        assert_eq!(drain(&mut queue, |_| 0), [1, 2, 3]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn p4_tenants_take_turns() {
        let mut queue = Queue::default();
        for call in [1, 2, 3, 4] {
            queue.push(7, place(u64::from(call)), call);
        }
        queue.push(8, place(5), 5);
        queue.push(9, place(6), 6);
        queue.push(8, place(8), 8);
        let tenant_of = |call| [0, 7, 7, 7, 7, 8, 9, 0, 8][call as usize];
        assert_eq!(queue.ahead(7, place(2), 1_000), 3);
        assert_eq!(queue.ahead(8, place(8), 1_000), 4);
        assert_eq!(drain(&mut queue, tenant_of), [1, 5, 6, 2, 8, 3, 4]);
    }

    #[test]
    fn p4_a_tenant_that_comes_again_waits_for_its_turn() {
        let mut queue = Queue::default();
        queue.push(7, place(1), 1);
        queue.push(7, place(2), 2);
        queue.push(8, place(3), 3);
        queue.serve(7, place(1));
        queue.serve(8, place(3));
        queue.push(8, place(4), 4);
        assert_eq!(queue.head(), Some((place(2), 2)));
    }
}
