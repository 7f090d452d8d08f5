//! Repair of a file after a crash: complete records are kept and indexed, a torn end is removed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use flate2::bufread::GzDecoder;
use jiff::Timestamp;
use url::Url;

use super::MAX_HEAD;
use super::files::without_link;
use super::line::{IndexLine, RecordLocation};

/// Cuts the file after its last complete record. Reads only the last record with a line and those
/// after it, and passes the lines of their responses on. Returns the new length. A file without any
/// record is removed.
pub(super) fn repair(
    path: &Path,
    known: &Range<u64>,
    each: &mut dyn FnMut(String) -> io::Result<()>,
) -> io::Result<u64> {
    let file = match without_link().open(path) {
        Ok(file) => file,
        // The file was announced and never made, or was moved elsewhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(u64::MAX),
        Err(error) => return Err(error),
    };
    let name = path.file_name().expect("a file was opened").to_string_lossy();
    let length = file.metadata()?.len();
    let mut end = whole_records(&file, &name, known.start.min(length), each)?;
    if end < known.end {
        // A durable record is missing: this is not the work of a crash.
        end = whole_records(&file, &name, 0, each)?;
    }
    if end == 0 && known.is_empty() {
        std::fs::remove_file(path)?;
    } else if end < length {
        file.set_len(end)?;
        file.sync_all()?;
    }
    Ok(end)
}

fn whole_records(
    file: &File,
    name: &str,
    from: u64,
    each: &mut dyn FnMut(String) -> io::Result<()>,
) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut end = reader.seek(SeekFrom::Start(from))?;
    while !reader.fill_buf()?.is_empty() {
        let record = match record(BufReader::new(GzDecoder::new(&mut reader))) {
            // A read error is no reason to cut the file.
            Err(error) if error.raw_os_error().is_some() => return Err(error),
            Ok(Record::Torn) | Err(_) => break,
            Ok(whole) => whole,
        };
        let offset = std::mem::replace(&mut end, reader.stream_position()?);
        if let Record::Response(seen) = record {
            let location = RecordLocation { file: name.to_owned(), offset, length: end - offset };
            each(seen.line(location))?;
        }
    }
    Ok(end)
}

enum Record {
    Torn,
    Response(Seen),
    Other,
}

/// The fields of a response for the index.
struct Seen {
    target: Url,
    at: Timestamp,
    digest: String,
    status: String,
    content_type: Option<Vec<u8>>,
}

impl Seen {
    fn line(&self, location: RecordLocation) -> String {
        let line = IndexLine {
            target: &self.target,
            at: self.at,
            content_type: self.content_type.as_deref(),
            status: &self.status,
            digest: &self.digest,
            location,
        };
        line.line()
    }
}

/// Reads one record to its end.
fn record(mut plain: impl BufRead) -> io::Result<Record> {
    let Some(header) = head(&mut plain)? else { return Ok(Record::Torn) };
    let length = field(&header, "content-length").and_then(|value| text(value)?.parse().ok());
    let Some(length) = length.filter(|_| header.starts_with(b"WARC/1.1\r\n")) else {
        return Ok(Record::Torn);
    };
    let mut block = plain.by_ref().take(length);
    let mut record = Record::Other;
    if field(&header, "warc-type") == Some(b"response") {
        let response = head(&mut block)?.and_then(|response| response_seen(&header, &response));
        record = response.map_or(Record::Torn, Record::Response);
    }
    io::copy(&mut block, &mut io::sink())?;
    let missing = block.limit();
    // Read one byte too many: the checksum is verified only by a read that reaches the end.
    let mut after = Vec::new();
    plain.take(5).read_to_end(&mut after)?;
    Ok(if missing == 0 && after == b"\r\n\r\n" { record } else { Record::Torn })
}

fn response_seen(header: &[u8], response: &[u8]) -> Option<Seen> {
    let status_line = response.split(|&byte| byte == b'\n').next()?;
    let status = status_line.split(|&byte| byte == b' ').nth(1)?;
    Some(Seen {
        target: Url::parse(text(field(header, "warc-target-uri")?)?).ok()?,
        at: text(field(header, "warc-date")?)?.parse().ok()?,
        digest: text(field(header, "warc-payload-digest")?)?.to_owned(),
        status: text(status)?.to_owned(),
        content_type: field(response, "content-type").map(<[u8]>::to_vec),
    })
}

/// The bytes up to the first empty line; `None` if there is none within bounds.
fn head(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bounded = reader.take(2 * MAX_HEAD as u64);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if bounded.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// The first value of that name.
fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|&byte| byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let found = line[..colon].eq_ignore_ascii_case(name.as_bytes());
        found.then(|| line[colon + 1..].trim_ascii())
    })
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(
            before in "(WARC/1.1\r\n(warc-type: response\r\n)?(content-length: [0-9]{1,3}\r\n)?\r\n)?",
            rest: Vec<u8>,
        ) {
            let _ = record(&[before.as_bytes(), &rest].concat()[..]);
        }
    }
}
