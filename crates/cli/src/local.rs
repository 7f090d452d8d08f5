//! A server on this machine, to which `bench` and `demo` send requests: a mock upstream or a daemon.

use std::net::SocketAddr;

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use paceline::{Call, Failed, Work};
use paceline_apps::http::announced::retry_after;
use paceline_apps::http::proxy::Proxies;
use paceline_apps::http::{Client, Exchange, HttpError, Patience, Upload, refusal};
use url::Url;

/// The largest body that is read.
const LARGEST: usize = 64 << 10;

/// A server and the open connections to it.
pub(crate) struct LocalServer {
    http: Client,
    root: Url,
}

/// A response that was read to its end.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: String,
}

impl LocalServer {
    pub(crate) fn new(address: SocketAddr) -> LocalServer {
        let root = Url::parse(&format!("http://{address}")).expect("an address is one of HTTP");
        LocalServer { http: Client::new(Patience::default(), Proxies::default()), root }
    }

    /// Sends one attempt of a call; for workers that return `true` from `sends_itself`. Calls `sending`
    /// right after the start of the attempt is recorded.
    pub(crate) async fn attempt(
        &self,
        call: &Call,
        path: &str,
        sending: impl FnOnce(),
    ) -> Result<Response, Failed> {
        let (url, request) = self.request(Method::GET, path, String::new());
        let attempt = self.http.begin(call, &url).await?;
        sending();
        let response = match attempt.send(request).await {
            Ok(exchange) => self.read(&url, exchange).await,
            Err(error) => Err(error),
        };
        response.map_err(|error| Failed::of(error.failure()))
    }

    /// Sends a request that belongs to no call.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Response, HttpError> {
        let (url, request) = self.request(method, path, body);
        self.read(&url, self.http.ask(&url, request).await?).await
    }

    fn request(&self, method: Method, path: &str, body: String) -> (Url, Request<Upload>) {
        let url = self.root.join(path).expect("the path is valid");
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
        let request = self.http.request(&url, method, headers, bytes::Bytes::from(body));
        (url, request.expect("HTTP can express it"))
    }

    async fn read(&self, url: &Url, exchange: Exchange) -> Result<Response, HttpError> {
        let (status, headers) = (exchange.status.as_u16(), exchange.headers.clone());
        let body = self.http.whole(url, exchange, LARGEST).await?;
        Ok(Response { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

impl Response {
    /// The outcome that a response other than 200 stands for.
    pub(crate) fn refused(&self, call: &Call) -> Work {
        let status = StatusCode::from_u16(self.status).expect("it came as a status");
        refusal(status, retry_after(&self.headers, call.wall())).into_work()
    }
}
