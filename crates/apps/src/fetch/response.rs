//! Response headers about ranges and versions of a file.

use hyper::header::{CONTENT_RANGE, ETAG, HeaderMap, LAST_MODIFIED};

use super::task::Version;

/// The range of bytes in a partial response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u64,
    /// The last byte, itself included.
    pub(super) to: u64,
    pub(super) total: Option<u64>,
}

/// Reads `Content-Range`; `None` if it is missing or contradicts itself.
pub(super) fn content_range(headers: &HeaderMap) -> Option<Range> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let total = match total.trim() {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    let range = Range { from: from.trim().parse().ok()?, to: to.trim().parse().ok()?, total };
    let sound =
        range.from <= range.to && range.to < u64::MAX && total.is_none_or(|total| range.to < total);
    sound.then_some(range)
}

/// Returns `true` if a refused range says that the file is empty.
pub(super) fn is_empty(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_RANGE).is_some_and(|value| value == "bytes */0")
}

/// The version of the file that a response names.
pub(super) fn version(headers: &HeaderMap) -> Version {
    let text = |name| {
        let value = headers.get(name)?.to_str().ok()?;
        (value.len() <= 1_024).then(|| value.to_string())
    };
    Version { etag: text(ETAG), last_modified: text(LAST_MODIFIED) }
}

impl Version {
    /// A strong validator: it changes with every byte, which weak ones do not promise.
    pub(super) fn strong(&self) -> Option<&str> {
        let etag = self.etag.as_deref()?;
        let quoted = etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"');
        quoted.then_some(etag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[track_caller]
    fn check(text: &str, expected: Option<(u64, u64, Option<u64>)>) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(text).expect("a value"));
        let expected = expected.map(|(from, to, total)| Range { from, to, total });
        assert_eq!(content_range(&headers), expected, "{text}");
    }

    #[test]
    fn a_range_is_read_only_if_it_makes_sense() {
        check("bytes 0-9/10", Some((0, 9, Some(10))));
        check("bytes 5-9/*", Some((5, 9, None)));
        check("bytes 5-10/10", None);
        check("bytes 9-5/10", None);
        check("bytes 0-18446744073709551615/*", None);
        check("bytes */10", None);
        check("items 0-9/10", None);
        check("bytes 0-99999999999999999999/*", None);
        check("bytes", None);
    }

    #[test]
    fn a_weak_validator_is_not_strong() {
        let version = |etag: &str| Version { etag: Some(etag.to_string()), last_modified: None };
        assert!(version("\"a\"").strong().is_some());
        assert!(version("W/\"a\"").strong().is_none());
        assert!(version("a").strong().is_none());
        assert!(version("\"").strong().is_none());
    }
}
