//! Names of lanes, groups, kinds and tenants.

use crate::time::shown;

/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 200;

/// A text that is no valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a {0} needs a name")]
    Empty(&'static str),
    /// It has more than [`LONGEST_NAME`] bytes.
    #[error("the {0} name `{1}` is longer than {LONGEST_NAME} bytes")]
    TooLong(&'static str, String),
    /// It has control characters, such as those that turn the direction of text, or white space at
    /// an end.
    #[error("the {0} name `{1}` has control characters or white space at its ends")]
    Characters(&'static str, String),
}

/// Accepts `text` as the name of a `what`.
pub fn check_name(what: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        Err(NameError::Empty(what))
    } else if text.len() > LONGEST_NAME {
        Err(NameError::TooLong(what, shown(text)))
    } else if text.chars().any(|c| c.is_control() || turns_text(c)) || text.trim() != text {
        Err(NameError::Characters(what, shown(text)))
    } else {
        Ok(())
    }
}

/// Returns `true` if a character changes the direction of the text around it: a name with one is
/// shown as another name.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = check_name("lane", text).expect_err(text).to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn names_are_short_and_printable() {
        assert_eq!(check_name("lane", "host:example.org:443"), Ok(()));
        assert_eq!(check_name("lane", "naïve lane"), Ok(()));
        check("", "a lane needs a name");
        check("a\nb", "the lane name `a\\nb` has control characters or white space at its ends");
        check(" a", "the lane name ` a` has control characters or white space at its ends");
        check(
            "a\u{202e}b",
            "the lane name `a\\u{202e}b` has control characters or white space at its ends",
        );
        let long = "x".repeat(201);
        let shown = format!("the lane name `{}...` is longer than 200 bytes", "x".repeat(60));
        check(&long, &shown);
    }
}
