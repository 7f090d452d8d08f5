//! The limits of a mock upstream, and the failures it simulates.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use paceline_core::{Rate, Span};

use crate::check::Limit;
use crate::ratio::Ratio;

/// The limits and failures of a [`Mock`](crate::Mock). By default every request gets 200 at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// The smallest gap between two requests.
    pub every: Option<Span>,
    /// The sliding windows, such as 20 requests in 10 s.
    pub limits: Vec<Rate>,
    /// The most requests that may be open at once.
    pub in_flight: Option<NonZeroU32>,
    /// The delay before a response. Refusals are sent at once.
    pub latency: Span,
    /// If set, a refusal carries `Retry-After`, and every request until then is refused as well.
    pub retry_after: Option<Span>,
    /// The share of the requests within the limits that fail with 500.
    pub fail: Ratio,
    /// The share of the requests within the limits that never get a response.
    pub hang: Ratio,
    /// Network jitter to allow for: a request that is early by less than this is accepted.
    pub tolerance: Span,
}

impl Behaviour {
    /// All limits as the checker takes them.
    pub fn all_limits(&self) -> Vec<Limit> {
        let gap = self.every.map(Limit::Gap);
        let in_flight = self.in_flight.map(Limit::InFlight);
        gap.into_iter()
            .chain(self.limits.iter().copied().map(Limit::Window))
            .chain(in_flight)
            .collect()
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<String> = self.all_limits().iter().map(Limit::to_string).collect();
        if limits.is_empty() {
            f.write_str("everything")?;
        } else {
            write!(f, "at most {}; beyond that 429", limits.join(", "))?;
            match self.retry_after {
                Some(span) => write!(f, " with Retry-After for {span}")?,
                None => f.write_str(" without Retry-After")?,
            }
        }
        if self.latency > Span::ZERO {
            write!(f, "; answers after {}", self.latency)?;
        }
        if self.fail != Ratio::NONE {
            write!(f, "; fails: {}", self.fail)?;
        }
        if self.hang != Ratio::NONE {
            write!(f, "; never answers: {}", self.hang)?;
        }
        Ok(())
    }
}

/// Named behaviours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// One request every 200 ms, answered in 20 ms.
    Steady,
    /// 20 requests in 10 s.
    Windowed,
    /// 5 requests a second; exceeding that bans the client for 3 s.
    Grumpy,
    /// One request in three fails.
    Flaky,
    /// Accepts every request and answers none.
    Hung,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 5] =
        [Preset::Steady, Preset::Windowed, Preset::Grumpy, Preset::Flaky, Preset::Hung];

    /// The name that [`FromStr`] reads.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Steady => "steady",
            Preset::Windowed => "windowed",
            Preset::Grumpy => "grumpy",
            Preset::Flaky => "flaky",
            Preset::Hung => "hung",
        }
    }

    /// The limits and failures that the name stands for.
    pub fn behaviour(self) -> Behaviour {
        let rate = |max: u32, per| Rate { max: NonZeroU32::new(max).expect("above zero"), per };
        let plain = Behaviour::default();
        match self {
            Preset::Steady => {
                Behaviour { every: Some(Span::millis(200)), latency: Span::millis(20), ..plain }
            }
            Preset::Windowed => Behaviour { limits: vec![rate(20, Span::secs(10))], ..plain },
            Preset::Grumpy => Behaviour {
                limits: vec![rate(5, Span::secs(1))],
                retry_after: Some(Span::secs(3)),
                ..plain
            },
            Preset::Flaky => Behaviour { fail: Ratio::one_in(3), ..plain },
            Preset::Hung => Behaviour { hang: Ratio::ALL, ..plain },
        }
    }
}

/// The text names no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown behaviour: expected steady, windowed, grumpy, flaky or hung")]
pub struct PresetError;

impl FromStr for Preset {
    type Err = PresetError;
    fn from_str(text: &str) -> Result<Preset, PresetError> {
        Preset::ALL.into_iter().find(|preset| preset.name() == text).ok_or(PresetError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(preset: Preset, expected: &str) {
        assert_eq!(preset.behaviour().to_string(), expected);
        assert_eq!(preset.name().parse(), Ok(preset));
    }

    #[test]
    fn a_behaviour_displays_its_limits_and_failures() {
        check(
            Preset::Steady,
            "at most 1 every 200ms; beyond that 429 without Retry-After; answers after 20ms",
        );
        check(Preset::Windowed, "at most 20/10s; beyond that 429 without Retry-After");
        check(Preset::Grumpy, "at most 5/s; beyond that 429 with Retry-After for 3s");
        check(Preset::Flaky, "everything; fails: 1/3");
        check(Preset::Hung, "everything; never answers: all");
    }
}
