//! Entries of lists of URLs, with options below them as aria2 has them.

use super::{checked_path, manifest};
use crate::fetch::item::{Item, MOST_MIRRORS, url_of};

/// Options of aria2 that cannot be ignored: without them another file would be fetched, or none.
const NEEDED: [&str; 7] =
    ["header", "referer", "user-agent", "http-user", "http-passwd", "load-cookies", "all-proxy"];

/// The error for an option without an entry.
pub(super) const ORPHAN: &str = "an indented line is an option of the URL above it, and there is \
                                 none: take the spaces away if it is a URL";

/// The error for an option in a list without options.
pub(super) const NOT_PLAIN: &str = "an indented line is an option in aria2's format, and this list \
                                    is plain: take the spaces away if it is a URL";

/// The item of a line of URLs, separated by tabs.
pub(super) fn item(line: &str) -> Result<Item, String> {
    let mirrors = line.split('\t').map(str::trim).filter(|text| !text.is_empty());
    let mut urls = Vec::new();
    for text in mirrors {
        if urls.len() == MOST_MIRRORS {
            return Err(format!("more than {MOST_MIRRORS} mirrors of one file: leave some out"));
        }
        urls.push(url_of(text).map_err(|error| {
            if manifest::is_entry(line) {
                "this is a line of checksums: say where its files are with `--base URL`".to_owned()
            } else {
                error.to_string()
            }
        })?);
    }
    Ok(Item { urls, out: None, dir: None, checksum: None })
}

/// Reads an indented line into the item above it.
pub(super) fn apply(line: &str, item: &mut Item) -> Result<(), String> {
    let line = line.trim();
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let like_a_name =
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    // An indented URL may have a `=` in its query: it must not pass for an unknown option.
    if !like_a_name || !line.contains('=') {
        return Err("an indented line is an option such as ` out=NAME`: \
                    take the spaces away if it is a URL"
            .to_owned());
    }
    let named = |error: String| format!("`{name}`: {error}");
    match name {
        "out" => item.out = Some(checked_path(value).map_err(named)?),
        "dir" => item.dir = Some(checked_path(value).map_err(named)?),
        "checksum" => {
            let checksum = value.parse();
            item.checksum = Some(checksum.map_err(|error| named(format!("{error}")))?);
        }
        name if NEEDED.contains(&name) => {
            return Err(format!(
                "`{name}` is not read from lists: use the options of this command"
            ));
        }
        _ => {}
    }
    Ok(())
}
