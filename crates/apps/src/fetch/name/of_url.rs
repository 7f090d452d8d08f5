//! File names from URLs.

use percent_encoding::percent_decode_str;
use url::Url;

use super::{MOST_PARTS, safe};

/// The name for a path without a last part.
const INDEX: &str = "index.html";

/// The last part of the path, and the query behind an `@`; `index.html` if the path ends in `/`.
pub fn from_url(url: &Url) -> String {
    safe(&last_part(url))
}

/// A directory for the host and for each part of the path, and the name as [`from_url`] gives it;
/// at most [`MOST_PARTS`], what lies deeper is folded into the name.
pub fn tree(url: &Url) -> Vec<String> {
    let mut host = url.host_str().unwrap_or_default().to_owned();
    if let Some(port) = url.port() {
        host = format!("{host}+{port}");
    }
    let mut parts = vec![safe(&host)];
    let mut folded = String::new();
    let path: Vec<&str> = url.path_segments().map(Iterator::collect).unwrap_or_default();
    for part in path.iter().rev().skip(1).rev() {
        // The last part is for the name.
        if parts.len() < MOST_PARTS - 1 {
            parts.push(safe(&decoded(part)));
        } else {
            folded = folded + &decoded(part) + "/";
        }
    }
    parts.push(safe(&(folded + &last_part(url))));
    parts
}

fn last_part(url: &Url) -> String {
    let last = url.path_segments().and_then(Iterator::last).unwrap_or_default();
    let mut name = if last.is_empty() { INDEX.to_owned() } else { decoded(last) };
    if let Some(query) = url.query().filter(|query| !query.is_empty()) {
        name = name + "@" + &decoded(query);
    }
    name
}

fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[track_caller]
    fn check(text: &str, path: &str) {
        let url = url(text);
        assert_eq!(tree(&url).join("/"), path, "{text}");
        assert_eq!(Some(&from_url(&url)), tree(&url).last(), "{text}");
    }

    #[test]
    fn a_tree_has_the_host_and_the_parts_of_the_path() {
        check("https://example.org/a/b.iso", "example.org/a/b.iso");
        check("https://example.org:443/a", "example.org/a");
        check("http://example.org:8080/a/", "example.org+8080/a/index.html");
        check("https://example.org", "example.org/index.html");
        check("https://[::1]:81/x", "[__1]+81/x");
        check("https://user:secret@example.org/x#there", "example.org/x");
        check("https://example.org/a//b", "example.org/a/_/b");
    }

    #[test]
    fn parts_are_decoded_and_then_safe() {
        check("https://example.org/%e2%82%ac%20x/%ff.txt", "example.org/€ x/\u{fffd}.txt");
        check("https://example.org/a%2f..%2fb/%2e%2e%5cc", "example.org/a_.._b/_._c");
        check("https://example.org/.hidden/aux.txt", "example.org/_hidden/_aux.txt");
        check("https://example.org/%00", "example.org/_");
    }

    #[test]
    fn a_query_is_part_of_the_name() {
        check("https://example.org/?a=1&b=%2F", "example.org/index.html@a=1&b=_");
        check("https://example.org/get.php?id=7", "example.org/get.php@id=7");
        check("https://example.org/x?", "example.org/x");
        let long = url(&format!("https://example.org/x?{}", "q".repeat(5_000)));
        assert_eq!(from_url(&long), format!("x@{}", "q".repeat(198)));
    }

    #[test]
    fn deep_folders_are_folded_into_the_name() {
        let deep = |parts: usize| tree(&url(&format!("https://h/{}x.iso?q", "a/".repeat(parts))));
        assert_eq!(deep(62).len(), MOST_PARTS);
        assert_eq!(deep(62)[63], "x.iso@q");
        assert_eq!(deep(64).len(), MOST_PARTS);
        assert_eq!(deep(64)[63], "a_a_x.iso@q");
        assert_eq!(deep(20_000).len(), MOST_PARTS);
    }

    proptest! {
        #[test]
        fn every_part_of_a_tree_is_safe(path in "([a-c./\\\\%?@]|%2[eEfF]|%0[0a]|\\PC){0,200}") {
            if let Ok(url) = Url::parse(&format!("https://example.org/{path}")) {
                let parts = tree(&url);
                prop_assert!((2..=MOST_PARTS).contains(&parts.len()));
                for part in parts {
                    prop_assert_eq!(&safe(&part), &part);
                }
                prop_assert_eq!(safe(&from_url(&url)), from_url(&url));
            }
        }
    }
}
