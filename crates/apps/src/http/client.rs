//! The client: a pool of connections, and requests with time limits.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::Request;
use hyper::header::HeaderValue;
use paceline::jobs::CallId;
use url::Url;

use super::body::Upload;
use super::connect::{Tls, connect};
use super::connection::{Connection, Exchange};
use super::error::HttpError;
use super::origin::Origin;
use super::proxy::Proxies;
use super::reach::Reach;

/// Idle connections in all. Beyond this, the one that is idle longest is closed.
const MOST_IDLE: usize = 256;
/// Bytes of a discarded body that are read to keep the connection. For more, a new connection is
/// cheaper.
const MOST_DRAINED: u64 = 64 << 10;
/// The time limit for that.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);

/// Calls with a kept connect error. Beyond this, that of the oldest call is dropped.
const MOST_ERRORS: usize = 10_000;

/// Time limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For connecting, TLS included.
    pub connect: Duration,
    /// From the request to the head of the response.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(30),
        }
    }
}

/// Sends requests. It never retries, and follows no redirects: one attempt is one request.
pub struct Client {
    patience: Patience,
    proxies: Proxies,
    reach: Reach,
    tls: Tls,
    idle: Mutex<Idle>,
}

/// Idle connections, the most recent of each server at the end.
#[derive(Default)]
struct Idle {
    by_origin: BTreeMap<Origin, Vec<(u64, Connection)>>,
    count: usize,
    /// Counts connections that became idle: the one with the smallest number is idle longest.
    clock: u64,
    /// Errors of connects that ended too late for their attempts, for the next attempts of these calls.
    errors: BTreeMap<CallId, (Origin, HttpError)>,
}

impl Client {
    /// A client that uses these proxies.
    pub fn new(patience: Patience, proxies: Proxies) -> Client {
        let (reach, tls) = (Reach::Everywhere, Tls::default());
        Client { patience, proxies, reach, tls, idle: Mutex::default() }
    }

    /// Restricts the client to these addresses.
    #[must_use]
    pub fn within(mut self, reach: Reach) -> Client {
        self.reach = reach;
        self
    }

    /// A connection to the server of `url`: an idle one, else a new one.
    ///
    /// An attempt whose connection came too late leaves it for the next one. If the server has
    /// closed it by then, that counts as a connect error: otherwise connecting would be repeated
    /// for ever.
    pub(super) async fn connection(&self, url: &Url) -> Result<Connection, HttpError> {
        let origin = Origin::of(url).expect("only http and https come here");
        while let Some(mut connection) = self.take(&origin) {
            if connection.is_open().await {
                return Ok(connection);
            }
            if connection.is_new() {
                return Err(HttpError::Connect(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        let proxy = self.proxies.of(url)?;
        let open = async {
            let connected = connect(&origin, proxy, &self.tls, self.reach).await?;
            Connection::open(connected).await
        };
        let connection = within(self.patience.connect, "connecting", open).await?;
        if let Some(shared) = connection.share() {
            self.put(origin, shared);
        }
        Ok(connection)
    }

    /// Returns `true` if a forwarding proxy is used, which needs the complete URL.
    pub fn reads_along(&self, url: &Url) -> bool {
        url.scheme() == "http" && matches!(self.proxies.of(url), Ok(Some(_)))
    }

    /// The login for such a proxy.
    pub fn proxy_authorization(&self, url: &Url) -> Option<HeaderValue> {
        let proxy = self.proxies.of(url).ok().flatten().filter(|_| url.scheme() == "http")?;
        proxy.authorization().cloned()
    }

    /// Sends a request that is not an attempt of a call, such as one to the daemon itself.
    pub async fn ask(&self, url: &Url, request: Request<Upload>) -> Result<Exchange, HttpError> {
        let connection = self.connection(url).await?;
        self.send(url, connection, request).await
    }

    /// Sends a request over a connection to its server.
    pub(super) async fn send(
        &self,
        url: &Url,
        connection: Connection,
        request: Request<Upload>,
    ) -> Result<Exchange, HttpError> {
        let send = connection.send(request);
        let sent = within(self.patience.first_byte, "waiting for a response", send).await;
        self.judged(url, sent)
    }

    /// Reads the next piece of a body, within its time limit.
    pub async fn piece(
        &self,
        url: &Url,
        exchange: &mut Exchange,
    ) -> Result<Option<bytes::Bytes>, HttpError> {
        let piece = exchange.piece();
        let piece = within(self.patience.idle, "the next piece of the body", piece).await;
        self.judged(url, piece)
    }

    /// Reads a whole body. More than `most` bytes are an error.
    pub async fn whole(
        &self,
        url: &Url,
        mut exchange: Exchange,
        most: usize,
    ) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(url, &mut exchange).await? {
            if body.len() + piece.len() > most {
                return Err(HttpError::Large(most));
            }
            body.extend_from_slice(&piece);
        }
        self.finish(url, exchange).await;
        Ok(body)
    }

    /// Takes a shared connection out of use after an error on it.
    fn judged<T>(&self, url: &Url, result: Result<T, HttpError>) -> Result<T, HttpError> {
        if result.is_err()
            && let Some(origin) = Origin::of(url)
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.drop_shared(&origin);
        }
        result
    }

    /// Takes back a connection that was not used, or whose exchange is complete.
    pub(super) fn keep(&self, url: &Url, connection: Connection) {
        // An HTTP/2 connection is shared, and already among the idle ones.
        if connection.share().is_none() {
            self.put(Origin::of(url).expect("it led here"), connection);
        }
    }

    /// Keeps a connect error that came too late for an attempt of this call.
    pub(super) fn keep_error(&self, call: CallId, url: &Url, error: HttpError) {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.errors.len() >= MOST_ERRORS {
            idle.errors.pop_first();
        }
        idle.errors.insert(call, (origin, error));
    }

    /// The error that was kept for this call, if it is about this server.
    pub(super) fn take_error(&self, call: CallId, url: &Url) -> Option<HttpError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (origin, error) = idle.errors.remove(&call)?;
        (Origin::of(url) == Some(origin)).then_some(error)
    }

    /// Ends an exchange whose body was read completely.
    pub async fn finish(&self, url: &Url, exchange: Exchange) {
        let mut connection = exchange.into_connection();
        if connection.is_open().await {
            self.keep(url, connection);
        }
    }

    /// Ends an exchange without its body: a short rest is read, a long one cut off.
    pub async fn discard(&self, url: &Url, mut exchange: Exchange) {
        if exchange.length().is_some_and(|length| length > MOST_DRAINED) {
            return;
        }
        let drain = async {
            let mut left = MOST_DRAINED;
            while let Some(piece) = exchange.piece().await.ok()? {
                left = left.checked_sub(piece.len() as u64)?;
            }
            Some(())
        };
        if let Ok(Some(())) = tokio::time::timeout(DRAIN_WITHIN, drain).await {
            self.finish(url, exchange).await;
        }
    }

    fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle.by_origin.get_mut(origin)?;
        let shared = waiting.last().and_then(|(_, connection)| connection.share());
        if let Some(shared) = shared.filter(Connection::is_usable) {
            return Some(shared);
        }
        let connection = waiting.pop();
        if waiting.is_empty() {
            idle.by_origin.remove(origin);
        }
        idle.count -= usize::from(connection.is_some());
        connection.map(|(_, connection)| connection)
    }

    fn put(&self, origin: Origin, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.count >= MOST_IDLE {
            idle.close_oldest();
        }
        idle.clock += 1;
        idle.count += 1;
        let stamp = idle.clock;
        idle.by_origin.entry(origin).or_default().push((stamp, connection));
    }
}

impl Idle {
    fn drop_shared(&mut self, origin: &Origin) {
        let Some(waiting) = self.by_origin.get_mut(origin) else { return };
        let before = waiting.len();
        waiting.retain(|(_, connection)| connection.share().is_none());
        self.count -= before - waiting.len();
        if waiting.is_empty() {
            self.by_origin.remove(origin);
        }
    }

    fn close_oldest(&mut self) {
        let oldest = self.by_origin.iter().min_by_key(|(_, waiting)| waiting[0].0);
        let Some(origin) = oldest.map(|(origin, _)| origin.clone()) else { return };
        let waiting = self.by_origin.get_mut(&origin).expect("just found");
        waiting.remove(0);
        if waiting.is_empty() {
            self.by_origin.remove(&origin);
        }
        self.count -= 1;
    }
}

async fn within<T>(
    span: Duration,
    what: &'static str,
    work: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    match tokio::time::timeout(span, work).await {
        Ok(done) => done,
        Err(_) => Err(HttpError::Timeout(what, span)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline::JobId;

    #[test]
    fn a_connect_error_is_kept_for_its_call_and_its_server_alone() {
        let client = Client::new(Patience::default(), Proxies::default());
        let call = |job| CallId { job: JobId(job), index: 0 };
        let url = |text: &str| Url::parse(text).expect("an address");
        let error = || HttpError::Connect(io::ErrorKind::TimedOut.into());
        client.keep_error(call(1), &url("http://a/1"), error());
        assert!(client.take_error(call(2), &url("http://a/1")).is_none(), "another call");
        assert!(client.take_error(call(1), &url("http://a/2")).is_some(), "the same server");
        assert!(client.take_error(call(1), &url("http://a/1")).is_none(), "it is told once");
        client.keep_error(call(1), &url("http://a/1"), error());
        assert!(client.take_error(call(1), &url("http://b/1")).is_none(), "another server");
        for job in 0..=MOST_ERRORS as u64 {
            client.keep_error(call(job), &url("http://a/"), error());
        }
        assert!(client.take_error(call(0), &url("http://a/")).is_none(), "there is a bound");
        assert!(client.take_error(call(MOST_ERRORS as u64), &url("http://a/")).is_some());
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_before_its_first_request_was_none() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let url = Url::parse(&url).expect("an address");
        let client = Client::new(Patience::default(), Proxies::default());
        let connection = client.connection(&url).await.expect("a connection");
        let (socket, _) = listener.accept().await.expect("a connection");
        client.keep(&url, connection);
        drop(socket);
        // A closed connection is handed out until the client has noticed that it is closed.
        let refused = loop {
            match client.connection(&url).await {
                Ok(connection) => client.keep(&url, connection),
                Err(error) => break error,
            }
            tokio::task::yield_now().await;
        };
        assert!(matches!(refused, HttpError::Connect(_)), "{refused}");
        client.connection(&url).await.expect("a new one");
    }
}
