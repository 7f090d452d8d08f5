//! The lines of a list, of bounded length, without blank lines and comments.

use std::io::{self, BufRead, Read};

/// The longest line, in bytes without its end.
pub(super) const LONGEST_LINE: usize = 64 * 1024;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads lines, and skips blank ones and those that begin with `#`.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
    ended: bool,
}

/// A line of a list.
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: u64,
    /// Whether it begins with a space or a tab; set also for an unreadable line.
    pub(super) indented: bool,
    /// The text without its line end, or the reason why it could not be read.
    pub(super) text: Result<String, String>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Lines<R> {
        Lines { reader, buffer: Vec::new(), number: 0, ended: false }
    }

    /// The next line of any kind; `None` at the end.
    fn line(&mut self) -> io::Result<Option<Line>> {
        self.buffer.clear();
        // Room for the line end, so that a line that was cut is still too long without it.
        let most = BYTE_ORDER_MARK.len() + LONGEST_LINE + b"\r\n".len();
        let mut start = self.reader.by_ref().take(most as u64);
        if start.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.buffer.len() == most && !self.buffer.ends_with(b"\n") {
            self.reader.skip_until(b'\n')?;
        }
        let mut line = self.buffer.as_slice();
        if self.number == 1 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        let indented = line.starts_with(b" ") || line.starts_with(b"\t");
        Ok(Some(Line { number: self.number, indented, text: text(line) }))
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while !self.ended {
            match self.line() {
                Ok(Some(line)) if says_something(&line) => return Some(line),
                Ok(Some(_)) => {}
                Ok(None) => self.ended = true,
                Err(error) => {
                    // Another read could fail for ever.
                    self.ended = true;
                    let text = Err(format!("cannot read the list any further: {error}"));
                    return Some(Line { number: self.number + 1, indented: false, text });
                }
            }
        }
        None
    }
}

fn text(line: &[u8]) -> Result<String, String> {
    if line.len() > LONGEST_LINE {
        return Err(format!("the line is longer than {LONGEST_LINE} bytes: shorten it"));
    }
    match str::from_utf8(line) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => {
            let place = error.valid_up_to() + 1;
            Err(format!("byte {place} of the line is not UTF-8: save the list as UTF-8"))
        }
    }
}

fn says_something(line: &Line) -> bool {
    line.text.as_ref().map_or(true, |text| {
        let text = text.trim_start();
        !text.is_empty() && !text.starts_with('#')
    })
}
