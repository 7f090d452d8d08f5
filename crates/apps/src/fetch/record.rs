//! Exchanges for the archive.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Cursor, Seek as _};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hyper::{HeaderMap, StatusCode};
use jiff::Timestamp;
use url::Url;

use super::attempt_end::AttemptEnd;
use super::task::shown;
use super::warc::{self, Truncated, WarcError, Writer};
use super::worker::Attempt;
use crate::http::Exchange;

/// The largest body of a response that is not a file. The archive marks it as truncated.
const LARGEST_BODY: usize = 1 << 20;
/// The time limit for such a body, which holds its slot.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// One exchange, to be written once its body is complete.
pub(super) struct Recorded {
    url: Url,
    /// The URL that redirected here, if any.
    via: Option<String>,
    sent: Sent,
    /// The address of the server, unless a proxy hides it.
    address: Option<IpAddr>,
    status: StatusCode,
    headers: HeaderMap,
    /// The body of a response that is not a file.
    body: Vec<u8>,
    truncated: Truncated,
}

/// A request as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) head: Vec<u8>,
    pub(super) at: SystemTime,
}

impl Attempt<'_> {
    /// The exchange for the archive, if there is an archive.
    pub(super) fn recorded(&self, exchange: &Exchange) -> Option<Box<Recorded>> {
        let sent = self.sent.clone().filter(|_| self.get.archive.is_some())?;
        let via = self.task.via.iter().rev().nth(1).and_then(|url| Url::parse(url).ok());
        Some(Box::new(Recorded {
            url: self.url.clone(),
            via: via.map(|url| shown(&url)),
            sent,
            address: exchange.peer().map(|peer| peer.ip()),
            status: exchange.status,
            headers: exchange.headers.clone(),
            body: Vec::new(),
            truncated: Truncated::No,
        }))
    }

    /// Archives a response that is not a file.
    pub(super) async fn archive(&self, mut exchange: Exchange) -> Result<(), AttemptEnd> {
        let Some(mut recorded) = self.recorded(&exchange) else { return Ok(()) };
        let body = &mut recorded.body;
        let read = async {
            loop {
                match self.get.client.piece(self.url, &mut exchange).await {
                    Ok(None) => return Truncated::No,
                    Err(_) => return Truncated::Disconnect,
                    Ok(Some(piece)) => {
                        let room = LARGEST_BODY - body.len();
                        body.extend_from_slice(&piece[..piece.len().min(room)]);
                        if piece.len() > room {
                            return Truncated::Length;
                        }
                    }
                }
            }
        };
        // A body that fails changes nothing: the status counts.
        let read = tokio::time::timeout(READ_WITHIN, read).await;
        recorded.truncated = read.unwrap_or(Truncated::Time);
        if recorded.truncated == Truncated::No {
            self.get.client.finish(self.url, exchange).await;
        }
        Ok(self.get.saver.record(recorded).await?)
    }
}

/// The archive of a run.
pub(super) struct Archive(Writer);

impl Archive {
    pub(super) fn open(directory: &Path, name: &str) -> Result<Archive, WarcError> {
        let random = || {
            // Ids have to be unique, not secret: seeds of hash tables suffice.
            let roll = || RandomState::new().build_hasher().finish().to_ne_bytes();
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&roll());
            bytes[8..].copy_from_slice(&roll());
            bytes
        };
        Ok(Archive(Writer::open(directory, name, warc::Options::new(random))?))
    }

    /// Writes an exchange, whose body is in `file` or in the exchange itself.
    pub(super) fn write(
        &mut self,
        recorded: Recorded,
        file: Option<&File>,
    ) -> Result<(), WarcError> {
        let at = Timestamp::try_from(recorded.sent.at).unwrap_or(Timestamp::UNIX_EPOCH);
        let via: Vec<_> = recorded.via.into_iter().map(|via| ("via", via)).collect();
        let exchange = warc::Exchange {
            url: &recorded.url,
            at,
            address: recorded.address,
            request_head: &recorded.sent.head,
            status: recorded.status.as_u16(),
            reason: recorded.status.canonical_reason().unwrap_or_default(),
            headers: &recorded.headers,
            truncated: recorded.truncated,
            metadata: &via,
        };
        match file {
            None => {
                let length = recorded.body.len() as u64;
                self.0.write(&exchange, &mut Cursor::new(recorded.body), length)
            }
            Some(mut file) => {
                let unreadable = |source| WarcError::Body { url: shown(&recorded.url), source };
                let length = file.metadata().map_err(unreadable)?.len();
                file.rewind().map_err(unreadable)?;
                self.0.write(&exchange, &mut file, length)
            }
        }
    }

    pub(super) fn sync(&mut self) -> Result<(), WarcError> {
        self.0.sync()
    }

    pub(super) fn finish(self) -> Result<(), WarcError> {
        self.0.finish().map(drop)
    }
}
