//! The files of an archive: their names, and how to open them without following links, which could
//! lead out of the directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Returns `true` if a file of this name belongs to the archive. Case is ignored, as on the file
/// systems of macOS and Windows.
pub fn is_own(archive: &str, file: &str) -> bool {
    let (archive, file) = (archive.to_lowercase(), file.to_lowercase());
    let Some(rest) = file.strip_prefix(&archive) else { return false };
    let number = rest.strip_prefix('-').and_then(|rest| rest.strip_suffix(".warc.gz"));
    let is_segment = number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()));
    is_segment || rest == ".cdxj" || rest.starts_with(".cdxj.")
}

/// Opens a file for reading and writing.
pub(super) fn without_link() -> OpenOptions {
    let mut options = File::options();
    let flag = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).custom_flags(flag);
    options
}

/// Makes a new file in place of one that a crash may have left.
pub(super) fn anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::options().read(true).write(true).create_new(true).open(path),
    }
}
