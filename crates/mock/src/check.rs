//! The checker: which requests exceeded a limit, judged by the moments of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU32;

use paceline_core::{Rate, Span, Time};

/// One request as the upstream saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the head had been read.
    pub at: Time,
    /// When the response had been sent or the client had disconnected; `None` while open.
    pub ended_at: Option<Time>,
}

/// One limit of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At least this long from one arrival to the next.
    Gap(Span),
    /// A sliding window: no interval of length `per`, however placed, holds more than `max`
    /// arrivals.
    Window(Rate),
    /// At most this many requests open at once.
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

/// A request that exceeded a limit, by its index in the list of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It arrived too soon after the previous request.
    Gap {
        /// The index of the request.
        request: usize,
        /// The time since the previous arrival.
        after: Span,
    },
    /// It and the `max` requests before it arrived within less than `per`.
    Window {
        /// The index of the request.
        request: usize,
        /// The time from the first of them to this one.
        within: Span,
    },
    /// It was one more open request than allowed.
    InFlight {
        /// The index of the request.
        request: usize,
        /// The open requests, itself included.
        open: usize,
    },
}

/// Returns the requests among `arrivals`, oldest first, that exceeded `limit` by more than
/// `tolerance`.
///
/// Exact: a request is returned if and only if it is the last one of an interval that holds too
/// many.
pub fn violations(arrivals: &[Arrival], limit: Limit, tolerance: Span) -> Vec<Violation> {
    match limit {
        Limit::Gap(every) => {
            let early = too_close(arrivals, 1, every, tolerance);
            early.map(|(request, after)| Violation::Gap { request, after }).collect()
        }
        Limit::Window(rate) => {
            let max = rate.max.get() as usize;
            let early = too_close(arrivals, max, rate.per, tolerance);
            early.map(|(request, within)| Violation::Window { request, within }).collect()
        }
        Limit::InFlight(most) => too_many(arrivals, most.get() as usize, tolerance),
    }
}

/// Requests that arrived less than `per` after the one `back` positions earlier.
fn too_close(
    arrivals: &[Arrival],
    back: usize,
    per: Span,
    tolerance: Span,
) -> impl Iterator<Item = (usize, Span)> {
    let spans =
        arrivals.iter().skip(back).zip(arrivals).map(|(late, early)| late.at.since(early.at));
    let numbered = spans.enumerate().map(move |(index, span)| (index + back, span));
    numbered.filter(move |&(_, span)| span + tolerance < per)
}

/// Requests that arrived while `most` others were open and stayed open for longer than `tolerance`.
fn too_many(arrivals: &[Arrival], most: usize, tolerance: Span) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut open = BinaryHeap::new();
    for (request, arrival) in arrivals.iter().enumerate() {
        let counted_from = arrival.at + tolerance;
        while open.peek().is_some_and(|&Reverse(ended_at)| ended_at <= counted_from) {
            open.pop();
        }
        if open.len() >= most {
            found.push(Violation::InFlight { request, open: open.len() + 1 });
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
    fn a_gap_is_exceeded_by_the_later_request() {
        let gap = Limit::Gap(Span::millis(100));
        check(&[0, 100, 200], gap, 0, &[]);
        check(&[0, 99, 199], gap, 0, &[Violation::Gap { request: 1, after: Span::millis(99) }]);
        check(&[0, 99, 199], gap, 1, &[]);
        check(&[], gap, 0, &[]);
    }

    #[test]
    fn l3_a_window_slides() {
        let window = Limit::Window("2/s".parse().expect("a rate"));
        check(&[0, 900, 1_000, 1_900], window, 0, &[]);
        // Two requests in each fixed second, three in the second that starts at 900.
        let broken = Violation::Window { request: 3, within: Span::millis(200) };
        check(&[0, 900, 1_050, 1_100], window, 0, &[broken]);
    }

    #[test]
    fn requests_count_as_open_until_they_end() {
        let limit = Limit::InFlight(NonZeroU32::MIN);
        let mut requests = at(&[0, 10, 20]);
        requests[0].ended_at = Some(Time(12_000));
        let broken = Violation::InFlight { request: 1, open: 2 };
        assert_eq!(violations(&requests, limit, Span::ZERO), [broken]);
        assert_eq!(violations(&requests, limit, Span::millis(2)), []);
        requests[0].ended_at = None;
        assert_eq!(violations(&requests, limit, Span::millis(2)).len(), 2);
    }

    /// Ordered arrivals, each open for some time or still open.
    fn any_arrivals() -> impl Strategy<Value = Vec<Arrival>> {
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
            requests in any_arrivals(), max in 1..5u32, per in 1..100u64,
        ) {
            let rate = Rate { max: NonZeroU32::new(max).expect("above zero"), per: Span(per) };
            let found = violations(&requests, Limit::Window(rate), Span::ZERO);
            let named: Vec<usize> = found.iter().map(|v| match v {
                Violation::Window { request, .. } => *request,
                other => panic!("{other:?}"),
            }).collect();
            // The widest interval that ends with a request holds the requests of the last `per`.
            let slow: Vec<usize> = (0..requests.len()).filter(|&last| {
                let from = (requests[last].at.0 + 1).saturating_sub(per);
                requests[..=last].iter().filter(|c| c.at.0 >= from).count() > max as usize
            }).collect();
            prop_assert_eq!(named, slow);
        }

        #[test]
        fn open_requests_match_a_plain_count(
            requests in any_arrivals(), most in 1..5u32, tolerance in 0..20u64,
        ) {
            let most = NonZeroU32::new(most).expect("above zero");
            let found = violations(&requests, Limit::InFlight(most), Span(tolerance));
            let slow: Vec<Violation> = (0..requests.len()).filter_map(|request| {
                let from = requests[request].at.0 + tolerance;
                let others = requests[..request].iter().filter(|c| c.ended_at.is_none_or(|e| e.0 > from));
                let open = others.count() + 1;
                (open > most.get() as usize).then_some(Violation::InFlight { request, open })
            }).collect();
            prop_assert_eq!(found, slow);
        }
    }
}
