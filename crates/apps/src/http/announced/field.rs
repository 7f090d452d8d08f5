//! Lists in headers, parsed leniently.

use hyper::HeaderMap;

/// Members of one list that are read. Upstreams announce only a few limits.
const MOST_MEMBERS: usize = 32;

/// The readable lines of one header.
pub(super) fn texts<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok()).map(str::trim)
}

/// The members of all its lines: `"burst";q=100;w=60, "daily";q=5000;w=86400`.
pub(super) fn members<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> impl Iterator<Item = Member<'a>> + use<'a> {
    let lines: Vec<&str> = texts(headers, name).take(MOST_MEMBERS).collect();
    let members = lines.into_iter().flat_map(|line| Parts { rest: Some(line), at: ',' });
    members.map(Member).take(MOST_MEMBERS)
}

/// A value with parameters behind it.
#[derive(Clone, Copy)]
pub(super) struct Member<'a>(&'a str);

impl<'a> Member<'a> {
    /// The part before the parameters.
    pub(super) fn value(self) -> &'a str {
        self.parts().next().unwrap_or("")
    }

    /// The parameter of this name.
    pub(super) fn parameter(self, key: &str) -> Option<&'a str> {
        self.parts().skip(1).find_map(|part| entry(part, key))
    }

    /// The value, if it is an entry of this name: `remaining=50`.
    pub(super) fn entry(self, key: &str) -> Option<&'a str> {
        entry(self.value(), key)
    }

    fn parts(self) -> Parts<'a> {
        Parts { rest: Some(self.0), at: ';' }
    }
}

fn entry<'a>(part: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = part.split_once('=')?;
    name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
}

/// Splits a text at a character, but not inside quotes: names may contain commas and semicolons.
struct Parts<'a> {
    rest: Option<&'a str>,
    at: char,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        for (place, sign) in rest.char_indices() {
            match sign {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                _ if sign == self.at && !quoted => {
                    self.rest = Some(&rest[place + sign.len_utf8()..]);
                    return Some(rest[..place].trim());
                }
                _ => {}
            }
        }
        Some(rest.trim())
    }
}
