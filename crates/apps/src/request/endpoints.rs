//! Endpoints: the address, the headers and the limits of each lane's upstream.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use url::Url;

use super::payload::{PayloadError, RequestPayload, Target};
use crate::http::{AGENT, Client, Origin, Reach, Upload};

/// The upstream of a lane.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The base URL; paths are below it.
    pub url: Option<Url>,
    /// Headers that are added to every request, mostly secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether a `url` with a host name may resolve to a private address.
    pub private: bool,
    /// The time until a response must begin.
    pub timeout: Option<Duration>,
}

/// Without the header values, which are secrets.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        let origin = self.url.as_ref().and_then(Origin::of).map(|origin| origin.to_string());
        f.debug_struct("Endpoint")
            .field("origin", &origin)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// The endpoints of lanes and templates, by name. A reload replaces them while the engine runs.
#[derive(Clone, Debug, Default)]
pub struct Endpoints(Arc<RwLock<BTreeMap<String, Endpoint>>>);

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) url: Url,
    pub(crate) reach: Reach,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeout: Option<Duration>,
}

impl Destination {
    /// A request to this destination; `None` if HTTP cannot express its URL.
    ///
    /// The lane's headers are applied last, so that no caller overrides a configured secret.
    pub(crate) fn request(
        &self,
        client: &Client,
        method: Method,
        mut headers: HeaderMap,
        body: impl Into<Upload>,
    ) -> Option<Request<Upload>> {
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        let mut request = client.request(&self.url, method, headers, body)?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        Some(request)
    }
}

impl Endpoints {
    /// Replaces these endpoints. Others keep theirs, since jobs may wait for them.
    pub fn add(&self, endpoints: BTreeMap<String, Endpoint>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(endpoints);
    }

    /// The endpoint of a lane: its own, or that of the template with the longest name.
    pub fn of(&self, lane: &str) -> Option<Endpoint> {
        let endpoints = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = endpoints.get(lane) {
            return Some(endpoint.clone());
        }
        let templates = endpoints
            .iter()
            .filter_map(|(name, endpoint)| Some((name.strip_suffix('*')?, endpoint)));
        let fitting = templates.filter(|(prefix, _)| lane.starts_with(prefix));
        fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, endpoint)| endpoint.clone())
    }

    /// The lane for a server: one whose `url` names it, else its `host:` lane.
    pub(super) fn lane_of(&self, origin: &Origin) -> Option<String> {
        let endpoints = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_there = |endpoint: &Endpoint| {
            endpoint.url.as_ref().and_then(Origin::of).as_ref() == Some(origin)
        };
        let named = endpoints.iter().filter(|(name, _)| !name.ends_with('*'));
        let mut there = named.filter(|(_, endpoint)| is_there(endpoint));
        if let Some((name, _)) = there.next() {
            return Some(name.clone());
        }
        drop(endpoints);
        let lane = origin.lane();
        self.of(&lane).is_some_and(|endpoint| endpoint.url.is_none()).then_some(lane)
    }

    /// Checks a request on a lane without I/O, before a job is accepted.
    pub fn check(&self, lane: &str, ask: &RequestPayload) -> Result<(), PayloadError> {
        self.destination(lane, ask).map(drop)
    }

    /// Returns `true` if the URL is below that of the lane, or the lane has none.
    pub(super) fn takes(&self, lane: &str, url: &Url) -> bool {
        self.of(lane).and_then(|endpoint| endpoint.url).is_none_or(|base| is_below(&base, url))
    }

    /// The part of a URL below that of a lane, with its query; `None` if it is not below.
    pub(crate) fn part_below(&self, lane: &str, url: &Url) -> Option<String> {
        let base = self.of(lane)?.url?;
        if Origin::of(url) != Origin::of(&base) || !is_below(&base, url) {
            return None;
        }
        let folder = base.path().trim_end_matches('/').len();
        Some(url[url::Position::BeforePath..][folder..].to_string())
    }

    /// Returns `true` if requests on the lane may reach a private network.
    pub(super) fn is_private(&self, lane: &str) -> bool {
        let endpoint = self.of(lane).unwrap_or_default();
        endpoint.private || endpoint.url.as_ref().is_some_and(says_private)
    }

    /// The destination of a request on a lane, if it is allowed.
    pub(crate) fn destination(
        &self,
        lane: &str,
        ask: &RequestPayload,
    ) -> Result<Destination, PayloadError> {
        let endpoint = self.of(lane).unwrap_or_default();
        let url = match (ask.target()?, &endpoint.url) {
            (Target::Path(path), Some(base)) => below(base, path)?,
            (Target::Path(_), None) => return Err(PayloadError::NoUrl(lane.to_string())),
            (Target::Url(url), base) => {
                let url = address(url)?;
                let origin = Origin::of(&url).ok_or(PayloadError::Url)?;
                match base {
                    Some(base) if Origin::of(base).as_ref() != Some(&origin) => {
                        return Err(PayloadError::Elsewhere("url"));
                    }
                    // A redirect may lead elsewhere on the same server; a caller's request may not.
                    Some(base) if ask.hops == 0 && !is_below(base, &url) => {
                        return Err(PayloadError::Elsewhere("url"));
                    }
                    None if lane.starts_with("host:") && origin.lane() != lane => {
                        return Err(PayloadError::OtherLane(lane.to_string(), origin.lane()));
                    }
                    _ => url,
                }
            }
        };
        let own = endpoint.private || endpoint.url.as_ref().is_some_and(says_private);
        let reach = if own { Reach::Everywhere } else { Reach::Public };
        Ok(Destination { url, reach, headers: endpoint.headers, timeout: endpoint.timeout })
    }
}

fn address(text: &str) -> Result<Url, PayloadError> {
    let url = Url::parse(text).map_err(|_| PayloadError::Url)?;
    let plain = url.username().is_empty() && url.password().is_none();
    if plain && Origin::of(&url).is_some() { Ok(url) } else { Err(PayloadError::Url) }
}

/// Joins a path to a base URL. The result is always below the base.
fn below(base: &Url, path: &str) -> Result<Url, PayloadError> {
    let mut whole = base.clone();
    whole.set_query(None);
    whole.set_fragment(None);
    let text = format!("{}{path}", whole.as_str().trim_end_matches('/'));
    let url = Url::parse(&text).map_err(|_| PayloadError::Path)?;
    if is_below(base, &url) && Origin::of(&url) == Origin::of(base) {
        Ok(url)
    } else {
        Err(PayloadError::Elsewhere("path"))
    }
}

/// Returns `true` if the path of a URL is below that of another. A server may decode an encoded
/// slash after dots, so that is refused as a way out.
fn is_below(base: &Url, url: &Url) -> bool {
    let folder = base.path().trim_end_matches('/');
    let rest = url.path().strip_prefix(folder).filter(|rest| rest.starts_with('/'));
    let way_out = |rest: &str| {
        let rest = rest.to_ascii_lowercase();
        ["..%2f", "..%5c", "..\\", "%2e%2f", "%2e%5c", ".%2f", ".%5c"]
            .iter()
            .any(|it| rest.contains(it))
    };
    rest.is_some_and(|rest| !way_out(rest))
}

/// Returns `true` if a URL names this machine or a private address directly.
fn says_private(url: &Url) -> bool {
    let Some(origin) = Origin::of(url) else { return false };
    match origin.bare_host().parse::<IpAddr>() {
        Ok(address) => !Reach::Public.allows(address),
        Err(_) => origin.host == "localhost" || origin.host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoints(all: &[(&str, Option<&str>)]) -> Endpoints {
        let endpoints = Endpoints::default();
        let endpoint = |url: Option<&str>| Endpoint {
            url: url.map(|url| Url::parse(url).expect("an address")),
            ..Endpoint::default()
        };
        endpoints
            .add(all.iter().map(|(name, url)| ((*name).to_string(), endpoint(*url))).collect());
        endpoints
    }

    fn path(path: &str) -> RequestPayload {
        RequestPayload { path: Some(path.to_string()), ..RequestPayload::default() }
    }

    fn url(url: &str) -> RequestPayload {
        RequestPayload { url: Some(url.to_string()), ..RequestPayload::default() }
    }

    #[track_caller]
    fn check(lane: &str, ask: &RequestPayload, expected: &str) {
        let endpoints = endpoints(&[
            ("shop", Some("https://api.example.org/v1/")),
            ("near", Some("http://127.0.0.1:8080")),
            ("host:*", None),
            ("open", None),
        ]);
        let destination = endpoints.destination(lane, ask);
        let told = destination
            .map_or_else(|error| error.to_string(), |it| format!("{} {:?}", it.url, it.reach));
        assert_eq!(told, expected, "{lane} {ask:?}");
    }

    #[test]
    fn a_path_stays_below_the_url_of_its_lane() {
        check("shop", &path("/item/1?a=b"), "https://api.example.org/v1/item/1?a=b Public");
        check("near", &path("/"), "http://127.0.0.1:8080/ Everywhere");
        check("shop", &path("/../../secret"), "`path` leaves the `url` of its lane");
        check("shop", &path("/%2e%2e/x"), "`path` leaves the `url` of its lane");
        check("shop", &path("/..%2fx"), "`path` leaves the `url` of its lane");
        check(
            "open",
            &path("/"),
            "the lane `open` has no `url`: configure one, or send a complete `url`",
        );
    }

    #[test]
    fn an_address_belongs_to_its_lane() {
        check(
            "shop",
            &url("https://api.example.org/v1/other"),
            "https://api.example.org/v1/other Public",
        );
        check("shop", &url("https://api.example.org/other"), "`url` leaves the `url` of its lane");
        check("shop", &url("https://evil.example/"), "`url` leaves the `url` of its lane");
        check("near", &url("http://127.0.0.1:9090/"), "`url` leaves the `url` of its lane");
        check("host:example.org", &url("https://example.org/a"), "https://example.org/a Public");
        check(
            "host:example.org",
            &url("https://127.0.0.1/"),
            "lane `host:example.org` does not match the URL, whose lane is `host:127.0.0.1`",
        );
        check("open", &url("http://127.0.0.1/"), "http://127.0.0.1/ Public");
        let no_address = "`url` must be an http or https address without a login";
        check("open", &url("https://a:b@example.org/"), no_address);
        check("open", &url("file:///etc/passwd"), no_address);
    }

    #[test]
    fn a_server_is_asked_on_the_lane_whose_url_it_is() {
        let endpoints =
            endpoints(&[("shop", Some("https://api.example.org/v1/")), ("host:*", None)]);
        let lane = |url: &str| {
            endpoints.lane_of(&Origin::of(&Url::parse(url).expect("an address")).expect("a server"))
        };
        assert_eq!(lane("https://api.example.org/x").as_deref(), Some("shop"));
        assert_eq!(lane("https://other.example/").as_deref(), Some("host:other.example"));
        assert_eq!(
            super::Endpoints::default().lane_of(
                &Origin::of(&Url::parse("http://a/").expect("an address")).expect("a server")
            ),
            None
        );
    }

    #[test]
    fn a_lane_takes_only_what_is_below_its_url_and_is_private_if_that_says_so() {
        let endpoints = endpoints(&[
            ("near", Some("http://127.0.0.1:8080/only/here")),
            ("shop", Some("https://api.example.org/v1/")),
            ("host:*", None),
        ]);
        let takes =
            |lane: &str, url: &str| endpoints.takes(lane, &Url::parse(url).expect("an address"));
        assert!(takes("near", "http://127.0.0.1:8080/only/here/x"));
        assert!(!takes("near", "http://127.0.0.1:8080/admin/delete"));
        assert!(takes("host:example.org", "https://example.org/anything"));
        assert!(endpoints.is_private("near") && !endpoints.is_private("shop"));
    }

    proptest! {
        #[test]
        fn no_path_leads_to_another_server(text in "/[a-z@:/?#%.\\\\ \t]{0,30}") {
            let endpoints = endpoints(&[("shop", Some("https://api.example.org/v1"))]);
            if let Ok(destination) = endpoints.destination("shop", &path(&text)) {
                prop_assert_eq!(destination.url.host_str(), Some("api.example.org"));
                prop_assert!(destination.url.path().starts_with("/v1/"));
            }
        }
    }
}
