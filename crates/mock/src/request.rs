//! A strict parser for the head of an HTTP/1 request. The servers answer 400 to what it rejects.

use std::collections::BTreeMap;

use crate::serve::LARGEST_BODY;

/// The most bytes of a head.
pub(crate) const LARGEST_HEAD: usize = 64 << 10;
/// The most header lines of a head.
const MOST_HEADERS: usize = 100;

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: Version,
    /// Names in lower case; lines of one name are joined with a comma.
    pub(crate) headers: BTreeMap<String, String>,
}

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

/// The bytes are not the head of a request, or exceed the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Request {
    /// Returns the request at the start of `bytes` and the length of its head, or `None` if the
    /// head is not complete.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Request, usize)>, Malformed> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() >= LARGEST_HEAD { Err(Malformed) } else { Ok(None) };
        };
        if end > LARGEST_HEAD {
            return Err(Malformed);
        }
        // Latin-1, byte by byte: no byte is lost, and the log shows the bytes as they came.
        let text: String = bytes[..end].iter().map(|&byte| char::from(byte)).collect();
        let mut lines = text.split("\r\n");
        let mut request = first_line(lines.next().unwrap_or_default())?;
        for (number, line) in lines.enumerate() {
            if number == MOST_HEADERS {
                return Err(Malformed);
            }
            let (name, value) = header(line)?;
            let joined = request.headers.entry(name).or_default();
            if !joined.is_empty() {
                joined.push_str(", ");
            }
            joined.push_str(value);
        }
        request.checked().map(|request| Some((request, end + 4)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns `true` if the client keeps the connection open after this request.
    pub(crate) fn keeps_alive(&self) -> bool {
        let has_option = |word: &str| {
            let options = self.header("connection").unwrap_or_default().split(',');
            options.map(str::trim).any(|option| option.eq_ignore_ascii_case(word))
        };
        match self.version {
            Version::Http11 => !has_option("close"),
            Version::Http10 => has_option("keep-alive"),
            Version::Http2 => true,
        }
    }

    /// The `Content-Length`, or 0.
    pub(crate) fn body_length(&self) -> u64 {
        self.header("content-length").map_or(0, |n| n.parse().expect("checked when read"))
    }

    /// Returns `true` if the body is within [`LARGEST_BODY`].
    pub(crate) fn body_length_fits(&self) -> bool {
        self.body_length() <= LARGEST_BODY as u64
    }

    fn checked(self) -> Result<Request, Malformed> {
        let hosts = self.headers.get("host").map_or(0, |hosts| hosts.split(", ").count());
        let length_valid = self.header("content-length").is_none_or(|n| n.parse::<u64>().is_ok());
        // Paceline sends no chunked bodies, and a server may require a length.
        let chunked = self.headers.contains_key("transfer-encoding");
        let host_valid = hosts == 1 || (hosts == 0 && self.version == Version::Http10);
        if host_valid && length_valid && !chunked { Ok(self) } else { Err(Malformed) }
    }
}

fn first_line(line: &str) -> Result<Request, Malformed> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Malformed);
    };
    let version = match version {
        "HTTP/1.1" => Version::Http11,
        "HTTP/1.0" => Version::Http10,
        _ => return Err(Malformed),
    };
    let visible = target.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token(method) || target.is_empty() || !visible || target.contains('#') {
        return Err(Malformed);
    }
    let (method, target) = (method.to_string(), target.to_string());
    Ok(Request { method, target, version, headers: BTreeMap::new() })
}

fn header(line: &str) -> Result<(String, &str), Malformed> {
    let (name, value) = line.split_once(':').ok_or(Malformed)?;
    let value = value.trim_matches([' ', '\t']);
    if is_token(name) && !value.contains(|c: char| c.is_ascii_control() && c != '\t') {
        Ok((name.to_ascii_lowercase(), value))
    } else {
        Err(Malformed)
    }
}

fn is_token(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !word.is_empty() && word.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(bytes: &str, expected: Result<Option<&str>, Malformed>) {
        let read = Request::read(bytes.as_bytes());
        let told = read.map(|read| {
            read.map(|(r, length)| format!("{} {} {:?} {length}", r.method, r.target, r.headers))
        });
        assert_eq!(told.as_ref().map(Option::as_deref).map_err(|&e| e), expected);
    }

    #[test]
    fn a_head_is_read_when_it_is_complete() {
        check("GET / HTTP/1.1\r\nhost: x\r\n", Ok(None));
        check("GET / HTTP/1.1\r\nhost: x\r\n\r\n", Ok(Some(r#"GET / {"host": "x"} 27"#)));
        let twice = "GET /a HTTP/1.0\r\nX: 1\r\nx:\t2 \r\n\r\nrest";
        check(twice, Ok(Some(r#"GET /a {"x": "1, 2"} 32"#)));
    }

    #[test]
    fn malformed_heads_are_rejected() {
        for malformed in [
            "GET /\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
            "GET  / HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET /#part HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nhost : x\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\nhost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/2\r\nhost: x\r\n\r\n",
        ] {
            check(malformed, Err(Malformed));
        }
        check(&"x".repeat(LARGEST_HEAD), Err(Malformed));
        let many = "a: b\r\n".repeat(MOST_HEADERS);
        check(&format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n"), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::read(&bytes);
            let head = [b"GET / HTTP/1.1\r\nhost: x\r\n", bytes.as_slice(), b"\r\n\r\n"].concat();
            if let Ok(Some((request, length))) = Request::read(&head) {
                prop_assert!(length <= head.len());
                request.body_length();
            }
        }
    }
}
