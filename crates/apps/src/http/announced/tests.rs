//! A table of headers from upstreams, and the limits that are read from them.

use super::*;
use hyper::header::{HeaderName, HeaderValue};
use proptest::prelude::*;

/// Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: u64 = 1_700_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

fn headers(text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a header has a colon");
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header has a name");
        headers.append(name, HeaderValue::from_str(value.trim()).expect("a value"));
    }
    headers
}

#[track_caller]
fn check_wait(text: &str, wait: Option<Duration>) {
    assert_eq!(retry_after(&headers(text), now()), wait, "{text}");
}

#[test]
fn retry_after_is_seconds_or_a_date_and_anything_else_is_nothing() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    check_wait("", None);
    check_wait("Retry-After: 120", seconds(120));
    check_wait("Retry-After: 0", seconds(0));
    check_wait("Retry-After:  7 ", seconds(7));
    check_wait("Retry-After: 1.5", Some(Duration::from_millis(1_500)));
    check_wait("Retry-After: 31622401", Some(LONGEST_SAID));
    check_wait("Retry-After: 99999999999999999999999999", Some(LONGEST_SAID));
    check_wait(&format!("Retry-After: {}", "9".repeat(400)), Some(LONGEST_SAID));
    check_wait("Retry-After: Tue, 14 Nov 2023 22:14:20 GMT", seconds(60));
    check_wait("Retry-After: Tuesday, 14-Nov-23 22:14:20 GMT", seconds(60));
    check_wait("Retry-After: Tue Nov 14 22:14:20 2023", seconds(60));
    check_wait("Retry-After: Tue, 14 Nov 2023 22:00:00 GMT", seconds(0));
    check_wait("Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", Some(LONGEST_SAID));
    check_wait("Retry-After: 5\nRetry-After: 60\nRetry-After: soon", seconds(60));
    for malformed in ["", "-1", "+1", "1e3", "inf", "NaN", ".5", "5.", "1 2", "0x10", "soon"] {
        check_wait(&format!("Retry-After: {malformed}"), None);
    }
}

#[test]
fn a_date_is_compared_with_the_clock_of_the_upstream() {
    let retry_at = "Retry-After: Tue, 14 Nov 2023 23:13:20 GMT";
    let clock = "Date: Tue, 14 Nov 2023 23:12:50 GMT";
    check_wait(&format!("{retry_at}\n{clock}"), Some(Duration::from_secs(30)));
    check_wait(&format!("{retry_at}\nDate: yesterday"), Some(Duration::from_hours(1)));
    let left = format!("X-RateLimit-Remaining: 1\nX-RateLimit-Reset: {}\n{clock}", NOW + 3_600);
    check(&left, said().left(1, 30));
}

/// Builds the expected limits.
#[derive(Clone, Copy)]
struct Said(Announced);

fn said() -> Said {
    Said(Announced::default())
}

impl Said {
    fn window(mut self, max: u32, seconds: u64) -> Said {
        let max = NonZeroU32::new(max).expect("above zero");
        self.0.window = Some(Rate { max, per: Span::secs(seconds) });
        self
    }

    fn left(mut self, left: u32, seconds: u64) -> Said {
        self.0.left = Some((left, Span::secs(seconds)));
        self
    }

    fn at_once(mut self, at_once: u32) -> Said {
        self.0.in_flight = Some(at_once);
        self
    }
}

#[track_caller]
fn check(text: &str, expected: Said) {
    let expected = (expected.0 != Announced::default()).then_some(expected.0);
    assert_eq!(announced(&headers(text), now()), expected, "{text}");
}

#[test]
fn the_structured_headers_of_the_drafts_are_understood() {
    check("RateLimit-Policy: \"default\";q=100;w=60", said().window(100, 60));
    check(
        "RateLimit-Policy: \"burst\";q=100;w=60, \"daily\";q=5000;w=86400\n\
         RateLimit: \"burst\";r=90;t=20, \"daily\";r=12;t=3600",
        said().window(100, 60).left(12, 3_600),
    );
    check(
        "RateLimit-Policy: \"100-in-15min\"; q=100; w=900; pk=:NjM2:\n\
         RateLimit: \"100-in-15min\"; r=99; t=900",
        said().window(100, 900).left(99, 900),
    );
    check("RateLimit: \"x\";r=5;t=30", said().left(5, 30));
    check("RateLimit: \"x\";r=0;t=0", said().left(0, 0));
    check("RateLimit: \"x\";r=5", said());
    check("RateLimit-Policy: \"x\";q=9;w=7\nRateLimit: \"x\";r=5", said().window(9, 7).left(5, 7));
    check("RateLimit-Policy: \"a,b;q=1;w=1\";q=9;w=7", said().window(9, 7));
    check("RateLimit-Policy: \"a\\\",b\";q=9;w=7", said().window(9, 7));
    check("RateLimit-Policy: 10;w=1, 50;w=60", said().window(10, 1));
    check("RateLimit-Policy: 50;w=60\nRateLimit-Policy: 10;w=1", said().window(10, 1));
    check("RateLimit: limit=100, remaining=50, reset=30", said().left(50, 30));
    check(
        "RateLimit-Policy: \"bytes\";q=65535;w=10;qu=\"content-bytes\", \
         \"wide\";q=4;qu=\"concurrent-requests\", \"calls\";q=8;w=2;qu=\"requests\"\n\
         RateLimit: \"bytes\";r=0;t=10, \"wide\";r=1;t=1",
        said().window(8, 2).at_once(4),
    );
}

#[test]
fn headers_of_their_own_are_understood() {
    let family = |prefix: &str, text: &str| text.replace('~', prefix);
    for prefix in ["RateLimit", "X-RateLimit", "x-rate-limit"] {
        let check = |text: &str, expected| check(&family(prefix, text), expected);
        check("~-Limit: 100\n~-Remaining: 5\n~-Reset: 30", said().left(5, 30));
        check(
            "~-Remaining: 5\n~-Reset: 0.5",
            Said(Announced { left: Some((5, Span::millis(500))), ..Announced::default() }),
        );
        check("~-Limit: 100", said());
        check("~-Remaining: 5", said());
        check("~-Reset: 5", said());
        check(&format!("~-Remaining: 5\n~-Reset: {}", NOW + 90), said().left(5, 90));
        check(
            &format!("~-Remaining: 5\n~-Reset: {}.5", NOW + 90),
            Said(Announced { left: Some((5, Span::millis(90_500))), ..Announced::default() }),
        );
        check(&format!("~-Remaining: 5\n~-Reset: {}000", NOW + 90), said().left(5, 90));
        check(&format!("~-Remaining: 0\n~-Reset: {}", NOW - 90), said().left(0, 0));
        check("~-Remaining: 1\n~-Reset: Tue, 14 Nov 2023 22:14:20 GMT", said().left(1, 60));
        check("~-Limit: 100, 100;w=60", said().window(100, 60));
        check("~-Limit: 100;w=21600\n~-Remaining: 76;w=21600", {
            said().window(100, 21_600).left(76, 21_600)
        });
        check("~-Limit: 10, 10;window=1, 50;window=60", said().window(10, 1));
        check("~-Limit: 50\n~-Interval: 1s", said().window(50, 1));
        check("~-Limit: 50\n~-Interval: 2", said().window(50, 2));
        check("~-Remaining: 5\n~-Remaining: 3\n~-Reset: 10\n~-Reset: 20", said().left(3, 20));
    }
    check(
        "x-rate-limit-limit: 50\nx-rate-limit-interval: 1s\nx-concurrency-limit: 5",
        said().window(50, 1).at_once(5),
    );
    check("x-concurrency-limit: 0", said().at_once(1));
}

#[test]
fn of_several_families_the_strictest_counts() {
    check(
        "RateLimit: \"a\";r=9;t=9\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 5",
        said().left(2, 5),
    );
    check(
        "RateLimit: \"a\";r=2;t=9\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 5",
        said().left(2, 9),
    );
    check("RateLimit-Policy: \"a\";q=5;w=9, \"b\";q=3;w=9", said().window(3, 9));
}

#[test]
fn malformed_headers_are_ignored_and_endless_waits_capped() {
    check("RateLimit: garbage\nRateLimit-Policy: ;;;,,=\"", said());
    check("RateLimit-Policy: \"x\";q=0;w=60, \"y\";q=5;w=0, \"z\";q=-1;w=1", said());
    check("X-RateLimit-Remaining: -1\nX-RateLimit-Reset: 5", said());
    check("X-RateLimit-Remaining: 1\nX-RateLimit-Reset: later", said());
    check("X-RateLimit-Remaining: many\nX-RateLimit-Reset: 5", said());
    check("x-rate-limit-limit: 50\nx-rate-limit-interval: a while", said());
    check("x-concurrency-limit: x", said());
    let year = LONGEST_SAID.as_secs();
    check("RateLimit: \"x\";r=99999999999999;t=999999999999", said().left(HIGHEST_SAID, year));
    check("x-rate-limit-limit: 5\nx-rate-limit-interval: 3000d", said().window(5, year));
    let far = "9".repeat(300);
    check(&format!("X-RateLimit-Remaining: 1\nX-RateLimit-Reset: {far}"), said());
    let many = vec!["\"a\";q=5;w=5"; 500].join(",");
    check(&format!("RateLimit-Policy: {many}, \"b\";q=1;w=1"), said().window(5, 5));
}

const NAMES: [&str; 12] = [
    "retry-after",
    "date",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-limit",
    "x-rate-limit-interval",
    "x-concurrency-limit",
];

proptest! {
    #[test]
    fn whatever_a_service_sends_stays_within_bounds(
        lines in prop::collection::vec((0..NAMES.len(), "[ -~]{0,20}|[0-9.\";=,rtqw]{0,30}"), 0..8),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(NAMES[name], HeaderValue::from_str(&value).expect("visible signs"));
        }
        prop_assert!(retry_after(&headers, now()).is_none_or(|wait| wait <= LONGEST_SAID));
        let said = announced(&headers, now()).unwrap_or_default();
        let longest = Span::from(LONGEST_SAID);
        prop_assert!(said.left.is_none_or(|(left, span)| left <= HIGHEST_SAID && span <= longest));
        prop_assert!(said.window.is_none_or(|rate| rate.per > Span::ZERO && rate.per <= longest));
        prop_assert!(said.in_flight != Some(0));
    }
}
