//! The demo's mock upstreams: a set for each client, so that one client does not affect the other.

use std::net::SocketAddr;

use anyhow::Context as _;
use paceline::{Lane, Span};
use paceline_mock::{Behaviour, Mock, Preset, Summary};

use super::score::Score;
use crate::config::LaneConfig;

/// How much too early a call may arrive and still be in time: network delay varies, and the machine
/// may be busy.
const ARRIVAL: Span = Span::millis(20);
/// The latency of `flaky`: long enough for some of its calls to be in flight at any moment.
const FLAKY_LATENCY: Span = Span::millis(300);
/// How long either client waits for a response of an upstream that hangs.
pub(super) const PATIENCE: Span = Span::secs(1);

/// The behaviour of one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) name: &'static str,
    /// Its limits or its faults, in words.
    pub(super) allows: &'static str,
    preset: Preset,
}

/// The five upstreams. Each has a lane of the same name.
pub(super) const PROFILES: [Profile; 5] = [
    Profile { name: "steady", allows: "1 every 200ms", preset: Preset::Steady },
    Profile { name: "windowed", allows: "20 in 10s", preset: Preset::Windowed },
    Profile { name: "grumpy", allows: "5/s, or bans", preset: Preset::Grumpy },
    Profile { name: "flaky", allows: "fails 1 in 3", preset: Preset::Flaky },
    Profile { name: "hung", allows: "never answers", preset: Preset::Hung },
];

impl Profile {
    fn behaviour(self) -> Behaviour {
        let preset = self.preset.behaviour();
        let latency = if self.preset == Preset::Flaky { FLAKY_LATENCY } else { preset.latency };
        Behaviour { latency, tolerance: ARRIVAL, ..preset }
    }

    /// A lane with the limits of the upstream.
    pub(super) fn lane(self) -> Lane {
        let behaviour = self.behaviour();
        let lane = behaviour.limits.into_iter().fold(Lane::new(self.name), Lane::limit);
        let lane = behaviour.every.into_iter().fold(lane, Lane::every);
        if self.preset == Preset::Hung { lane.timeout(PATIENCE) } else { lane }
    }
}

/// The running upstreams of both clients.
pub(super) struct Upstreams {
    pub(super) naive: Side,
    pub(super) paced: Side,
}

impl Upstreams {
    pub(super) async fn start() -> anyhow::Result<Upstreams> {
        Ok(Upstreams { naive: Side::start().await?, paced: Side::start().await? })
    }
}

/// The five upstreams of one client.
pub(super) struct Side {
    mocks: Vec<Mock>,
}

impl Side {
    async fn start() -> anyhow::Result<Side> {
        let mut mocks = Vec::new();
        for profile in PROFILES {
            let mock = Mock::start(profile.behaviour()).await;
            mocks.push(mock.context("no port on 127.0.0.1 for an upstream of the demo")?);
        }
        Ok(Side { mocks })
    }

    /// Their addresses, in the order of `PROFILES`.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.mocks.iter().map(Mock::addr).collect()
    }

    /// Their lanes, as a configuration would describe them.
    pub(super) fn lanes(&self) -> Vec<LaneConfig> {
        let lane = |(profile, mock): (Profile, &Mock)| {
            let (name, limits) = profile.lane().build().expect("the upstreams allow something");
            let (url, headers) = (Some(mock.url("")), Vec::new());
            LaneConfig { name, url, headers, private: false, limits }
        };
        PROFILES.into_iter().zip(&self.mocks).map(lane).collect()
    }

    /// The number of calls that are not answered yet.
    pub(super) fn open(&self) -> usize {
        let open = |mock: &Mock| mock.log().iter().filter(|call| call.ended_at.is_none()).count();
        self.mocks.iter().map(open).sum()
    }

    /// The summary of each upstream so far.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        self.mocks.iter().map(Mock::summary).collect()
    }

    /// The score of each upstream, from its whole log.
    pub(super) fn scores(&self) -> Vec<Score> {
        self.mocks.iter().map(|mock| Score::of(&mock.summary(), &mock.log())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline::lanes::Limits;

    fn limits(name: &str) -> Limits {
        let profile = PROFILES.into_iter().find(|profile| profile.name == name);
        profile.expect("an upstream").lane().build().expect("a lane").1
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
