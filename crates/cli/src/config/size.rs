//! Sizes in bytes: `512B`, `64KiB`, `10MiB`, `1GiB`.

use std::fmt;
use std::str::FromStr;

use super::document::shown;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |&(_, bytes): &(&str, u64)| self.0 >= bytes && self.0.is_multiple_of(bytes);
        let (unit, bytes) = UNITS.into_iter().find(whole).unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

/// An error of parsing a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number with a unit.
    #[error("`{0}` is not a size: write it like `64KiB`, `10MiB` or `1GiB`")]
    Form(String),
    /// A number without a unit.
    #[error("`{0}` has no unit: write `{0}B` for bytes or `{0}MiB` for mebibytes")]
    Unit(String),
    /// The number of bytes overflows.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::Form(shown(text)));
        }
        if unit.is_empty() {
            return Err(SizeError::Unit(shown(number)));
        }
        let known = UNITS.into_iter().find(|(name, _)| *name == unit);
        let (_, bytes) = known.ok_or_else(|| SizeError::Form(shown(text)))?;
        let number: Option<u64> = number.parse().ok();
        let size = number.and_then(|number| number.checked_mul(bytes));
        size.map(Size).ok_or_else(|| SizeError::TooLarge(shown(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_numbers_with_binary_units() {
        for (text, bytes) in [
            ("512B", 512),
            ("64KiB", 65_536),
            (" 10MiB ", 10_485_760),
            ("1GiB", 1 << 30),
            ("0B", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MiB", "10MB", "10mib", "1.5MiB", "-1B", "1 KiB", "é"] {
            assert!(matches!(text.parse::<Size>(), Err(SizeError::Form(_))), "{text}");
        }
        assert_eq!("10".parse::<Size>(), Err(SizeError::Unit("10".to_string())));
        assert!(matches!("99999999TiB".parse::<Size>(), Err(SizeError::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(bytes: u64, shift in 0..50u32) {
            let size = Size((bytes >> shift) << shift);
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }

        #[test]
        fn any_text_is_a_size_or_a_short_error(text in ".{0,200}|[0-9]{0,30}[KMGTiB]{0,4}") {
            if let Err(error) = text.parse::<Size>() {
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
}
