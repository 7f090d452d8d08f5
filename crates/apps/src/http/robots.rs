//! Rules of robots.txt (RFC 9309), with the crawl delay.

use std::cmp::Reverse;
use std::time::Duration;

use url::Url;

use super::announced::number;

mod pattern;

use pattern::{Pattern, target};

/// Bytes of a file that are read: the minimum of RFC 9309. A line that is cut there is ignored.
pub const LARGEST_FILE: usize = 500 << 10;

/// The most rules that are kept. The shortest rule has eight bytes, so no file within its own bound
/// has more.
pub const MOST_RULES: usize = LARGEST_FILE / 8;

/// The longest crawl delay that is obeyed.
pub const LONGEST_CRAWL_DELAY: Duration = Duration::from_hours(1);

/// The longest path with query that is compared with rules. If there are rules, longer ones are
/// disallowed. This bounds the cost of a hostile file.
pub const LONGEST_TARGET: usize = 8 << 10;

/// The rules of one site for one program. The default allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Robots {
    /// In the order of precedence.
    rules: Vec<Rule>,
    crawl_delay: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    pattern: Pattern,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Allow,
    Disallow,
}

impl Robots {
    /// The rules of a file for the program that calls itself `product_token`.
    ///
    /// All groups for the program count together; those for `*` count only if there is none.
    /// Unknown lines are ignored.
    pub fn parse(bytes: &[u8], product_token: &str) -> Robots {
        let mut reading = Reading { product: identifier(product_token.as_bytes()), ..Reading::NEW };
        for line in whole(bytes).split(|&byte| byte == b'\n' || byte == b'\r') {
            reading.line(line);
        }
        let mut robots = if reading.named { reading.own } else { reading.general };
        // The longest match wins; among equals, the rule that allows.
        robots.rules.sort_by_key(|rule| (Reverse(rule.pattern.len()), rule.access));
        robots
    }

    /// Returns `true` if `url` may be fetched.
    pub fn allows(&self, url: &Url) -> bool {
        if self.rules.is_empty() || url.path() == "/robots.txt" {
            return true;
        }
        let target = target(url);
        if target.len() > LONGEST_TARGET {
            return false;
        }
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(&target));
        rule.is_none_or(|rule| rule.access == Access::Allow)
    }

    /// The number of rules.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// The `Crawl-delay` of the site.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.crawl_delay
    }
}

/// A file that is being read.
struct Reading<'a> {
    product: &'a [u8],
    /// Whether any group names this program.
    named: bool,
    group: Group,
    own: Robots,
    general: Robots,
}

/// The programs that the following lines apply to.
#[derive(Clone, Copy, Default)]
struct Group {
    own: bool,
    general: bool,
    /// Whether a rule was read: then the next name begins another group.
    closed: bool,
}

impl Reading<'_> {
    const NEW: Reading<'static> = Reading {
        product: b"",
        named: false,
        group: Group { own: false, general: false, closed: false },
        own: Robots { rules: Vec::new(), crawl_delay: None },
        general: Robots { rules: Vec::new(), crawl_delay: None },
    };

    fn line(&mut self, line: &[u8]) {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or(line);
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let key = line[..colon].trim_ascii().to_ascii_lowercase();
        let value = line[colon + 1..].trim_ascii();
        match &key[..] {
            b"user-agent" => self.name(value),
            b"allow" => self.rule(value, Access::Allow),
            b"disallow" => self.rule(value, Access::Disallow),
            b"crawl-delay" => self.delay(value),
            // Sitemaps and extensions may stand anywhere and end no group.
            _ => {}
        }
    }

    fn name(&mut self, value: &[u8]) {
        if self.group.closed {
            self.group = Group::default();
        }
        if value.first() == Some(&b'*') {
            self.group.general = true;
        } else if !self.product.is_empty() && identifier(value).eq_ignore_ascii_case(self.product) {
            self.group.own = true;
            self.named = true;
        }
    }

    fn rule(&mut self, value: &[u8], access: Access) {
        // An empty rule disallows nothing.
        let Some(pattern) = Pattern::parse(value) else { return self.group.closed = true };
        self.tell(|robots| {
            if robots.rules.len() < MOST_RULES {
                robots.rules.push(Rule { pattern: pattern.clone(), access });
            }
        });
    }

    fn delay(&mut self, value: &[u8]) {
        let seconds = std::str::from_utf8(value).ok().and_then(number);
        let delay = seconds.map(|seconds| {
            let delay = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_CRAWL_DELAY);
            delay.min(LONGEST_CRAWL_DELAY)
        });
        self.tell(|robots| robots.crawl_delay = robots.crawl_delay.max(delay));
    }

    fn tell(&mut self, mut tell: impl FnMut(&mut Robots)) {
        self.group.closed = true;
        if self.group.own {
            tell(&mut self.own);
        }
        if self.group.general {
            tell(&mut self.general);
        }
    }
}

/// The name without version or comment: `Paceline/1.0` is `Paceline`.
fn identifier(text: &[u8]) -> &[u8] {
    let part = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    &text[..text.iter().position(|byte| !part(byte)).unwrap_or(text.len())]
}

/// The text within the bound, without byte order mark and without a cut line at the end.
fn whole(bytes: &[u8]) -> &[u8] {
    let text = match bytes.get(..LARGEST_FILE) {
        Some(text) if bytes.len() > LARGEST_FILE => {
            let end = text.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
            &text[..end.unwrap_or(0)]
        }
        _ => bytes,
    };
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

#[cfg(test)]
mod tests;
