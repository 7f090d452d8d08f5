//! A response as data: the value of an `http` call.

use data_encoding::BASE64;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, SET_COOKIE};
use serde_json::{Map, Value, json};

/// Bytes of a body that are kept.
pub(super) const LONGEST_BODY: usize = 512 << 10;
/// Bytes of the headers that are kept.
const LONGEST_HEADERS: usize = 32 << 10;
/// A text that is longer than this as JSON is kept as base64.
const LONGEST_TEXT: usize = 720 << 10;

/// Headers that reports leave out, since they may hold secrets.
const KEPT_BACK: [HeaderName; 2] = [AUTHORIZATION, SET_COOKIE];

/// The part of a response's body that is kept.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Whether the rest was cut off.
    pub(super) cut: bool,
}

impl Body {
    /// Appends a piece. Returns `true` if there is room for more.
    pub(super) fn take(&mut self, piece: &[u8]) -> bool {
        let room = LONGEST_BODY - self.bytes.len();
        self.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        self.cut |= piece.len() > room;
        !self.cut
    }
}

/// The response as a value: status, headers, and the body as text or, if that fails, as base64.
pub(super) fn value(status: u16, headers: &HeaderMap, body: &Body) -> Value {
    let mut value = json!({ "status": status, "headers": kept(headers) });
    let text = std::str::from_utf8(&body.bytes).ok();
    let short = |text: &&str| {
        let escaped = text.bytes().filter(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'));
        text.len() + 5 * escaped.count() <= LONGEST_TEXT
    };
    match text.filter(short) {
        Some(text) => value["body"] = text.into(),
        None => value["body_base64"] = BASE64.encode(&body.bytes).into(),
    }
    if body.cut {
        value["body_cut"] = true.into();
    }
    value
}

/// The headers by name. A repeated header becomes a list.
fn kept(headers: &HeaderMap) -> Map<String, Value> {
    let mut kept = Map::new();
    let mut room = LONGEST_HEADERS;
    for name in headers.keys().filter(|name| !KEPT_BACK.contains(name)) {
        let values = headers.get_all(name).iter();
        let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let mut values: Vec<String> = values.collect();
        let size = name.as_str().len() + values.iter().map(String::len).sum::<usize>();
        let Some(left) = room.checked_sub(size) else { continue };
        room = left;
        let value = if values.len() == 1 { values.remove(0).into() } else { values.into() };
        kept.insert(name.as_str().to_string(), value);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    #[test]
    fn a_response_is_kept_without_secret_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("1"));
        headers.append("via", HeaderValue::from_static("a"));
        headers.append("via", HeaderValue::from_static("b"));
        headers.insert(SET_COOKIE, HeaderValue::from_static("session=secret"));
        headers.insert("x-long", HeaderValue::from_bytes(&vec![b'x'; 40_000]).expect("a value"));
        let mut body = Body::default();
        assert!(body.take(b"hello"));
        let expected = json!({
            "status": 200, "headers": {"x-a": "1", "via": ["a", "b"]}, "body": "hello",
        });
        assert_eq!(value(200, &headers, &body), expected);
    }

    #[test]
    fn a_body_is_cut_where_the_room_ends() {
        let mut body = Body::default();
        assert!(body.take(&vec![7; LONGEST_BODY]));
        assert!(!body.take(&[7]));
        let value = value(200, &HeaderMap::new(), &body);
        assert_eq!((value["body_cut"].as_bool(), body.bytes.len()), (Some(true), LONGEST_BODY));
    }

    proptest! {
        #[test]
        fn any_answer_fits_into_a_megabyte(seed in prop::collection::vec(any::<u8>(), 1..64)) {
            let mut body = Body::default();
            let bytes: Vec<u8> = seed.iter().copied().cycle().take(LONGEST_BODY).collect();
            body.take(&bytes);
            let mut headers = HeaderMap::new();
            for n in 0..200 {
                let name = HeaderName::from_bytes(format!("x-{n}").as_bytes()).expect("a name");
                headers.insert(name, HeaderValue::from_bytes(&[b'\t'; 500]).expect("a value"));
            }
            let value = value(200, &headers, &body).to_string();
            prop_assert!(value.len() < 1 << 20, "{}", value.len());
        }
    }
}
