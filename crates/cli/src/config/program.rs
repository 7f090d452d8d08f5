//! Programs as the configuration writes them: a list of texts.

use std::path::PathBuf;

use paceline_apps::program::Program;

use super::document::{Notes, Section};

/// The most arguments of one program.
const MOST_ARGUMENTS: usize = 1_000;
const PROGRAM: &str = "a list of texts: a program and its arguments";

/// Reads `run`. Its working directory is set when the whole file has been read.
pub(crate) fn read_program(section: &Section<'_>, notes: &mut Notes<'_>) -> Option<Program> {
    let run = read_texts(section, "run", PROGRAM, notes)?;
    let path = section.path_of("run");
    if is_empty(section, "run") {
        notes.note(section.place("run"), format!("`{path}` is empty: name a program"));
    } else if run.first().is_some_and(String::is_empty) {
        let what = format!("`{path}` begins with an empty text: name a program there");
        notes.note(section.place("run"), what);
    }
    Some(Program { run, directory: PathBuf::new(), without: Vec::new() })
}

/// Returns `true` if a list is written and has no entries.
pub(crate) fn is_empty(section: &Section<'_>, key: &str) -> bool {
    let array = section.value(key).and_then(|value| value.get_ref().as_array());
    array.is_some_and(|array| array.is_empty())
}

/// A list of texts without zero bytes.
pub(crate) fn read_texts(
    section: &Section<'_>,
    key: &str,
    what: &str,
    notes: &mut Notes<'_>,
) -> Option<Vec<String>> {
    let array = section.array(key, what, notes)?;
    let path = section.path_of(key);
    if array.len() > MOST_ARGUMENTS {
        notes.note(section.place(key), format!("`{path}` has more than {MOST_ARGUMENTS} entries"));
        return None;
    }
    let mut texts = Vec::with_capacity(array.len());
    for value in array {
        match value.get_ref().as_str().filter(|text| !text.contains('\0')) {
            Some(text) => texts.push(text.to_string()),
            None => notes.note(value.span().start, format!("`{path}` must be {what}")),
        }
    }
    Some(texts)
}
