//! Entries that are JSON objects.

use serde::Deserialize;
use serde_json::Value;

use super::checked_path;
use crate::fetch::item::{Item, MOST_MIRRORS, text_without_password, url_of};

/// An object whose keys serde checks. The values are checked here, because serde's messages would
/// repeat them, and a URL may contain a password.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemFields {
    url: Option<Value>,
    urls: Option<Value>,
    out: Option<Value>,
    dir: Option<Value>,
    checksum: Option<Value>,
}

/// The item of a line with an object.
pub(super) fn item(line: &str) -> Result<Item, String> {
    if !line.trim_start().starts_with('{') {
        return Err("not an object: write `{\"url\": \"https://...\"}`".to_owned());
    }
    let fields: ItemFields = serde_json::from_str(line).map_err(|error| explained(&error))?;
    let texts = match (fields.url, fields.urls) {
        (Some(url), None) => vec![text("url", url)?],
        (None, Some(urls)) => texts(urls)?,
        (Some(_), Some(_)) => return Err("both `url` and `urls`: keep one of them".to_owned()),
        (None, None) => return Err("no `url`: write `{\"url\": \"https://...\"}`".to_owned()),
    };
    let urls = texts.iter().map(|text| url_of(text).map_err(|error| error.to_string()));
    let path = |key, value| checked_path(&text(key, value)?).map_err(|e| format!("`{key}`: {e}"));
    let checksum =
        |value| text("checksum", value)?.parse().map_err(|error| format!("`checksum`: {error}"));
    Ok(Item {
        urls: urls.collect::<Result<_, String>>()?,
        out: fields.out.map(|value| path("out", value)).transpose()?,
        dir: fields.dir.map(|value| path("dir", value)).transpose()?,
        checksum: fields.checksum.map(checksum).transpose()?,
    })
}

fn text(key: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(format!("`{key}` is not a text: put it in quotes")),
    }
}

fn texts(value: Value) -> Result<Vec<String>, String> {
    let Value::Array(values) = value else {
        return Err("`urls` is not a list: write `[\"https://...\"]`".to_owned());
    };
    match values.len() {
        0 => Err("`urls` is empty: give one at least".to_owned()),
        1..=MOST_MIRRORS => values.into_iter().map(|value| text("urls", value)).collect(),
        _ => Err(format!("more than {MOST_MIRRORS} mirrors of one file: leave some out")),
    }
}

/// The message of serde, without its line number, which is always 1. Unknown keys are removed too:
/// a URL may stand in the place of one.
fn explained(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let column = error.column();
    match message.strip_suffix(&place) {
        Some(what) if error.is_data() => text_without_password(what),
        Some(what) => format!("not JSON at column {column}: {what}"),
        None => text_without_password(&message),
    }
}
