//! The files of an archive: which they are, and how they are opened without following links, since
//! one could lead out of the directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Whether a file of this name, in the directory of an archive, is one of its own. Upper and lower
/// case are one, as on the file systems of macOS and Windows.
pub fn is_own(archive: &str, file: &str) -> bool {
    let (archive, file) = (archive.to_lowercase(), file.to_lowercase());
    let Some(rest) = file.strip_prefix(&archive) else { return false };
    let number = rest.strip_prefix('-').and_then(|rest| rest.strip_suffix(".warc.gz"));
    let is_segment = number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()));
    is_segment || rest == ".cdxj" || rest.starts_with(".cdxj.")
}

/// For reading and writing.
pub(super) fn without_link() -> OpenOptions {
    let mut options = File::options();
    let flag = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).custom_flags(flag);
    options
}

/// A new file in the place of one that a crash may have left.
pub(super) fn anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::options().read(true).write(true).create_new(true).open(path),
    }
}
