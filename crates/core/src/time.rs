//! Moments and spans. The rules have no other notion of time, and no clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, in microseconds. Engine time unless a name says `wall`.
///
/// Engine time starts as the wall clock of the store's first opening and then only runs forward,
/// at the pace of the monotonic clock, through restarts too.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub u64);

impl Time {
    /// Before everything.
    pub const ZERO: Time = Time(0);
    /// Later than any moment that comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// The span since `earlier`, zero if that is still to come.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

/// Both clocks at one instant: limits run on `time`, due moments on `wall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Engine time.
    pub time: Time,
    /// The wall clock, which may be stepped both ways.
    pub wall: Time,
}

impl Now {
    /// The engine time at which the wall clock will show `wall`, if it is not stepped.
    pub fn engine_time(self, wall: Time) -> Time {
        if wall >= self.wall {
            self.time + wall.since(self.wall)
        } else {
            self.time - self.wall.since(wall)
        }
    }

    /// The wall clock at the engine time `time`, as the clocks stand now.
    pub fn wall_time(self, time: Time) -> Time {
        if time == Time::NEVER {
            time
        } else if time >= self.time {
            self.wall + time.since(self.time)
        } else {
            self.wall - self.time.since(time)
        }
    }
}

/// A length of time, in microseconds. Written `250ms`, `90s`, `1h30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

/// The longest span that a caller or a configuration may name.
pub const LONGEST_SPAN: Span = Span::days(3660);

impl Span {
    /// Nothing.
    pub const ZERO: Span = Span(0);

    /// `n` microseconds.
    pub const fn micros(n: u64) -> Span {
        Span(n)
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Span {
        Span(n * 1_000)
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Span {
        Span(n * 1_000_000)
    }

    /// `n` minutes.
    pub const fn mins(n: u64) -> Span {
        Span::secs(n * 60)
    }

    /// `n` hours.
    pub const fn hours(n: u64) -> Span {
        Span::mins(n * 60)
    }

    /// `n` days.
    pub const fn days(n: u64) -> Span {
        Span::hours(n * 24)
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// This span `n` times.
    #[must_use]
    pub fn times(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Span {
        Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        std::time::Duration::from_micros(span.0)
    }
}

const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut left = self.0;
        for (name, micros) in UNITS {
            if left >= micros {
                write!(f, "{}{name}", left / micros)?;
                left %= micros;
            }
        }
        Ok(())
    }
}

/// A text that is not a span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// It is not a list of numbers with units.
    #[error("`{0}` is not a span of time: write it like `250ms`, `90s` or `1h30m`")]
    Form(String),
    /// A number without a unit.
    #[error("`{0}` has no unit: write `{0}s` for seconds or `{0}ms` for milliseconds")]
    Unit(String),
    /// Longer than [`LONGEST_SPAN`].
    #[error("`{0}` is longer than ten years")]
    TooLong(String),
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Span, SpanError> {
        let form = || SpanError::Form(shown(text));
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(form());
        }
        if rest.bytes().all(|b| b.is_ascii_digit()) {
            return Err(SpanError::Unit(shown(rest)));
        }
        let mut sum: u64 = 0;
        let mut last_unit = UNITS.len() + 1;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
            let number: u64 = match rest[..digits].parse() {
                Ok(number) => number,
                Err(_) if digits > 0 => return Err(SpanError::TooLong(shown(text))),
                Err(_) => return Err(form()),
            };
            let unit = &rest[digits..digits + letters];
            let place = UNITS
                .iter()
                .position(|(name, _)| *name == unit || (*name == "m" && unit == "min"))
                .ok_or_else(form)?;
            // Each unit once, the largest first: `30m1h` and `1s1s` are typing mistakes.
            if last_unit != UNITS.len() + 1 && place <= last_unit {
                return Err(form());
            }
            last_unit = place;
            sum = number
                .checked_mul(UNITS[place].1)
                .and_then(|micros| sum.checked_add(micros))
                .filter(|&sum| sum <= LONGEST_SPAN.0)
                .ok_or_else(|| SpanError::TooLong(shown(text)))?;
            rest = &rest[digits + letters..];
        }
        Ok(Span(sum))
    }
}

/// Text from outside in the form in which an error may show it: one line, bounded.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push_str("...");
    }
    short
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        if deserializer.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(deserializer).map(Span)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: Result<Span, &str>) {
        let got = text.parse::<Span>().map_err(|error| error.to_string());
        assert_eq!(got, expected.map_err(str::to_string), "{text}");
    }

    #[test]
    fn spans_are_numbers_with_units() {
        check("250ms", Ok(Span::millis(250)));
        check("90s", Ok(Span::secs(90)));
        check("1h30m", Ok(Span::mins(90)));
        check(" 5min ", Ok(Span::mins(5)));
        check("0s", Ok(Span::ZERO));
        check("5", Err("`5` has no unit: write `5s` for seconds or `5ms` for milliseconds"));
        for text in ["", "s", "1h30", "30m1h", "1s1s", "-1s", "1.5s", "1 s", "1x", "é"] {
            let error = text.parse::<Span>().expect_err(text).to_string();
            assert!(error.contains("write it like"), "{text}: {error}");
        }
        check("99999d", Err("`99999d` is longer than ten years"));
        check("99999999999999999999s", Err("`99999999999999999999s` is longer than ten years"));
    }

    #[test]
    fn w5_the_two_clocks_convert_both_ways() {
        let now = Now { time: Time(1_000), wall: Time(5_000) };
        assert_eq!(now.engine_time(Time(5_200)), Time(1_200));
        assert_eq!(now.engine_time(Time(4_900)), Time(900));
        assert_eq!(now.wall_time(Time(1_200)), Time(5_200));
    }

    proptest! {
        #[test]
        fn a_printed_span_reads_back(micros in 0..=LONGEST_SPAN.0) {
            prop_assert_eq!(Span(micros).to_string().parse::<Span>(), Ok(Span(micros)));
        }

        #[test]
        fn any_text_is_a_span_or_a_short_error(text in ".{0,200}") {
            if let Err(error) = text.parse::<Span>() {
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
}
