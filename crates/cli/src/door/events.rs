//! What happens at a daemon, as it happens: its event stream, read one event at a time.

use std::pin::Pin;

use anyhow::bail;
use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{lost, told};
use crate::daemon::Daemon;

/// The longest event that is read.
const LONGEST: usize = 8 << 20;

/// One event.
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: Value,
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An open stream of them.
pub(crate) struct Events {
    connection: Connection,
    connected: bool,
    body: Incoming,
    unread: Vec<u8>,
    /// Without it the connection would count as no longer needed.
    _sender: SendRequest<Body>,
}

impl Events {
    /// Listens: what happens after this is heard.
    pub(super) async fn open(daemon: &Daemon, request: Request<Body>) -> anyhow::Result<Events> {
        let connected = async {
            let stream = TcpStream::connect(daemon.address).await?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let mut connection: Connection = Box::pin(async {
                // How it ended does not matter: the stream is over.
                let _ = connection.await;
            });
            let answer = tokio::select! {
                answer = sender.send_request(request) => answer?,
                () = &mut connection => bail!("it closed the connection"),
            };
            anyhow::Ok((sender, connection, answer))
        };
        let (sender, mut connection, answer) =
            connected.await.map_err(|error| lost(daemon, &error))?;
        if !answer.status().is_success() {
            let refused = tokio::select! {
                refused = told(answer.map(Body::new)) => refused,
                () = &mut connection => bail!("it closed the connection"),
            };
            refused?;
            unreachable!("an answer that is not good is an error");
        }
        let body = answer.into_body();
        Ok(Events { connection, connected: true, body, unread: Vec::new(), _sender: sender })
    }

    /// The next event; nothing when the daemon has ended.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                if let Some(event) = event(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(event));
                }
            }
            if self.unread.len() > LONGEST {
                bail!("the daemon tells of an event of more than {LONGEST} bytes");
            }
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                () = &mut self.connection, if self.connected => {
                    self.connected = false;
                    continue;
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.unread.extend_from_slice(&bytes);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// One block of the stream, unless it says nothing.
fn event(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    let data = serde_json::from_str(field("data: ")?).ok()?;
    Some(Event { name: field("event: ")?.to_string(), data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_an_event_or_silence() {
        let told = event("id: 3\nevent: finished\ndata: {\"job\":17}\n\n").expect("an event");
        assert_eq!((told.name.as_str(), told.data["job"].as_u64()), ("finished", Some(17)));
        assert!(event(": silence\n\n").is_none());
    }
}
