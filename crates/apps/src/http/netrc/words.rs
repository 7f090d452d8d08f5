//! The words of a netrc file, with line numbers.

use super::{LONGEST_WORD, WrongNetrc};

pub(super) struct Words<'a> {
    rest: &'a [u8],
    line: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a [u8]) -> Words<'a> {
        Words { rest: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text), line: 1 }
    }

    /// The line of the word that was read last.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The next word, where a keyword is expected. Only there does `#` begin a comment: passwords
    /// may begin with it too.
    pub(super) fn keyword(&mut self) -> Result<Option<&'a [u8]>, WrongNetrc> {
        self.skip_space();
        while self.rest.first() == Some(&b'#') {
            self.skip_line();
            self.skip_space();
        }
        if self.rest.is_empty() { Ok(None) } else { self.bare().map(Some) }
    }

    /// The next word, where a value is expected, with or without quotes.
    pub(super) fn value(&mut self) -> Result<String, WrongNetrc> {
        self.skip_space();
        let value = match self.rest.first() {
            None => return Err(WrongNetrc::Value),
            Some(b'"') => self.quoted()?,
            Some(_) => self.bare()?.to_vec(),
        };
        let value = String::from_utf8(value).map_err(|_| WrongNetrc::Text)?;
        if value.chars().any(char::is_control) { Err(WrongNetrc::Text) } else { Ok(value) }
    }

    /// A macro ends at the first empty line.
    pub(super) fn skip_macro(&mut self) {
        self.skip_line();
        while !self.rest.is_empty() {
            let empty = self.rest.starts_with(b"\n") || self.rest.starts_with(b"\r\n");
            self.skip_line();
            if empty {
                break;
            }
        }
    }

    fn bare(&mut self) -> Result<&'a [u8], WrongNetrc> {
        let end = self.rest.iter().position(u8::is_ascii_whitespace).unwrap_or(self.rest.len());
        if end > LONGEST_WORD {
            return Err(WrongNetrc::Long);
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(word)
    }

    fn quoted(&mut self) -> Result<Vec<u8>, WrongNetrc> {
        let mut word = Vec::new();
        let mut bytes = self.rest[1..].iter().enumerate();
        while let Some((place, &byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.rest = &self.rest[place + 2..];
                    return Ok(word);
                }
                b'\n' => break,
                b'\\' => match bytes.next() {
                    Some((_, b'\n')) | None => break,
                    Some((_, b't')) => word.push(b'\t'),
                    Some((_, b'n')) => word.push(b'\n'),
                    Some((_, b'r')) => word.push(b'\r'),
                    Some((_, &escaped)) => word.push(escaped),
                },
                _ => word.push(byte),
            }
            if word.len() > LONGEST_WORD {
                return Err(WrongNetrc::Long);
            }
        }
        Err(WrongNetrc::Quote)
    }

    fn skip_space(&mut self) {
        let end = self.rest.iter().position(|byte| !byte.is_ascii_whitespace());
        let (space, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.line += space.split(|&byte| byte == b'\n').count() - 1;
        self.rest = rest;
    }

    fn skip_line(&mut self) {
        match self.rest.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                self.rest = &self.rest[end + 1..];
                self.line += 1;
            }
            None => self.rest = b"",
        }
    }
}
