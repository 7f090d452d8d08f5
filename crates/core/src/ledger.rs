//! The history of attempts, and exact sliding windows over it (L3, L4).
//!
//! Entries carry a running sum of costs. So the cost in a window is a difference of two sums, the
//! moment at which it opens is one binary search, and dropping an entry merges it into its later
//! neighbour.

use std::collections::VecDeque;

use crate::job::AttemptId;
use crate::mutant::Mutant;
use crate::time::{Span, Time};

/// Up to this number every attempt has its own entry. Beyond it neighbours may merge.
pub(crate) const EXACT_ENTRIES: usize = 4_096;
/// A merged entry is late by at most this part of its window.
const GRAINS_PER_WINDOW: u64 = 1_024;

/// One attempt, or several neighbours that were merged at the latest of their moments.
#[derive(Clone, Copy, Debug)]
struct LedgerEntry {
    /// Its latest possible arrival: by its start, or by its `send_by` while the start is not known.
    at: Time,
    /// Cost of this and all earlier entries together.
    sum: u64,
    attempt: AttemptId,
    /// Whether the real start is still to come.
    open: bool,
}

/// Attempts by the moment at which they count.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    entries: VecDeque<LedgerEntry>,
    /// The sum below the first entry.
    floor: u64,
    merge_at: usize,
    /// Whether any entry costs more or less than 1. Otherwise the sums only count the entries, and
    /// need not be read.
    uneven: bool,
}

impl Ledger {
    fn sum_below(&self, place: usize) -> u64 {
        if !self.uneven {
            return self.floor + place as u64;
        }
        if place == 0 { self.floor } else { self.entries[place - 1].sum }
    }

    fn total(&self) -> u64 {
        self.sum_below(self.entries.len())
    }

    /// Charges an attempt that arrives at `at` at the latest.
    pub fn reserve(&mut self, attempt: AttemptId, at: Time, cost: u32) {
        self.insert(attempt, at, cost, true);
    }

    /// Charges an attempt whose moment is known.
    pub fn charge(&mut self, attempt: AttemptId, at: Time, cost: u32) {
        self.insert(attempt, at, cost, false);
    }

    fn insert(&mut self, attempt: AttemptId, at: Time, cost: u32, open: bool) {
        self.uneven |= cost != 1;
        // Nearly always the newest: then nothing else is looked at.
        let newest = self.entries.back().is_none_or(|last| last.at <= at);
        let place = if newest {
            self.entries.len()
        } else {
            self.entries.partition_point(|entry| entry.at <= at)
        };
        let sum = self.sum_below(place) + u64::from(cost);
        self.entries.insert(place, LedgerEntry { at, sum, attempt, open });
        for entry in self.entries.range_mut(place + 1..) {
            entry.sum += u64::from(cost);
        }
    }

    /// The position of an attempt that was reserved up to `at`.
    fn find(&self, attempt: AttemptId, at: Time) -> Option<usize> {
        if self.entries.back().is_some_and(|last| last.attempt == attempt) {
            return Some(self.entries.len() - 1);
        }
        let end = self.entries.partition_point(|entry| entry.at <= at);
        let same = (0..end).rev().take_while(|&place| self.entries[place].at == at);
        same.into_iter().find(|&place| self.entries[place].attempt == attempt)
    }

    /// Moves an attempt that was reserved up to `latest` to its real moment.
    pub fn started(&mut self, attempt: AttemptId, latest: Time, at: Time) {
        let Some(mut place) = self.find(attempt, latest) else { return };
        let at = at.min(latest);
        while place > 0 && self.entries[place - 1].at > at {
            let cost = self.entries[place - 1].sum - self.sum_below(place - 1);
            let sum = self.entries[place].sum;
            self.entries[place] = LedgerEntry { sum, ..self.entries[place - 1] };
            self.entries[place - 1].sum = sum - cost;
            place -= 1;
        }
        let entry = &mut self.entries[place];
        (entry.at, entry.attempt, entry.open) = (at, attempt, false);
    }

    /// Gives back an attempt that was reserved up to `latest` and not used.
    pub fn give_back(&mut self, attempt: AttemptId, latest: Time) {
        let Some(place) = self.find(attempt, latest) else { return };
        let cost = self.entries[place].sum - self.sum_below(place);
        self.entries.remove(place);
        for entry in self.entries.range_mut(place..) {
            entry.sum -= cost;
        }
    }

    /// The cost in the window of length `per` that ends at `now`, of attempts from `since` on.
    pub fn used(&self, per: Span, since: Time, now: Time) -> u64 {
        let gone = self.entries.partition_point(|e| e.at + per <= now || e.at < since);
        self.total() - self.sum_below(gone)
    }

    /// The moment at which an attempt of `cost` fits into a window of `allowed` per `per`, counting
    /// attempts from `since` on. A past moment means now.
    pub fn opening(&self, per: Span, allowed: u64, since: Time, cost: u32) -> Time {
        let allowed = allowed + u64::from(Mutant::WindowOffByOne.on());
        let Some(room) = allowed.checked_sub(u64::from(cost)) else { return Time::NEVER };
        let total = self.total();
        if total <= self.floor + room {
            return Time::ZERO;
        }
        // The last entry that has to leave before there is room.
        let entry = &self.entries[self.first_with(total - room)];
        let per = if Mutant::WindowTooShort.on() { Span(per.0 - per.0 / 10) } else { per };
        if entry.at < since { Time::ZERO } else { entry.at + per }
    }

    /// The first entry whose sum reaches `sum`.
    fn first_with(&self, sum: u64) -> usize {
        if self.uneven {
            self.entries.partition_point(|entry| entry.sum < sum)
        } else {
            (sum - self.floor - 1) as usize
        }
    }

    /// Drops entries that are older than `longest` at `now`, up to the attempt `keep`. Returns the
    /// attempt below which nothing is needed, if anything was dropped.
    pub fn trim(&mut self, longest: Span, now: Time, keep: AttemptId) -> Option<AttemptId> {
        let mut dropped = None;
        while let Some(first) = self.entries.front() {
            if first.open || first.at + longest > now || first.attempt >= keep {
                break;
            }
            self.floor = first.sum;
            dropped = Some(AttemptId(first.attempt.0 + 1));
            self.entries.pop_front();
        }
        self.uneven &= !self.entries.is_empty();
        dropped
    }

    /// Keeps the number of entries bounded: beyond `EXACT_ENTRIES`, neighbours within one grain
    /// of the shortest window that still sees them merge at the later moment.
    pub fn merge(&mut self, windows: &[Span], now: Time) {
        if self.entries.len() <= self.merge_at.max(EXACT_ENTRIES) {
            return;
        }
        let grain = |at: Time| {
            let age = now.since(at);
            let seen_by = windows.iter().filter(|per| **per >= age).min();
            seen_by.map_or(1, |per| (per.0 / GRAINS_PER_WINDOW).max(1))
        };
        let mut kept: VecDeque<LedgerEntry> = VecDeque::with_capacity(self.entries.len());
        for &entry in &self.entries {
            if let Some(last) = kept.back() {
                let width = grain(entry.at);
                let same = last.at.0 / width == entry.at.0 / width && grain(last.at) == width;
                if same && !last.open && !entry.open {
                    kept.pop_back();
                    self.uneven = true;
                }
            }
            kept.push_back(entry);
        }
        self.entries = kept;
        // Merging is paid for by the entries that came since the last time.
        self.merge_at = self.entries.len() * 2;
    }

    /// The lowest number among its attempts.
    pub(crate) fn oldest(&self) -> Option<AttemptId> {
        self.entries.iter().map(|entry| entry.attempt).min()
    }

    /// The number of its entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PER: Span = Span::secs(10);

    fn charged(moments: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        for (n, &at) in moments.iter().enumerate() {
            ledger.charge(AttemptId(n as u64), Time(at * 1_000_000), 1);
        }
        ledger
    }

    #[track_caller]
    fn check(moments: &[u64], allowed: u64, cost: u32, opens_at: u64) {
        let opening = charged(moments).opening(PER, allowed, Time::ZERO, cost);
        assert_eq!(opening, Time(opens_at * 1_000_000));
    }

    #[test]
    fn l3_a_window_opens_when_its_oldest_attempt_leaves() {
        check(&[], 2, 1, 0);
        check(&[1], 2, 1, 0);
        check(&[1, 2], 2, 1, 11);
        check(&[1, 2, 3], 3, 2, 12);
        check(&[1, 2, 3], 3, 3, 13);
    }

    #[test]
    fn l3_a_cost_above_the_window_never_fits() {
        assert_eq!(charged(&[]).opening(PER, 2, Time::ZERO, 3), Time::NEVER);
    }

    #[test]
    fn l4_an_attempt_counts_at_its_latest_moment_until_its_start_is_known() {
        let mut ledger = Ledger::default();
        ledger.reserve(AttemptId(1), Time(50), 1);
        assert_eq!(ledger.opening(Span(100), 1, Time::ZERO, 1), Time(150));
        ledger.started(AttemptId(1), Time(50), Time(7));
        assert_eq!(ledger.opening(Span(100), 1, Time::ZERO, 1), Time(107));
    }

    #[test]
    fn l4_an_unused_attempt_is_given_back() {
        let mut ledger = charged(&[1]);
        ledger.reserve(AttemptId(9), Time(2_000_000), 5);
        ledger.charge(AttemptId(10), Time(3_000_000), 1);
        ledger.give_back(AttemptId(9), Time(2_000_000));
        assert_eq!(ledger.used(PER, Time::ZERO, Time(4_000_000)), 2);
    }

    #[test]
    fn l3_a_trim_names_the_first_attempt_that_is_still_needed() {
        let mut ledger = charged(&[1, 2, 3]);
        let none = AttemptId(u64::MAX);
        assert_eq!(ledger.trim(PER, Time(10_999_999), none), None);
        assert_eq!(ledger.trim(PER, Time(12_000_000), none), Some(AttemptId(2)));
        assert_eq!((ledger.len(), ledger.oldest()), (1, Some(AttemptId(2))));
        assert_eq!(ledger.trim(PER, Time(60_000_000), AttemptId(2)), None, "it is to be kept");
        assert_eq!(ledger.trim(PER, Time(60_000_000), none), Some(AttemptId(3)));
        assert!(ledger.is_empty() && ledger.oldest().is_none());
    }

    #[test]
    fn l11_a_new_window_binds_from_its_introduction_on() {
        let ledger = charged(&[1, 2, 3]);
        assert_eq!(ledger.opening(PER, 1, Time(4_000_000), 1), Time::ZERO);
        assert_eq!(ledger.opening(PER, 1, Time(3_000_000), 1), Time(13_000_000));
    }

    #[test]
    fn l3_a_large_window_stays_small_and_is_never_early() {
        let per = Span::days(1);
        let (mut ledger, mut exact) = (Ledger::default(), VecDeque::new());
        let mut latest = Span::ZERO;
        for n in 0..150_000u64 {
            let now = Time(n * 700_000);
            ledger.charge(AttemptId(n), now, 1);
            ledger.trim(per, now, AttemptId(u64::MAX));
            ledger.merge(&[per], now);
            exact.push_back(now);
            if exact.len() > 100_000 {
                let oldest = exact[exact.len() - 100_000];
                let opening = ledger.opening(per, 100_000, Time::ZERO, 1);
                assert!(opening >= oldest + per, "early at {n}");
                latest = latest.max(opening.since(oldest + per));
            }
            assert!(ledger.len() <= 2 * EXACT_ENTRIES);
        }
        assert!(latest <= Span(per.0 / GRAINS_PER_WINDOW), "late by {latest}");
    }

    proptest! {
        /// The opening is refused one tick before the moment it named and exact at it.
        #[test]
        fn l3_no_interval_of_the_window_holds_more_than_its_maximum(
            steps in prop::collection::vec((0..40u64, 1..4u32, 0..30u64), 1..60),
            max in 3..8u64,
        ) {
            let per = Span(100);
            let mut ledger = Ledger::default();
            let mut starts: Vec<(u64, u32)> = Vec::new();
            let mut now = Time(1_000);
            for (n, (wait, cost, delay)) in steps.into_iter().enumerate() {
                now = now + Span(wait);
                let opening = ledger.opening(per, max, Time::ZERO, cost);
                if opening > now {
                    now = opening;
                }
                prop_assert!(ledger.opening(per, max, Time::ZERO, cost) <= now);
                // Reserved now, really started up to 30 later.
                let attempt = AttemptId(n as u64);
                ledger.reserve(attempt, now + Span(30), cost);
                if delay % 2 == 0 {
                    ledger.started(attempt, now + Span(30), now + Span(delay));
                }
                starts.push((now.0 + delay, cost));
            }
            for &(from, _) in &starts {
                let held: u64 = starts
                    .iter()
                    .filter(|(at, _)| (from..from + per.0).contains(at))
                    .map(|(_, cost)| u64::from(*cost))
                    .sum();
                prop_assert!(held <= max, "{held} from {from}");
            }
        }

        #[test]
        fn sums_stay_right_through_any_sequence(
            steps in prop::collection::vec((0..4u8, 0..1_000u64, 1..5u32), 1..80),
        ) {
            let mut ledger = Ledger::default();
            let mut model: Vec<(AttemptId, u64, u32, bool)> = Vec::new();
            for (n, (what, at, cost)) in steps.into_iter().enumerate() {
                let open: Vec<usize> =
                    (0..model.len()).filter(|&place| model[place].3).collect();
                match (what, open.first()) {
                    (1, Some(&place)) => {
                        let (attempt, latest, _, _) = model[place];
                        let real = at.min(latest);
                        ledger.started(attempt, Time(latest), Time(real));
                        model[place].1 = real;
                        model[place].3 = false;
                    }
                    (2, Some(&place)) => {
                        let (attempt, latest, _, _) = model.remove(place);
                        ledger.give_back(attempt, Time(latest));
                    }
                    _ => {
                        ledger.reserve(AttemptId(n as u64), Time(at), cost);
                        model.push((AttemptId(n as u64), at, cost, true));
                    }
                }
                for now in [0u64, 150, 500, 999] {
                    let expected: u64 = model
                        .iter()
                        .filter(|(_, at, _, _)| at + 100 > now)
                        .map(|(_, _, cost, _)| u64::from(*cost))
                        .sum();
                    prop_assert_eq!(ledger.used(Span(100), Time::ZERO, Time(now)), expected);
                }
            }
        }
    }
}
