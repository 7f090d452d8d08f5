//! The pool of slots: elastic, and beyond the first running call of each lane (Q3, P3, P5).
//!
//! The first running call of a lane takes no slot. So however many lanes hang, a lane that runs
//! nothing never waits for the slots that they hold.

use crate::mutant::Mutant;
use crate::priority::Priority;
use crate::room::Fill;
use crate::settings::PoolSettings;
use crate::time::Time;

/// The calls that may take a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotAccess {
    /// All calls.
    Any,
    /// Only calls submitted as interactive.
    Interactive,
}

/// The need of a call besides its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Nothing: its kind keeps no worker.
    Nothing,
    /// No slot: it is the first call that its lane runs. Such lanes have a bound of their own.
    First,
    /// A slot of the pool.
    Slot,
}

impl Need {
    pub(crate) const ALL: [Need; 3] = [Need::Nothing, Need::First, Need::Slot];
}

/// The slots, and the calls that keep a worker.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    settings: PoolSettings,
    /// Slots, and how many of them are taken.
    size: u32,
    busy: u32,
    /// Lanes that run a call which keeps its worker.
    lanes: u32,
    /// When the size last changed.
    changed_at: Time,
    /// The moment since which the queue has been below `shrink_at`.
    quiet_since: Option<Time>,
}

impl Pool {
    pub(crate) fn new(settings: PoolSettings) -> Pool {
        let size = settings.base.get();
        Pool { settings, size, busy: 0, lanes: 0, changed_at: Time::ZERO, quiet_since: None }
    }

    /// Slots that one lane may hold (P5).
    pub(crate) fn lane_cap(&self) -> u32 {
        if Mutant::LaneShareIgnored.on() {
            return self.settings.max.get();
        }
        let share = self.settings.lane_share.of(u64::from(self.settings.max.get()));
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// The calls that may start now with this need; `None` if no call may.
    pub(crate) fn access(&self, need: Need) -> Option<SlotAccess> {
        self.access_of(self.size, need)
    }

    /// Returns `true` if a call may start without another one ending, now or when the pool has
    /// grown.
    pub(crate) fn will_admit(&self, need: Need, priority: Priority) -> bool {
        match self.access_of(self.settings.max.get(), need) {
            Some(SlotAccess::Any) => true,
            Some(SlotAccess::Interactive) => priority == Priority::Interactive,
            None => false,
        }
    }

    fn access_of(&self, size: u32, need: Need) -> Option<SlotAccess> {
        let free = match need {
            Need::Nothing => return Some(SlotAccess::Any),
            Need::First => self.settings.max_lanes.get().saturating_sub(self.lanes),
            Need::Slot => size.saturating_sub(self.busy),
        };
        let in_all = self.settings.max_running.get().saturating_sub(self.running());
        let free = free.min(in_all);
        if free == 0 {
            None
        } else if free > self.settings.interactive_reserve || Mutant::ReserveIgnored.on() {
            Some(SlotAccess::Any)
        } else {
            Some(SlotAccess::Interactive)
        }
    }

    /// Counts a call that starts on a lane that runs `running` others.
    pub(crate) fn take(&mut self, running: u32) {
        *self.held_by(running) += 1;
    }

    /// Counts the end of a call on a lane that still runs `running` others.
    pub(crate) fn give_back(&mut self, running: u32) {
        *self.held_by(running) -= 1;
    }

    fn held_by(&mut self, others: u32) -> &mut u32 {
        let first = others == 0 && !Mutant::FirstCallPooled.on();
        if first { &mut self.lanes } else { &mut self.busy }
    }

    /// Calls that keep a worker.
    pub(crate) fn running(&self) -> u32 {
        self.lanes + self.busy
    }

    /// Grows or shrinks by how full the queue is. Shrinking is counted from the steps that have
    /// passed, so that no turn has to come for it.
    pub(crate) fn adjust(&mut self, fill: Fill, now: Time) {
        if fill == Fill::High {
            self.grow(now);
        }
        if fill != Fill::Low {
            self.quiet_since = None;
            return;
        }
        let since = *self.quiet_since.get_or_insert(now);
        // Slots that are taken cannot go, and those kept for interactive calls stay (P3).
        let held = self.busy.saturating_add(self.settings.interactive_reserve);
        let base = self.settings.base.get().max(held);
        if self.size <= base {
            return;
        }
        let (since, step) = (since.max(self.changed_at), self.settings.step.0);
        let steps = now.since(since).0.checked_div(step).unwrap_or(u64::MAX);
        let fewer = u32::try_from(steps).unwrap_or(u32::MAX).min(self.size - base);
        if fewer > 0 {
            self.size -= fewer;
            self.changed_at = now;
        }
    }

    /// Adds a slot if a step has passed, because a call on an open lane lacks one. Returns `true`
    /// if the pool grew.
    pub(crate) fn grow(&mut self, now: Time) -> bool {
        let max = self.settings.max.get();
        if self.size >= max {
            return false;
        }
        if self.settings.step == crate::time::Span::ZERO {
            self.size = max;
        } else if self.changed_at == Time::ZERO || now >= self.changed_at + self.settings.step {
            self.size += 1;
        } else {
            return false;
        }
        self.changed_at = now;
        true
    }

    /// The moment at which it may next grow, if it may.
    pub(crate) fn grows_at(&self) -> Option<Time> {
        (self.size < self.settings.max.get()).then(|| self.changed_at + self.settings.step)
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    const START: Time = Time(1_000_000_000);

    fn second(n: u64) -> Time {
        START + Span::secs(n)
    }

    #[test]
    fn p3_the_last_slots_are_for_interactive_calls() {
        let mut pool = Pool::new(PoolSettings::default());
        for _ in 0..9 {
            assert_eq!(pool.access(Need::Slot), Some(SlotAccess::Any));
            pool.take(1);
        }
        assert_eq!(pool.access(Need::Slot), Some(SlotAccess::Interactive));
        pool.take(1);
        assert_eq!(pool.access(Need::Slot), None);
        pool.give_back(1);
        assert_eq!(pool.access(Need::Slot), Some(SlotAccess::Interactive));
    }

    #[test]
    fn p5_the_first_call_of_a_lane_takes_no_slot_of_the_pool() {
        let mut pool = Pool::new(PoolSettings::default());
        (0..10).for_each(|_| pool.take(1));
        assert_eq!(pool.access(Need::First), Some(SlotAccess::Any));
        assert_eq!(pool.access(Need::Nothing), Some(SlotAccess::Any));
        (0..999).for_each(|_| pool.take(0));
        assert_eq!(pool.access(Need::First), Some(SlotAccess::Interactive));
        pool.take(0);
        assert_eq!((pool.access(Need::First), pool.running()), (None, 1_010));
        assert_eq!(pool.access(Need::Nothing), Some(SlotAccess::Any));
        pool.give_back(0);
        assert_eq!(pool.access(Need::First), Some(SlotAccess::Interactive));
    }

    #[test]
    fn p5_a_bound_on_all_calls_holds_whatever_the_lanes() {
        let max_running = std::num::NonZeroU32::new(3).expect("above zero");
        let settings =
            PoolSettings { max_running, interactive_reserve: 0, ..PoolSettings::default() };
        let mut pool = Pool::new(settings);
        for running in [0, 1, 0] {
            pool.take(running);
        }
        assert_eq!((pool.access(Need::First), pool.access(Need::Slot)), (None, None));
    }

    #[test]
    fn q3_it_grows_one_per_step_up_to_its_maximum() {
        let mut pool = Pool::new(PoolSettings::default());
        assert!(pool.grow(second(0)));
        assert!(!pool.grow(second(0)));
        assert_eq!(pool.grows_at(), Some(second(1)));
        for n in 1..10 {
            assert!(pool.grow(second(n)));
        }
        assert_eq!(pool.size(), 20);
        assert!(!pool.grow(second(60)));
        assert_eq!(pool.grows_at(), None);
    }

    #[test]
    fn q3_it_shrinks_one_per_step_while_the_queue_is_short() {
        let mut pool = Pool::new(PoolSettings::default());
        for n in 0..10 {
            pool.grow(second(n));
        }
        pool.adjust(Fill::Middle, second(20));
        assert_eq!(pool.size(), 20, "between the two marks nothing changes");
        pool.adjust(Fill::Low, second(30));
        assert_eq!(pool.size(), 20);
        pool.adjust(Fill::Low, second(33));
        assert_eq!(pool.size(), 17);
        pool.adjust(Fill::Low, second(333));
        assert_eq!(pool.size(), 10);
    }

    #[test]
    fn p3_shrinking_leaves_the_slots_kept_for_interactive_calls() {
        let mut pool = Pool::new(PoolSettings::default());
        pool.adjust(Fill::Low, second(0));
        assert!(pool.grow(second(0)));
        (0..10).for_each(|_| pool.take(1));
        pool.adjust(Fill::Low, second(5));
        assert_eq!((pool.size(), pool.access(Need::Slot)), (11, Some(SlotAccess::Interactive)));
        assert!(pool.grow(second(5)));
    }

    #[test]
    fn q3_a_step_of_zero_means_at_once() {
        let mut pool = Pool::new(PoolSettings { step: Span::ZERO, ..PoolSettings::default() });
        pool.adjust(Fill::High, second(0));
        assert_eq!(pool.size(), 20);
    }

    #[test]
    fn p5_a_lane_may_hold_its_share_and_at_least_one() {
        let mut settings = PoolSettings::default();
        assert_eq!(Pool::new(settings.clone()).lane_cap(), 10);
        settings.lane_share = crate::limits::Portion::thousandths(1);
        assert_eq!(Pool::new(settings).lane_cap(), 1);
    }
}
