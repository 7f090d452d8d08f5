//! Limits that an upstream announces: `Retry-After` and four families of headers.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use paceline::Span;
use paceline::lanes::Rate;
use paceline::workers::Announced;

mod field;

use field::{Member, members, texts};

/// The longest wait or window that is accepted from an upstream.
pub const LONGEST_SAID: Duration = Duration::from_hours(366 * 24);

/// The highest count that is accepted from an upstream: the highest that a rate can hold.
pub const HIGHEST_SAID: u32 = 1_000_000_000;

/// From here on a reset is a moment in seconds since 1970: as a wait it would be 31 years.
const FIRST_EPOCH: f64 = 1e9;

/// From here on the moment is in milliseconds: in seconds it would be in the year 5138.
const FIRST_EPOCH_MS: f64 = 1e11;

/// The wait that the upstream asks for in `Retry-After`; `None` if it is missing or unreadable.
///
/// The longest of several counts. A date is compared with the response's own `Date`, because the
/// upstream's clock may differ from the local one.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let server_now = server_now(headers).unwrap_or(now);
    texts(headers, "retry-after")
        .filter_map(|text| match number(text) {
            Some(seconds) => Some(wait(seconds)),
            None => Some(until(httpdate::parse_http_date(text).ok()?, server_now)),
        })
        .max()
}

/// The limits that the response's headers announce; `None` if there are no readable ones.
///
/// Of several limits the tightest is kept: the shortest window, and the fewest calls left. A longer
/// window takes effect through the number of calls left.
pub fn announced(headers: &HeaderMap, now: SystemTime) -> Option<Announced> {
    let server_now = server_now(headers).unwrap_or(now);
    let policies: Vec<Policy<'_>> =
        members(headers, "ratelimit-policy").filter_map(policy).collect();
    let mut said = Announced::default();
    for policy in &policies {
        match policy.unit {
            Unit::Requests => narrow_window(&mut said, policy.quota, policy.window),
            Unit::AtOnce => narrow_in_flight(&mut said, policy.quota),
            Unit::Other => {}
        }
    }
    for member in members(headers, "ratelimit") {
        narrow_left(&mut said, left_of(member, &policies));
    }
    narrow_left(&mut said, left_of_dictionary(headers));
    for family in &FAMILIES {
        family.read(headers, server_now, &mut said);
    }
    for at_once in texts(headers, "x-concurrency-limit").filter_map(count) {
        narrow_in_flight(&mut said, at_once);
    }
    (said != Announced::default()).then_some(said)
}

/// One limit of a `RateLimit-Policy`: `"burst";q=100;w=60`, in older drafts `100;w=60`.
struct Policy<'a> {
    name: &'a str,
    quota: u32,
    window: Option<Span>,
    unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Requests,
    AtOnce,
    Other,
}

fn policy(member: Member<'_>) -> Option<Policy<'_>> {
    let quota = member.parameter("q").unwrap_or(member.value());
    let unit = match member.parameter("qu").map(|unit| unit.trim_matches('"')) {
        None | Some("request" | "requests") => Unit::Requests,
        Some("concurrent-requests") => Unit::AtOnce,
        Some(_) => Unit::Other,
    };
    let window = member.parameter("w").and_then(span);
    Some(Policy { name: member.value(), quota: count(quota)?, window, unit })
}

/// `"burst";r=50;t=30`; without `t` it holds for the whole window of the policy of that name.
fn left_of(member: Member<'_>, policies: &[Policy<'_>]) -> Option<(u32, Span)> {
    let policy = policies.iter().find(|policy| policy.name == member.value());
    if policy.is_some_and(|policy| policy.unit != Unit::Requests) {
        return None;
    }
    let left = count(member.parameter("r")?)?;
    let reset = member.parameter("t").and_then(span);
    Some((left, reset.or_else(|| policy?.window)?))
}

/// `limit=100, remaining=50, reset=30`: how draft 7 wrote it.
fn left_of_dictionary(headers: &HeaderMap) -> Option<(u32, Span)> {
    let entry = |key| members(headers, "ratelimit").find_map(|member| member.entry(key));
    Some((count(entry("remaining")?)?, span(entry("reset")?)?))
}

/// A family of headers: one each for limit, remaining and reset.
struct Family {
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
    interval: &'static str,
}

const FAMILIES: [Family; 3] = [
    Family {
        limit: "ratelimit-limit",
        remaining: "ratelimit-remaining",
        reset: "ratelimit-reset",
        interval: "ratelimit-interval",
    },
    Family {
        limit: "x-ratelimit-limit",
        remaining: "x-ratelimit-remaining",
        reset: "x-ratelimit-reset",
        interval: "x-ratelimit-interval",
    },
    Family {
        limit: "x-rate-limit-limit",
        remaining: "x-rate-limit-remaining",
        reset: "x-rate-limit-reset",
        interval: "x-rate-limit-interval",
    },
];

impl Family {
    fn read(&self, headers: &HeaderMap, server_now: SystemTime, said: &mut Announced) {
        let interval = texts(headers, self.interval).find_map(interval);
        for member in members(headers, self.limit) {
            if let Some(quota) = count(member.value()) {
                narrow_window(said, quota, window_of(member).or(interval));
            }
        }
        let reset = texts(headers, self.reset).filter_map(|text| reset(text, server_now)).max();
        for member in members(headers, self.remaining) {
            let holds = reset.or_else(|| window_of(member));
            narrow_left(said, count(member.value()).zip(holds));
        }
    }
}

/// The window that some upstreams write beside a number: `100;w=21600`, `100;window=60`.
fn window_of(member: Member<'_>) -> Option<Span> {
    member.parameter("w").or_else(|| member.parameter("window")).and_then(span)
}

fn narrow_window(said: &mut Announced, quota: u32, window: Option<Span>) {
    let (Some(max), Some(per)) = (NonZeroU32::new(quota), window) else { return };
    if per > Span::ZERO {
        let heard = Rate { max, per };
        let tighter = |known: &Rate| (known.per, known.max) <= (per, max);
        said.window = said.window.filter(tighter).or(Some(heard));
    }
}

fn narrow_left(said: &mut Announced, heard: Option<(u32, Span)>) {
    let Some((left, holds)) = heard else { return };
    let tighter = |&(known, known_holds): &(u32, Span)| {
        known < left || (known == left && known_holds >= holds)
    };
    said.left = said.left.filter(tighter).or(Some((left, holds)));
}

fn narrow_in_flight(said: &mut Announced, at_once: u32) {
    // A limit of zero calls in flight would stop the lane for ever.
    let at_once = at_once.max(1);
    said.in_flight = Some(said.in_flight.map_or(at_once, |known| known.min(at_once)));
}

/// A wait, a moment since 1970 in seconds or milliseconds, or a date: upstreams use all of them.
fn reset(text: &str, server_now: SystemTime) -> Option<Span> {
    let Some(number) = number(text) else {
        return Some(until(httpdate::parse_http_date(text).ok()?, server_now).into());
    };
    let epoch = match number {
        wait if wait < FIRST_EPOCH => return span(text),
        seconds if seconds < FIRST_EPOCH_MS => Duration::try_from_secs_f64(seconds).ok()?,
        ms => Duration::try_from_secs_f64(ms / 1_000.0).ok()?,
    };
    Some(until(UNIX_EPOCH.checked_add(epoch)?, server_now).into())
}

/// `1s` or a plain number of seconds.
fn interval(text: &str) -> Option<Span> {
    span(text).or_else(|| text.parse().ok()).map(|said: Span| said.min(LONGEST_SAID.into()))
}

fn span(text: &str) -> Option<Span> {
    number(text).map(|seconds| wait(seconds).into())
}

fn count(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().map_or(HIGHEST_SAID, |count: u32| count.min(HIGHEST_SAID)))
}

/// Digits with at most one decimal point: no sign, no exponent, no words like `inf`.
pub(super) fn number(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if digits(whole) && digits(fraction) { text.parse().ok() } else { None }
}

fn wait(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).map_or(LONGEST_SAID, |wait| wait.min(LONGEST_SAID))
}

fn until(at: SystemTime, server_now: SystemTime) -> Duration {
    at.duration_since(server_now).map_or(Duration::ZERO, |wait| wait.min(LONGEST_SAID))
}

fn server_now(headers: &HeaderMap) -> Option<SystemTime> {
    texts(headers, "date").find_map(|text| httpdate::parse_http_date(text).ok())
}

#[cfg(test)]
mod tests;
