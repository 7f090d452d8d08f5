//! The log of a mock upstream: its requests in the order of arrival, and their summary.

use std::collections::{BTreeMap, VecDeque};

use paceline_core::{Span, Time};
use serde::Serialize;

use crate::behaviour::Behaviour;
use crate::check::{Arrival, violations};

/// The most requests that the log keeps. Beyond it the oldest are dropped and only counted.
pub const MOST_ENTRIES: usize = 1_000_000;
/// The most bytes of a path that an entry keeps.
const LONGEST_PATH: usize = 1_000;

/// One request of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// The number of the request, from 1.
    pub call: u64,
    /// When the head had been read, in microseconds since the upstream started.
    pub at_us: u64,
    /// The requested path without its query, which may carry API keys.
    pub path: String,
    /// The status of the response, decided at arrival; `None` if the request hangs.
    pub status: Option<u16>,
    /// The requests that were open at its arrival, itself included.
    pub in_flight: usize,
    /// When the response had been sent or the client had disconnected; `None` while open.
    #[serde(skip)]
    pub ended_at: Option<Time>,
}

impl LogEntry {
    /// The arrival, as [`violations`](crate::violations()) takes it.
    pub fn arrival(&self) -> Arrival {
        Arrival { at: Time(self.at_us), ended_at: self.ended_at }
    }
}

/// How often one limit was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitCount {
    /// The limit as text, such as `20/10s`.
    pub limit: String,
    /// The requests that exceeded it.
    pub violations: usize,
}

/// The totals of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// All requests, refused ones included.
    pub calls: u64,
    /// Requests by status; those without a response count under `hung`.
    pub by_status: BTreeMap<String, u64>,
    /// How often a client exceeded a limit and was refused everything for a while.
    pub bans: u64,
    /// The most requests that were open at once.
    pub most_in_flight: usize,
    /// The shortest time between two arrivals, in microseconds.
    pub shortest_gap_us: Option<u64>,
    /// Each limit of the behaviour, with its violations. Refused requests count as well.
    pub limits: Vec<LimitCount>,
    /// The tolerance that violations were judged by, in milliseconds.
    pub tolerance_ms: u64,
    /// Requests that were dropped from the log, so that violations do not include them.
    pub forgotten: u64,
}

impl Summary {
    /// The sum of the violations of all limits.
    pub fn violations(&self) -> usize {
        self.limits.iter().map(|limit| limit.violations).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<LogEntry>,
    counts: Summary,
    open: usize,
}

impl Log {
    /// The requests that are open now.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Appends a request that arrived, as open.
    pub(crate) fn arrived(&mut self, now: Time, path: &str, status: Option<u16>) -> &LogEntry {
        self.open += 1;
        let counts = &mut self.counts;
        counts.calls += 1;
        *counts.by_status.entry(status_name(status)).or_default() += 1;
        counts.most_in_flight = counts.most_in_flight.max(self.open);
        if let Some(last) = self.entries.back() {
            let gap = now.since(Time(last.at_us)).0;
            counts.shortest_gap_us = Some(counts.shortest_gap_us.map_or(gap, |g| g.min(gap)));
        }
        if self.entries.len() == MOST_ENTRIES {
            self.entries.pop_front();
            counts.forgotten += 1;
        }
        self.entries.push_back(LogEntry {
            call: counts.calls,
            at_us: now.0,
            path: path[..path.floor_char_boundary(LONGEST_PATH)].to_string(),
            status,
            in_flight: self.open,
            ended_at: None,
        });
        self.entries.back().expect("just pushed")
    }

    /// Corrects the status of a request whose body turned out to be too large or too slow.
    pub(crate) fn answered(&mut self, call: u64, status: u16) {
        let Some(entry) = self.entry(call) else { return };
        let decided = entry.status.replace(status);
        let by_status = &mut self.counts.by_status;
        if let Some(calls) = by_status.get_mut(&status_name(decided)) {
            *calls -= 1;
        }
        by_status.retain(|_, calls| *calls > 0);
        *by_status.entry(status_name(Some(status))).or_default() += 1;
    }

    /// Marks a request as no longer open.
    pub(crate) fn ended(&mut self, call: u64, now: Time) {
        self.open -= 1;
        if let Some(entry) = self.entry(call) {
            entry.ended_at = Some(now);
        }
    }

    fn entry(&mut self, call: u64) -> Option<&mut LogEntry> {
        let index = call.checked_sub(self.counts.forgotten + 1)?;
        self.entries.get_mut(index as usize)
    }

    pub(crate) fn entries(&self) -> Vec<LogEntry> {
        self.entries.iter().cloned().collect()
    }

    pub(crate) fn summary(&self, behaviour: &Behaviour, tolerance: Span) -> Summary {
        let arrivals: Vec<Arrival> = self.entries.iter().map(LogEntry::arrival).collect();
        let count = |limit: crate::Limit| LimitCount {
            limit: limit.to_string(),
            violations: violations(&arrivals, limit, tolerance).len(),
        };
        Summary {
            limits: behaviour.all_limits().into_iter().map(count).collect(),
            tolerance_ms: tolerance.as_millis(),
            ..self.counts.clone()
        }
    }
}

fn status_name(status: Option<u16>) -> String {
    status.map_or_else(|| "hung".to_string(), |status| status.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_order_and_the_counts() {
        let mut log = Log::default();
        log.arrived(Time(10), "/a", Some(200));
        log.arrived(Time(25), "/b", Some(429));
        log.ended(1, Time(30));
        log.answered(1, 413);
        log.arrived(Time(60), "/c", None);
        let entries = log.entries();
        assert_eq!(entries.iter().map(|e| e.in_flight).collect::<Vec<_>>(), [1, 2, 2]);
        assert_eq!(entries[0].ended_at, Some(Time(30)));
        let behaviour = Behaviour { every: Some(Span(20)), ..Behaviour::default() };
        let summary = log.summary(&behaviour, Span::ZERO);
        assert_eq!((summary.calls, summary.most_in_flight), (3, 2));
        assert_eq!(summary.shortest_gap_us, Some(15));
        assert_eq!(summary.violations(), 1);
        let by_status: Vec<_> = summary.by_status.iter().map(|(s, n)| (s.as_str(), *n)).collect();
        assert_eq!(by_status, [("413", 1), ("429", 1), ("hung", 1)]);
    }
}
