//! One line of the index, as `cdxj-indexer` writes it.

use std::fmt::Write as _;
use std::ops::Range;

use jiff::Timestamp;
use serde::Deserialize;
use url::Url;

use super::surt::surt;

/// A response and its location.
pub(super) struct IndexLine<'a> {
    pub(super) target: &'a Url,
    pub(super) at: Timestamp,
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) status: &'a str,
    pub(super) digest: &'a str,
    pub(super) location: RecordLocation,
}

/// The location of a record: its file, offset and length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordLocation {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl RecordLocation {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.length)
    }
}

impl IndexLine<'_> {
    /// The line, with its line end.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{} {} {{", surt(self.target), self.at.strftime("%Y%m%d%H%M%S"));
        let mime = self.content_type.map(mime);
        let (offset, length) = (self.location.offset.to_string(), self.location.length.to_string());
        let fields = [
            ("url", Some(self.target.as_str())),
            ("mime", mime.as_deref()),
            ("status", Some(self.status)),
            ("digest", Some(self.digest)),
            ("length", Some(length.as_str())),
            ("offset", Some(offset.as_str())),
            ("filename", Some(self.location.file.as_str())),
        ];
        let mut between = "";
        for (name, value) in fields {
            let Some(value) = value else { continue };
            write!(line, "{between}\"{name}\": \"{}\"", json_text(value)).expect("memory");
            between = ", ";
        }
        line.push_str("}\n");
        line
    }
}

/// The location of the record of a line, if the line is valid.
pub(super) fn location(line: &[u8]) -> Option<RecordLocation> {
    #[derive(Deserialize)]
    struct Fields {
        length: String,
        offset: String,
        filename: String,
    }
    let brace = line.iter().position(|&byte| byte == b'{')?;
    let fields: Fields = serde_json::from_slice(&line[brace..]).ok()?;
    Some(RecordLocation {
        file: fields.filename,
        offset: fields.offset.parse().ok()?,
        length: fields.length.parse().ok()?,
    })
}

/// The type alone, without its parameters.
fn mime(content_type: &[u8]) -> String {
    let text = match std::str::from_utf8(content_type) {
        Ok(text) => text.to_owned(),
        Err(_) => content_type.iter().copied().map(char::from).collect(),
    };
    let ends = |c: char| c == ';' || c.is_whitespace();
    text.trim().split(ends).next().unwrap_or_default().to_owned()
}

/// Escaped as by Python: all characters beyond ASCII as UTF-16.
fn json_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' => escaped.push_str("\\b"),
            '\u{c}' => escaped.push_str("\\f"),
            ' '..='~' => escaped.push(letter),
            _ => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(escaped, "\\u{unit:04x}").expect("memory");
                }
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, content_type: Option<&[u8]>, expected: &str) {
        let location =
            RecordLocation { file: "fête-00001.warc.gz".to_owned(), offset: 5, length: 7 };
        let line = IndexLine {
            target: &Url::parse(url).expect("an address"),
            at: "2026-02-03T04:05:06.789Z".parse().expect("a moment"),
            content_type,
            status: "200",
            digest: "sha1:X",
            location: location.clone(),
        };
        let line = line.line();
        assert_eq!(line, format!("{expected}\n"));
        assert_eq!(super::location(line.as_bytes()), Some(location));
    }

    #[test]
    fn a_line_reads_as_the_indexer_writes_it() {
        check(
            "https://www.example.com/A?b",
            Some(b"text/html; charset=utf-8"),
            r#"com,example)/a?b 20260203040506 {"url": "https://www.example.com/A?b", "mime": "text/html", "status": "200", "digest": "sha1:X", "length": "7", "offset": "5", "filename": "f\u00eate-00001.warc.gz"}"#,
        );
        check(
            "http://example.com/",
            None,
            r#"com,example)/ 20260203040506 {"url": "http://example.com/", "status": "200", "digest": "sha1:X", "length": "7", "offset": "5", "filename": "f\u00eate-00001.warc.gz"}"#,
        );
    }

    #[track_caller]
    fn check_mime(content_type: &[u8], expected: &str) {
        assert_eq!(mime(content_type), expected);
    }

    #[test]
    fn a_type_ends_before_its_parameters() {
        check_mime(b" text/plain ;x", "text/plain");
        check_mime(b"text/plain charset=x", "text/plain");
        check_mime(b";x", "");
        check_mime(b"", "");
        check_mime("caf\u{e9}\u{a0}x".as_bytes(), "caf\u{e9}");
        check_mime(b"caf\xe9\xa0x", "caf\u{e9}");
    }

    #[test]
    fn text_is_escaped_as_python_does_it() {
        assert_eq!(json_text("a\"\\\n\u{7f}é😀"), r#"a\"\\\n\u007f\u00e9\ud83d\ude00"#);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_place_or_none(line: Vec<u8>) {
            let _ = location(&line);
        }

        #[test]
        fn any_text_comes_back(text: String) {
            let read: String = serde_json::from_str(&format!("\"{}\"", json_text(&text)))?;
            proptest::prop_assert_eq!(read, text);
        }
    }
}
