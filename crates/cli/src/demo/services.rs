//! The demo's services: two of each, for one client each, so that none pays for the other.

use std::net::SocketAddr;

use anyhow::Context as _;
use paceline::{Lane, Span};
use paceline_mock::{Behaviour, Mock, Preset, Summary};

use super::score::Score;
use crate::config::LaneConfig;

/// A call so much too early at its arrival is still in time: the way there is not exact, and a
/// newcomer's machine may be busy.
const ARRIVAL: Span = Span::millis(20);
/// How long `flaky` takes: long enough for some of its calls to be on the wire at any moment.
const FLAKY_LATENCY: Span = Span::millis(300);
/// How long either client waits for an answer of a service that hangs.
pub(super) const PATIENCE: Span = Span::secs(1);

/// How one service behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manners {
    pub(super) name: &'static str,
    /// What it allows or does, in words.
    pub(super) allows: &'static str,
    preset: Preset,
}

/// All five, by the names of their lanes.
pub(super) const MANNERS: [Manners; 5] = [
    Manners { name: "steady", allows: "1 every 200ms", preset: Preset::Steady },
    Manners { name: "windowed", allows: "20 in 10s", preset: Preset::Windowed },
    Manners { name: "grumpy", allows: "5/s, or bans", preset: Preset::Grumpy },
    Manners { name: "flaky", allows: "fails 1 in 3", preset: Preset::Flaky },
    Manners { name: "hung", allows: "never answers", preset: Preset::Hung },
];

impl Manners {
    fn behaviour(self) -> Behaviour {
        let preset = self.preset.behaviour();
        let latency = if self.preset == Preset::Flaky { FLAKY_LATENCY } else { preset.latency };
        Behaviour { latency, tolerance: ARRIVAL, ..preset }
    }

    /// The same limits as a lane's.
    pub(super) fn lane(self) -> Lane {
        let behaviour = self.behaviour();
        let lane = behaviour.limits.into_iter().fold(Lane::new(self.name), Lane::limit);
        let lane = behaviour.every.into_iter().fold(lane, Lane::every);
        if self.preset == Preset::Hung { lane.timeout(PATIENCE) } else { lane }
    }
}

/// The services, up and listening on this machine.
pub(super) struct Services {
    pub(super) naive: Side,
    pub(super) paced: Side,
}

impl Services {
    pub(super) async fn start() -> anyhow::Result<Services> {
        Ok(Services { naive: Side::start().await?, paced: Side::start().await? })
    }
}

/// The five services of one client.
pub(super) struct Side {
    mocks: Vec<Mock>,
}

impl Side {
    async fn start() -> anyhow::Result<Side> {
        let mut mocks = Vec::new();
        for manners in MANNERS {
            let mock = Mock::start(manners.behaviour()).await;
            mocks.push(mock.context("no port on 127.0.0.1 for a service of the demo")?);
        }
        Ok(Side { mocks })
    }

    /// Where they listen, in the order of `MANNERS`.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.mocks.iter().map(Mock::addr).collect()
    }

    /// Each as a configuration would describe it.
    pub(super) fn lanes(&self) -> Vec<LaneConfig> {
        let lane = |(manners, mock): (Manners, &Mock)| {
            let (name, limits) = manners.lane().build().expect("the services allow something");
            let (url, headers) = (Some(mock.url("")), Vec::new());
            LaneConfig { name, url, headers, private: false, limits }
        };
        MANNERS.into_iter().zip(&self.mocks).map(lane).collect()
    }

    /// Calls that they have not answered yet.
    pub(super) fn open(&self) -> usize {
        let open = |mock: &Mock| mock.log().iter().filter(|call| call.ended_at.is_none()).count();
        self.mocks.iter().map(open).sum()
    }

    /// What each of them has seen so far.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        self.mocks.iter().map(Mock::summary).collect()
    }

    /// What each of them saw, call by call.
    pub(super) fn scores(&self) -> Vec<Score> {
        self.mocks.iter().map(|mock| Score::of(&mock.summary(), &mock.log())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline::lanes::Limits;

    fn limits(name: &str) -> Limits {
        let manners = MANNERS.into_iter().find(|manners| manners.name == name);
        manners.expect("a service").lane().build().expect("a lane").1
    }

    #[test]
    fn lanes_have_the_limits_of_their_services() {
        let rates = |name| -> Vec<String> {
            limits(name).windows.iter().map(|window| window.rate.to_string()).collect()
        };
        assert_eq!(limits("steady").every, Some("200ms".parse().expect("a span")));
        assert_eq!(rates("windowed"), ["20/10s"]);
        assert_eq!(rates("grumpy"), ["5/s"]);
        assert!(rates("flaky").is_empty() && rates("hung").is_empty());
        assert_eq!(limits("hung").timeout, Some(PATIENCE));
    }
}
