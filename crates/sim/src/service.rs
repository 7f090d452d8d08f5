//! The services of a world: what they answer, how soon, and how badly they behave.

use std::collections::VecDeque;

use paceline_core::{About, Announced, AttemptResult, Failure, Rate, Span, Time, Verdict};

use crate::rng::Rng;

/// How one request is answered.
#[derive(Clone, Debug)]
pub struct Reaction {
    /// The answer comes so long after the request.
    pub(crate) after: Span,
    /// The answer.
    pub(crate) told: AttemptResult,
    /// The worker says that it is answered, and tells what it came to so much later.
    pub(crate) settles: Option<Span>,
    /// After a timeout the request hangs on the wire until it is this old.
    pub(crate) hangs: Span,
}

impl Reaction {
    /// This answer at once.
    pub(crate) fn new(verdict: Verdict) -> Reaction {
        let told = AttemptResult { verdict, announced: None };
        Reaction { after: Span::ZERO, told, settles: None, hangs: Span::ZERO }
    }

    /// The same, so long after the request.
    #[must_use]
    pub fn after(mut self, span: &str) -> Reaction {
        self.after = span.parse().expect("a span");
        self
    }

    /// The same, and the worker says so and needs so long on its own side (L5).
    #[must_use]
    pub fn settled_after(mut self, span: &str) -> Reaction {
        self.settles = Some(span.parse().expect("a span"));
        self
    }

    /// The same, and what the service says about its limits.
    #[must_use]
    pub fn announcing(mut self, announced: Announced) -> Reaction {
        self.told.announced = Some(announced);
        self
    }
}

/// An upstream that keeps to one limit, exactly.
#[derive(Clone, Debug)]
pub(crate) struct Strict {
    pub(crate) rate: Rate,
    pub(crate) taken: VecDeque<Time>,
}

impl Strict {
    /// Whether it takes a request that arrives now.
    pub(crate) fn takes(&mut self, now: Time) -> bool {
        let gone = |at: &Time| *at + self.rate.per <= now;
        while self.taken.front().is_some_and(gone) {
            self.taken.pop_front();
        }
        let takes = self.taken.len() < self.rate.max.get() as usize;
        if takes {
            self.taken.push_back(now);
        }
        takes
    }
}

/// As good as for ever.
const HUNG: Span = Span::days(30);

/// How a service of a random world behaves, in percent of its answers.
#[derive(Clone, Debug)]
pub(crate) struct Temper {
    /// The usual time to an answer, at most.
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
    /// Throttles everything, with dates that are soon if any, and says to come again.
    pub(crate) stubborn: bool,
}

impl Temper {
    /// Answers everything, soon.
    pub(crate) fn healthy() -> Temper {
        let latency = Span::millis(100);
        Temper {
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

    /// Answers nothing for longer than anyone waits.
    pub(crate) fn hung() -> Temper {
        Temper { latency: HUNG, hangs: 100, ..Temper::healthy() }
    }

    /// Processes nothing that comes, and says so.
    pub(crate) fn refusing() -> Temper {
        Temper { unprocessed: 100, ..Temper::healthy() }
    }

    /// Throttles whatever comes.
    pub(crate) fn stubborn() -> Temper {
        Temper { stubborn: true, ..Temper::healthy() }
    }

    pub(crate) fn random(rng: &mut Rng) -> Temper {
        let some = |rng: &mut Rng, n| if rng.one_in(2) { rng.range(1, n) } else { 0 };
        Temper {
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

    /// The answer to one request. `elsewhere` is where it may move to.
    pub(crate) fn reaction(&self, rng: &mut Rng, elsewhere: &str) -> Reaction {
        let mut dice = rng.next() % 100;
        let mut falls = |percent: u64| {
            let hit = dice < percent;
            dice = if hit { u64::MAX } else { dice - percent };
            hit
        };
        let verdict = if self.stubborn {
            let soon = Span::millis(rng.range(0, 2_000));
            Verdict::Throttled { retry_after: rng.one_in(2).then_some(soon), again: true }
        } else if falls(self.fails.min(70)) {
            let retry_after = self.retry_after(rng).filter(|_| rng.one_in(6));
            let about = if rng.one_in(4) { About::Call } else { About::Lane };
            Verdict::Failed { failure: Failure::transient("status_503"), retry_after, about }
        } else if falls(self.refuses) {
            let failure = Failure::permanent("status_404");
            Verdict::Failed { failure, retry_after: None, about: About::Lane }
        } else if falls(self.throttles) {
            Verdict::Throttled { retry_after: self.retry_after(rng), again: !rng.one_in(5) }
        } else if falls(self.unprocessed) {
            Verdict::NotProcessed
        } else if falls(self.moves) {
            let payload = rng.one_in(2).then(|| b"moved".as_slice().into());
            Verdict::Moved { lane: elsewhere.into(), payload }
        } else if falls(self.panics) {
            Verdict::Lost { failure: Failure::permanent("panic").because("index out of bounds") }
        } else if falls(self.empty) {
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
        Reaction { after, told: AttemptResult { verdict, announced }, settles, hangs }
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
