//! Heads of requests and responses for records, without secrets and transfer coding.

use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use url::Url;

use super::Exchange;

/// Headers that identify the user. They are left out, since archives are shared.
const SECRETS: [&[u8]; 3] = [b"authorization", b"cookie", b"proxy-authorization"];

/// The URL without fragment, user and password.
pub(super) fn target(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    // This fails only for URLs without host, which have no user or password either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// The head of the response for a body of `length` bytes that came out of its transfer coding.
pub(super) fn response_head(exchange: &Exchange<'_>, length: u64) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {:03} ", exchange.status).into_bytes();
    head.extend(clean(exchange.reason.as_bytes()));
    head.extend_from_slice(b"\r\n");
    // A reader that sees the transfer coding would decode it again.
    let coded = exchange.headers.contains_key(TRANSFER_ENCODING);
    for (name, value) in exchange.headers {
        if coded && (name == TRANSFER_ENCODING || name == CONTENT_LENGTH) {
            head.extend_from_slice(b"x-archive-orig-");
        }
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend(clean(value.as_bytes()));
        head.extend_from_slice(b"\r\n");
    }
    if coded {
        head.extend(format!("content-length: {length}\r\n").into_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// The head of the request without secret headers and their continuation lines.
pub(super) fn request_head(sent: &[u8]) -> Vec<u8> {
    let mut lines = sent.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut head = request_line(lines.next().unwrap_or_default());
    let mut secret = false;
    for line in lines.take_while(|line| !line.is_empty()) {
        if !line.starts_with(b" ") && !line.starts_with(b"\t") {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default().trim_ascii();
            secret = SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
        }
        if !secret {
            head.extend_from_slice(b"\r\n");
            head.extend(clean(line));
        }
    }
    head.extend_from_slice(b"\r\n\r\n");
    head
}

/// A request through a proxy has the complete URL, which may contain a password.
fn request_line(line: &[u8]) -> Vec<u8> {
    let line: Vec<u8> = clean(line).collect();
    let text = String::from_utf8_lossy(&line);
    let mut words = text.splitn(3, ' ');
    if let (Some(method), Some(address), Some(version)) = (words.next(), words.next(), words.next())
        && address.contains('@')
        && let Ok(url) = Url::parse(address)
        && url.has_authority()
    {
        return format!("{method} {} {version}", target(&url)).into_bytes();
    }
    line
}

/// The type of the body as the head has it.
pub(super) fn content_type(headers: &HeaderMap) -> Option<Vec<u8>> {
    Some(clean(headers.get(hyper::header::CONTENT_TYPE)?.as_bytes()).collect())
}

/// Replaces characters by spaces that would end a line, or a string for readers written in C.
pub(super) fn clean(value: &[u8]) -> impl Iterator<Item = u8> {
    value.iter().map(|&byte| if byte.is_ascii_control() && byte != b'\t' { b' ' } else { byte })
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::super::Truncated;
    use super::*;

    #[track_caller]
    fn check_response(headers: &[(&'static str, &[u8])], reason: &str, head: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).expect("a value");
            map.append(HeaderName::from_static(name), value);
        }
        let exchange = Exchange {
            url: &Url::parse("http://example.com/").expect("an address"),
            at: jiff::Timestamp::UNIX_EPOCH,
            address: None,
            request_head: b"",
            status: 200,
            reason,
            headers: &map,
            truncated: Truncated::No,
            metadata: &[],
        };
        let made = response_head(&exchange, 7);
        assert_eq!(made.escape_ascii().to_string(), head.as_bytes().escape_ascii().to_string());
    }

    #[test]
    fn a_response_goes_in_as_it_came_but_for_its_transfer_coding() {
        check_response(&[], "OK", "HTTP/1.1 200 OK\r\n\r\n");
        check_response(&[], "", "HTTP/1.1 200 \r\n\r\n");
        check_response(
            &[("content-length", b"9"), ("x-a", b"1"), ("x-a", b"2")],
            "OK",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nx-a: 1\r\nx-a: 2\r\n\r\n",
        );
        check_response(
            &[("transfer-encoding", b"chunked"), ("content-length", b"9")],
            "OK",
            "HTTP/1.1 200 OK\r\nx-archive-orig-transfer-encoding: chunked\r\n\
             x-archive-orig-content-length: 9\r\ncontent-length: 7\r\n\r\n",
        );
    }

    #[test]
    fn no_reason_can_end_the_head() {
        check_response(&[], "a\r\n\r\nb\0c\td", "HTTP/1.1 200 a    b c\td\r\n\r\n");
    }

    #[track_caller]
    fn check_request(sent: &[u8], kept: &[u8]) {
        let made = request_head(sent);
        assert_eq!(made.escape_ascii().to_string(), kept.escape_ascii().to_string());
    }

    #[test]
    fn a_request_goes_in_without_its_secrets() {
        check_request(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        check_request(
            b"GET / HTTP/1.1\r\nAuthorization: Basic x\r\nhost: a\r\ncookie : b=c\r\n d=e\r\n\
              Proxy-Authorization:z\r\naccept: *\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: a\r\naccept: *\r\n\r\n",
        );
        check_request(
            b"GET http://me:secret@a/b HTTP/1.1\r\n\r\n",
            b"GET http://a/b HTTP/1.1\r\n\r\n",
        );
        check_request(b"GET /@a HTTP/1.1\r\n\r\n", b"GET /@a HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn a_request_of_any_bytes_ends_once() {
        check_request(b"", b"\r\n\r\n");
        check_request(b"GET /\0\r x\n\nbody", b"GET /   x\r\n\r\n");
    }

    proptest::proptest! {
        #[test]
        fn no_request_has_an_end_before_its_end(sent: Vec<u8>) {
            let head = request_head(&sent);
            let ends = head.windows(4).filter(|window| window == b"\r\n\r\n").count();
            proptest::prop_assert_eq!(ends, 1);
            proptest::prop_assert!(!head.contains(&0));
        }
    }
}
