//! The worker of the kind `http`: makes one request and interprets its response.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use paceline::{Call, Failed, Failure, Outcome, Work, Worker};
use serde_json::value::{RawValue, to_raw_value};
use url::Url;

use super::endpoints::{Destination, Endpoints};
use super::expect::Meaning;
use super::payload::{PayloadError, Redirects, RequestPayload};
use super::value::{Body, value};
use crate::http::announced::{announced, retry_after};
use crate::http::proxy::Proxies;
use crate::http::{
    Client, Exchange, HttpError, Origin, Patience, Reach, RedirectError, Refusal, Upload,
    announcing, is_redirect, led_to, refusal,
};

/// Redirects that are followed in a row.
const MOST_HOPS: u8 = 10;
/// Headers of a caller that a redirect to another server keeps.
const PUBLIC_HEADERS: [&str; 4] = ["accept", "accept-language", "content-type", "user-agent"];

/// Makes the requests that payloads describe. Clones share their connections.
#[derive(Clone)]
pub struct HttpWorker {
    endpoints: Endpoints,
    /// For lanes whose `url` allows private addresses.
    near: Arc<Client>,
    /// For all other lanes.
    public: Arc<Client>,
}

impl HttpWorker {
    /// A worker for lanes at these endpoints, through these proxies.
    pub fn new(endpoints: Endpoints, proxies: &Proxies) -> HttpWorker {
        // The lane's endpoint sets the time limit of a response.
        let patience = Patience {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_hours(24),
            idle: Duration::from_hours(24),
        };
        let client = |reach| Arc::new(Client::new(patience, proxies.clone()).within(reach));
        HttpWorker { endpoints, near: client(Reach::Everywhere), public: client(Reach::Public) }
    }

    /// Validates a payload on a lane. Does not check that the lane exists.
    pub fn check(&self, payload: &[u8], lane: &str) -> Result<(), PayloadError> {
        let ask = RequestPayload::read(payload)?;
        if ask.hops > 0 {
            return Err(PayloadError::Form(
                "`hops` is set by the worker, not by callers".to_string(),
            ));
        }
        if self.endpoints.of(lane).is_none() {
            return Ok(());
        }
        let destination = self.endpoints.destination(lane, &ask)?;
        request(self.client(destination.reach), &ask, &destination).map(drop)
    }

    /// The endpoints of lanes.
    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    pub(crate) fn client(&self, reach: Reach) -> &Client {
        match reach {
            Reach::Everywhere => &self.near,
            Reach::Public => &self.public,
        }
    }
}

impl From<PayloadError> for Failure {
    fn from(error: PayloadError) -> Failure {
        Failure::permanent("payload").because(&error.to_string())
    }
}

impl Worker for HttpWorker {
    async fn run(&self, call: Call) -> Work {
        let ask = RequestPayload::read(call.payload_bytes()).map_err(wrong)?;
        self.ask(&call, &ask, &|next| to_raw_value(next)).await
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

fn wrong(error: PayloadError) -> Failed {
    Failed::of(error.into())
}

/// The payload of the call that follows a redirect.
pub(crate) type Carry<'a> =
    &'a (dyn Fn(&RequestPayload) -> serde_json::Result<Box<RawValue>> + Sync);

/// A response.
struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

async fn read(client: &Client, url: &Url, mut exchange: Exchange) -> Result<Response, HttpError> {
    let (status, headers) = (exchange.status, std::mem::take(&mut exchange.headers));
    let mut body = Body::default();
    loop {
        match client.piece(url, &mut exchange).await? {
            None => break client.finish(url, exchange).await,
            // The rest is dropped with the connection.
            Some(piece) if !body.take(&piece) => break,
            Some(_) => {}
        }
    }
    Ok(Response { status, headers, body })
}

fn request(
    client: &Client,
    ask: &RequestPayload,
    destination: &Destination,
) -> Result<Request<Upload>, PayloadError> {
    let request = destination.request(client, ask.method()?, ask.headers()?, ask.body()?);
    request.ok_or(PayloadError::Url)
}

impl HttpWorker {
    /// Makes one request for a call.
    pub(crate) async fn ask(&self, call: &Call, ask: &RequestPayload, carry: Carry<'_>) -> Work {
        let destination = self.endpoints.destination(call.lane(), ask).map_err(wrong)?;
        let client = self.client(destination.reach);
        let request = request(client, ask, &destination).map_err(wrong)?;
        let exchange = client.begin(call, &destination.url).await?.send(request).await;
        let response = match exchange {
            Ok(exchange) => read(client, &destination.url, exchange).await,
            Err(error) => Err(error),
        };
        match response {
            Ok(response) => self.judge(call, (ask, carry), &destination, response),
            Err(error) => Outcome::failed(error.failure()),
        }
    }

    /// The outcome of a response.
    fn judge(
        &self,
        call: &Call,
        (ask, carry): (&RequestPayload, Carry<'_>),
        destination: &Destination,
        response: Response,
    ) -> Work {
        let Response { status, headers, body } = response;
        let (now, said) = (call.wall(), announced(&headers, call.wall()));
        let refused = refusal(status, retry_after(&headers, now));
        let follows = ask.redirects.unwrap_or_default() == Redirects::Follow;
        let redirected = redirected(destination, status, &headers).filter(|_| follows);
        let work = if let Refusal::Throttled(_) = refused {
            refused.into_work()
        } else if let Some(to) = redirected {
            match to
                .map_err(|error| not_followed(&error.to_string()))
                .and_then(|url| self.next(call, ask, destination, status, &url))
            {
                Ok((lane, next)) => Outcome::moved(&lane, Some(&*carry(&next)?)),
                Err(failure) => Outcome::failed(failure),
            }
        } else {
            match ask.expect.meaning(status, &body.bytes) {
                Meaning::Conclusive => Outcome::done(value(status.as_u16(), &headers, &body)),
                Meaning::Inconclusive => {
                    Outcome::inconclusive(value(status.as_u16(), &headers, &body))
                }
                Meaning::Empty => Outcome::empty(),
                Meaning::Failed => failed(status, refused),
            }
        };
        announcing(work, said)
    }

    /// Follows a redirect: the same request, on the lane of the server that it names.
    fn next(
        &self,
        call: &Call,
        ask: &RequestPayload,
        destination: &Destination,
        status: StatusCode,
        url: &Url,
    ) -> Result<(String, RequestPayload), Failure> {
        let fail = |message: String| Err(not_followed(&message));
        let origin = Origin::of(url).expect("a redirect is followed to http and https only");
        // A login of the lane's url stays with the lane: payloads are stored, and hold no secrets.
        let mut url = url.clone();
        let _ = (url.set_username(""), url.set_password(None));
        let url = &url;
        if ask.hops >= MOST_HOPS {
            return fail(format!("more than {MOST_HOPS} redirects"));
        }
        let home = Origin::of(&destination.url).as_ref() == Some(&origin);
        let lane =
            if home { Some(call.lane().to_string()) } else { self.endpoints.lane_of(&origin) };
        let Some(lane) = lane else {
            return fail(format!("it leads to {origin}, which no lane's `url` covers"));
        };
        // A redirect must not make the daemon send a lane's secrets to a target of the server's
        // choice.
        let from_afar = destination.reach == Reach::Public && self.endpoints.is_private(&lane);
        if !home && (from_afar || !self.endpoints.takes(&lane, url)) {
            return fail(format!(
                "it leads to {origin}, and redirects from other servers to it are not followed"
            ));
        }
        let mut next = RequestPayload {
            hops: ask.hops + 1,
            path: None,
            url: Some(url.to_string()),
            ..ask.clone()
        };
        let method = ask.method().unwrap_or_default();
        let asks_anew = status == StatusCode::SEE_OTHER
            || (method == Method::POST && matches!(status.as_u16(), 301 | 302));
        if asks_anew && method != Method::HEAD {
            (next.method, next.body, next.body_base64) = (None, None, None);
        }
        if !home {
            // Other headers were meant for the first server only.
            next.headers
                .retain(|name, _| PUBLIC_HEADERS.iter().any(|it| name.eq_ignore_ascii_case(it)));
        }
        Ok((lane, next))
    }
}

fn not_followed(why: &str) -> Failure {
    Failure::permanent("redirect").because(why)
}

/// The URL of a redirect, if the response is one.
fn redirected(
    destination: &Destination,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<Result<Url, RedirectError>> {
    let to = is_redirect(status).then(|| led_to(&destination.url, headers))?;
    (to != Err(RedirectError::Nowhere)).then_some(to)
}

/// A failure by status, or by the caller's `expect`.
fn failed(status: StatusCode, refused: Refusal) -> Work {
    if status.is_success() || status.is_redirection() {
        let message = format!("unexpected status {}", status.as_u16());
        return Outcome::failed(Failure::transient("unexpected").because(&message));
    }
    refused.into_work()
}
