//! Whether calls kept to a limit, judged by when they arrived.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU32;

use paceline_core::{Rate, Span, Time};

/// One call as the service saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its head had been read.
    pub at: Time,
    /// When it had been answered or given up; nothing while it is open.
    pub ended_at: Option<Time>,
}

/// One rule of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So long from one arrival to the next.
    Gap(Span),
    /// In no interval of length `per`, however placed, more than `max` arrivals.
    Window(Rate),
    /// So many open at once.
    InFlight(NonZeroU32),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Gap(every) => write!(f, "1 every {every}"),
            Limit::Window(rate) => rate.fmt(f),
            Limit::InFlight(n) => write!(f, "{n} in flight"),
        }
    }
}

/// A call that broke a limit, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It came `after` the call before it, which is too soon.
    Gap {
        /// Which call.
        call: usize,
        /// How long after the one before.
        after: Span,
    },
    /// It and the `max` calls before it came `within` less than `per`.
    Window {
        /// Which call.
        call: usize,
        /// From the first of them to this one.
        within: Span,
    },
    /// It made them `open` at once.
    InFlight {
        /// Which call.
        call: usize,
        /// How many, itself included.
        open: usize,
    },
}

/// The calls among `arrivals`, oldest first, that broke `limit` by more than `tolerance`.
///
/// Exact: a call is named if and only if some interval shows too many calls and it is the last of them.
pub fn violations(arrivals: &[Arrival], limit: Limit, tolerance: Span) -> Vec<Violation> {
    match limit {
        Limit::Gap(every) => {
            let early = too_close(arrivals, 1, every, tolerance);
            early.map(|(call, after)| Violation::Gap { call, after }).collect()
        }
        Limit::Window(rate) => {
            let max = rate.max.get() as usize;
            let early = too_close(arrivals, max, rate.per, tolerance);
            early.map(|(call, within)| Violation::Window { call, within }).collect()
        }
        Limit::InFlight(most) => too_many(arrivals, most.get() as usize, tolerance),
    }
}

/// Calls that came less than `per` after the one `back` places before them.
fn too_close(
    arrivals: &[Arrival],
    back: usize,
    per: Span,
    tolerance: Span,
) -> impl Iterator<Item = (usize, Span)> {
    let spans =
        arrivals.iter().skip(back).zip(arrivals).map(|(late, early)| late.at.since(early.at));
    let numbered = spans.enumerate().map(move |(place, span)| (place + back, span));
    numbered.filter(move |&(_, span)| span + tolerance < per)
}

/// Calls that arrived while `most` others were open, and stayed so for longer than `tolerance`.
fn too_many(arrivals: &[Arrival], most: usize, tolerance: Span) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut open = BinaryHeap::new();
    for (call, arrival) in arrivals.iter().enumerate() {
        let counted_from = arrival.at + tolerance;
        while open.peek().is_some_and(|&Reverse(ended_at)| ended_at <= counted_from) {
            open.pop();
        }
        if open.len() >= most {
            found.push(Violation::InFlight { call, open: open.len() + 1 });
        }
        open.push(Reverse(arrival.ended_at.unwrap_or(Time::NEVER)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: &[u64]) -> Vec<Arrival> {
        let arrival =
            |&ms: &u64| Arrival { at: Time(ms * 1_000), ended_at: Some(Time(ms * 1_000)) };
        millis.iter().map(arrival).collect()
    }

    #[track_caller]
    fn check(millis: &[u64], limit: Limit, tolerance: u64, expected: &[Violation]) {
        assert_eq!(violations(&at(millis), limit, Span::millis(tolerance)), expected);
    }

    #[test]
    fn a_gap_is_broken_by_the_later_call() {
        let gap = Limit::Gap(Span::millis(100));
        check(&[0, 100, 200], gap, 0, &[]);
        check(&[0, 99, 199], gap, 0, &[Violation::Gap { call: 1, after: Span::millis(99) }]);
        check(&[0, 99, 199], gap, 1, &[]);
        check(&[], gap, 0, &[]);
    }

    #[test]
    fn l3_a_window_slides() {
        let window = Limit::Window("2/s".parse().expect("a rate"));
        check(&[0, 900, 1_000, 1_900], window, 0, &[]);
        // Two calls in each fixed second, three in the second that starts at 900.
        let broken = Violation::Window { call: 3, within: Span::millis(200) };
        check(&[0, 900, 1_050, 1_100], window, 0, &[broken]);
    }

    #[test]
    fn calls_at_once_count_until_they_end() {
        let limit = Limit::InFlight(NonZeroU32::MIN);
        let mut calls = at(&[0, 10, 20]);
        calls[0].ended_at = Some(Time(12_000));
        let broken = Violation::InFlight { call: 1, open: 2 };
        assert_eq!(violations(&calls, limit, Span::ZERO), [broken]);
        assert_eq!(violations(&calls, limit, Span::millis(2)), []);
        calls[0].ended_at = None;
        assert_eq!(violations(&calls, limit, Span::millis(2)).len(), 2);
    }

    /// Arrivals in order, with how long each stayed open.
    fn some_arrivals() -> impl Strategy<Value = Vec<Arrival>> {
        prop::collection::vec((0..50u64, prop::option::of(0..80u64)), 0..60).prop_map(|steps| {
            let mut now = 0;
            let arrive = |(step, open): (u64, Option<u64>)| {
                now += step;
                Arrival { at: Time(now), ended_at: open.map(|open| Time(now + open)) }
            };
            steps.into_iter().map(arrive).collect()
        })
    }

    proptest! {
        #[test]
        fn l3_no_interval_holds_more_than_max(
            calls in some_arrivals(), max in 1..5u32, per in 1..100u64,
        ) {
            let rate = Rate { max: NonZeroU32::new(max).expect("above zero"), per: Span(per) };
            let found = violations(&calls, Limit::Window(rate), Span::ZERO);
            let named: Vec<usize> = found.iter().map(|v| match v {
                Violation::Window { call, .. } => *call,
                other => panic!("{other:?}"),
            }).collect();
            // The widest interval that ends with a call holds the calls of the last `per`.
            let slow: Vec<usize> = (0..calls.len()).filter(|&last| {
                let from = (calls[last].at.0 + 1).saturating_sub(per);
                calls[..=last].iter().filter(|c| c.at.0 >= from).count() > max as usize
            }).collect();
            prop_assert_eq!(named, slow);
        }

        #[test]
        fn calls_at_once_are_counted_one_by_one(
            calls in some_arrivals(), most in 1..5u32, tolerance in 0..20u64,
        ) {
            let most = NonZeroU32::new(most).expect("above zero");
            let found = violations(&calls, Limit::InFlight(most), Span(tolerance));
            let slow: Vec<Violation> = (0..calls.len()).filter_map(|call| {
                let from = calls[call].at.0 + tolerance;
                let others = calls[..call].iter().filter(|c| c.ended_at.is_none_or(|e| e.0 > from));
                let open = others.count() + 1;
                (open > most.get() as usize).then_some(Violation::InFlight { call, open })
            }).collect();
            prop_assert_eq!(found, slow);
        }
    }
}
