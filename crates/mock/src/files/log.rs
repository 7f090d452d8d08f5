//! The log of a file server.

use std::collections::BTreeMap;

use paceline_core::Time;

use crate::check::Arrival;
use crate::request::{Request, Version};

/// The most requests that the log keeps. A server with a full log closes each connection at its
/// next request, because a log with gaps would prove nothing.
pub const MOST_REQUESTS: usize = 250_000;

/// One request, from its arrival to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// When the head had been read, since the server started.
    pub at: Time,
    /// When the request ended: just before its last bytes were written, or when the client
    /// disconnected.
    pub ended_at: Option<Time>,
    /// The request target, with the query.
    pub path: String,
    /// The method.
    pub method: String,
    /// The HTTP version.
    pub version: Version,
    /// The headers: names in lower case, lines of one name joined with a comma.
    pub headers: BTreeMap<String, String>,
    /// The status of the response, decided at arrival; `None` if there is no response.
    pub status: Option<u16>,
    /// The bytes of the body that were written to the socket.
    pub sent_bytes: u64,
    /// The number of its connection, from 1.
    pub connection: u64,
    /// The requests that were open at its arrival, itself included.
    pub in_flight: usize,
}

impl RequestRecord {
    /// A header of the request, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The arrival, as [`violations`](crate::violations()) takes it.
    pub fn arrival(&self) -> Arrival {
        Arrival { at: self.at, ended_at: self.ended_at }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Vec<RequestRecord>,
    open: usize,
}

impl Log {
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == MOST_REQUESTS
    }

    /// Appends a request as open and returns its index.
    pub(crate) fn arrived(
        &mut self,
        now: Time,
        request: &Request,
        connection: u64,
        status: Option<u16>,
    ) -> usize {
        self.open += 1;
        self.entries.push(RequestRecord {
            at: now,
            ended_at: None,
            path: request.target.clone(),
            method: request.method.clone(),
            version: request.version,
            headers: request.headers.clone(),
            status,
            sent_bytes: 0,
            connection,
            in_flight: self.open,
        });
        self.entries.len() - 1
    }

    pub(crate) fn sent(&mut self, index: usize, bytes: u64) {
        self.entries[index].sent_bytes += bytes;
    }

    pub(crate) fn unsent(&mut self, index: usize, bytes: u64) {
        self.entries[index].sent_bytes -= bytes;
    }

    pub(crate) fn ended(&mut self, index: usize, now: Time) {
        self.open -= 1;
        self.entries[index].ended_at = Some(now);
    }

    pub(crate) fn entries(&self) -> &[RequestRecord] {
        &self.entries
    }
}
