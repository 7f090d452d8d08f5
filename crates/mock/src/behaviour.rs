//! What the service allows, and what it does beyond that.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use paceline_core::{Rate, Span};

use crate::check::Limit;
use crate::ratio::Ratio;

/// How a mock behaves. The default answers everything at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// The gap it wants between calls.
    pub every: Option<Span>,
    /// The windows it counts.
    pub limits: Vec<Rate>,
    /// The calls it takes at once.
    pub in_flight: Option<NonZeroU32>,
    /// How long an answer takes. Refusals come at once.
    pub latency: Span,
    /// A refusal says `Retry-After` and refuses everything until then; else it says nothing.
    pub retry_after: Option<Span>,
    /// How many of the calls within the limits fail with 500.
    pub fail: Ratio,
    /// How many of the calls within the limits are never answered.
    pub hang: Ratio,
    /// A call so much too early is still in time: the wire delays one call more than the next.
    pub tolerance: Span,
}

impl Behaviour {
    /// Its limits, one by one.
    pub fn rules(&self) -> Vec<Limit> {
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
        let rules: Vec<String> = self.rules().iter().map(Limit::to_string).collect();
        if rules.is_empty() {
            f.write_str("everything")?;
        } else {
            write!(f, "at most {}; beyond that 429", rules.join(", "))?;
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

/// Behaviours with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// One call every 200 ms, answered in 20 ms.
    Steady,
    /// 20 calls in 10 s.
    Windowed,
    /// 5 calls a second, and nothing for 3 s once pushed.
    Grumpy,
    /// One call in three fails.
    Flaky,
    /// Takes every call and answers none.
    Hung,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 5] =
        [Preset::Steady, Preset::Windowed, Preset::Grumpy, Preset::Flaky, Preset::Hung];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Steady => "steady",
            Preset::Windowed => "windowed",
            Preset::Grumpy => "grumpy",
            Preset::Flaky => "flaky",
            Preset::Hung => "hung",
        }
    }

    /// What the name stands for.
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

/// A text that names no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no behaviour has this name: it is steady, windowed, grumpy, flaky or hung")]
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
    fn a_behaviour_says_what_it_allows() {
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
