//! Redirects.

use hyper::StatusCode;
use hyper::header::{HeaderMap, LOCATION};
use url::Url;

use super::origin::Origin;

/// The longest address that a redirect may lead to.
const LONGEST_LOCATION: usize = 8 << 10;

/// An invalid redirect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// There is no valid URL.
    #[error("invalid redirect: `Location` is missing, too long, or not a URL")]
    Nowhere,
    /// The URL is not an HTTP one.
    #[error("redirect to `{0}`, which is neither http nor https")]
    Scheme(String),
}

/// Returns `true` if a response with this status leads to another address.
pub fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The URL that the headers of a redirect from `from` lead to.
pub fn led_to(from: &Url, headers: &HeaderMap) -> Result<Url, RedirectError> {
    let location = headers.get(LOCATION).filter(|value| value.len() <= LONGEST_LOCATION);
    let location = location.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let to = location.and_then(|text| from.join(text).ok());
    let mut to = to.ok_or(RedirectError::Nowhere)?;
    if Origin::of(&to).is_none() {
        return Err(RedirectError::Scheme(to.scheme().to_string()));
    }
    to.set_fragment(None);
    // A login for one path of a server also applies to another.
    if to.username().is_empty() && to.password().is_none() && to.origin() == from.origin() {
        // This fails only for URLs without host, which have no login either.
        let _ = to.set_username(from.username());
        let _ = to.set_password(from.password());
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(location: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(location).expect("a value"))])
    }

    #[test]
    fn a_login_stays_with_its_server() {
        let from = Url::parse("http://u:p@a/1").expect("an address");
        let to =
            |location: &[u8]| led_to(&from, &headers(location)).expect("it leads on").to_string();
        assert_eq!(to(b"/2"), "http://u:p@a/2");
        assert_eq!(to(b"http://a/2"), "http://u:p@a/2");
        assert_eq!(to(b"http://other@a/2"), "http://other@a/2");
        assert_eq!(to(b"http://a:81/2"), "http://a:81/2");
        assert_eq!(to(b"https://a/2"), "https://a/2");
        assert_eq!(to(b"http://b/2"), "http://b/2");
        assert_eq!(to(b"../c?d#e"), "http://u:p@a/c?d");
    }

    #[test]
    fn a_redirect_without_an_address_of_http_is_not_followed() {
        let from = Url::parse("http://a/1").expect("an address");
        assert_eq!(led_to(&from, &HeaderMap::new()), Err(RedirectError::Nowhere));
        assert_eq!(led_to(&from, &headers(b"http://")), Err(RedirectError::Nowhere));
        assert_eq!(led_to(&from, &headers(&[b'a'; 9 << 10])), Err(RedirectError::Nowhere));
        let scheme = RedirectError::Scheme("file".to_string());
        assert_eq!(led_to(&from, &headers(b"file:///etc/passwd")), Err(scheme));
    }
}
