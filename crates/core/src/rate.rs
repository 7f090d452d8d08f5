//! Rates: a number of calls per span, written `2/s`, `100/min` or `3/5s`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::{Span, shown};

/// At most `max` in any interval of length `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    /// The number.
    pub max: NonZeroU32,
    /// The span; never zero.
    pub per: Span,
}

/// A text that is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not a number, a slash and a unit or span.
    #[error("`{0}` is not a rate: write it like `2/s`, `100/min`, `1000/h` or `3/5s`")]
    Form(String),
    /// Zero calls, or a window of no length.
    #[error("`{0}` allows nothing: both numbers of a rate must be above zero")]
    Zero(String),
    /// A number or a span beyond the bound.
    #[error("`{0}` is out of range: at most 1000000000 per at most ten years")]
    Range(String),
}

/// The largest `max`.
pub const LARGEST_MAX: u32 = 1_000_000_000;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Rate, RateError> {
        let form = || RateError::Form(shown(text));
        let range = || RateError::Range(shown(text));
        let (max, per) = text.trim().split_once('/').ok_or_else(form)?;
        if max.is_empty() || !max.bytes().all(|b| b.is_ascii_digit()) {
            return Err(form());
        }
        let max: u32 = max.parse().map_err(|_| range())?;
        let per = if per.starts_with(|c: char| c.is_ascii_digit()) {
            per.parse()
        } else {
            format!("1{per}").parse()
        };
        let per: Span = per.map_err(|error| match error {
            crate::time::SpanError::TooLong(_) => range(),
            _ => form(),
        })?;
        let max = NonZeroU32::new(max).filter(|_| per > Span::ZERO);
        let max = max.ok_or_else(|| RateError::Zero(shown(text)))?;
        if max.get() > LARGEST_MAX { Err(range()) } else { Ok(Rate { max, per }) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = self.per.to_string();
        // People write `1/s`, not `1/1s`.
        let unit = per.strip_prefix('1').filter(|u| u.bytes().all(|b| b.is_ascii_alphabetic()));
        let unit = unit.map(|unit| if unit == "m" { "min" } else { unit });
        write!(f, "{}/{}", self.max, unit.unwrap_or(&per))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            (self.max, self.per).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        if deserializer.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            Deserialize::deserialize(deserializer).map(|(max, per)| Rate { max, per })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, max: u32, per: Span) {
        let max = NonZeroU32::new(max).expect("above zero");
        assert_eq!(text.parse(), Ok(Rate { max, per }), "{text}");
    }

    #[test]
    fn rates_are_a_number_per_span() {
        check("2/s", 2, Span::secs(1));
        check("100/min", 100, Span::mins(1));
        check("1000/h", 1000, Span::hours(1));
        check("5000/d", 5000, Span::days(1));
        check("3/5s", 3, Span::secs(5));
        for text in ["", "2", "/s", "2/", "x/s", "2/x", "-1/s", "1.5/s", "2/s/s", "+2/s"] {
            assert!(matches!(text.parse::<Rate>(), Err(RateError::Form(_))), "{text}");
        }
        assert!(matches!("0/s".parse::<Rate>(), Err(RateError::Zero(_))));
        assert!(matches!("1/0s".parse::<Rate>(), Err(RateError::Zero(_))));
        assert!(matches!("9999999999/s".parse::<Rate>(), Err(RateError::Range(_))));
        assert!(matches!("1/99999d".parse::<Rate>(), Err(RateError::Range(_))));
    }

    proptest! {
        #[test]
        fn a_printed_rate_reads_back(max in 1..=LARGEST_MAX, per in 1..1_000_000_000_000u64) {
            let rate = Rate { max: NonZeroU32::new(max).expect("above zero"), per: Span(per) };
            prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
        }

        #[test]
        fn any_text_is_a_rate_or_a_short_error(text in ".{0,200}") {
            if let Err(error) = text.parse::<Rate>() {
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
}
