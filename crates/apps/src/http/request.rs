//! Requests in the form that their connection needs, with or without proxy.

use hyper::header::{HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Method, Request, Uri};
use url::Url;

use super::body::Upload;
use super::client::Client;
use super::origin::Origin;

/// The default `User-Agent`: some servers refuse requests without one.
pub const AGENT: &str = concat!("paceline/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// A request for `url`. Its `Host` is that of the URL unless the headers set another, and a
    /// forwarding proxy gets its login.
    ///
    /// `None` if HTTP cannot express the URL.
    pub fn request(
        &self,
        url: &Url,
        method: Method,
        mut headers: HeaderMap,
        body: impl Into<Upload>,
    ) -> Option<Request<Upload>> {
        let origin = Origin::of(url)?;
        let host = HeaderValue::from_str(&origin.authority()).ok()?;
        // `Host` goes first (RFC 9110, 7.2).
        let host = headers.remove(HOST).unwrap_or(host);
        let mut all = HeaderMap::with_capacity(headers.len() + 2);
        all.insert(HOST, host);
        all.extend(headers);
        if let Some(login) = self.proxy_authorization(url) {
            all.insert(PROXY_AUTHORIZATION, login);
        }
        let mut request = Request::new(body.into());
        *request.method_mut() = method;
        *request.uri_mut() = self.target(url, &origin)?;
        *request.headers_mut() = all;
        Some(request)
    }

    /// The path or, for a forwarding proxy, the complete URL without its login.
    fn target(&self, url: &Url, origin: &Origin) -> Option<Uri> {
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("{}{query}", url.path());
        let target = if self.reads_along(url) { format!("{origin}{path}") } else { path };
        target.parse().ok()
    }
}
