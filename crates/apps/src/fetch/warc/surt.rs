//! The sort key of a URL in an index: the host reversed, and parts that make no difference left
//! out.
//!
//! The keys must equal those of the Python library `surt` exactly: other programs look up lines by
//! them.

use std::net::Ipv4Addr;

use url::{Host, Url};

/// The key of an `http` or `https` URL: `com,example)/path?a=1`.
pub fn surt(url: &Url) -> String {
    let host = host(url.host_str().unwrap_or_default());
    let path = unescaped(url.path().as_bytes());
    let mut key = Vec::new();
    if host.is_empty() {
        key.extend_from_slice(url.scheme().as_bytes());
        key.push(b':');
        key.extend(path_key(&path));
    } else {
        key.extend(host_key(&host).into_bytes());
        if let Some(port) = url.port().filter(|&port| port != 0) {
            key.extend(format!(":{port}").into_bytes());
        }
        key.push(b')');
        key.extend(path_key(&folded(&path)));
    }
    let query = url.query().map(query_key).unwrap_or_default();
    if !query.is_empty() {
        key.push(b'?');
        key.extend(query);
    }
    String::from_utf8(key).expect("all beyond ASCII is escaped")
}

fn host(text: &str) -> String {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let host = bare.replace("..", ".");
    let host = host.trim_matches('.');
    // Only a host with empty labels can still be a number: others were parsed as one.
    match ipv4(host) {
        Some(address) => address.to_string(),
        None => host.to_ascii_lowercase(),
    }
}

fn ipv4(host: &str) -> Option<Ipv4Addr> {
    if !host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') || host.is_empty() {
        return None;
    }
    if !host.contains('.') {
        let digit = |byte: u8| u32::from(byte - b'0');
        let low = |number: u32, byte| number.wrapping_mul(10).wrapping_add(digit(byte));
        return Some(Ipv4Addr::from_bits(host.bytes().fold(0, low)));
    }
    match Host::parse(host) {
        Ok(Host::Ipv4(address)) => Some(address),
        _ => None,
    }
}

fn host_key(host: &str) -> String {
    let mut labels: Vec<&str> = without_www(host).split('.').collect();
    labels.reverse();
    labels.join(",")
}

/// The host without a first label of `www` and digits.
fn without_www(host: &str) -> &str {
    let bare =
        host.strip_prefix("www").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    bare.and_then(|rest| rest.strip_prefix('.')).unwrap_or(host)
}

fn path_key(path: &[u8]) -> Vec<u8> {
    let mut key = escaped(path).to_ascii_lowercase();
    strip_path_session(&mut key, is_nested_session);
    strip_path_session(&mut key, is_session);
    if key.len() > 1 && key.ends_with(b"/") {
        key.pop();
    }
    key
}

/// The path without `.`, `..` and empty segments. A `..` without a segment to remove stays.
fn folded(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." if kept.pop().is_some() => {}
            other => kept.push(other),
        }
    }
    let mut folded = vec![b'/'];
    if let Some((last, before)) = kept.split_last() {
        for segment in before.iter().filter(|segment| !segment.is_empty()) {
            folded.extend_from_slice(segment);
            folded.push(b'/');
        }
        folded.extend_from_slice(last);
    }
    folded
}

/// Removes the last session segment that is followed by a page ending in `.aspx`.
///
/// One pass from the right: a hostile path may consist of session segments alone.
fn strip_path_session(path: &mut Vec<u8>, is_session: fn(&[u8]) -> bool) {
    // Whether `.aspx` comes before any `?`: from here on, and from one byte further on.
    let (mut here, mut beyond) = (false, false);
    let mut slash_after: Option<(usize, bool)> = None;
    for at in (0..path.len()).rev() {
        if path[at] == b'/' {
            if let Some((slash, true)) = slash_after
                && is_session(&path[at + 1..slash])
            {
                path.drain(at + 1..=slash);
                return;
            }
            let page_follows = beyond && path.get(at + 1).is_some_and(|&byte| byte != b'?');
            slash_after = Some((at, page_follows));
        }
        beyond = here;
        here = path[at] != b'?' && (path[at..].starts_with(b".aspx") || here);
    }
}

/// `(` and 24 letters or digits and `)`.
fn is_session(segment: &[u8]) -> bool {
    match segment {
        [b'(', inner @ .., b')'] => {
            inner.len() == 24 && inner.iter().all(u8::is_ascii_alphanumeric)
        }
        _ => false,
    }
}

/// The same, each with a letter before it, all in one pair of brackets: `(a(...)b(...))`.
fn is_nested_session(segment: &[u8]) -> bool {
    match segment {
        [b'(', inner @ .., b')'] => {
            let mut parts = inner.chunks(27);
            !inner.is_empty()
                && parts.all(|part| part[0].is_ascii_alphabetic() && is_session(&part[1..]))
        }
        _ => false,
    }
}

fn query_key(query: &str) -> Vec<u8> {
    let mut query = escaped(&unescaped(query.as_bytes()));
    for (name, letters, value) in
        [("jsessionid=", 0, 32), ("phpsessid=", 0, 32), ("sid=", 0, 32), ("aspsessionid", 8, 24)]
    {
        strip_query_session(&mut query, |part| session_at(part, name, letters, value));
    }
    strip_cold_fusion_session(&mut query);
    query.make_ascii_lowercase();
    sorted(&query)
}

/// Removes the last argument that ends in a session, as `find` locates it.
fn strip_query_session(query: &mut Vec<u8>, find: impl Fn(&[u8]) -> Option<usize>) {
    let mut end = query.len();
    loop {
        let start = query[..end].iter().rposition(|&byte| byte == b'&').map_or(0, |at| at + 1);
        if let Some(at) = find(&query[start..end]) {
            let next = query.len().min(end + 1);
            query.drain(start + at..next);
            return;
        }
        if start == 0 {
            return;
        }
        end = start - 1;
    }
}

/// The start of a session at the end of `part`: a name and its value or, if `letters` is not zero,
/// a name, that many letters, `=` and a value of letters alone.
fn session_at(part: &[u8], name: &str, letters: usize, value: usize) -> Option<usize> {
    let between = if letters == 0 { 0 } else { letters + 1 };
    let at = part.len().checked_sub(name.len() + between + value)?;
    let (start, rest) = part[at..].split_at(name.len());
    let (middle, value) = rest.split_at(between);
    let fits = match middle.split_last() {
        None => value.iter().all(u8::is_ascii_alphanumeric),
        Some((last, middle)) => {
            *last == b'=' && middle.iter().chain(value).all(u8::is_ascii_alphabetic)
        }
    };
    (start.eq_ignore_ascii_case(name.as_bytes()) && fits).then_some(at)
}

/// Removes the last `cfid=..&cftoken=..`.
fn strip_cold_fusion_session(query: &mut Vec<u8>) {
    const TOKEN: &[u8] = b"cftoken=";
    const ID: &[u8] = b"cfid=";
    let mut end = query.len();
    while let Some(middle) = query[..end].iter().rposition(|&byte| byte == b'&') {
        let token = &query[middle + 1..end];
        let start = query[..middle].iter().rposition(|&byte| byte == b'&').map_or(0, |at| at + 1);
        let id = &query[start..middle];
        // At least one byte must follow `cfid=`, so the last position does not count.
        let at = id.len().checked_sub(1).and_then(|last| {
            id[..last].windows(ID.len()).rposition(|window| window.eq_ignore_ascii_case(ID))
        });
        if let Some(at) = at
            && token.len() > TOKEN.len()
            && token[..TOKEN.len()].eq_ignore_ascii_case(TOKEN)
        {
            let next = query.len().min(end + 1);
            query.drain(start + at..next);
            return;
        }
        end = middle;
    }
}

/// The arguments in order of name, then of value; one without `=` before one with.
fn sorted(query: &[u8]) -> Vec<u8> {
    let mut parts: Vec<(&[u8], Option<&[u8]>)> = query
        .split(|&byte| byte == b'&')
        .map(|part| match part.iter().position(|&byte| byte == b'=') {
            Some(at) => (&part[..at], Some(&part[at + 1..])),
            None => (part, None),
        })
        .collect();
    parts.sort_unstable();
    let text = |(name, value): (&[u8], Option<&[u8]>)| match value {
        Some(value) => [name, b"=", value].concat(),
        None => name.to_vec(),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(&b'&')
}

/// Unescapes until no escape is left.
///
/// Escapes never overlap, so the order does not matter and one pass that looks back is enough.
/// Repeated passes would take quadratic time for `%25252525`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = Vec::with_capacity(text.len());
    for &byte in text {
        plain.push(byte);
        while let [.., b'%', high, low] = plain[..]
            && let (Some(high), Some(low)) = (hex(high), hex(low))
        {
            plain.truncate(plain.len() - 3);
            plain.push(high << 4 | low);
        }
    }
    plain
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn escaped(plain: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = Vec::with_capacity(plain.len());
    for &byte in plain {
        if byte.is_ascii_graphic() && byte != b'%' && byte != b'#' {
            text.push(byte);
        } else {
            text.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
    text
}

#[cfg(test)]
mod tests;
