//! A ratio, such as one in three: exact, and without randomness.

use std::fmt;
use std::str::FromStr;

/// A share of all requests, such as one in three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    part: u32,
    of: u32,
}

/// The largest number on either side of a ratio.
const LARGEST: u32 = 1_000_000;

impl Ratio {
    /// No request.
    pub const NONE: Ratio = Ratio { part: 0, of: 1 };
    /// Every request.
    pub const ALL: Ratio = Ratio { part: 1, of: 1 };

    /// Every `n`th request; every request for 0 and 1.
    pub const fn one_in(n: u32) -> Ratio {
        Ratio { part: 1, of: if n == 0 { 1 } else { n } }
    }

    /// Returns `true` if the request with this number, counted from 1, belongs to the share.
    ///
    /// The same numbers are taken every time, so a test that failed fails again.
    pub fn takes(self, number: u64) -> bool {
        let taken = |n: u64| u128::from(n) * u128::from(self.part) / u128::from(self.of);
        number > 0 && taken(number) > taken(number - 1)
    }
}

impl Default for Ratio {
    fn default() -> Ratio {
        Ratio::NONE
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ratio::ALL {
            f.write_str("all")
        } else {
            write!(f, "{}/{}", self.part, self.of)
        }
    }
}

/// The text is not a ratio.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ratio: write it like `1/3`, `0.25` or `all`")]
pub struct RatioError;

impl FromStr for Ratio {
    type Err = RatioError;

    fn from_str(text: &str) -> Result<Ratio, RatioError> {
        let text = text.trim();
        if text == "all" {
            return Ok(Ratio::ALL);
        }
        let (part, of) = match text.split_once('/') {
            Some((part, of)) => (whole(part)?, whole(of)?),
            None => decimal(text)?,
        };
        if of == 0 || of > LARGEST || part > of {
            return Err(RatioError);
        }
        Ok(if part == of { Ratio::ALL } else { Ratio { part, of } })
    }
}

fn whole(digits: &str) -> Result<u32, RatioError> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().ok_or(RatioError)
}

/// `0.25` as 25 of 100.
fn decimal(text: &str) -> Result<(u32, u32), RatioError> {
    let (units, rest) = text.split_once('.').unwrap_or((text, "0"));
    if rest.len() > 6 {
        return Err(RatioError);
    }
    let of = 10u32.pow(rest.len() as u32);
    let part = whole(units)?.checked_mul(of).and_then(|n| n.checked_add(whole(rest).ok()?));
    whole(rest).and(part.map(|part| (part, of)).ok_or(RatioError))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_in_three_is_every_third() {
        let taken: Vec<u64> = (1..=9).filter(|&n| Ratio::one_in(3).takes(n)).collect();
        assert_eq!(taken, [3, 6, 9]);
        assert!((1..9).all(|n| Ratio::ALL.takes(n) && !Ratio::NONE.takes(n)));
    }

    #[test]
    fn ratios_are_fractions_or_decimals() {
        assert_eq!("1/3".parse(), Ok(Ratio::one_in(3)));
        assert_eq!("0.25".parse(), Ok(Ratio { part: 25, of: 100 }));
        assert_eq!("1".parse(), Ok(Ratio::ALL));
        assert_eq!("all".parse(), Ok(Ratio::ALL));
        for text in ["", "2", "3/2", "1/0", "-1", "1.5", ".5", "0.", "1/", "x", "0.1234567", "+1"] {
            assert_eq!(text.parse::<Ratio>(), Err(RatioError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_ratio_takes_its_part_exactly(of in 1..500u32, part in 0..500u32, rounds in 1..4u64) {
            let part = part.min(of);
            let ratio = Ratio { part, of };
            let taken = (1..=u64::from(of) * rounds).filter(|&n| ratio.takes(n)).count();
            prop_assert_eq!(taken as u64, u64::from(part) * rounds);
        }

        #[test]
        fn any_text_is_a_ratio_or_an_error(text in ".{0,40}|[0-9./]{0,12}") {
            if let Ok(ratio) = text.parse::<Ratio>() {
                prop_assert_eq!(ratio.to_string().parse::<Ratio>(), Ok(ratio));
            }
        }
    }
}
