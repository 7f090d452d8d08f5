//! Paths that the user chose: kept unchanged if they stay below the directory.

use thiserror::Error;

use super::{MOST_PARTS, shown};

/// The longest part of a path that file systems take, in bytes.
const LONGEST_PART: usize = 255;

/// The prefix of the tool's own files.
const OURS: &str = ".paceline";

/// An invalid path; holds the path or a part of it, cleaned for messages.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing is left without `/` and `.`.
    #[error("`{0}` names no file: give a name such as `dir/file.iso`")]
    Empty(String),
    /// It begins at a root or at a drive.
    #[error("`{0}` is absolute: give a path below the download directory")]
    Absolute(String),
    /// It has a `..`.
    #[error("`{0}` leads out of the download directory: leave out the `..`")]
    Parent(String),
    /// It has a character that no name should have, such as a NUL or the end of a line.
    #[error("`{0}` has a control character: leave it out")]
    Control(String),
    /// One of its parts is too long.
    #[error("`{0}` is longer than {LONGEST_PART} bytes: shorten it")]
    Long(String),
    /// It has too many parts.
    #[error("`{0}` has more than {MOST_PARTS} parts: use fewer directories")]
    Deep(String),
    /// It could be one of the tool's own files.
    #[error("`{0}` is reserved: names must not begin with `.paceline`")]
    Ours(String),
}

/// The parts of a path that the user gave, checked and otherwise kept; empty parts and `.` are
/// left out.
pub fn relative(path: &str) -> Result<Vec<String>, NameError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let first = parts.first().copied().unwrap_or_default();
    let drive =
        first.as_bytes().get(..2).is_some_and(|d| d[0].is_ascii_alphabetic() && d[1] == b':');
    if path.contains(char::is_control) {
        return Err(NameError::Control(shown(path)));
    }
    // A list that was written on Linux may be read on Windows, where these lead elsewhere too.
    if drive || path.starts_with('/') || first.starts_with('\\') {
        return Err(NameError::Absolute(shown(path)));
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err(NameError::Parent(shown(path)));
    }
    match parts.len() {
        0 => Err(NameError::Empty(shown(path))),
        1..=MOST_PARTS => parts.into_iter().map(kept).collect(),
        _ => Err(NameError::Deep(shown(path))),
    }
}

fn kept(part: &str) -> Result<String, NameError> {
    if part.len() > LONGEST_PART {
        return Err(NameError::Long(shown(part)));
    }
    // Some file systems ignore case.
    let start = part.get(..OURS.len()).unwrap_or_default();
    if start.eq_ignore_ascii_case(OURS) {
        return Err(NameError::Ours(shown(part)));
    }
    Ok(part.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let found = relative(path).map_or_else(|error| error.to_string(), |parts| parts.join("|"));
        assert_eq!(found, expected, "{path:?}");
    }

    #[test]
    fn chosen_paths_are_kept() {
        check("a.iso", "a.iso");
        check("./dir//sub/.hidden: *?/", "dir|sub|.hidden: *?");
        check("a\\b", "a\\b");
        check("...", "...");
        check(" a ", " a ");
        check(&"é".repeat(127), &"é".repeat(127));
        assert_eq!(relative(&"a/".repeat(64)).map(|parts| parts.len()), Ok(64));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        check("", "`` names no file: give a name such as `dir/file.iso`");
        check("./", "`./` names no file: give a name such as `dir/file.iso`");
        check("/etc/x", "`/etc/x` is absolute: give a path below the download directory");
        check("c:x", "`c:x` is absolute: give a path below the download directory");
        check("\\\\host\\x", "`\\\\host\\x` is absolute: give a path below the download directory");
        check("./c:x", "`./c:x` is absolute: give a path below the download directory");
        check(".//\\", "`.//\\` is absolute: give a path below the download directory");
        check("a/../b", "`a/../b` leads out of the download directory: leave out the `..`");
        check(
            "a\\..\\..\\b",
            "`a\\..\\..\\b` leads out of the download directory: leave out the `..`",
        );
        check("a\0b", "`a\\u{0}b` has a control character: leave it out");
        check("a\nb", "`a\\u{a}b` has a control character: leave it out");
        check("a\u{1b}[2J", "`a\\u{1b}[2J` has a control character: leave it out");
        check(".Paceline/x", "`.Paceline` is reserved: names must not begin with `.paceline`");
    }

    #[test]
    fn parts_have_a_length_and_a_count() {
        let long = "x".repeat(256);
        check(
            &format!("a/{long}"),
            &format!("`{}…` is longer than 255 bytes: shorten it", "x".repeat(120)),
        );
        assert!(matches!(relative(&"a/".repeat(65)), Err(NameError::Deep(_))));
    }

    proptest! {
        #[test]
        fn any_text_stays_below_the_directory(path in "([ab./\\\\:\0]|\\.\\.|\\PC){0,40}") {
            let Ok(parts) = relative(&path) else { return Ok(()) };
            prop_assert_eq!(relative(&parts.join("/")), Ok(parts.clone()));
            for part in parts {
                prop_assert!(!part.contains(['/', '\0']) && !matches!(&*part, "" | "." | ".."));
            }
        }
    }
}
