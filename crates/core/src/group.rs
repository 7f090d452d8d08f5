//! Limits that several lanes share (L9).

use crate::lane::{Cause, Contender, Contenders, Opening};
use crate::ledger::Ledger;
use crate::limits::GroupLimits;
use crate::pending::PendingStarts;
use crate::time::{Span, Time};
use crate::waits::WaitsByCost;

/// A group's place in the indexes: for each need its best call, and its best interactive one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupStanding {
    pub(crate) any: [Option<Contender>; 3],
    pub(crate) interactive: [Option<Contender>; 3],
    /// When to look again.
    pub(crate) wake_at: Option<Time>,
}

/// One group, with the best calls of those of its lanes that are open themselves.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) limits: GroupLimits,
    pub(crate) since: Vec<Time>,
    pub(crate) any: Contenders,
    pub(crate) interactive: Contenders,
    /// Waiting calls of all its lanes by their `max_wait` (W1).
    pub(crate) waits: WaitsByCost,
    pub(crate) in_flight: u32,
    pub(crate) pending: PendingStarts,
    pub(crate) last_start: Time,
    pub(crate) ledger: Ledger,
    /// Its best calls that may go now, by their needs.
    pub(crate) standing: GroupStanding,
    pub(crate) dirty: bool,
}

impl Group {
    pub(crate) fn new(name: String, limits: GroupLimits) -> Group {
        Group {
            name,
            since: vec![Time::ZERO; limits.windows.len()],
            limits,
            any: Contenders::default(),
            interactive: Contenders::default(),
            waits: WaitsByCost::default(),
            in_flight: 0,
            pending: PendingStarts::default(),
            last_start: Time::ZERO,
            ledger: Ledger::default(),
            standing: GroupStanding::default(),
            dirty: false,
        }
    }

    /// The moment at which any of its lanes could send an attempt of this cost.
    pub(crate) fn opening(&self, cost: u32) -> Opening {
        let mut at = Time::ZERO;
        let gap = self.limits.gap();
        if gap > Span::ZERO {
            let last = self.last_start.max(self.pending.latest(None));
            at = if last > Time::ZERO { last + gap } else { at };
        }
        for (window, &since) in self.limits.windows.iter().zip(&self.since) {
            let max = u64::from(window.rate.max.get());
            at = at.max(self.ledger.opening(window.rate.per, max, since, cost));
        }
        Opening { at, cause: Cause::Group }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.limits.in_flight.is_some_and(|most| self.in_flight >= most.get())
    }

    /// How long its history binds anything.
    pub(crate) fn memory(&self) -> Span {
        let windows = self.limits.windows.iter().map(|window| window.rate.per);
        windows.chain([self.limits.gap()]).max().unwrap_or(Span::ZERO)
    }

    pub(crate) fn window_spans(&self) -> Vec<Span> {
        self.limits.windows.iter().map(|window| window.rate.per).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::AttemptId;
    use crate::limits::Window;
    use crate::priority::Priority;

    #[test]
    fn l9_a_group_counts_the_attempts_of_all_its_lanes() {
        let windows = vec![Window::new("2/10s".parse().expect("a rate"))];
        let every = Some(Span::secs(1));
        let mut group = Group::new("g".into(), GroupLimits { every, windows, in_flight: None });
        assert_eq!(group.opening(1).at, Time::ZERO);
        group.pending.insert((Time(5_000_000), AttemptId(1), Priority::Rss));
        group.ledger.reserve(AttemptId(1), Time(5_000_000), 1);
        assert_eq!(group.opening(1).at, Time(6_000_000));
        assert_eq!(group.opening(2).at, Time(15_000_000));
        assert!(!group.is_full());
    }
}
