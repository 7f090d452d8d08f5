//! Lists of files to fetch, read one entry at a time.

mod jsonl;
mod lines;
mod manifest;
mod uris;

use std::error::Error;
use std::fmt;
use std::io::BufRead;
use std::iter::Peekable;

use url::Url;

use super::item::Item;
use lines::{Line, Lines};

/// The format of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// The first line with content decides between `Jsonl` and `Aria2`.
    Auto,
    /// A URL on each line, mirrors of one file separated by tabs.
    Plain,
    /// The format of aria2: below the URLs of a file, indented lines ` out=NAME`, ` dir=DIR` and
    /// ` checksum=sha-256=HEX`. Other options are ignored.
    Aria2,
    /// On each line an object with `url` or `urls`, and with `out`, `dir` and `checksum`.
    Jsonl,
    /// A file such as `SHA256SUMS`.
    Manifest {
        /// The URL that names are relative to, like links on a page: the part after the last `/` is
        /// replaced, so the URL of the manifest itself works too.
        base: Url,
    },
}

/// Reads a list item by item and holds one entry at a time; blocks as its reader does.
///
/// After a mistake it goes on with the next entry. An item that may have options is complete when
/// the line behind it was read, so with `Aria2` each item comes one line late.
pub struct Items<R: BufRead> {
    source: String,
    lines: Peekable<Lines<R>>,
    format: Format,
}

/// An invalid entry of a list; shown as `list.txt:17: what is wrong`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The name of the list.
    pub source: String,
    /// The line, counted from 1.
    pub line: u64,
    /// What is wrong, and what to write instead. Never shows a password.
    pub what: String,
}

impl<R: BufRead> Items<R> {
    /// The items of a list; its name is for mistakes.
    pub fn new(source_name: &str, reader: R, format: Format) -> Items<R> {
        Items { source: source_name.to_owned(), lines: Lines::new(reader).peekable(), format }
    }

    fn mistake(&self, line: u64, what: String) -> Mistake {
        Mistake { source: self.source.clone(), line, what }
    }

    /// An entry that is a line.
    fn one_line(
        &self,
        line: Line,
        read: impl FnOnce(&str) -> Result<Item, String>,
    ) -> Result<Item, Mistake> {
        let item = line.text.and_then(|text| read(&text));
        item.map_err(|what| self.mistake(line.number, what))
    }

    /// An entry with the options below it. Options of an invalid entry are skipped with it:
    /// otherwise each would be an error of its own.
    fn with_options(&mut self, first: Line) -> Result<Item, Mistake> {
        if first.indented {
            return self.one_line(first, |_| Err(uris::ORPHAN.to_owned()));
        }
        let mut entry = self.one_line(first, uris::item);
        while let Some(option) = self.lines.next_if(|line| line.indented) {
            let Ok(item) = &mut entry else { continue };
            let applied = option.text.and_then(|text| uris::apply(&text, item));
            if let Err(what) = applied {
                entry = Err(self.mistake(option.number, what));
            }
        }
        entry
    }
}

impl<R: BufRead> Iterator for Items<R> {
    type Item = Result<Item, Mistake>;

    fn next(&mut self) -> Option<Result<Item, Mistake>> {
        let line = self.lines.next()?;
        if self.format == Format::Auto {
            match &line.text {
                Ok(text) if text.trim_start().starts_with('{') => self.format = Format::Jsonl,
                Ok(_) => self.format = Format::Aria2,
                // An unreadable line does not decide the format.
                Err(_) => {}
            }
        }
        Some(match &self.format {
            Format::Plain if line.indented => {
                self.one_line(line, |_| Err(uris::NOT_PLAIN.to_owned()))
            }
            Format::Plain => self.one_line(line, uris::item),
            Format::Aria2 => self.with_options(line),
            // The format is still undecided only if the line could not be read.
            Format::Auto | Format::Jsonl => self.one_line(line, jsonl::item),
            Format::Manifest { base } => self.one_line(line, |text| manifest::item(text, base)),
        })
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.source, self.line, self.what)
    }
}

impl Error for Mistake {}

/// A path from a list, checked here so that the error has a line number.
fn checked_path(path: &str) -> Result<String, String> {
    let parts = super::name::relative(path).map_err(|error| error.to_string())?;
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests;
