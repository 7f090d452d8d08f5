//! One item of a list: a file to fetch.

use thiserror::Error;
use url::{ParseError, Url};

use super::checksum::Checksum;
use super::name::shown;

/// The most mirrors of one item.
pub const MOST_MIRRORS: usize = 16;

/// The longest URL, in bytes.
pub const LONGEST_URL: usize = 64 * 1024;

/// The placeholder for user and password in messages.
const HIDDEN: &str = "***@";

/// One file to fetch, and the details that its list gives.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    /// The mirrors in order, at least one and at most [`MOST_MIRRORS`].
    pub urls: Vec<Url>,
    /// The name of the file, with directories if it has a `/`; it has passed `name::relative`.
    pub out: Option<String>,
    /// The directory of the file; it has passed `name::relative`.
    pub dir: Option<String>,
    /// The checksum that its bytes must have.
    pub checksum: Option<Checksum>,
}

impl Item {
    /// An item of which only the URL is known.
    pub fn of(url: Url) -> Item {
        Item { urls: vec![url], out: None, dir: None, checksum: None }
    }
}

// Written by hand, because the URLs' own form would show passwords in logs and failed tests.
impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item")
            .field("urls", &self.urls.iter().map(without_password).collect::<Vec<String>>())
            .field("out", &self.out)
            .field("dir", &self.dir)
            .field("checksum", &self.checksum)
            .finish()
    }
}

/// An invalid URL. Never shows a password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// There is no text.
    #[error("the URL is empty: write one such as `https://example.org/file.iso`")]
    Empty,
    /// It is longer than servers accept.
    #[error("the URL is longer than {LONGEST_URL} bytes: shorten it")]
    Long,
    /// It begins with the host.
    #[error("`{0}` has no scheme: write `https://{0}`")]
    Bare(String),
    /// Its scheme is another protocol's.
    #[error("`{0}` cannot be fetched: only http and https can")]
    Scheme(String),
    /// Two URLs with a space between them would be taken for one.
    #[error(
        "`{0}` has a second URL after a space: separate mirrors by tabs, or write each on its own line"
    )]
    Several(String),
    /// It cannot be read at all.
    #[error("`{text}` is not a URL: {why}")]
    Unreadable {
        /// The text, without its password.
        text: String,
        /// What is wrong with it.
        why: ParseError,
    },
}

/// Parses a URL, and removes its fragment, which is never sent.
pub fn url_of(text: &str) -> Result<Url, UrlError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    if text.len() > LONGEST_URL {
        return Err(UrlError::Long);
    }
    if text.split_whitespace().skip(1).any(has_our_scheme) {
        return Err(UrlError::Several(text_without_password(text)));
    }
    let parsed = Url::parse(text);
    if is_bare(text, &parsed) {
        return Err(UrlError::Bare(text_without_password(text)));
    }
    let unreadable = |why| UrlError::Unreadable { text: text_without_password(text), why };
    let mut url = parsed.map_err(unreadable)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme(shown(url.scheme())));
    }
    url.set_fragment(None);
    Ok(url)
}

/// The URL as messages may show it.
pub fn without_password(url: &Url) -> String {
    if url.password().is_none() {
        return shown(url.as_str());
    }
    let mut hidden = url.clone();
    // A URL with a password has a host, so it can be given another one.
    let _ = hidden.set_password(Some("***"));
    shown(hidden.as_str())
}

fn has_our_scheme(word: &str) -> bool {
    let scheme = word.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// Returns `true` if the text would be a URL with `https://` in front: `example.org:80/x` and
/// `localhost:80` seem to have a scheme.
fn is_bare(text: &str, parsed: &Result<Url, ParseError>) -> bool {
    let lacks_scheme = match (parsed, text.split_once(':')) {
        (Err(ParseError::RelativeUrlWithoutBase), _) => true,
        (Ok(_), Some((scheme, rest))) => {
            !rest.starts_with("//")
                && (scheme.contains('.') || rest.starts_with(|c: char| c.is_ascii_digit()))
        }
        _ => false,
    };
    let like_a_host = text.starts_with(|c: char| c.is_alphanumeric() || c == '[');
    lacks_scheme && like_a_host && Url::parse(&format!("https://{text}")).is_ok()
}

/// Hides the password in a text that may not be a URL. It could extend to the last `@`.
pub(super) fn text_without_password(text: &str) -> String {
    let Some((before, after)) = text.rsplit_once('@') else { return shown(text) };
    // A `://` further on is part of what may be the password.
    match before.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(char::is_alphanumeric) => {
            shown(&format!("{scheme}://{HIDDEN}{after}"))
        }
        _ => shown(&format!("{HIDDEN}{after}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = url_of(text).map_or_else(|error| error.to_string(), |url| url.to_string());
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn urls_are_read_as_browsers_read_them() {
        check("https://example.org", "https://example.org/");
        check(" HTTP://Example.ORG:80/a b?c#d ", "http://example.org/a%20b?c");
        check("https://user:secret@example.org/", "https://user:secret@example.org/");
        check("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC");
        check("http://[::1]:8080/x", "http://[::1]:8080/x");
    }

    #[test]
    fn a_bare_host_is_an_error_with_a_suggestion() {
        for bare in ["example.org/x", "example.org:80/x", "localhost:8080", "www", "[::1]:80/x"] {
            check(bare, &format!("`{bare}` has no scheme: write `https://{bare}`"));
        }
    }

    #[test]
    fn urls_that_cannot_be_fetched_are_explained() {
        check(" ", "the URL is empty: write one such as `https://example.org/file.iso`");
        check("ftp://example.org/x", "`ftp` cannot be fetched: only http and https can");
        check("magnet:?xt=urn:btih:0", "`magnet` cannot be fetched: only http and https can");
        check("file:///etc/passwd", "`file` cannot be fetched: only http and https can");
        check("/etc/passwd", "`/etc/passwd` is not a URL: relative URL without a base");
        check("https://", "`https://` is not a URL: empty host");
        check("https://a:99999/", "`https://a:99999/` is not a URL: invalid port number");
        check("https://a b/", "`https://a b/` is not a URL: invalid international domain name");
        check(
            "https://a/x https://b/x",
            "`https://a/x https://b/x` has a second URL after a space: separate mirrors by tabs, \
            or write each on its own line",
        );
        assert_eq!(url_of(&format!("https://a/{}", "x".repeat(70_000))), Err(UrlError::Long));
    }

    #[test]
    fn no_message_shows_a_password() {
        check("https://user:secret@a:x/", "`https://***@a:x/` is not a URL: invalid port number");
        check("https://user:sec/ret@a/", "`https://***@a/` is not a URL: invalid port number");
        check("me:secret@a.org/x", "`me` cannot be fetched: only http and https can");
        check("ftp://user:secret@a/", "`ftp` cannot be fetched: only http and https can");
        check("u.v:secret@a/x", "`***@a/x` has no scheme: write `https://***@a/x`");
        check(":me:secret@://@", "`***@` is not a URL: relative URL without a base");
        let url = url_of("https://user:secret@example.org/x").expect("a URL");
        assert_eq!(without_password(&url), "https://user:***@example.org/x");
        assert!(!format!("{:?}", Item::of(url)).contains("secret"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_url_or_an_error_without_its_password(
            start in "(https?|ftp|x)?(:|:/|://|\\PC{0,4})", end in "[a-z.:@/0-9\\[\\]%]{0,12}",
        ) {
            let text = format!("{start}user:SECRET@{end}");
            match url_of(&text) {
                Ok(url) if url.password().is_none() => {}
                Ok(url) => prop_assert!(!without_password(&url).contains("SECRET")),
                Err(error) => prop_assert!(!error.to_string().contains("SECRET")),
            }
        }
    }
}
