//! Fake upstreams: their responses, latencies and failures.

use std::collections::VecDeque;

use paceline_core::{About, Announced, AttemptResult, Failure, Rate, Span, Time, Verdict};

use crate::rng::Rng;

/// The response to one request.
#[derive(Clone, Debug)]
pub struct Response {
    /// The time from the request to the response.
    pub(crate) after: Span,
    /// The verdict that the worker reports.
    pub(crate) told: AttemptResult,
    /// If set, the worker reports the request as answered, and its verdict this much later.
    pub(crate) settles: Option<Span>,
    /// After a timeout the request stays on the wire until it is this old.
    pub(crate) hangs: Span,
}

impl Response {
    /// Responds with this verdict at once.
    pub(crate) fn new(verdict: Verdict) -> Response {
        let told = AttemptResult { verdict, announced: None };
        Response { after: Span::ZERO, told, settles: None, hangs: Span::ZERO }
    }

    /// Responds this long after the request.
    #[must_use]
    pub fn after(mut self, span: &str) -> Response {
        self.after = span.parse().expect("a span");
        self
    }

    /// The worker reports the request as answered, and its verdict this much later (L5).
    #[must_use]
    pub fn settled_after(mut self, span: &str) -> Response {
        self.settles = Some(span.parse().expect("a span"));
        self
    }

    /// Announces limits with the response (L8).
    #[must_use]
    pub fn announcing(mut self, announced: Announced) -> Response {
        self.told.announced = Some(announced);
        self
    }
}

/// An upstream that enforces one window exactly.
#[derive(Clone, Debug)]
pub(crate) struct StrictUpstream {
    pub(crate) rate: Rate,
    pub(crate) accepted: VecDeque<Time>,
}

impl StrictUpstream {
    /// Returns `true` if a request that arrives now is accepted, and counts it.
    pub(crate) fn accepts(&mut self, now: Time) -> bool {
        let gone = |at: &Time| *at + self.rate.per <= now;
        while self.accepted.front().is_some_and(gone) {
            self.accepted.pop_front();
        }
        let accepts = self.accepted.len() < self.rate.max.get() as usize;
        if accepts {
            self.accepted.push_back(now);
        }
        accepts
    }
}

/// Longer than any world lasts.
const HUNG: Span = Span::days(30);

/// The behaviour of an upstream in a random world. Numbers are percentages of its responses.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// The longest latency of a response that does not hang.
    pub(crate) latency: Span,
    pub(crate) empty: u64,
    pub(crate) fails: u64,
    pub(crate) refuses: u64,
    pub(crate) throttles: u64,
    pub(crate) unprocessed: u64,
    pub(crate) moves: u64,
    pub(crate) panics: u64,
    pub(crate) hangs: u64,
    pub(crate) announces: u64,
    pub(crate) lies: bool,
    /// Throttles every request, with a short `Retry-After` or none, and allows a retry.
    pub(crate) stubborn: bool,
}

impl Behaviour {
    /// Responds to everything quickly.
    pub(crate) fn healthy() -> Behaviour {
        let latency = Span::millis(100);
        Behaviour {
            latency,
            empty: 10,
            fails: 0,
            refuses: 0,
            throttles: 0,
            unprocessed: 0,
            moves: 0,
            panics: 0,
            hangs: 0,
            announces: 0,
            lies: false,
            stubborn: false,
        }
    }

    /// Never responds.
    pub(crate) fn hung() -> Behaviour {
        Behaviour { latency: HUNG, hangs: 100, ..Behaviour::healthy() }
    }

    /// Reports every request as not processed.
    pub(crate) fn refusing() -> Behaviour {
        Behaviour { unprocessed: 100, ..Behaviour::healthy() }
    }

    /// Throttles every request.
    pub(crate) fn stubborn() -> Behaviour {
        Behaviour { stubborn: true, ..Behaviour::healthy() }
    }

    pub(crate) fn random(rng: &mut Rng) -> Behaviour {
        let some = |rng: &mut Rng, n| if rng.one_in(2) { rng.range(1, n) } else { 0 };
        Behaviour {
            latency: Span::millis(*rng.pick(&[5, 80, 400, 3_000, 20_000])),
            empty: rng.range(0, 40),
            fails: some(rng, 60),
            refuses: some(rng, 15),
            throttles: some(rng, 30),
            unprocessed: some(rng, 10),
            moves: some(rng, 10),
            panics: some(rng, 5),
            hangs: some(rng, 8),
            announces: if rng.one_in(8) { 50 } else { some(rng, 10) },
            lies: rng.one_in(4),
            stubborn: false,
        }
    }

    /// The response to one request. A redirect leads to the lane `elsewhere`.
    pub(crate) fn response(&self, rng: &mut Rng, elsewhere: &str) -> Response {
        let mut dice = rng.next() % 100;
        let mut hits = |percent: u64| {
            let hit = dice < percent;
            dice = if hit { u64::MAX } else { dice - percent };
            hit
        };
        let verdict = if self.stubborn {
            let soon = Span::millis(rng.range(0, 2_000));
            Verdict::Throttled { retry_after: rng.one_in(2).then_some(soon), again: true }
        } else if hits(self.fails.min(70)) {
            let retry_after = self.retry_after(rng).filter(|_| rng.one_in(6));
            let about = if rng.one_in(4) { About::Call } else { About::Lane };
            Verdict::Failed { failure: Failure::transient("status_503"), retry_after, about }
        } else if hits(self.refuses) {
            let failure = Failure::permanent("status_404");
            Verdict::Failed { failure, retry_after: None, about: About::Lane }
        } else if hits(self.throttles) {
            Verdict::Throttled { retry_after: self.retry_after(rng), again: !rng.one_in(5) }
        } else if hits(self.unprocessed) {
            Verdict::NotProcessed
        } else if hits(self.moves) {
            let payload = rng.one_in(2).then(|| b"moved".as_slice().into());
            Verdict::Moved { lane: elsewhere.into(), payload }
        } else if hits(self.panics) {
            Verdict::Lost { failure: Failure::permanent("panic").because("index out of bounds") }
        } else if hits(self.empty) {
            Verdict::Empty
        } else {
            let value = rng.next().to_string().into_bytes().into();
            Verdict::Done { conclusive: rng.percent(70), value }
        };
        let hanging = rng.percent(self.hangs);
        let after = if hanging && self.latency == HUNG {
            HUNG
        } else if hanging {
            Span::secs(rng.range(30, 1_200))
        } else {
            Span(rng.range(0, self.latency.0))
        };
        let announced = rng.percent(self.announces).then(|| announced(rng));
        let hangs = Span(after.0 + rng.range(0, 20_000_000));
        let most = *rng.pick(&[2_000, 80_000, 5_000_000]);
        let settles = rng.one_in(3).then(|| Span(rng.range(0, most)));
        Response { after, told: AttemptResult { verdict, announced }, settles, hangs }
    }

    fn retry_after(&self, rng: &mut Rng) -> Option<Span> {
        if self.lies && rng.one_in(2) {
            return Some(*rng.pick(&[Span::ZERO, Span::hours(2)]));
        }
        (!rng.one_in(3)).then(|| Span::millis(rng.range(1, 60_000)))
    }
}

fn announced(rng: &mut Rng) -> Announced {
    let mut some = Announced::default();
    match rng.range(0, 4) {
        0 => some.every = Some(Span::millis(rng.range(0, 5_000))),
        1 => some.window = format!("{}/{}s", rng.range(1, 20), rng.range(1, 60)).parse().ok(),
        2 | 3 => some.left = Some((rng.range(0, 5) as u32, Span::secs(rng.range(1, 120)))),
        _ => some.in_flight = Some(rng.range(0, 3) as u32),
    }
    some
}
