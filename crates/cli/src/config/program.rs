//! Programs as they are written: a list of texts.

use std::path::PathBuf;

use paceline_apps::program::Program;

use super::document::{Notes, Section};

/// Arguments of one program.
const MOST_ARGUMENTS: usize = 1_000;
const PROGRAM: &str = "a list of texts: a program and its arguments";

/// Reads `run`. Where it runs is known when all of the file was read.
pub(super) fn read_program(section: &Section<'_>, notes: &mut Notes<'_>) -> Option<Program> {
    let run = read_texts(section, "run", PROGRAM, notes)?;
    if section.array("run", PROGRAM, notes).is_some_and(|array| array.is_empty()) {
        let what = format!("`{}` is empty: name a program", section.path_of("run"));
        notes.note(section.place("run"), what);
    }
    Some(Program { run, directory: PathBuf::new() })
}

/// A list of texts without zero bytes.
pub(super) fn read_texts(
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
