//! The demo's services: what each allows, what it knows, and the engine that respects it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::Context as _;
use paceline::{Builder, Call, Lane, Outcome, Paceline, Span, Work, Worker};
use paceline_mock::{Behaviour, Mock, Ratio, Summary};

use crate::loopback::Service;

/// Who is asked together, and who only if those know nothing (J3).
pub(super) const STAGES: [&[&str]; 3] = [&["library", "archive"], &["grumpy", "flaky"], &["attic"]];

/// A call so much too early at its arrival is still in time: the way there is not exact, and a
/// newcomer's machine may be busy.
pub(super) const ARRIVAL: Span = Span::millis(20);

/// One service. The lane gets the same limits, as windows: an urgent call shortens a lane's
/// `every` (L2) but no window, and these services make no exceptions.
pub(super) struct Manners {
    pub(super) name: &'static str,
    /// What it allows, in words.
    pub(super) allows: &'static str,
    limits: &'static [&'static str],
    in_flight: u32,
    latency: Span,
    retry_after: Option<Span>,
    fail: Ratio,
    knows: fn(u32) -> bool,
}

fn manners() -> [Manners; 5] {
    let plain = |name, allows, limits, in_flight, knows| {
        let (latency, retry_after, fail) = (Span::millis(20), None, Ratio::NONE);
        Manners { name, allows, limits, in_flight, latency, retry_after, fail, knows }
    };
    // Every twelfth title is one that nobody knows.
    let library = plain("library", "1 every 150ms", &["1/150ms"], 1, |title| title % 3 == 0);
    let archive = plain("archive", "10 in 2s, 3 at once", &["10/2s"], 3, |title| title % 3 == 1);
    let grumpy = plain("grumpy", "4 a second, else 429", &["4/s"], 2, |title| title % 6 == 2);
    let flaky = plain("flaky", "anything, fails 1 in 3", &[], 4, |_| false);
    let attic = plain("attic", "2 at once, slowly", &[], 2, |title| title % 12 == 5);
    [
        library,
        archive,
        Manners { retry_after: Some(Span::secs(3)), ..grumpy },
        Manners { fail: Ratio::one_in(3), ..flaky },
        Manners { latency: Span::millis(400), ..attic },
    ]
}

impl Manners {
    fn behaviour(&self) -> anyhow::Result<Behaviour> {
        let limits: Result<Vec<_>, _> = self.limits.iter().map(|rate| rate.parse()).collect();
        Ok(Behaviour {
            limits: limits?,
            in_flight: NonZeroU32::new(self.in_flight),
            latency: self.latency,
            retry_after: self.retry_after,
            fail: self.fail,
            tolerance: ARRIVAL,
            ..Behaviour::default()
        })
    }

    fn lane(&self) -> Lane {
        let lane = Lane::new(self.name).in_flight(self.in_flight);
        self.limits.iter().copied().fold(lane, Lane::limit)
    }
}

/// The services, up and listening on this machine.
pub(super) struct Services {
    mocks: Vec<(Manners, Mock)>,
}

impl Services {
    pub(super) async fn start() -> anyhow::Result<Services> {
        let mut mocks = Vec::new();
        for manners in manners() {
            let mock = Mock::start(manners.behaviour()?).await;
            mocks.push((manners, mock.context("no port on this machine for a service")?));
        }
        Ok(Services { mocks })
    }

    /// An engine that knows their limits.
    pub(super) fn engine(&self, file: &Path) -> Builder {
        let wires = self.mocks.iter().map(|(one, mock)| {
            (one.name, Wire { service: Service::new(mock.addr()), knows: one.knows })
        });
        let searching = Searching { wires: wires.collect() };
        let builder = Paceline::open(file).worker("search", searching);
        self.mocks.iter().fold(builder, |builder, (one, _)| builder.lane(one.lane()))
    }

    pub(super) fn names(&self) -> Vec<(&'static str, &'static str)> {
        self.mocks.iter().map(|(one, _)| (one.name, one.allows)).collect()
    }

    /// What each of them saw, by its own log.
    pub(super) fn summaries(&self) -> Vec<(&Manners, Summary)> {
        self.mocks.iter().map(|(one, mock)| (one, mock.summary())).collect()
    }
}

/// The worker: one real request, and then a look at what the service is said to know.
struct Searching {
    wires: BTreeMap<&'static str, Wire>,
}

/// The way to a service, and what it knows.
struct Wire {
    service: Service,
    knows: fn(u32) -> bool,
}

impl Worker for Searching {
    async fn run(&self, call: Call) -> Work {
        let title: u32 = call.payload()?;
        let wire = self.wires.get(call.lane()).expect("each lane is a service");
        let answer = wire.service.ask(&format!("/title/{title}"), || call.sending()).await?;
        match answer.status {
            200 if (wire.knows)(title) => Outcome::done(answer.body),
            200 => Outcome::empty(),
            _ => answer.refused(),
        }
    }

    fn sends_itself(&self) -> bool {
        true
    }
}
