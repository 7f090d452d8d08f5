//! The name that a server suggests in `Content-Disposition` (RFC 6266, RFC 8187).

use percent_encoding::percent_decode;

use super::safe;

/// The name in the header, made safe. `filename*` goes before `filename`, and only the last part of
/// a path counts. `None` if the header has no usable name.
pub fn from_disposition(header: &[u8]) -> Option<String> {
    let mut rest = header;
    let mut plain = None;
    let mut extended = None;
    while let Some((name, value)) = next_parameter(&mut rest) {
        if name.eq_ignore_ascii_case(b"filename") {
            plain = plain.or_else(|| usable(&text(&value)));
        } else if name.eq_ignore_ascii_case(b"filename*") {
            extended = extended.or_else(|| usable(&extended_text(&value)?));
        }
    }
    extended.or(plain)
}

/// The next `name=value`. Other parts, such as the type in front, are skipped.
fn next_parameter<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Vec<u8>)> {
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b';' | b'='))?;
        let name = rest[..end].trim_ascii();
        let equals = rest[end] == b'=';
        *rest = &rest[end + 1..];
        if equals {
            return Some((name, value(rest)));
        }
    }
}

/// A quoted string or a token; leaves what follows its `;`.
fn value(rest: &mut &[u8]) -> Vec<u8> {
    let unquoted = rest.trim_ascii_start().strip_prefix(b"\"").map(|inside| {
        *rest = inside;
        unquoted(rest)
    });
    let end = rest.iter().position(|&byte| byte == b';').unwrap_or(rest.len());
    let token = rest[..end].trim_ascii();
    *rest = rest.get(end + 1..).unwrap_or_default();
    unquoted.unwrap_or_else(|| token.to_vec())
}

/// The text before the closing quote, without escapes. Leaves the text after the quote.
fn unquoted(rest: &mut &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        match (byte, after.split_first()) {
            (b'"', _) => break,
            (b'\\', Some((&escaped, after))) => {
                *rest = after;
                value.push(escaped);
            }
            _ => value.push(byte),
        }
    }
    value
}

/// Decodes `UTF-8'en'na%C3%AFve`; `None` for other character sets and invalid bytes.
fn extended_text(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |&byte| byte == b'\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes: Vec<u8> = percent_decode(encoded).collect();
    if charset.eq_ignore_ascii_case(b"utf-8") {
        String::from_utf8(bytes).ok()
    } else if charset.eq_ignore_ascii_case(b"iso-8859-1") {
        Some(latin(&bytes))
    } else {
        None
    }
}

/// Servers put UTF-8 and ISO-8859-1 alike into plain names; hardly any ISO-8859-1 is valid UTF-8.
fn text(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| latin(bytes), str::to_owned)
}

fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn usable(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let says_something = last.contains(|c: char| c != '.' && !c.is_whitespace() && !c.is_control());
    says_something.then(|| safe(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(header: impl AsRef<[u8]>, name: &str) {
        let header = header.as_ref();
        let found = from_disposition(header).unwrap_or_default();
        assert_eq!(found, name, "{}", header.escape_ascii());
    }

    #[test]
    fn names_are_tokens_or_quoted() {
        check("attachment; filename=a.iso", "a.iso");
        check("attachment; filename=\"a b;c=d.iso\"; size=3", "a b;c=d.iso");
        check("INLINE;FILENAME = \"x.txt\"", "x.txt");
        check("attachment; filename=\"a \\\"b\\\" \\c.txt\"", "a _b_ c.txt");
        check("filename=bare.txt", "bare.txt");
        check("attachment; filename=\"never closed", "never closed");
        check("attachment; filename=a b.txt ; x=y", "a b.txt");
        check("attachment; filename=\"one\"; filename=two", "one");
    }

    #[test]
    fn the_extended_name_goes_first() {
        check("attachment; filename=a.txt; filename*=UTF-8''%e2%82%ac.txt", "€.txt");
        check("attachment; filename*=utf-8'en'%e2%82%ac.txt; filename=a.txt", "€.txt");
        check("attachment; filename*=iso-8859-1''%a3.txt", "£.txt");
        check("attachment; filename*=\"UTF-8''b%20c.txt\"", "b c.txt");
    }

    #[test]
    fn an_extended_name_that_is_broken_gives_way() {
        check("attachment; filename*=UTF-8''%ff; filename=a.txt", "a.txt");
        check("attachment; filename*=utf-16''%61; filename=a.txt", "a.txt");
        check("attachment; filename*=plain; filename=a.txt", "a.txt");
        check("attachment; filename*=UTF-8''%2F; filename=a.txt", "a.txt");
    }

    #[test]
    fn raw_bytes_are_utf_8_or_latin_1() {
        check("attachment; filename=\"Größe.txt\"", "Größe.txt");
        check(b"attachment; filename=\"Gr\xf6\xdfe.txt\"", "Größe.txt");
    }

    #[test]
    fn only_the_last_part_of_a_path_counts() {
        check("attachment; filename=\"../../etc/passwd\"", "passwd");
        check("attachment; filename=C:\\dir\\x.txt", "x.txt");
        check("attachment; filename*=UTF-8''..%2f..%5c.ssh", "_ssh");
        check("attachment; filename=\"nul\"", "_nul");
    }

    #[test]
    fn a_header_without_a_name_gives_none() {
        for header in ["", "attachment", "inline; size=3", "attachment; filename=", "=", ";;=;"] {
            check(header, "");
        }
        for name in ["\"\"", "\"a/\"", "..", "\". .\"", "\"\t\""] {
            check(format!("attachment; filename={name}"), "");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_safe_name_or_none(
            header in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..80).boxed(),
                "attachment;( ?filename\\*?=[\"\\\\]?[-a-z./'%\\\\;\"UTF8]{0,20}){0,3}"
                    .prop_map(String::into_bytes).boxed(),
            ],
        ) {
            if let Some(name) = from_disposition(&header) {
                prop_assert_eq!(&safe(&name), &name);
            }
        }
    }
}
