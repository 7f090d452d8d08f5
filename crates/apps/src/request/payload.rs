//! The payload of an `http` job.

use std::collections::BTreeMap;

use bytes::Bytes;
use data_encoding::BASE64;
use hyper::Method;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::expect::Expect;
use crate::api::Anything;

/// Headers of one request at most.
const MOST_HEADERS: usize = 100;
/// The longest path or URL.
const LONGEST_TARGET: usize = 8 << 10;

/// Headers of the connection, which payloads cannot set.
const CONNECTION_HEADERS: [HeaderName; 7] =
    [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, TE, TRAILER, UPGRADE];

/// The payload of a job of the kind `http`: one request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[schema(as = HttpPayload)]
#[serde(deny_unknown_fields)]
pub struct RequestPayload {
    /// The method. Default: `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// A path with its query, below the `url` of the lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "/item/1")]
    pub path: Option<String>,
    /// A complete URL: below the lane's `url`, or any public one on a lane without `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers, in addition to those of the lane.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body: a string is sent as it is, any other value as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Anything>)]
    pub body: Option<Value>,
    /// The body as base64, for any bytes. Replaces `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// Which responses are `conclusive`, `empty` or `failed`: each a list of statuses like `404`,
    /// classes like `"4xx"`, or texts like `{"contains": "words"}`.
    #[serde(default, skip_serializing_if = "Expect::is_usual")]
    #[schema(value_type = Option<Object>, example = json!({"empty": [404], "failed": [{"contains": "error"}]}))]
    pub expect: Expect,
    /// What to do with a redirect: `follow` it, or `keep` it as the response. Default: `follow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub redirects: Option<Redirects>,
    /// Redirects that led here.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(ignore)]
    pub hops: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(hops: &u8) -> bool {
    *hops == 0
}

/// What to do with a redirect.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Redirects {
    /// Follow it, on the lane of the server that it names.
    #[default]
    Follow,
    /// Return it as the response.
    Keep,
}

/// An invalid payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload has the wrong form.
    #[error("the payload is not a valid request: {0}")]
    Form(String),
    /// The method is invalid, or cannot be sent.
    #[error("`{0}` is not an HTTP method that can be sent")]
    Method(String),
    /// Neither or both of `path` and `url`.
    #[error("give either `path` or `url`")]
    Target,
    /// The path or URL is too long.
    #[error("`{0}` is longer than {LONGEST_TARGET} bytes")]
    TooLong(&'static str),
    /// The path is not absolute.
    #[error("`path` must start with `/`")]
    Path,
    /// The URL is invalid.
    #[error("`url` must be an http or https address without a login")]
    Url,
    /// The payload has a path, but the lane has no `url`.
    #[error("the lane `{0}` has no `url`: configure one, or send a complete `url`")]
    NoUrl(String),
    /// The target is not below the lane's `url`.
    #[error("`{0}` leaves the `url` of its lane")]
    Elsewhere(&'static str),
    /// The lane belongs to another server than the URL names.
    #[error("lane `{0}` does not match the URL, whose lane is `{1}`")]
    OtherLane(String, String),
    /// The header is invalid, or payloads cannot set it.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// Too many headers.
    #[error("more than {MOST_HEADERS} headers")]
    Headers,
    /// Two bodies, or invalid base64.
    #[error("{0}")]
    Body(&'static str),
}

impl RequestPayload {
    /// Reads a payload.
    pub fn read(payload: &[u8]) -> Result<RequestPayload, PayloadError> {
        // serde also reads a list of all fields in order, which is never meant.
        if payload.trim_ascii_start().first() != Some(&b'{') {
            return Err(PayloadError::Form("it is not an object".to_string()));
        }
        serde_json::from_slice(payload).map_err(|error| PayloadError::Form(error.to_string()))
    }

    /// The method.
    pub(super) fn method(&self) -> Result<Method, PayloadError> {
        let Some(text) = &self.method else { return Ok(Method::GET) };
        let method = Method::from_bytes(text.to_ascii_uppercase().as_bytes());
        // `CONNECT` opens a tunnel, and `TRACE` would echo the secrets of the lane.
        let refused = [Method::CONNECT, Method::TRACE];
        let method = method.ok().filter(|method| !refused.contains(method) && text.len() <= 20);
        method.ok_or_else(|| PayloadError::Method(text.chars().take(20).collect()))
    }

    /// The path or URL.
    pub(super) fn target(&self) -> Result<Target<'_>, PayloadError> {
        match (&self.path, &self.url) {
            (Some(path), None) if path.len() > LONGEST_TARGET => Err(PayloadError::TooLong("path")),
            (Some(path), None) if !path.starts_with('/') => Err(PayloadError::Path),
            (Some(path), None) => Ok(Target::Path(path)),
            (None, Some(url)) if url.len() > LONGEST_TARGET => Err(PayloadError::TooLong("url")),
            (None, Some(url)) => Ok(Target::Url(url)),
            (None, None) | (Some(_), Some(_)) => Err(PayloadError::Target),
        }
    }

    /// The headers, including those that every request has.
    pub(super) fn headers(&self) -> Result<HeaderMap, PayloadError> {
        if self.headers.len() > MOST_HEADERS {
            return Err(PayloadError::Headers);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in &self.headers {
            let refused = || PayloadError::Header(name.chars().take(60).collect());
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
            let value = HeaderValue::from_str(value).map_err(|_| refused())?;
            if CONNECTION_HEADERS.contains(&name) || name.as_str().starts_with("proxy-") {
                return Err(refused());
            }
            headers.insert(name, value);
        }
        if !headers.contains_key(CONTENT_TYPE)
            && self.body.as_ref().is_some_and(|body| !body.is_string())
        {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(headers)
    }

    /// The body.
    pub(super) fn body(&self) -> Result<Bytes, PayloadError> {
        match (&self.body, &self.body_base64) {
            (Some(_), Some(_)) => {
                Err(PayloadError::Body("give either `body` or `body_base64`, not both"))
            }
            (Some(Value::String(text)), None) => Ok(text.clone().into()),
            (Some(value), None) => Ok(value.to_string().into()),
            (None, Some(text)) => match BASE64.decode(text.as_bytes()) {
                Ok(bytes) => Ok(bytes.into()),
                Err(_) => Err(PayloadError::Body("`body_base64` is not base64")),
            },
            (None, None) => Ok(Bytes::new()),
        }
    }
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    Path(&'a str),
    Url(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(payload: &str, expected: &str) {
        let ask = RequestPayload::read(payload.as_bytes());
        let problem = ask.and_then(|ask| {
            ask.target()?;
            ask.method()?;
            ask.headers()?;
            ask.body()
        });
        let problem = problem.map_or_else(|error| error.to_string(), |_| "fine".to_string());
        assert!(problem.starts_with(expected), "{payload}: {problem}");
    }

    #[test]
    fn mistakes_in_a_payload_are_named() {
        check(r#"{"path": "/item/1"}"#, "fine");
        check(
            r#"{"path": "/", "method": "patch", "body": {"a": 1}, "headers": {"x-a": "b"}}"#,
            "fine",
        );
        check("[]", "the payload is not a valid request");
        check(
            r#"{"path": "/", "methd": "GET"}"#,
            "the payload is not a valid request: unknown field `methd`",
        );
        check("{}", "give either `path` or `url`");
        check(r#"{"path": "/", "url": "http://a"}"#, "give either `path` or `url`");
        check(r#"{"path": "item"}"#, "`path` must start with `/`");
        check(r#"{"path": "/", "method": "CONNECT"}"#, "`CONNECT` is not an HTTP method");
        check(r#"{"path": "/", "method": "G T"}"#, "`G T` is not an HTTP method");
        check(r#"{"path": "/", "headers": {"host": "evil"}}"#, "the header `host` cannot be sent");
        check(r#"{"path": "/", "headers": {"a": "b\r\nc: d"}}"#, "the header `a` cannot be sent");
        check(r#"{"path": "/", "body": "a", "body_base64": "YQ=="}"#, "give either `body`");
        check(r#"{"path": "/", "body_base64": "?"}"#, "`body_base64` is not base64");
    }

    #[test]
    fn a_text_is_sent_as_it_is_and_anything_else_as_json() {
        let body = |payload: &str| {
            RequestPayload::read(payload.as_bytes()).expect("a request").body().expect("a body")
        };
        assert_eq!(body(r#"{"body": "a b"}"#), "a b");
        assert_eq!(body(r#"{"body": {"a": [1]}}"#), r#"{"a":[1]}"#);
        assert_eq!(body(r#"{"body_base64": "/wA="}"#), &b"\xff\0"[..]);
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(error) = RequestPayload::read(&bytes) {
                prop_assert!(error.to_string().len() < 500);
            }
        }
    }
}
