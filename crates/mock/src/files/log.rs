//! What a file server saw, request by request.

use std::collections::BTreeMap;

use paceline_core::Time;

use crate::check::Arrival;
use crate::request::{Request, Version};

/// Requests that are remembered. A server whose log is full closes each connection at the next one,
/// because a log with gaps would prove nothing.
pub const MOST_REQUESTS: usize = 250_000;

/// One request as it arrived, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// When its head had been read, since the start of the server.
    pub at: Time,
    /// When it was over: just before its last bytes went out, or when its client was gone.
    pub ended_at: Option<Time>,
    /// What it asked for, with the query.
    pub path: String,
    /// Its method.
    pub method: String,
    /// The version of HTTP it was made with.
    pub version: Version,
    /// Its headers: names in lower case, lines of one name joined with a comma.
    pub headers: BTreeMap<String, String>,
    /// The status of the answer, decided at arrival; nothing if it gets none.
    pub status: Option<u16>,
    /// Bytes of the body that were handed to the socket.
    pub sent_bytes: u64,
    /// The connection it came on, counted from 1.
    pub connection: u64,
    /// How many requests were open at its arrival, itself included.
    pub in_flight: usize,
}

impl RequestRecord {
    /// A header of the request, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// As the checker sees it.
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

    /// Remembers a request and opens it; the answer is its place in the log.
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

    pub(crate) fn sent(&mut self, place: usize, bytes: u64) {
        self.entries[place].sent_bytes += bytes;
    }

    pub(crate) fn unsent(&mut self, place: usize, bytes: u64) {
        self.entries[place].sent_bytes -= bytes;
    }

    pub(crate) fn ended(&mut self, place: usize, now: Time) {
        self.open -= 1;
        self.entries[place].ended_at = Some(now);
    }

    pub(crate) fn entries(&self) -> &[RequestRecord] {
        &self.entries
    }
}
