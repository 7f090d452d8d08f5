//! The calls of one priority that wait on one lane: by age, tenants in turn (P1, P4).
//!
//! Nearly all calls join at the back and leave at the front, so a line is a ring buffer. Calls that
//! leave from the middle are blanked and swept later; calls that come back to an old place stand in
//! a small tree beside it. Only a queue with several tenants keeps their turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

use crate::priority::Priority;
use crate::time::{Span, Time};

/// A call's place in the queue of its lane: calls that joined earlier come first, then those that
/// were submitted earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePlace {
    pub(crate) joined_at: Time,
    /// Job and call number in one.
    pub(crate) seq: u64,
}

/// A waiting call, with the parts that its lane needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiting {
    pub(crate) place: QueuePlace,
    pub(crate) call: u32,
    pub(crate) cost: NonZeroU32,
}

/// The way in which a call leaves its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// It starts: its tenant has had its turn.
    Served,
    /// It is withdrawn: its tenant keeps its turn.
    Withdrawn,
}

/// The number at the place of a call that has left.
const GONE: u32 = u32::MAX;

/// The waiting calls of one tenant, the oldest first.
#[derive(Clone, Debug, Default)]
struct Line {
    /// By place; its first entry is never blank.
    ring: VecDeque<Waiting>,
    blank: u32,
    /// Calls that came back to a place before the ring's last, if any did.
    #[expect(clippy::box_collection, reason = "empty in nearly all queues: a pointer is smaller")]
    returned: Option<Box<BTreeMap<QueuePlace, Waiting>>>,
}

impl Line {
    fn len(&self) -> usize {
        let returned = self.returned.as_ref().map_or(0, |returned| returned.len());
        self.ring.len() - self.blank as usize + returned
    }

    fn head(&self) -> Option<Waiting> {
        let first = self.ring.front().copied();
        let Some(returned) = &self.returned else { return first };
        first.into_iter().chain(returned.values().next().copied()).min()
    }

    fn push(&mut self, waiting: Waiting) {
        if self.ring.back().is_none_or(|last| last.place < waiting.place) {
            self.ring.push_back(waiting);
        } else {
            self.returned.get_or_insert_default().insert(waiting.place, waiting);
        }
    }

    fn remove(&mut self, place: QueuePlace) {
        if let Some(returned) = &mut self.returned
            && returned.remove(&place).is_some()
        {
            self.returned.take_if(|returned| returned.is_empty());
            return;
        }
        if self.ring.front().is_some_and(|first| first.place == place) {
            self.ring.pop_front();
        } else {
            let found = self.ring.binary_search_by_key(&place, |waiting| waiting.place);
            self.ring[found.expect("a queued call stands at its place")].call = GONE;
            self.blank += 1;
        }
        if self.blank == 0 {
            return;
        }
        while self.ring.front().is_some_and(|first| first.call == GONE) {
            self.ring.pop_front();
            self.blank -= 1;
        }
        // Sweeping is paid for by the calls that left since the last time.
        if self.blank as usize > self.ring.len() / 2 + 16 {
            self.ring.retain(|waiting| waiting.call != GONE);
            self.blank = 0;
        }
    }

    fn iter(&self) -> impl Iterator<Item = Waiting> {
        let ring = self.ring.iter().filter(|waiting| waiting.call != GONE);
        let returned = self.returned.iter().flat_map(|returned| returned.values());
        ring.chain(returned).copied()
    }

    /// The number of calls for which `before` holds, up to `most`. It holds for older calls, and
    /// from some call on no more.
    fn count(&self, before: impl Fn(QueuePlace) -> bool, most: usize) -> usize {
        let ring = self.ring.iter().filter(|waiting| waiting.call != GONE);
        let ring = ring.take(most).take_while(|waiting| before(waiting.place)).count();
        let returned = self.returned.iter().flat_map(|returned| returned.keys());
        let returned = returned.take(most).take_while(|&&place| before(place)).count();
        (ring + returned).min(most)
    }
}

/// The numbers of times that a call can have risen, zero included (P2).
const LEVELS: usize = Priority::ALL.len();

/// The calls of one tenant.
#[derive(Clone, Debug)]
struct Tenant {
    /// Its last turn.
    served: u64,
    /// How often its oldest call has risen, as far as `age` has seen.
    risen: usize,
    line: Line,
}

/// The tenants whose oldest call has risen the same number of times.
#[derive(Clone, Debug, Default)]
struct Level {
    /// By their last turn, then by their oldest call.
    order: BTreeSet<(u64, QueuePlace, u32)>,
    by_age: BTreeSet<(QueuePlace, u32)>,
}

/// Tenants in turn, among those whose oldest call has risen most (P2, P4).
#[derive(Clone, Debug, Default)]
struct Turns {
    tenants: BTreeMap<u32, Tenant>,
    /// Calls of all of them.
    calls: usize,
    levels: [Level; LEVELS],
    turn: u64,
}

impl Turns {
    fn push(&mut self, tenant: u32, waiting: Waiting) {
        // A tenant that comes new, or comes again, waits for its turn: otherwise one that submits
        // its calls one at a time would always be next (P4).
        let new = Tenant { served: self.turn, risen: 0, line: Line::default() };
        let before = self.tenants.entry(tenant).or_insert(new).line.head();
        self.step_out(tenant);
        self.calls += 1;
        self.tenants.get_mut(&tenant).expect("inserted above").line.push(waiting);
        self.step_in(tenant, before);
    }

    fn remove(&mut self, tenant: u32, place: QueuePlace, leaves: Leaves) {
        self.step_out(tenant);
        let known = self.tenants.get_mut(&tenant).expect("a queued call has its tenant's line");
        let before = known.line.head();
        let calls = known.line.len();
        known.line.remove(place);
        self.calls -= calls - known.line.len();
        if leaves == Leaves::Served {
            self.turn += 1;
            known.served = self.turn;
        }
        if known.line.head().is_none() {
            self.tenants.remove(&tenant);
        } else {
            self.step_in(tenant, before);
        }
    }

    fn step_out(&mut self, tenant: u32) {
        let known = &self.tenants[&tenant];
        if let Some(head) = known.line.head() {
            let level = &mut self.levels[known.risen];
            level.order.remove(&(known.served, head.place, tenant));
            level.by_age.remove(&(head.place, tenant));
        }
    }

    /// Puts a tenant at the place of its oldest call. A new oldest call counts as not risen until
    /// `age` looks at it.
    fn step_in(&mut self, tenant: u32, before: Option<Waiting>) {
        let known = self.tenants.get_mut(&tenant).expect("the tenant has a line");
        let head = known.line.head();
        if head != before {
            known.risen = 0;
        }
        if let Some(head) = head {
            let level = &mut self.levels[known.risen];
            level.order.insert((known.served, head.place, tenant));
            level.by_age.insert((head.place, tenant));
        }
    }

    /// Moves tenants up whose oldest call has risen since; each call passes here three times at
    /// most.
    fn age(&mut self, highest: usize, age_after: Span, now: Time) {
        for risen in 0..highest {
            while let Some(&(place, tenant)) = self.levels[risen].by_age.first()
                && now >= place.joined_at + age_after.times(risen as u64 + 1)
            {
                self.step_out(tenant);
                let known = self.tenants.get_mut(&tenant).expect("levels hold known tenants");
                known.risen += 1;
                let head = known.line.head();
                self.step_in(tenant, head);
            }
        }
    }

    fn best_level(&self) -> usize {
        let mut levels = self.levels.iter();
        levels.rposition(|level| !level.order.is_empty()).unwrap_or_default()
    }

    /// The moment at which another tenant joins those that take turns now, or rises above them.
    fn rises_at(&self, highest: usize, age_after: Span) -> Time {
        let best = self.best_level();
        let rises = (0..=best).filter_map(|risen| {
            let (place, _) = self.levels[risen].by_age.first()?;
            let times = if risen == best { best + 1 } else { best };
            (times <= highest).then(|| place.joined_at + age_after.times(times as u64))
        });
        rises.min().unwrap_or(Time::NEVER)
    }

    fn head(&self) -> Option<Waiting> {
        let (_, _, tenant) = self.levels[self.best_level()].order.first()?;
        self.tenants[tenant].line.head()
    }

    fn oldest(&self) -> Option<QueuePlace> {
        let oldest = self.levels.iter().filter_map(|level| level.by_age.first());
        oldest.map(|(place, _)| *place).min()
    }

    /// The number of calls that go before the one at `place`, as things stand: all that have risen
    /// more often, and of those like it one per round and tenant, one more for tenants that come
    /// before its own in the round.
    fn ahead(
        &self,
        tenant: u32,
        place: QueuePlace,
        risen: impl Fn(QueuePlace) -> usize,
        most: usize,
    ) -> usize {
        let Some(own) = self.tenants.get(&tenant) else { return 0 };
        let Some(own_head) = own.line.head() else { return 0 };
        let level = risen(place);
        let above = |line: &Line| line.count(|other| risen(other) > level, most);
        let rounds = own.line.count(|other| other < place, most) - above(&own.line);
        let mut ahead = above(&own.line) + rounds;
        for (other, known) in self.tenants.iter().filter(|(other, _)| **other != tenant) {
            if ahead >= most {
                break;
            }
            let Some(head) = known.line.head() else { continue };
            let earlier = (known.served, head.place, *other) < (own.served, own_head.place, tenant);
            let above = above(&known.line);
            let alike = known.line.count(|other| risen(other) >= level, most) - above;
            ahead += above + alike.min(rounds + usize::from(earlier));
        }
        ahead.min(most)
    }
}

/// Waiting calls of one priority: one cache line, beside the calls themselves.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Queue {
    /// All calls, while they are of one tenant.
    line: Line,
    tenant: u32,
    turns: Option<Box<Turns>>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.turns.as_deref().map_or(self.line.len(), |turns| turns.calls)
    }

    /// The place of the call that has waited longest, whichever tenant has its turn.
    pub(crate) fn oldest(&self) -> Option<QueuePlace> {
        match &self.turns {
            Some(turns) => turns.oldest(),
            None => self.line.head().map(|head| head.place),
        }
    }

    /// The call that goes next. `Queues` keeps it, because it is read more often than it changes.
    fn head(&self) -> Option<Waiting> {
        match &self.turns {
            Some(turns) => turns.head(),
            None => self.line.head(),
        }
    }

    /// Lines a call up behind or before `head`. Returns the head after that.
    fn push(&mut self, head: Option<Waiting>, tenant: u32, waiting: Waiting) -> Waiting {
        match head {
            None => (self.tenant, self.turns) = (tenant, None),
            Some(_) if tenant != self.tenant && self.turns.is_none() => {
                let line = std::mem::take(&mut self.line);
                let first = Tenant { served: 0, risen: 0, line };
                let mut turns = Box::<Turns>::default();
                turns.calls = first.line.len();
                turns.tenants.insert(self.tenant, first);
                turns.step_in(self.tenant, None);
                self.turns = Some(turns);
            }
            Some(_) => {}
        }
        if let Some(turns) = &mut self.turns {
            turns.push(tenant, waiting);
            turns.head().expect("one was pushed")
        } else {
            self.line.push(waiting);
            head.map_or(waiting, |head| head.min(waiting))
        }
    }

    fn remove(&mut self, tenant: u32, place: QueuePlace, leaves: Leaves) {
        match &mut self.turns {
            Some(turns) => turns.remove(tenant, place, leaves),
            None => self.line.remove(place),
        }
    }

    /// The number of calls that go before the one at `place`, up to `most`. `risen` tells how often
    /// the call at a place has risen.
    pub(crate) fn ahead(
        &self,
        tenant: u32,
        place: QueuePlace,
        risen: impl Fn(QueuePlace) -> usize,
        most: usize,
    ) -> usize {
        match &self.turns {
            Some(turns) => turns.ahead(tenant, place, risen, most),
            None => self.line.count(|other| other < place, most),
        }
    }

    /// The number of calls for which `limit` holds, as it does for older ones. Turns do not matter.
    pub(crate) fn before(&self, limit: impl Fn(QueuePlace) -> bool, most: usize) -> usize {
        match &self.turns {
            Some(turns) => {
                let lines = turns.tenants.values().map(|tenant| &tenant.line);
                lines.map(|line| line.count(&limit, most)).sum::<usize>().min(most)
            }
            None => self.line.count(limit, most),
        }
    }

    /// The youngest call; only a broken rule asks for it.
    pub(crate) fn tail(&self) -> Option<Waiting> {
        self.iter().max()
    }

    /// All calls, in no particular order.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Waiting> + '_> {
        match &self.turns {
            Some(turns) => Box::new(turns.tenants.values().flat_map(|tenant| tenant.line.iter())),
            None => Box::new(self.line.iter()),
        }
    }
}

/// A lane's four queues. Their heads are kept beside them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    heads: [Option<Waiting>; 4],
    /// The queues that keep turns, one bit each.
    in_turns: u8,
    by_priority: Box<[Queue; 4]>,
}

impl Queues {
    pub(crate) fn head(&self, priority: Priority) -> Option<Waiting> {
        self.heads[priority.index()]
    }

    /// Lets calls age: turns go to tenants whose oldest call has risen most.
    pub(crate) fn age(&mut self, age_after: Span, now: Time) {
        if self.in_turns == 0 {
            return;
        }
        for place in (0..4).filter(|place| self.in_turns & (1 << place) != 0) {
            if let Some(turns) = &mut self.by_priority[place].turns {
                turns.age(place, age_after, now);
                self.heads[place] = turns.head();
            }
        }
    }

    /// Where several tenants take turns: the place of the oldest call, as which the queue ranks
    /// (P1, P2, P4), and when tenants must be looked at again because calls have aged.
    pub(crate) fn turns(&self, priority: Priority, age_after: Span) -> Option<(QueuePlace, Time)> {
        let place = priority.index();
        if self.in_turns & (1 << place) == 0 {
            return None;
        }
        let turns = self.by_priority[place].turns.as_ref()?;
        Some((turns.oldest()?, turns.rises_at(place, age_after)))
    }

    pub(crate) fn of(&self, priority: Priority) -> &Queue {
        &self.by_priority[priority.index()]
    }

    /// Lines a call up at its place. Returns `true` if that may change the call that goes next, or
    /// its moment.
    pub(crate) fn push(&mut self, priority: Priority, tenant: u32, waiting: Waiting) -> bool {
        let place = priority.index();
        let head = self.by_priority[place].push(self.heads[place], tenant, waiting);
        self.heads[place] = Some(head);
        let turns = self.by_priority[place].turns.is_some();
        self.in_turns = self.in_turns & !(1 << place) | u8::from(turns) << place;
        head == waiting || turns
    }

    /// Takes a call out. Its tenant keeps its turn.
    pub(crate) fn remove(&mut self, priority: Priority, tenant: u32, place: QueuePlace) {
        self.take(priority, tenant, place, Leaves::Withdrawn);
    }

    /// Takes a call out because it starts. Its tenant has had its turn.
    pub(crate) fn serve(&mut self, priority: Priority, tenant: u32, place: QueuePlace) {
        self.take(priority, tenant, place, Leaves::Served);
    }

    fn take(&mut self, priority: Priority, tenant: u32, place: QueuePlace, leaves: Leaves) {
        let queue = &mut self.by_priority[priority.index()];
        queue.remove(tenant, place, leaves);
        self.heads[priority.index()] = queue.head();
    }

    pub(crate) fn len(&self) -> usize {
        self.by_priority.iter().map(Queue::len).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiting> {
        self.by_priority.iter().flat_map(Queue::iter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use Priority::Rss;

    fn place(seq: u64) -> QueuePlace {
        QueuePlace { joined_at: Time(seq), seq }
    }

    fn waiting(call: u32) -> Waiting {
        Waiting { place: place(u64::from(call)), call, cost: NonZeroU32::MIN }
    }

    fn drain(queue: &mut Queues, tenant_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(Waiting { place, call, .. }) = queue.head(Rss) {
            queue.serve(Rss, tenant_of(call), place);
            order.push(call);
        }
        order
    }

    #[test]
    fn p1_older_calls_go_first_and_a_returning_one_finds_its_place() {
        let mut queue = Queues::default();
        for call in [1, 2, 3] {
            queue.push(Rss, 0, waiting(call));
        }
        queue.serve(Rss, 0, place(1));
        assert!(queue.push(Rss, 0, waiting(1)));
        assert_eq!(drain(&mut queue, |_| 0), [1, 2, 3]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn p4_tenants_take_turns() {
        let mut queue = Queues::default();
        for call in [1, 2, 3, 4] {
            queue.push(Rss, 7, waiting(call));
        }
        queue.push(Rss, 8, waiting(5));
        queue.push(Rss, 9, waiting(6));
        queue.push(Rss, 8, waiting(8));
        let tenant_of = |call| [0, 7, 7, 7, 7, 8, 9, 0, 8][call as usize];
        assert_eq!(queue.of(Rss).ahead(7, place(2), |_| 0, 1_000), 3);
        assert_eq!(queue.of(Rss).ahead(8, place(8), |_| 0, 1_000), 4);
        assert_eq!(queue.of(Rss).len(), 7);
        assert_eq!(drain(&mut queue, tenant_of), [1, 5, 6, 2, 8, 3, 4]);
        assert_eq!(queue.of(Rss).len(), 0);
    }

    #[test]
    fn p4_a_tenant_that_comes_again_waits_for_its_turn() {
        let mut queue = Queues::default();
        queue.push(Rss, 7, waiting(1));
        queue.push(Rss, 7, waiting(2));
        queue.push(Rss, 8, waiting(3));
        queue.serve(Rss, 7, place(1));
        queue.serve(Rss, 8, place(3));
        queue.push(Rss, 8, waiting(4));
        assert_eq!(queue.head(Rss), Some(waiting(2)));
    }

    #[test]
    fn p4_turns_are_taken_among_tenants_whose_oldest_call_has_risen_most() {
        let mut queue = Queues::default();
        for (call, tenant) in [(1, 7), (2, 7), (10, 8), (11, 8)] {
            queue.push(Rss, tenant, waiting(call));
        }
        let age_after = Span(5);
        let tenant_of = |call| if call < 10 { 7 } else { 8 };
        let mut next = |now| {
            queue.age(age_after, Time(now));
            let head = queue.head(Rss).expect("some wait");
            let (oldest, turns_at) = queue.turns(Rss, age_after).expect("two tenants");
            queue.serve(Rss, tenant_of(head.call), head.place);
            (head.call, oldest.seq, turns_at)
        };
        // By turns; then both calls of 7 have risen and go first, until those of 8 have too.
        assert_eq!(next(5), (1, 1, Time(6)));
        assert_eq!(next(5), (10, 2, Time(7)));
        assert_eq!(next(7), (2, 2, Time(16)));
        assert_eq!(next(16), (11, 11, Time::NEVER));
    }

    proptest! {
        /// Whatever leaves and returns, the oldest is the head and the length is right.
        #[test]
        fn p1_the_head_is_the_oldest(
            steps in prop::collection::vec((0..3u8, 0..60u32), 1..200),
        ) {
            let mut queue = Queues::default();
            let mut model = std::collections::BTreeSet::new();
            for (what, call) in steps {
                if what == 0 && model.remove(&call) {
                    queue.remove(Rss, 0, place(u64::from(call)));
                } else if what == 1 && let Some(first) = model.pop_first() {
                    queue.serve(Rss, 0, place(u64::from(first)));
                } else if model.insert(call) {
                    queue.push(Rss, 0, waiting(call));
                }
                prop_assert_eq!(queue.head(Rss).map(|head| head.call), model.first().copied());
                prop_assert_eq!(queue.len(), model.len());
                let ahead = queue.of(Rss).ahead(0, place(30), |_| 0, 1_000);
                prop_assert_eq!(ahead, model.range(..30).count());
            }
        }
    }
}
