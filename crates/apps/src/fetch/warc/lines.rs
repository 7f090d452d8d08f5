//! Lines of an index, one at a time and of bounded length.

use std::io::{self, BufRead, Read};

/// The longest line: a key, a URL and a type of [`super::MAX_HEAD`] each, all escaped.
pub(super) const MAX_LINE: usize = 16 << 20;

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole,
    /// The last line, whose line end is missing.
    Cut,
    None,
}

/// Reads the next line into `line`.
pub(super) fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let count = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Line::Whole);
    }
    match count {
        0 => Ok(Line::None),
        count if count > MAX_LINE => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 16 MiB"))
        }
        _ => Ok(Line::Cut),
    }
}
