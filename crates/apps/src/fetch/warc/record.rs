//! The header of a record, and the digests in it.

use std::fmt::{Display, Write as _};
use std::io::{self, Read};

use data_encoding::BASE32;
use jiff::Timestamp;
use sha1::{Digest as _, Sha1};

/// The fields of a record, one line each.
///
/// No value contains a line end: values are constants, made from URLs, or cleaned.
pub(super) struct Header(String);

impl Header {
    pub(super) fn new(kind: &str, id: &str, at: Timestamp) -> Header {
        let at = at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
        Header("WARC/1.1\r\n".to_owned())
            .field("WARC-Type", kind)
            .field("WARC-Record-ID", id)
            .field("WARC-Date", at)
    }

    pub(super) fn field(mut self, name: &str, value: impl Display) -> Header {
        write!(self.0, "{name}: {value}\r\n").expect("memory");
        self
    }

    pub(super) fn optional(self, name: &str, value: Option<impl Display>) -> Header {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    /// The complete header, for a block of `length` bytes.
    pub(super) fn before_block(self, content_type: &str, length: u64) -> String {
        let header = self.field("Content-Type", content_type).field("Content-Length", length);
        header.0 + "\r\n"
    }
}

/// An id from random bytes, shaped as a UUID of version 4.
pub(super) fn id(mut random: [u8; 16]) -> String {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&random);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("<urn:uuid:{}>", parts.join("-"))
}

/// The digest of a whole block.
pub(super) fn digest(block: &[u8]) -> String {
    written(Sha1::new_with_prefix(block))
}

/// The digest in the form of a field.
pub(super) fn written(digest: Sha1) -> String {
    format!("sha1:{}", BASE32.encode(&digest.finalize()))
}

/// The digests of a response: of head and body, and of the body alone.
pub(super) struct Digests {
    pub(super) block: String,
    pub(super) payload: String,
}

impl Digests {
    /// `None` if the body is not `length` bytes long.
    pub(super) fn of(head: &[u8], body: &mut dyn Read, length: u64) -> io::Result<Option<Digests>> {
        let mut block = Sha1::new_with_prefix(head);
        let mut payload = Sha1::new();
        let mut piece = vec![0; PIECE];
        let mut left = length;
        while left > 0 {
            let count = body.read(&mut piece[..PIECE.min(left.try_into().unwrap_or(PIECE))])?;
            if count == 0 {
                return Ok(None);
            }
            block.update(&piece[..count]);
            payload.update(&piece[..count]);
            left -= count as u64;
        }
        Ok(Some(Digests { block: written(block), payload: written(payload) }))
    }
}

/// Bytes of a body that are in memory at a time.
pub(super) const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_whatever_the_bytes() {
        assert_eq!(id([0xff; 16]), "<urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff>");
        assert_eq!(id([0; 16]), "<urn:uuid:00000000-0000-4000-8000-000000000000>");
    }

    #[test]
    fn a_digest_is_in_base32() {
        assert_eq!(digest(b""), "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ");
    }

    #[test]
    fn a_moment_has_six_digits_below_the_second() {
        let at = "2026-02-03T04:05:06.0000019Z".parse().expect("a moment");
        let header = Header::new("request", "<a>", at).before_block("b/c", 3);
        assert_eq!(
            header,
            "WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: <a>\r\n\
             WARC-Date: 2026-02-03T04:05:06.000001Z\r\nContent-Type: b/c\r\nContent-Length: 3\r\n\r\n"
        );
    }
}
