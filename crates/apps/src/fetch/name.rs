//! File names that are safe on Linux, macOS and Windows, from any source.

mod disposition;
mod of_url;
mod relative;
mod shown;
mod wanted;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

pub use disposition::from_disposition;
pub use of_url::{from_url, tree};
pub use relative::{NameError, relative};
pub(crate) use shown::shown;
pub use wanted::{Taken, There, Wanted};

/// The longest name that `safe` returns, in bytes. File systems allow 255; the rest is room for the
/// suffixes of partial files.
pub const LONGEST_SAFE: usize = 200;

/// The most parts of a path, its host included.
pub const MOST_PARTS: usize = 64;

/// Bytes of the URL's hash that `distinct` shows, two digits each.
const HASH_BYTES: usize = 5;

/// The longest part of an extension that a cut name keeps.
const LONGEST_EXTENSION: usize = 8;

/// Extensions that may follow another one, as in `.tar.gz`.
const OUTER_EXTENSIONS: [&str; 9] = ["gz", "bz2", "xz", "zst", "br", "lz4", "lzma", "asc", "sig"];

/// Names of devices on Windows, in every directory and with every extension.
const DEVICES: [&str; 7] = ["con", "prn", "aux", "nul", "clock$", "conin$", "conout$"];

/// Makes one part of a path safe: the name of a visible file on every system, never empty, at most
/// [`LONGEST_SAFE`] bytes. A safe name is returned unchanged.
pub fn safe(text: &str) -> String {
    let plain: String = text.trim_start().chars().map(plain).collect();
    let mut name = cut(&plain, LONGEST_SAFE);
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    if is_device(&name) {
        name = cut(&format!("_{name}"), LONGEST_SAFE);
    }
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Adds a hash of the URL before the extension, for two URLs with the same name.
pub fn distinct(name: &str, origin: &str) -> String {
    let name = safe(name);
    let hash = HEXLOWER.encode(&Sha256::digest(origin)[..HASH_BYTES]);
    let extension = extension(&name);
    let room = LONGEST_SAFE - extension.len() - hash.len() - 1;
    let stem = cut_stem(&name[..name.len() - extension.len()], room);
    safe(&format!("{stem}-{hash}{extension}"))
}

fn plain(char: char) -> char {
    let reserved = matches!(char, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    if reserved || char.is_control() || shown::is_invisible(char) { '_' } else { char }
}

/// Cuts a name to a length in bytes. It keeps the extension, and ends in no space or dot: Windows
/// drops these, which would make one file of two names.
fn cut(name: &str, most: usize) -> String {
    let name = trimmed_end(name);
    if name.len() <= most {
        return name.to_owned();
    }
    let extension = extension(name);
    let stem = cut_stem(&name[..name.len() - extension.len()], most - extension.len());
    trimmed_end(&format!("{stem}{extension}")).to_owned()
}

fn cut_stem(stem: &str, most: usize) -> &str {
    &stem[..stem.floor_char_boundary(most)]
}

fn trimmed_end(name: &str) -> &str {
    name.trim_end_matches(|char: char| char == '.' || char.is_whitespace())
}

/// The end of the name from its dot on, as `.iso` or `.tar.gz`; empty if there is none, or if it
/// is too long to be one.
fn extension(name: &str) -> &str {
    let Some((stem, last)) = split_extension(name) else { return "" };
    let outer = OUTER_EXTENSIONS.iter().any(|outer| last.eq_ignore_ascii_case(outer));
    let inner = split_extension(stem).filter(|_| outer);
    // A version is no extension: `tool-1.2.gz` is `tool-1.2` and `.gz`.
    let inner = inner.filter(|(_, part)| part.starts_with(|c: char| c.is_ascii_alphabetic()));
    let stem = inner.map_or(stem, |(stem, _)| stem);
    &name[stem.len()..]
}

fn split_extension(name: &str) -> Option<(&str, &str)> {
    let (stem, last) = name.rsplit_once('.')?;
    let short = (1..=LONGEST_EXTENSION).contains(&last.len());
    let fits = short && last.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (fits && !stem.is_empty()).then_some((stem, last))
}

fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_lowercase();
    let numbered = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    let mut number = numbered.unwrap_or_default().chars();
    let one_digit = match (number.next(), number.next()) {
        (Some(digit), None) => digit.is_ascii_digit() || matches!(digit, '¹' | '²' | '³'),
        _ => false,
    };
    one_digit || DEVICES.contains(&stem.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(cases: &[(&str, &str)]) {
        for (text, name) in cases {
            assert_eq!(safe(text), *name, "{text:?}");
        }
    }

    #[test]
    fn harmless_names_stay_as_they_are() {
        for name in
            ["a.iso", "Größe 1.txt", "日本語.tar.gz", "a b", "a..b", "com10", "console", "-x"]
        {
            check(&[(name, name)]);
        }
    }

    #[test]
    fn no_name_leaves_its_directory() {
        check(&[
            ("../../etc/passwd", "_._.._etc_passwd"),
            ("a/b\\c", "a_b_c"),
            ("C:\\x", "C__x"),
            (".", "_"),
            ("..", "_"),
            (" . . ", "_"),
            ("", "_"),
            ("x\0y\n\u{7f}\u{85}", "x_y___"),
        ]);
    }

    #[test]
    fn names_that_windows_drops_or_reserves_are_changed() {
        check(&[
            ("a*?\"<>|b", "a______b"),
            (" a. . ", "a"),
            ("a\u{a0}", "a"),
            ("CON", "_CON"),
            ("nul.tar.gz", "_nul.tar.gz"),
            ("Com1 .txt", "_Com1 .txt"),
            ("lpt³", "_lpt³"),
            ("COM", "COM"),
            ("com12", "com12"),
            ("conout$", "_conout$"),
        ]);
    }

    #[test]
    fn nothing_is_hidden_or_reversed() {
        check(&[
            (".bashrc", "_bashrc"),
            (".paceline-part", "_paceline-part"),
            ("photo\u{202e}gpj.exe", "photo_gpj.exe"),
            ("a\u{200b}b\u{feff}c\u{2066}", "a_b_c_"),
        ]);
    }

    #[test]
    fn long_names_keep_their_extension_and_whole_characters() {
        let long = "é".repeat(150);
        check(&[
            (&format!("{long}.tar.gz"), &format!("{}.tar.gz", "é".repeat(96))),
            (&format!("{long}.iso"), &format!("{}.iso", "é".repeat(98))),
            (&format!("{long}.1.gz"), &format!("{}.gz", "é".repeat(98))),
            (&format!("{long}.notanextension"), &"é".repeat(100)),
            (&format!("{}. {long}", "a".repeat(198)), &"a".repeat(198)),
            (&format!("con{}x.txt", " ".repeat(300)), &format!("_con{}.txt", " ".repeat(192))),
        ]);
    }

    #[test]
    fn distinct_names_differ_by_their_url_before_the_extension() {
        let one = distinct("a.tar.gz", "https://example.org/1/a.tar.gz");
        let two = distinct("a.tar.gz", "https://example.org/2/a.tar.gz");
        assert_eq!(one, "a-aebb905641.tar.gz");
        assert_ne!(one, two);
        let long = distinct(&format!("{}.iso", "x".repeat(300)), "https://example.org/");
        assert_eq!(long.len(), LONGEST_SAFE);
        assert_eq!(extension(&long), ".iso");
    }

    /// Texts of dangerous characters, with lengths around the limit.
    fn some_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "\\PC{0,8}",
            any::<String>(),
            "[. /\\\\:*\u{200b}\u{202e}\u{a0}\n]{1,4}",
            "(con|NUL|com1|lpt²|conin\\$)[. ]{0,3}",
            "[a-z]{0,9}\\.(tar\\.)?(gz|iso)",
            "[ .x]{90,210}",
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_safe_name_is_safe_and_stays_as_it_is(text in some_text()) {
            let name = safe(&text);
            prop_assert_eq!(&safe(&name), &name);
            prop_assert!(!name.is_empty() && name.len() <= LONGEST_SAFE);
            prop_assert!(!name.starts_with('.') && name.trim() == name && !name.ends_with('.'));
            prop_assert!(!name.contains(|c: char| "/\\:*?\"<>|".contains(c) || c.is_control()));
            prop_assert!(!is_device(&name));
        }

        #[test]
        fn a_distinct_name_is_safe_and_keeps_its_hash(text in some_text(), path in "[a-z]{0,5}") {
            let url = format!("https://example.org/{path}");
            let hash = HEXLOWER.encode(&Sha256::digest(&url)[..HASH_BYTES]);
            let name = distinct(&text, &url);
            prop_assert_eq!(&safe(&name), &name);
            let end = format!("-{hash}{}", extension(&safe(&text)));
            prop_assert!(name.ends_with(&end), "{} has no {}", name, end);
        }
    }
}
