//! Conditional and range requests, by RFC 9110.

use super::file::{File, Ranges};
use crate::request::Request;

/// The part of a file that a request gets, or why it gets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Whole,
    /// From the first to the last byte, inclusive.
    Part {
        first: u64,
        last: u64,
    },
    Unsatisfiable,
    NotModified,
    ConditionFailed,
}

/// Evaluates the conditions in the order of RFC 9110, section 13.2.2, and then the range.
pub(crate) fn select(request: &Request, file: &File) -> Selection {
    if let Some(selection) = conditions(request, file) {
        return selection;
    }
    let Some(range) = request.header("range") else { return Selection::Whole };
    if request.method != "GET" || file.ranges == Ranges::Refused {
        return Selection::Whole;
    }
    match request.header("if-range") {
        Some(validator) if !matches_current(validator, file) => Selection::Whole,
        _ => part(range, file.content.size()),
    }
}

fn conditions(request: &Request, file: &File) -> Option<Selection> {
    let tag = file.etag.as_deref();
    if let Some(list) = request.header("if-match") {
        if !listed(list, |one| tag.is_some_and(|tag| same_strong(one, tag))) {
            return Some(Selection::ConditionFailed);
        }
    } else if let Some(date) = request.header("if-unmodified-since")
        && changed_since(date, file) == Some(true)
    {
        return Some(Selection::ConditionFailed);
    }
    let unchanged = if let Some(list) = request.header("if-none-match") {
        listed(list, |one| tag.is_some_and(|tag| same_weak(one, tag)))
    } else {
        let since = request.header("if-modified-since");
        since.and_then(|date| changed_since(date, file)) == Some(false)
    };
    unchanged.then_some(Selection::NotModified)
}

/// Returns `true` if `If-Range` matches the current file. Weak tags never match.
fn matches_current(validator: &str, file: &File) -> bool {
    if validator.starts_with('"') || validator.starts_with("W/") {
        file.etag.as_deref().is_some_and(|tag| same_strong(validator, tag))
    } else {
        // The date must be equal, neither earlier nor later.
        file.last_modified.as_deref() == Some(validator)
    }
}

fn changed_since(date: &str, file: &File) -> Option<bool> {
    let since = httpdate::parse_http_date(date).ok()?;
    let changed_at = httpdate::parse_http_date(file.last_modified.as_deref()?).ok()?;
    Some(changed_at > since)
}

fn same_strong(one: &str, other: &str) -> bool {
    !one.starts_with("W/") && one == other
}

fn same_weak(one: &str, other: &str) -> bool {
    one.strip_prefix("W/").unwrap_or(one) == other.strip_prefix("W/").unwrap_or(other)
}

/// Returns `true` if one tag of a list fits. Tags are quoted and may contain commas.
fn listed(list: &str, fits: impl Fn(&str) -> bool) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let mut rest = list.trim_start_matches([' ', ',', '\t']);
    while let Some(open) = rest.find('"') {
        let Some(length) = rest[open + 1..].find('"') else { return false };
        let end = open + length + 2;
        if fits(&rest[..end]) {
            return true;
        }
        rest = rest[end..].trim_start_matches([' ', ',', '\t']);
    }
    false
}

/// Reads a single byte range. Several ranges, another unit and malformed text are ignored, as the
/// RFC allows.
fn part(range: &str, size: u64) -> Selection {
    let Some((unit, spec)) = range.split_once('=') else { return Selection::Whole };
    let Some((first, last)) = spec.trim().split_once('-') else { return Selection::Whole };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Selection::Whole;
    }
    match (first, number(first), last, number(last)) {
        (_, Some(first), _, Some(last)) if first > last => Selection::Whole,
        (_, Some(first), "", _) => between(first, u64::MAX, size),
        (_, Some(first), _, Some(last)) => between(first, last, size),
        ("", _, _, Some(0)) => Selection::Unsatisfiable,
        ("", _, _, Some(_)) if size == 0 => Selection::Whole,
        ("", _, _, Some(suffix)) => between(size.saturating_sub(suffix), u64::MAX, size),
        _ => Selection::Whole,
    }
}

fn between(first: u64, last: u64, size: u64) -> Selection {
    match size.checked_sub(1) {
        Some(end) if first <= end => Selection::Part { first, last: last.min(end) },
        _ => Selection::Unsatisfiable,
    }
}

/// Reads a number of any length. One that does not fit counts as the largest.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MONDAY: &str = "Mon, 01 Jan 2024 00:00:00 GMT";
    const TUESDAY: &str = "Tue, 02 Jan 2024 00:00:00 GMT";

    fn request(headers: &str) -> Request {
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n");
        Request::read(head.as_bytes()).expect("well-formed").expect("whole").0
    }

    #[track_caller]
    fn check(headers: &str, expected: Selection) {
        let file = File::of("0123456789").etag("\"a,b\"").last_modified(MONDAY);
        assert_eq!(select(&request(headers), &file), expected, "{headers}");
    }

    fn of(first: u64, last: u64) -> Selection {
        Selection::Part { first, last }
    }

    #[test]
    fn a_range_is_clipped_to_the_file() {
        check("range: bytes=2-4", of(2, 4));
        check("range: bytes=2-", of(2, 9));
        check("range: bytes=9-99999999999999999999999", of(9, 9));
        check("range: bytes=-3", of(7, 9));
        check("range: bytes=-30", of(0, 9));
        check("range: bytes=10-", Selection::Unsatisfiable);
        check("range: bytes=-0", Selection::Unsatisfiable);
        for ignored in ["bytes=4-2", "bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=+1-2", "x"] {
            check(&format!("range: {ignored}"), Selection::Whole);
        }
    }

    #[test]
    fn a_range_of_another_version_is_the_whole_file() {
        check("range: bytes=2-4\r\nif-range: \"a,b\"", of(2, 4));
        check("range: bytes=2-4\r\nif-range: \"b\"", Selection::Whole);
        check("range: bytes=2-4\r\nif-range: W/\"a,b\"", Selection::Whole);
        check(&format!("range: bytes=2-4\r\nif-range: {MONDAY}"), of(2, 4));
        check(&format!("range: bytes=2-4\r\nif-range: {TUESDAY}"), Selection::Whole);
    }

    #[test]
    fn a_weak_tag_never_allows_a_part() {
        let file = File::of("0123456789").etag("W/\"v\"");
        let asks = request("range: bytes=2-4\r\nif-range: W/\"v\"");
        assert_eq!(select(&asks, &file), Selection::Whole);
        assert_eq!(select(&request("if-none-match: \"v\""), &file), Selection::NotModified);
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        check("if-none-match: \"x\", W/\"a,b\"", Selection::NotModified);
        check("if-none-match: *", Selection::NotModified);
        check("if-none-match: \"x\"", Selection::Whole);
        check("if-none-match: \"a,b", Selection::Whole);
        check(&format!("if-modified-since: {MONDAY}"), Selection::NotModified);
        check("if-modified-since: Sun, 31 Dec 2023 23:59:59 GMT", Selection::Whole);
        let both = format!("if-none-match: \"x\"\r\nif-modified-since: {TUESDAY}");
        check(&both, Selection::Whole);
        check("if-none-match: \"a,b\"\r\nrange: bytes=0-1", Selection::NotModified);
    }

    #[test]
    fn a_failed_precondition_is_reported() {
        check("if-match: \"x\"", Selection::ConditionFailed);
        check("if-match: \"x\", \"a,b\"", Selection::Whole);
        check("if-match: W/\"a,b\"", Selection::ConditionFailed);
        check("if-unmodified-since: Sun, 31 Dec 2023 00:00:00 GMT", Selection::ConditionFailed);
        check(&format!("if-unmodified-since: {TUESDAY}"), Selection::Whole);
    }

    #[test]
    fn an_empty_file_has_no_parts() {
        let select = |range| select(&request(range), &File::of(""));
        assert_eq!(select("range: bytes=0-"), Selection::Unsatisfiable);
        assert_eq!(select("range: bytes=-5"), Selection::Whole);
    }

    proptest! {
        #[test]
        fn any_text_gives_a_part_within_the_file(
            range in "(bytes=)?[0-9,=-]{0,12}", list in "[\"W/,* a]{0,12}", size in 0..20u64,
        ) {
            let headers = format!("range: {range}\r\nif-range: {list}\r\nif-match: {list}");
            let _ = select(&request(&headers), &File::named("", size));
            if let Selection::Part { first, last } = part(&range, size) {
                prop_assert!(first <= last && last < size);
            }
        }
    }
}
