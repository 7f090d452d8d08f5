//! Headers of a lane. Their values are in the configuration or, for secrets, in the environment or in
//! another file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use toml::de::DeValue;

use super::document::{Notes, Section, element, shown};

/// The most headers of one lane.
const MOST_HEADERS: usize = 50;
/// The largest file that holds a secret.
const LARGEST_SECRET: u64 = 64 << 10;

/// One header of a lane's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderConfig {
    /// Its name.
    pub name: HeaderName,
    /// The text before the value, such as `Bearer `.
    pub prefix: String,
    /// The source of its value.
    pub source: Source,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration: not a secret.
    Here(String),
    /// A variable of the environment.
    Env(String),
    /// A file, relative to the configuration.
    File(PathBuf),
}

impl HeaderConfig {
    /// The header, as it is sent. No error repeats its value.
    pub(super) fn resolve(&self, directory: &Path) -> anyhow::Result<(HeaderName, HeaderValue)> {
        let name = &self.name;
        let (value, whence) = match &self.source {
            Source::Here(text) => (text.clone(), "the configuration".to_string()),
            Source::Env(variable) => {
                let value = std::env::var(variable);
                let value = value.with_context(|| {
                    format!("the header `{name}` needs the environment variable `{variable}`")
                })?;
                (value, format!("`{variable}`"))
            }
            Source::File(file) => {
                let file = directory.join(file);
                let shown = file.display().to_string();
                let read = || -> std::io::Result<String> {
                    use std::io::Read as _;
                    let mut text = String::new();
                    let most = LARGEST_SECRET + 1;
                    std::fs::File::open(&file)?.take(most).read_to_string(&mut text)?;
                    if text.len() as u64 == most {
                        return Err(std::io::Error::other("it is larger than 64 KiB"));
                    }
                    Ok(text)
                };
                let text = read()
                    .with_context(|| format!("the header `{name}` needs the file `{shown}`"))?;
                (text, format!("`{shown}`"))
            }
        };
        let text = format!("{}{}", self.prefix, value.trim_end_matches(['\r', '\n']));
        let value = HeaderValue::from_str(&text).ok();
        let mut value = value.with_context(|| {
            format!("the value of {whence} is not valid for the header `{name}`")
        })?;
        value.set_sensitive(true);
        Ok((name.clone(), value))
    }
}

const WHAT: &str = "a text, { env = \"VARIABLE\" } or { file = \"name\" }";

/// Reads `headers` of a lane.
pub(super) fn read_headers(section: &Section<'_>, notes: &mut Notes<'_>) -> Vec<HeaderConfig> {
    let Some(table) = section.section("headers", notes) else { return Vec::new() };
    let mut headers = Vec::new();
    for (name, at, value) in table.entries() {
        if headers.len() == MOST_HEADERS || notes.full() {
            notes.note(at, format!("`{}` has more than {MOST_HEADERS} entries", table.path()));
            return headers;
        }
        let own = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING];
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        let Some(parsed) = parsed.filter(|parsed| !own.contains(parsed)) else {
            notes.note(at, format!("`{}` is not a header name that can be set", shown(name)));
            continue;
        };
        let path = table.path_of(name);
        let (prefix, source) = match value.get_ref() {
            DeValue::String(text) => {
                if HeaderValue::from_str(text).is_err() {
                    let what = format!("the value of `{path}` is not valid for a header");
                    notes.note(value.span().start, what);
                }
                (String::new(), Some(Source::Here(text.to_string())))
            }
            DeValue::Table(inner) => read_source(&element(&path, inner), notes),
            _ => (String::new(), None),
        };
        match source {
            Some(source) => headers.push(HeaderConfig { name: parsed, prefix, source }),
            None => notes.note(value.span().start, format!("`{path}` must be {WHAT}")),
        }
    }
    headers
}

fn read_source(table: &Section<'_>, notes: &mut Notes<'_>) -> (String, Option<Source>) {
    table.check_names(&["env", "file", "prefix"], notes);
    let prefix = table.text("prefix", "a text", notes).unwrap_or_default().to_string();
    let env = table.text("env", "the name of a variable", notes);
    let file = table.text("file", "a file name", notes);
    let source = match (env, file) {
        (Some(env), None) => Some(Source::Env(env.to_string())),
        (None, Some(file)) => Some(Source::File(PathBuf::from(file))),
        (None, None) | (Some(_), Some(_)) => None,
    };
    (prefix, source)
}
