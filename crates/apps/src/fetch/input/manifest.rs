//! Entries of checksum files, as `sha256sum` and similar tools write them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::checked_path;
use crate::fetch::checksum::{Checksum, ChecksumError};
use crate::fetch::item::Item;

/// Characters to encode in a name: all that cannot stand in a path. Tab and line feed are among
/// them: the URL parser would drop them silently.
const IN_NAMES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The item of a line; its name is a path below the base.
pub(super) fn item(line: &str, base: &Url) -> Result<Item, String> {
    let (checksum, name) = entry(line).map_err(|error| error.to_string())?;
    let out = checked_path(&name)?;
    let encoded: Vec<String> =
        out.split('/').map(|part| utf8_percent_encode(part, IN_NAMES).to_string()).collect();
    let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
    let path = format!("{directory}/{}", encoded.join("/"));
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(&path);
    Ok(Item { out: Some(out), checksum: Some(checksum), ..Item::of(url) })
}

/// Returns `true` if a line that should be a URL is an entry of a checksum file.
pub(super) fn is_entry(line: &str) -> bool {
    entry(line).is_ok()
}

#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("not a line of checksums: write `HEX  name` or `SHA256 (name) = HEX`")]
    Form,
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    #[error("a `\\` at the start of the line asks for `\\\\`, `\\n` and `\\r` in the name only")]
    Escape,
}

fn entry(line: &str) -> Result<(Checksum, String), EntryError> {
    let (escaped, line) = match line.strip_prefix('\\') {
        Some(line) => (true, line),
        None => (false, line),
    };
    let (checksum, name) = match gnu(line) {
        Some((hex, name)) => (Checksum::from_bare_hex(hex)?, name),
        None => bsd(line)?,
    };
    let name = if escaped { unescaped(name).ok_or(EntryError::Escape)? } else { name.to_owned() };
    Ok((checksum, name))
}

/// `HEX  name` or `HEX *name`; one space alone is how some BSDs write it.
fn gnu(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (hex, name) = line.split_once([' ', '\t'])?;
    let name = name.strip_prefix([' ', '*']).unwrap_or(name);
    let fits = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    (fits && !hex.is_empty() && !name.is_empty()).then_some((hex, name))
}

/// `SHA256 (name) = HEX`; openssl leaves out some of the spaces.
fn bsd(line: &str) -> Result<(Checksum, &str), EntryError> {
    let (algorithm, rest) = line.split_once('(').ok_or(EntryError::Form)?;
    let (name, rest) = rest.rsplit_once(')').ok_or(EntryError::Form)?;
    let hex = rest.trim().strip_prefix('=').ok_or(EntryError::Form)?;
    Ok((Checksum::from_hex(algorithm.parse()?, hex.trim())?, name))
}

fn unescaped(name: &str) -> Option<String> {
    let mut plain = String::new();
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            char => char,
        });
    }
    Some(plain)
}
