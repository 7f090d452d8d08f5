//! How a server misbehaves, where and how often.

use std::collections::BTreeMap;
use std::time::Duration;

use super::file::{Framing, Response};

/// Paths whose turns a rule counts; paths beyond it get no more turns.
pub const MOST_PATHS: usize = 200_000;

/// One misbehaviour. Those that change an answer add up; of those that replace it, the first told wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers this instead.
    Respond(Response),
    /// Takes so many requests at once and answers 429 beyond, with `Retry-After` in seconds if given.
    AtMost {
        /// Requests in flight under the pattern; refused ones do not count.
        in_flight: usize,
        /// The seconds of `Retry-After`.
        retry_after: Option<u32>,
    },
    /// Never answers.
    Hang,
    /// Closes the connection without an answer.
    Close,
    /// Resets the connection without an answer.
    Reset,
    /// Sends these bytes as they are, then closes.
    Raw(Vec<u8>),
    /// Sends header lines without end.
    EndlessHeaders,
    /// Sends a body without end; by length, it claims to be as long as numbers go.
    EndlessBody(Framing),

    /// Waits before the answer.
    Latency(Duration),
    /// Sends these bytes, such as an interim answer, before the answer.
    Before(Vec<u8>),
    /// Sends the head at so many bytes per second.
    SlowHead(u32),
    /// Sends the body at so many bytes per second.
    SlowBody(u32),
    /// Sends at most so many bytes of the body, never its end, and then does this.
    Cut(u64, Ending),
    /// Sends so many bytes beyond the body.
    Beyond(usize),
    /// Tells the end of the body in another way.
    Framing(Framing),

    /// Acts as if the request had no header of this name: deaf to `range`, `if-range`, `if-none-match`.
    Ignore(&'static str),
    /// Answers with this part, first to last byte, whatever the request asks.
    Part(u64, u64),
    /// Sends this header line in place of its own of that name: a false `content-range`, for one.
    Header(&'static str, Vec<u8>),
    /// Sends one more header line.
    AddHeader(&'static str, Vec<u8>),
    /// Leaves out the header lines of this name.
    WithoutHeader(&'static str),
    /// Sends one more header line of so many bytes.
    LongHeader(usize),
    /// Sends so many more header lines.
    ManyHeaders(usize),
}

/// How a cut body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The connection is closed in order.
    Close,
    /// The connection is reset. What the client has not taken in by then may be lost.
    Reset,
    /// Nothing more comes, for ever.
    Stall,
}

impl Fault {
    /// Together with another one.
    pub fn and(self, other: Fault) -> Rule {
        Rule::from(self).and(other)
    }

    /// Only the first `n` times, counted for each path.
    pub fn first(self, n: u64) -> Rule {
        Rule::from(self).first(n)
    }

    /// Only the first `n` times, counted over all paths.
    pub fn first_of_all(self, n: u64) -> Rule {
        Rule::from(self).first_of_all(n)
    }

    /// Only after the first `n` times, counted for each path.
    pub fn after(self, n: u64) -> Rule {
        Rule::from(self).after(n)
    }

    /// Only each `n`th time, counted over all paths.
    pub fn every(self, n: u64) -> Rule {
        Rule::from(self).every(n)
    }
}

/// Faults that come together, and when.
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
    /// Together with another fault.
    #[must_use]
    pub fn and(mut self, fault: Fault) -> Rule {
        self.faults.push(fault);
        self
    }

    /// Only the first `n` times, counted for each path.
    #[must_use]
    pub fn first(self, n: u64) -> Rule {
        Rule { turns: Turns::First(n), ..self }
    }

    /// Only the first `n` times, counted over all paths.
    #[must_use]
    pub fn first_of_all(self, n: u64) -> Rule {
        Rule { turns: Turns::FirstOfAll(n), ..self }
    }

    /// Only after the first `n` times, counted for each path.
    #[must_use]
    pub fn after(self, n: u64) -> Rule {
        Rule { turns: Turns::After(n), ..self }
    }

    /// Only each `n`th time, counted over all paths.
    #[must_use]
    pub fn every(self, n: u64) -> Rule {
        Rule { turns: Turns::Every(n.max(1)), ..self }
    }
}

/// A rule where it applies, with its counts.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pattern: String,
    pub(crate) rule: Rule,
    /// Requests that this rule let in and that are not over.
    pub(crate) in_flight: usize,
    seen: u64,
    seen_by_path: BTreeMap<String, u64>,
}

impl Posted {
    pub(crate) fn new(pattern: &str, rule: Rule) -> Posted {
        let pattern = pattern.to_string();
        Posted { pattern, rule, in_flight: 0, seen: 0, seen_by_path: BTreeMap::new() }
    }

    /// Whether the rule runs out: of several such rules, a request meets only the first.
    pub(crate) fn runs_out(&self) -> bool {
        matches!(self.rule.turns, Turns::First(_) | Turns::FirstOfAll(_))
    }

    /// Counts a request for `path`, and says whether it is the rule's turn.
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

/// Whether `pattern` covers a target: `*` at its end stands for anything, and a query counts only if
/// the pattern has one.
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
        let mut posted = Posted::new("*", rule);
        let turn = |path: char| if posted.takes_turn(&path.to_string()) { 'x' } else { '.' };
        assert_eq!(paths.chars().map(turn).collect::<String>(), expected);
    }

    #[test]
    fn turns_are_counted_by_path_or_over_all() {
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
