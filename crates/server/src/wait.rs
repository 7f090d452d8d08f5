//! `Prefer: wait`: a response that is held back until a job is finished (RFC 7240).

use std::time::Duration;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};

/// The longest that a response is held back, in seconds.
const LONGEST_WAIT: u64 = 300;

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The time for which the caller prefers to wait.
pub(crate) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let said = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut words = said.flat_map(|said| said.split([',', ';']));
    let seconds = words.find_map(|word| {
        let (name, value) = word.trim().split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().parse::<u64>().ok())?
    });
    seconds.map(|seconds| Duration::from_secs(seconds.min(LONGEST_WAIT)))
}

/// Tells the caller the wait that was applied.
pub(crate) fn applied(headers: &mut HeaderMap, wait: Option<Duration>) {
    if let Some(wait) = wait {
        let applied = HeaderValue::from_str(&format!("wait={}", wait.as_secs()));
        headers.insert(PREFERENCE_APPLIED, applied.expect("a number is plain"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_to_wait_is_read_where_it_stands_and_bounded() {
        let wait = |said: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(said));
            preferred_wait(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("wait=30"), Some(30));
        assert_eq!(wait("respond-async, Wait = 5"), Some(5));
        assert_eq!(wait("wait=99999"), Some(300));
        assert_eq!(wait("wait=soon"), None);
        assert_eq!(wait("return=minimal"), None);
    }
}
