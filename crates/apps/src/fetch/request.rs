//! The request for a file: who asks, with what rights, and from which byte on.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, PROXY_AUTHORIZATION, RANGE, USER_AGENT,
};
use hyper::{Method, Request, Uri};
use url::Url;

use super::task::{Task, Version};
use crate::http::cookies::Jar;
use crate::http::netrc::Netrc;
use crate::http::{Client, Origin};

/// What every request says.
#[derive(Debug, Default)]
pub struct Manners {
    /// Who asks.
    pub user_agent: Option<HeaderValue>,
    /// Headers that the user wants sent.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Logins by host.
    pub netrc: Option<Netrc>,
    /// Cookies by address.
    pub cookies: Option<Jar>,
    /// The servers of this run's list.
    pub homes: Mutex<BTreeSet<Origin>>,
}

/// Servers that headers with secrets go to, at most.
const MOST_HOMES: usize = 100_000;

/// Which bytes are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// All of them.
    Whole,
    /// From this one on, to this one if named, of the version with this strong validator.
    Of { from: u64, to: Option<u64>, etag: Option<String> },
}

/// Content codings that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// The file as it is.
    Identity,
    /// Compressed on the way, and written as it was before.
    Decode,
}

/// Headers that go only to the server they were meant for.
const SECRET: [HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];

impl Manners {
    /// The request of a task at `url`.
    pub(super) fn request(
        &self,
        client: &Client,
        task: &Task,
        url: &Url,
        span: &Span,
        coding: Coding,
        now: SystemTime,
    ) -> Option<Request<Empty<Bytes>>> {
        let mut request = self.plain(client, url, meant(task).as_ref(), now)?;
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

    /// A request without terms, such as for robots.txt; nothing if HTTP cannot say this address.
    /// `meant` is the address that the user named: secrets go nowhere else.
    pub(super) fn plain(
        &self,
        client: &Client,
        url: &Url,
        meant: Option<&Url>,
        now: SystemTime,
    ) -> Option<Request<Empty<Bytes>>> {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = target(url, client)?;
        let home = meant.and_then(Origin::of).as_ref() == Some(&origin) && self.knows(&origin);
        let headers = request.headers_mut();
        insert(headers, HOST, &origin.authority());
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        if let Some(agent) = &self.user_agent {
            headers.insert(USER_AGENT, agent.clone());
        }
        if let Some(login) = self.login(url, &origin) {
            headers.insert(AUTHORIZATION, login);
        }
        if let Some(cookies) = self.cookies.as_ref().and_then(|jar| jar.header(url, now)) {
            headers.insert(COOKIE, cookies);
        }
        for (name, value) in &self.headers {
            if home || !SECRET.contains(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
        if let Some(value) = client.proxy_authorization(url) {
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        Some(request)
    }

    /// Says that this run's list names an address of this server. What an earlier run left is not
    /// meant by the secrets of this one.
    pub(super) fn meet(&self, url: &Url) {
        if self.headers.is_empty() {
            return;
        }
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = Origin::of(url)
            && homes.len() < MOST_HOMES
        {
            homes.insert(origin);
        }
    }

    fn knows(&self, origin: &Origin) -> bool {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).contains(origin)
    }

    fn login(&self, url: &Url, origin: &Origin) -> Option<HeaderValue> {
        if !url.username().is_empty() {
            let decode = |text: &str| {
                percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
            };
            let (user, password) =
                (decode(url.username()), decode(url.password().unwrap_or_default()));
            return crate::http::basic(&user, &password);
        }
        let login = self.netrc.as_ref()?.login(origin.bare_host())?;
        Some(login.basic())
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

/// The path alone, or for a proxy that reads along, the whole address.
fn target(url: &Url, client: &Client) -> Option<Uri> {
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_string(),
    };
    let text = if client.reads_along(url) {
        let origin = Origin::of(url).expect("only http and https come here");
        format!("{origin}{path}")
    } else {
        path
    };
    text.parse().ok()
}

/// The address that the user named, to whose server secrets may go.
pub(super) fn meant(task: &Task) -> Option<Url> {
    task.via.first().or(task.urls.first()).and_then(|text| Url::parse(text).ok())
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // What came out of an answer or an address is a value; anything else is not worth sending.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The request as it goes over the wire, for the archive.
pub(super) fn head(request: &Request<Empty<Bytes>>) -> Vec<u8> {
    let mut head = format!("GET {} HTTP/1.1\r\n", request.uri()).into_bytes();
    for (name, value) in request.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}
