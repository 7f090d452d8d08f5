//! One attempt: connect, stamp the start, send. All requests of calls are sent here.

use hyper::Request;
use paceline::workers::Late;
use paceline::{Call, Failed};
use url::Url;

use super::body::Upload;
use super::client::Client;
use super::connection::{Connection, Exchange};
use super::error::HttpError;

/// An attempt whose start is stamped. It has a connection, and sends one request over it.
pub struct Attempt<'a> {
    client: &'a Client,
    url: &'a Url,
    connection: Connection,
}

/// Why an attempt sent nothing.
#[derive(Debug)]
pub enum NotSent {
    /// The reservation has expired. It is given back unused, and the call keeps its place.
    Late(Late),
    /// There is no connection. The attempt is charged, and counts as a failure of its lane.
    Failed(HttpError),
}

impl Client {
    /// Connects to the server of `url` for this call, and stamps the start of the attempt.
    ///
    /// A connection that is established after the reservation has expired is kept for the next
    /// attempt at its server. An error after that moment is kept for the call: its next attempt
    /// fails with it at once, and is charged. Otherwise a server that never accepts a connection
    /// would cost its calls no attempt, for ever.
    pub async fn begin<'a>(&'a self, call: &Call, url: &'a Url) -> Result<Attempt<'a>, NotSent> {
        let connected = match self.take_error(call.id(), url) {
            Some(error) => Err(error),
            None => self.connection(url).await,
        };
        match (connected, call.sending()) {
            (Ok(connection), Ok(_)) => Ok(Attempt { client: self, url, connection }),
            // Connecting is an attempt, so a server that is down is not dialled faster than its
            // gap.
            (Err(error), Ok(_)) => Err(NotSent::Failed(error)),
            (Ok(connection), Err(late)) => {
                self.keep(url, connection);
                Err(NotSent::Late(late))
            }
            (Err(error), Err(late)) => {
                self.keep_error(call.id(), url, error);
                Err(NotSent::Late(late))
            }
        }
    }
}

impl Attempt<'_> {
    /// Sends the request, and returns with the head of the response.
    pub async fn send(self, request: Request<Upload>) -> Result<Exchange, HttpError> {
        self.client.send(self.url, self.connection, request).await
    }
}

impl From<NotSent> for Failed {
    fn from(not_sent: NotSent) -> Failed {
        match not_sent {
            NotSent::Late(late) => late.into(),
            NotSent::Failed(error) => Failed::of(error.failure()),
        }
    }
}
