//! Requests for files: headers, logins and ranges.

use std::time::SystemTime;

use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HeaderMap, HeaderName,
    HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE, REFERER, USER_AGENT,
};
use hyper::{Method, Request};
use url::Url;

use super::task::{Task, Version};
use crate::http::cookies::Jar;
use crate::http::netrc::{Login, Netrc};
use crate::http::{Client, Origin, Upload};

/// Headers and logins of requests.
#[derive(Debug)]
pub struct Manners {
    user_agent: HeaderValue,
    headers: Vec<(HeaderName, HeaderValue)>,
    netrc: Option<Netrc>,
    cookies: Option<Jar>,
}

/// The requested bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// All bytes.
    Whole,
    /// From the first number to the second, or to the end, of the version with this strong
    /// validator.
    Of { from: u64, to: Option<u64>, etag: Option<String> },
}

/// The requested content codings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// None: the file as it is.
    Identity,
    /// Compressed in transfer, and decoded before it is written.
    Decode,
}

/// Headers whose values are no secrets. Any other header may hold one: it goes only to the server
/// it was meant for, and into no archive.
const PLAIN: [HeaderName; 4] = [ACCEPT, ACCEPT_LANGUAGE, REFERER, USER_AGENT];

impl Manners {
    /// Builds requests with the user's headers. Logins and cookies go only to the servers they
    /// belong to.
    pub fn new(
        user_agent: HeaderValue,
        mut headers: Vec<(HeaderName, HeaderValue)>,
        netrc: Option<Netrc>,
        cookies: Option<Jar>,
    ) -> Manners {
        for (name, value) in &mut headers {
            value.set_sensitive(!PLAIN.contains(name));
        }
        Manners { user_agent, headers, netrc, cookies }
    }

    /// The request of a task's call with this number at `url`.
    pub(super) fn request(
        &self,
        client: &Client,
        (task, call): (&Task, u16),
        url: &Url,
        span: &Span,
        coding: Coding,
        now: SystemTime,
    ) -> Option<Request<Upload>> {
        let mut request = self.plain(client, (task, call), url, now)?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(coding.accepted()));
        if let Span::Of { from, to, etag } = span {
            let to = to.map(|to| to.to_string()).unwrap_or_default();
            insert(headers, RANGE, &format!("bytes={from}-{to}"));
            if let Some(etag) = etag {
                insert(headers, IF_RANGE, etag);
            }
        }
        if let Some(Version { etag, last_modified }) = &task.have {
            match (etag, last_modified) {
                (Some(etag), _) => insert(headers, IF_NONE_MATCH, etag),
                (None, Some(date)) => insert(headers, IF_MODIFIED_SINCE, date),
                (None, None) => {}
            }
        }
        Some(request)
    }

    /// A plain request, such as for robots.txt; `None` if HTTP cannot express the URL.
    pub(super) fn plain(
        &self,
        client: &Client,
        (task, call): (&Task, u16),
        url: &Url,
        now: SystemTime,
    ) -> Option<Request<Upload>> {
        let origin = Origin::of(url).expect("only http and https come here");
        let meant = task.meant(call);
        let home = meant.as_ref().and_then(Origin::of).as_ref() == Some(&origin);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(USER_AGENT, self.user_agent.clone());
        let clear = meant.is_some_and(|meant| meant.scheme() == "https") && url.scheme() == "http";
        if let Some(login) = self.login(url, &origin, home, clear) {
            headers.insert(AUTHORIZATION, login);
        }
        if let Some(cookies) = self.cookies.as_ref().and_then(|jar| jar.header(url, now)) {
            headers.insert(COOKIE, cookies);
        }
        for (name, value) in &self.headers {
            if home || PLAIN.contains(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
        client.request(url, Method::GET, headers, Upload::Nothing)
    }

    /// The login for a URL. A server that the user did not name gets no default login, and a server
    /// that was named with https gets none over http.
    fn login(&self, url: &Url, origin: &Origin, home: bool, clear: bool) -> Option<HeaderValue> {
        if !url.username().is_empty() {
            let decode = |text: &str| {
                percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
            };
            let (user, password) =
                (decode(url.username()), decode(url.password().unwrap_or_default()));
            return Some(crate::http::basic(user.as_bytes(), password.as_bytes()));
        }
        let (netrc, host) = (self.netrc.as_ref()?, origin.bare_host());
        let login = match (home, clear) {
            (true, _) => netrc.login(host),
            (false, false) => netrc.machine_login(host),
            (false, true) => None,
        };
        login.map(Login::basic)
    }
}

impl Coding {
    fn accepted(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Decode => "gzip, br, zstd",
        }
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Values from responses and URLs are valid; an invalid one is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The request as sent, for the archive, without headers that may hold secrets.
pub(super) fn head(request: &Request<Upload>) -> Vec<u8> {
    let mut head = format!("GET {} HTTP/1.1\r\n", request.uri()).into_bytes();
    for (name, value) in request.headers().iter().filter(|(_, value)| !value.is_sensitive()) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
