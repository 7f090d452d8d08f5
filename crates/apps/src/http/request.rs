//! A request as its connection wants it: where it goes, and through which proxy.

use hyper::header::{HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Method, Request, Uri};
use url::Url;

use super::body::Upload;
use super::client::Client;
use super::origin::Origin;

/// The `User-Agent` of a request whose caller names none: some servers refuse requests without one.
pub const AGENT: &str = concat!("paceline/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// A request for `url`. Its `Host` is that of the address unless the headers name another, and a
    /// proxy that reads along gets its login.
    ///
    /// `None` if HTTP cannot express the address.
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

    /// The path alone, or, for a proxy that reads along, the whole address without its login.
    fn target(&self, url: &Url, origin: &Origin) -> Option<Uri> {
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("{}{query}", url.path());
        let target = if self.reads_along(url) { format!("{origin}{path}") } else { path };
        target.parse().ok()
    }
}
