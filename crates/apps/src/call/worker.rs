//! The worker of the kind `http`: one request, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use paceline::{Call, Failed, Failure, Outcome, Work, Worker};
use serde_json::value::{RawValue, to_raw_value};
use url::Url;

use super::ask::{Ask, AskError, Redirects};
use super::expect::Meaning;
use super::places::{Places, Whom};
use super::value::{Body, value};
use crate::http::announced::{announced, retry_after};
use crate::http::proxy::Proxies;
use crate::http::{Client, Exchange, HttpError, Origin, Patience, Reach, Refusal, Upload, refusal};

/// Redirects that are followed one after another.
const MOST_HOPS: u8 = 10;
/// Headers of a caller that a redirect takes along to another server.
const FOR_ANYBODY: [&str; 4] = ["accept", "accept-language", "content-type", "user-agent"];
/// Who asks, unless the caller says otherwise.
pub(crate) const AGENT: &str = concat!("paceline/", env!("CARGO_PKG_VERSION"));

/// Makes requests that payloads describe. Clones share their connections.
#[derive(Clone)]
pub struct HttpWorker {
    places: Places,
    /// For lanes whose own url says that they are near.
    near: Arc<Client>,
    /// For all others.
    public: Arc<Client>,
}

impl HttpWorker {
    /// A worker for lanes at these places, through these proxies.
    pub fn new(places: Places, proxies: &Proxies) -> HttpWorker {
        // How long an answer may take is the lane's to say.
        let patience = Patience {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_hours(24),
            idle: Duration::from_hours(24),
        };
        let client = |reach| Arc::new(Client::new(patience, proxies.clone()).within(reach));
        HttpWorker { places, near: client(Reach::Everywhere), public: client(Reach::Public) }
    }

    /// What is wrong with a payload on a lane, before anything is asked. Whether there is such a
    /// lane is not for this to say.
    pub fn check(&self, payload: &[u8], lane: &str) -> Result<(), AskError> {
        let ask = Ask::read(payload)?;
        if ask.hops > 0 {
            return Err(AskError::Form("`hops` is not for callers".to_string()));
        }
        if self.places.of(lane).is_none() {
            return Ok(());
        }
        let whom = self.places.whom(lane, &ask)?;
        request(self.client(whom.reach), &ask, &whom).map(drop)
    }

    /// Where lanes are.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn client(&self, reach: Reach) -> &Client {
        match reach {
            Reach::Everywhere => &self.near,
            Reach::Public => &self.public,
        }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Failure {
        Failure::permanent("payload").because(&error.to_string())
    }
}

impl Worker for HttpWorker {
    async fn run(&self, call: Call) -> Work {
        let ask = Ask::read(call.payload_bytes()).map_err(wrong)?;
        self.ask(&call, &ask, &|next| to_raw_value(next)).await
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

fn wrong(error: AskError) -> Failed {
    Failed::of(error.into())
}

/// The payload that carries a question on to another server.
pub(crate) type Carry<'a> = &'a (dyn Fn(&Ask) -> serde_json::Result<Box<RawValue>> + Sync);

/// What came back.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

/// One request on the wire; an `Err` outside says that nothing was sent.
async fn exchange(
    client: &Client,
    call: &Call,
    url: &Url,
    request: Request<Upload>,
) -> Result<Result<Answer, HttpError>, Failed> {
    let connection = match client.connection(url).await {
        Ok(connection) => connection,
        Err(error) => {
            // Nobody to ask: that is an attempt like any other, if its time has not passed.
            call.sending()?;
            return Ok(Err(error));
        }
    };
    if let Err(late) = call.sending() {
        client.keep(url, connection);
        return Err(late.into());
    }
    Ok(match client.send(url, connection, request).await {
        Ok(exchange) => read(client, url, exchange).await,
        Err(error) => Err(error),
    })
}

async fn read(client: &Client, url: &Url, mut exchange: Exchange) -> Result<Answer, HttpError> {
    let (status, headers) = (exchange.status, std::mem::take(&mut exchange.headers));
    let mut body = Body::default();
    loop {
        match client.piece(url, &mut exchange).await? {
            None => break client.finish(url, exchange).await,
            // The rest is cut off with the connection.
            Some(piece) if !body.take(&piece) => break,
            Some(_) => {}
        }
    }
    Ok(Answer { status, headers, body })
}

fn request(client: &Client, ask: &Ask, whom: &Whom) -> Result<Request<Upload>, AskError> {
    let origin = Origin::of(&whom.url).ok_or(AskError::Url)?;
    let mut request = Request::new(Upload::from(ask.body()?));
    *request.method_mut() = ask.method()?;
    *request.uri_mut() = target(&whom.url, client).ok_or(AskError::Url)?;
    *request.headers_mut() = ask.headers()?;
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(&origin.authority()).map_err(|_| AskError::Url)?;
    headers.insert(HOST, host);
    if !headers.contains_key(USER_AGENT) {
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    }
    if let Some(login) = client.proxy_authorization(&whom.url) {
        headers.insert(hyper::header::PROXY_AUTHORIZATION, login);
    }
    // What the lane says comes last: no payload overrides a configured secret.
    for (name, value) in &whom.headers {
        headers.insert(name.clone(), value.clone());
    }
    Ok(request)
}

/// The address as this request names it: whole for a proxy that reads along, else only its path.
pub(crate) fn target(url: &Url, client: &Client) -> Option<Uri> {
    if client.reads_along(url) {
        let mut whole = url.clone();
        whole.set_fragment(None);
        return whole.as_str().parse().ok();
    }
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", url.path()).parse().ok()
}

impl HttpWorker {
    /// Makes one request on behalf of a call.
    pub(crate) async fn ask(&self, call: &Call, ask: &Ask, carry: Carry<'_>) -> Work {
        let whom = self.places.whom(call.lane(), ask).map_err(wrong)?;
        let client = self.client(whom.reach);
        let request = request(client, ask, &whom).map_err(wrong)?;
        match exchange(client, call, &whom.url, request).await? {
            Ok(answer) => self.judge(call, (ask, carry), &whom, answer),
            Err(error) => Outcome::failed(error.failure()),
        }
    }

    /// What an answer comes to.
    fn judge(
        &self,
        call: &Call,
        (ask, carry): (&Ask, Carry<'_>),
        whom: &Whom,
        answer: Answer,
    ) -> Work {
        let Answer { status, headers, body } = answer;
        let (now, said) = (call.wall(), announced(&headers, call.wall()));
        let refused = refusal(status, retry_after(&headers, now));
        let follows = ask.redirects.unwrap_or_default() == Redirects::Follow;
        let work = if let Refusal::Throttled(wait) = refused {
            Outcome::throttled(wait)
        } else if let Some(url) = led_to(whom, status, &headers).filter(|_| follows) {
            match self.next(call, ask, whom, status, &url) {
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
        match (work, said) {
            (Ok(outcome), Some(said)) => Ok(outcome.announcing(said)),
            (Err(failed), Some(said)) => Err(failed.announcing(said)),
            (work, None) => work,
        }
    }

    /// The same question where the server sends it, on the lane of that server (J7).
    fn next(
        &self,
        call: &Call,
        ask: &Ask,
        whom: &Whom,
        status: StatusCode,
        url: &Url,
    ) -> Result<(String, Ask), Failure> {
        let fail = |message: String| Err(Failure::permanent("redirect").because(&message));
        let Some(origin) = Origin::of(url) else {
            return fail("it leads to an address that is not of HTTP".to_string());
        };
        if ask.hops >= MOST_HOPS {
            return fail(format!("more than {MOST_HOPS} redirects"));
        }
        let home = Origin::of(&whom.url).as_ref() == Some(&origin);
        let lane = if home { Some(call.lane().to_string()) } else { self.places.lane_of(&origin) };
        let Some(lane) = lane else {
            return fail(format!("it leads to {origin}, which is the url of no lane"));
        };
        // What a server says must not turn our secrets against others.
        let from_afar = whom.reach == Reach::Public && self.places.is_private(&lane);
        if !home && (from_afar || !self.places.takes(&lane, url)) {
            return fail(format!("it leads to {origin}, where other servers may not send us"));
        }
        let mut next =
            Ask { hops: ask.hops + 1, path: None, url: Some(url.to_string()), ..ask.clone() };
        let method = ask.method().unwrap_or_default();
        let asks_anew = status == StatusCode::SEE_OTHER
            || (method == Method::POST && matches!(status.as_u16(), 301 | 302));
        if asks_anew && method != Method::HEAD {
            (next.method, next.body, next.body_base64) = (None, None, None);
        }
        if !home {
            // What was meant for one server is not for another.
            next.headers
                .retain(|name, _| FOR_ANYBODY.iter().any(|it| name.eq_ignore_ascii_case(it)));
        }
        Ok((lane, next))
    }
}

/// Where a redirect leads.
fn led_to(whom: &Whom, status: StatusCode, headers: &HeaderMap) -> Option<Url> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    whom.url.join(headers.get(LOCATION)?.to_str().ok()?).ok()
}

/// A failure by its status, or by what the caller made of a good one.
fn failed(status: StatusCode, refused: Refusal) -> Work {
    match refused {
        Refusal::Failed(_, _) if status.is_success() || status.is_redirection() => {
            let message = format!("{} was not expected", status.as_u16());
            Outcome::failed(Failure::transient("unexpected").because(&message))
        }
        Refusal::Failed(failure, Some(wait)) => Err(Failed::of(failure).retry_after(wait)),
        Refusal::Failed(failure, None) => Outcome::failed(failure),
        Refusal::Throttled(wait) => Outcome::throttled(wait),
    }
}
