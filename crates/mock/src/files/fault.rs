//! Faults, and the rules that say where and how often they occur.

use std::collections::BTreeMap;
use std::time::Duration;

use super::file::{Framing, Response};

/// The most paths that one rule counts. It does not apply to further paths.
pub const MOST_PATHS: usize = 200_000;

/// One kind of misbehaviour. Faults that change a response add up. Of faults that replace it, the
/// first one added wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends this response instead.
    Respond(Response),
    /// Answers 429 beyond this many open requests, with `Retry-After` in seconds if given.
    AtMost {
        /// The most open requests that match the pattern. Refused requests do not count.
        in_flight: usize,
        /// The seconds of `Retry-After`.
        retry_after: Option<u32>,
    },
    /// Never responds.
    Hang,
    /// Closes the connection without a response.
    Close,
    /// Resets the connection without a response.
    Reset,
    /// Sends these bytes, then closes the connection.
    Raw(Vec<u8>),
    /// Sends header lines until the client disconnects.
    EndlessHeaders,
    /// Sends a body without end. With `Framing::Length`, `Content-Length` is the largest 64-bit
    /// number.
    EndlessBody(Framing),

    /// Waits before the response.
    Latency(Duration),
    /// Sends these bytes, such as an interim response, before the response.
    Before(Vec<u8>),
    /// Sends the head at this many bytes per second.
    SlowHead(u32),
    /// Sends the body at this many bytes per second.
    SlowBody(u32),
    /// Cuts the body after this many bytes at most, and ends as given.
    Cut(u64, Ending),
    /// Sends this many bytes beyond the body.
    Beyond(usize),
    /// Frames the body in another way.
    Framing(Framing),

    /// Ignores the request header of this name, such as `range` or `if-none-match`.
    Ignore(&'static str),
    /// Sends this part, first to last byte, whatever the request asks.
    Part(u64, u64),
    /// Replaces the header of this name, for example with a false `content-range`.
    Header(&'static str, Vec<u8>),
    /// Adds a header line.
    AddHeader(&'static str, Vec<u8>),
    /// Omits the header of this name.
    WithoutHeader(&'static str),
    /// Adds a header line of this many bytes.
    LongHeader(usize),
    /// Adds this many header lines.
    ManyHeaders(usize),
}

/// How a cut body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The connection is closed in an orderly way.
    Close,
    /// The connection is reset. Bytes that the client has not read by then may be lost.
    Reset,
    /// The connection stays open, and nothing more is sent.
    Stall,
}

impl Fault {
    /// Combines this fault with another one.
    pub fn and(self, other: Fault) -> Rule {
        Rule::from(self).and(other)
    }

    /// Applies to the first `n` requests for each path.
    pub fn first(self, n: u64) -> Rule {
        Rule::from(self).first(n)
    }

    /// Applies to the first `n` requests over all paths.
    pub fn first_of_all(self, n: u64) -> Rule {
        Rule::from(self).first_of_all(n)
    }

    /// Applies after the first `n` requests for each path.
    pub fn after(self, n: u64) -> Rule {
        Rule::from(self).after(n)
    }

    /// Applies to every `n`th request over all paths.
    pub fn every(self, n: u64) -> Rule {
        Rule::from(self).every(n)
    }
}

/// Faults that occur together, and the requests that they apply to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) faults: Vec<Fault>,
    turns: Turns,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Turns {
    Always,
    First(u64),
    FirstOfAll(u64),
    After(u64),
    Every(u64),
}

impl From<Fault> for Rule {
    fn from(fault: Fault) -> Rule {
        Rule { faults: vec![fault], turns: Turns::Always }
    }
}

impl Rule {
    /// Adds another fault.
    #[must_use]
    pub fn and(mut self, fault: Fault) -> Rule {
        self.faults.push(fault);
        self
    }

    /// Applies to the first `n` requests for each path.
    #[must_use]
    pub fn first(self, n: u64) -> Rule {
        Rule { turns: Turns::First(n), ..self }
    }

    /// Applies to the first `n` requests over all paths.
    #[must_use]
    pub fn first_of_all(self, n: u64) -> Rule {
        Rule { turns: Turns::FirstOfAll(n), ..self }
    }

    /// Applies after the first `n` requests for each path.
    #[must_use]
    pub fn after(self, n: u64) -> Rule {
        Rule { turns: Turns::After(n), ..self }
    }

    /// Applies to every `n`th request over all paths.
    #[must_use]
    pub fn every(self, n: u64) -> Rule {
        Rule { turns: Turns::Every(n.max(1)), ..self }
    }
}

/// A rule with its pattern and its counts.
#[derive(Debug)]
pub(crate) struct ActiveRule {
    pub(crate) pattern: String,
    pub(crate) rule: Rule,
    /// Open requests that this rule counts.
    pub(crate) in_flight: usize,
    seen: u64,
    seen_by_path: BTreeMap<String, u64>,
}

impl ActiveRule {
    pub(crate) fn new(pattern: &str, rule: Rule) -> ActiveRule {
        let pattern = pattern.to_string();
        ActiveRule { pattern, rule, in_flight: 0, seen: 0, seen_by_path: BTreeMap::new() }
    }

    /// Returns `true` if the rule runs out. Of several such rules, only the first applies to a
    /// request.
    pub(crate) fn runs_out(&self) -> bool {
        matches!(self.rule.turns, Turns::First(_) | Turns::FirstOfAll(_))
    }

    /// Counts a request for `path`. Returns `true` if the rule applies to it.
    pub(crate) fn takes_turn(&mut self, path: &str) -> bool {
        match self.rule.turns {
            Turns::Always => true,
            Turns::First(n) => self.seen_before(path).is_some_and(|seen| seen < n),
            Turns::After(n) => self.seen_before(path).is_some_and(|seen| seen >= n),
            Turns::FirstOfAll(n) => {
                self.seen += 1;
                self.seen <= n
            }
            Turns::Every(n) => {
                self.seen += 1;
                self.seen.is_multiple_of(n)
            }
        }
    }

    fn seen_before(&mut self, path: &str) -> Option<u64> {
        if !self.seen_by_path.contains_key(path) && self.seen_by_path.len() == MOST_PATHS {
            return None;
        }
        let seen = self.seen_by_path.entry(path.to_string()).or_default();
        *seen += 1;
        Some(*seen - 1)
    }
}

/// Returns `true` if `pattern` matches a target. `*` at its end matches anything. The query is
/// compared only if the pattern has one.
pub(crate) fn covers(pattern: &str, target: &str) -> bool {
    let target = if pattern.contains('?') { target } else { without_query(target) };
    match pattern.strip_suffix('*') {
        Some(start) => target.starts_with(start),
        None => target == pattern,
    }
}

pub(crate) fn without_query(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: Rule, paths: &str, expected: &str) {
        let mut rule = ActiveRule::new("*", rule);
        let turn = |path: char| if rule.takes_turn(&path.to_string()) { 'x' } else { '.' };
        assert_eq!(paths.chars().map(turn).collect::<String>(), expected);
    }

    #[test]
    fn turns_are_counted_by_path_or_over_all_paths() {
        check(Fault::Hang.into(), "aab", "xxx");
        check(Fault::Hang.first(2), "aabaab", "xxx..x");
        check(Fault::Hang.after(1), "aabaab", ".x.xxx");
        check(Fault::Hang.first_of_all(3), "aabaab", "xxx...");
        check(Fault::Hang.every(2), "aabaab", ".x.x.x");
    }

    #[test]
    fn a_pattern_covers_a_path_or_all_below_it() {
        assert!(covers("*", "/a?b"));
        assert!(covers("/f/*", "/f/1") && !covers("/f/*", "/g/1"));
        assert!(covers("/a", "/a?b=1") && !covers("/a", "/a/b"));
        assert!(covers("/a?b=1", "/a?b=1") && !covers("/a?b=1", "/a?b=2"));
    }
}
