//! A TOML document with positions: values are read by key, mistakes are noted with their position.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use paceline_core::Portion;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::keys::{Key, keys_of, section_names, sections};
use super::nearest::nearest;

/// The most mistakes that are reported at once.
const MOST_TOLD: usize = 20;
/// The most mistakes that are collected before they are sorted.
const MOST_NOTED: usize = 1_000;

/// A mistake and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct Mistake {
    /// The file, as named.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The character in that line, from 1.
    pub column: usize,
    /// The message, one sentence.
    pub what: String,
}

/// The text of one file, and the mistakes found in it so far.
pub(crate) struct Notes<'t> {
    file: String,
    bytes: &'t [u8],
    found: Vec<(usize, String)>,
}

impl<'t> Notes<'t> {
    pub(crate) fn new(file: &Path, bytes: &'t [u8]) -> Notes<'t> {
        Notes { file: file.display().to_string(), bytes, found: Vec::new() }
    }

    pub(crate) fn text(&mut self) -> Option<&'t str> {
        let text = std::str::from_utf8(self.bytes);
        text.map_err(|error| self.note(error.valid_up_to(), "the file is not UTF-8 text")).ok()
    }

    pub(crate) fn parse(&mut self, text: &'t str) -> Option<Spanned<DeTable<'t>>> {
        let parsed = DeTable::parse(text);
        let note = |error: toml::de::Error| {
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            self.note(error.span().map_or(0, |span| span.start), format!("invalid TOML: {what}"));
        };
        parsed.map_err(note).ok()
    }

    /// Notes a mistake at a byte of the text.
    pub(crate) fn note(&mut self, at: usize, what: impl Into<String>) {
        if !self.full() {
            self.found.push((at, what.into()));
        }
    }

    /// Returns `true` if no more mistakes are collected: loops over names of the file stop then.
    pub(crate) fn full(&self) -> bool {
        self.found.len() >= MOST_NOTED
    }

    /// The number of mistakes so far: a reader compares it to see if a part was free of them.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn finish(mut self) -> Result<(), Vec<Mistake>> {
        self.found.sort_by_key(|&(at, _)| at);
        self.found.truncate(MOST_TOLD);
        let found = std::mem::take(&mut self.found);
        let mistakes: Vec<Mistake> =
            found.into_iter().map(|(at, what)| self.placed(at, what)).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    fn placed(&self, at: usize, what: String) -> Mistake {
        let before = &self.bytes[..at.min(self.bytes.len())];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |place| place + 1);
        let line = before.split(|&b| b == b'\n').count();
        let row = String::from_utf8_lossy(&before[line_start..]);
        // A byte order mark is not a visible character.
        let column = row.trim_start_matches('\u{feff}').chars().count() + 1;
        Mistake { file: self.file.clone(), line, column, what }
    }
}

/// One table of the document, by its path.
pub(crate) struct Section<'a> {
    path: String,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    pub(crate) fn root(table: &'a DeTable<'a>) -> Section<'a> {
        Section { path: String::new(), table }
    }

    /// Its path, as in the file.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The path of one of its keys, as in the file.
    pub(crate) fn path_of(&self, key: &str) -> String {
        let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let plain = !key.is_empty() && key.bytes().all(bare);
        let key = if plain { shown(key) } else { format!("\"{}\"", shown(key)) };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    /// Its entries in the order of the file, each with the position of its key.
    pub(crate) fn entries(&self) -> Vec<(&'a str, usize, &'a Spanned<DeValue<'a>>)> {
        let entry = |(key, value): (&'a Spanned<_>, _)| {
            let name: &std::borrow::Cow<'a, str> = key.get_ref();
            (name.as_ref(), key.span().start, value)
        };
        let mut entries: Vec<_> = self.table.iter().map(entry).collect();
        entries.sort_by_key(|&(_, at, _)| at);
        entries
    }

    pub(crate) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    /// The position of the value of `key`; the start of the file without one.
    pub(crate) fn place(&self, key: &str) -> usize {
        self.value(key).map_or(0, |value| value.span().start)
    }

    /// Notes sections that do not exist. For the root.
    pub(crate) fn check_sections(&self, notes: &mut Notes<'_>) {
        let names = section_names();
        let known = || names.iter().copied();
        for (name, at, value) in self.entries() {
            if known().any(|section| section == name) {
                continue;
            }
            if notes.full() {
                return;
            }
            let kind = if value.get_ref().is_table() { "section" } else { "key" };
            let hint = match nearest(name, known()) {
                Some(section) => format!("did you mean `[{section}]`?"),
                None => home_of(name).unwrap_or_else(|| {
                    format!("the sections are {}", listed(known().map(|s| format!("`[{s}]`"))))
                }),
            };
            notes.note(at, format!("unknown {kind} `{}`: {hint}", shown(name)));
        }
    }

    /// Notes keys that are not among those of `section`.
    pub(crate) fn check_keys(&self, section: &str, notes: &mut Notes<'_>) {
        self.check_names(&keys_of(section), notes);
    }

    /// Notes keys that are not among `known`.
    pub(crate) fn check_names(&self, known: &[&'static str], notes: &mut Notes<'_>) {
        for (name, at, _) in self.entries() {
            if known.contains(&name) {
                continue;
            }
            if notes.full() {
                return;
            }
            let hint = match nearest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => home_of(name).unwrap_or_else(|| {
                    format!("the keys here are {}", listed(known.iter().map(|k| format!("`{k}`"))))
                }),
            };
            notes.note(at, format!("unknown key `{}`: {hint}", self.path_of(name)));
        }
    }

    /// The table under `key`; a mistake if it is something else.
    pub(crate) fn section(&self, key: &str, notes: &mut Notes<'_>) -> Option<Section<'a>> {
        let value = self.value(key)?;
        let Some(table) = value.get_ref().as_table() else {
            return self.refuse(key, value, "a table", notes);
        };
        Some(Section { path: self.path_of(key), table })
    }

    pub(crate) fn array(
        &self,
        key: &str,
        what: &str,
        notes: &mut Notes<'_>,
    ) -> Option<&'a DeArray<'a>> {
        let value = self.value(key)?;
        value.get_ref().as_array().or_else(|| self.refuse(key, value, what, notes))
    }

    pub(crate) fn text(&self, key: &str, what: &str, notes: &mut Notes<'_>) -> Option<&'a str> {
        let value = self.value(key)?;
        value.get_ref().as_str().or_else(|| self.refuse(key, value, what, notes))
    }

    pub(crate) fn flag(&self, key: &str, notes: &mut Notes<'_>) -> Option<bool> {
        let value = self.value(key)?;
        value.get_ref().as_bool().or_else(|| self.refuse(key, value, "true or false", notes))
    }

    /// A whole number in `range`.
    pub(crate) fn whole(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
        notes: &mut Notes<'_>,
    ) -> Option<u32> {
        let value = self.value(key)?;
        let number = whole(value.get_ref()).and_then(|number| u32::try_from(number).ok());
        number.filter(|number| range.contains(number)).or_else(|| {
            let what = format!("a whole number from {} to {}", range.start(), range.end());
            self.refuse(key, value, &what, notes)
        })
    }

    /// A number from 0 to 1.
    pub(crate) fn portion(&self, key: &str, notes: &mut Notes<'_>) -> Option<Portion> {
        let value = self.value(key)?;
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
            other => whole(other).map(|whole| whole as f64),
        };
        let portion = number.and_then(Portion::from_f64);
        portion.or_else(|| self.refuse(key, value, "a number from 0 to 1", notes))
    }

    /// A text that `T` can parse; `what` describes it in the message about another type.
    pub(crate) fn parsed<T>(&self, key: &str, what: &str, notes: &mut Notes<'_>) -> Option<T>
    where
        T: FromStr<Err: Display>,
    {
        let text = self.text(key, what, notes)?;
        let note = |error: T::Err| {
            notes.note(self.place(key), format!("`{}`: {error}", self.path_of(key)));
        };
        text.parse().map_err(note).ok()
    }

    /// One of two words.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        words: [(&str, T); 2],
        notes: &mut Notes<'_>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let text = value.get_ref().as_str();
        let found = words.iter().find(|(word, _)| Some(*word) == text);
        found.map(|&(_, meaning)| meaning).or_else(|| {
            let what = format!("\"{}\" or \"{}\"", words[0].0, words[1].0);
            let Some(text) = text else { return self.refuse(key, value, &what, notes) };
            let (path, text) = (self.path_of(key), shown(text));
            notes.note(self.place(key), format!("`{path}` must be {what}, but is `{text}`"));
            None
        })
    }

    /// Notes that the value of `key` must be `what`.
    pub(crate) fn refuse<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        what: &str,
        notes: &mut Notes<'_>,
    ) -> Option<T> {
        let path = self.path_of(key);
        notes.note(
            value.span().start,
            format!("`{path}` must be {what}, but is {}", Described(value.get_ref())),
        );
        None
    }
}

/// A section for a table that is not under a key of its own, as an element of an array, with `path`.
pub(crate) fn element<'a>(path: &str, table: &'a DeTable<'a>) -> Section<'a> {
    Section { path: path.to_string(), table }
}

/// A whole number, however it is written.
pub(crate) fn whole(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A value in the words of a message. Texts may be secret, so they are not repeated.
struct Described<'a>(&'a DeValue<'a>);

impl Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DeValue::String(_) => f.write_str("a text"),
            DeValue::Integer(integer) => f.write_str(&shown(&integer.to_string())),
            DeValue::Float(float) => f.write_str(&shown(float.as_str())),
            DeValue::Boolean(flag) => flag.fmt(f),
            DeValue::Datetime(_) => f.write_str("a date"),
            DeValue::Array(_) => f.write_str("an array"),
            DeValue::Table(_) => f.write_str("a table"),
        }
    }
}

/// The section that has `key`.
fn home_of(key: &str) -> Option<String> {
    let holds = |keys: &[Key]| keys.iter().any(|known| known.name == key);
    let home = sections().find(|section| holds(section.keys))?;
    let name = home.example.map(|_| ".NAME").unwrap_or_default();
    Some(format!("it belongs in `[{}{name}]`", home.section))
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// Text from outside, safe to print in a message: one line of limited length.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push_str("...");
    }
    short
}
