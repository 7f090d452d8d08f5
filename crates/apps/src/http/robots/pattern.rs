//! Patterns of paths, and the one form in which patterns and paths are compared.

use url::Url;

/// The path of a rule, with `*` for any text and an optional `$` for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// In normalized form; here `*` is always the wildcard.
    text: Box<str>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Exact,
}

impl Pattern {
    /// `None` for a text that is not a path and so matches nothing.
    pub(super) fn parse(value: &[u8]) -> Option<Pattern> {
        if !matches!(value.first(), Some(b'/' | b'*')) {
            return None;
        }
        let (value, end) = match value.strip_suffix(b"$") {
            Some(value) => (value, End::Exact),
            None => (value, End::Open),
        };
        let mut text = String::with_capacity(value.len());
        // Repeated stars equal one; without this, stars alone could cost time.
        let mut form = Form::default();
        for part in value.split(|&byte| byte == b'*') {
            form.write(part, &mut text);
            if !text.ends_with('*') {
                text.push('*');
            }
        }
        if value.last() != Some(&b'*') {
            text.pop();
        }
        Some(Pattern { text: text.into(), end })
    }

    /// Its specificity.
    pub(super) fn len(&self) -> usize {
        self.text.len() + usize::from(self.end == End::Exact)
    }

    /// Returns `true` if it matches a target in normalized form. The leftmost match of a part is
    /// always the best, so there is no backtracking: the cost is linear.
    pub(super) fn matches(&self, target: &str) -> bool {
        let mut parts = self.text.split('*').peekable();
        let Some(mut rest) = target.strip_prefix(parts.next().unwrap_or("")) else { return false };
        while let Some(part) = parts.next() {
            if parts.peek().is_none() && self.end == End::Exact {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        self.end == End::Open || rest.is_empty()
    }
}

/// The path and query of a URL in normalized form.
pub(super) fn target(url: &Url) -> String {
    let mut text = String::new();
    let mut form = Form::default();
    form.write(url.path().as_bytes(), &mut text);
    if let Some(query) = url.query() {
        form.write(b"?", &mut text);
        form.write(query.as_bytes(), &mut text);
    }
    text
}

/// Normalizes paths (RFC 9309, section 2.2.2): ASCII only; unreserved characters plain, and all
/// others that may be encoded percent-encoded in upper case.
#[derive(Default)]
struct Form {
    part: UrlPart,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum UrlPart {
    #[default]
    Path,
    Query,
}

impl Form {
    fn write(&mut self, mut bytes: &[u8], text: &mut String) {
        while let Some((&first, rest)) = bytes.split_first() {
            bytes = rest;
            let encoded = if first == b'%' { octet(rest) } else { None };
            if let Some(octet) = encoded {
                bytes = &rest[2..];
                match octet {
                    _ if self.plain(octet) => text.push(char::from(octet)),
                    _ => encode(octet, text),
                }
                continue;
            }
            if first == b'?' {
                self.part = UrlPart::Query;
            }
            match first {
                b'%' => text.push('%'),
                _ if unreserved(first) || reserved(first) => text.push(char::from(first)),
                _ => encode(first, text),
            }
        }
    }

    /// Returns `true` if an encoded octet equals the plain one. In a query, slashes and colons have
    /// no special meaning; in a path an encoded slash is part of a name.
    fn plain(&self, octet: u8) -> bool {
        unreserved(octet)
            || (self.part == UrlPart::Query && matches!(octet, b'/' | b':' | b'?' | b'@'))
    }
}

fn octet(rest: &[u8]) -> Option<u8> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let value = digit(rest.first())? * 16 + digit(rest.get(1))?;
    u8::try_from(value).ok()
}

fn encode(octet: u8, text: &mut String) {
    text.push_str(percent_encoding::percent_encode_byte(octet));
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Without star and dollar: encoded ones of a URL are not the wildcards of a pattern.
fn reserved(byte: u8) -> bool {
    b":/?#[]@!&'()+,;=".contains(&byte)
}
