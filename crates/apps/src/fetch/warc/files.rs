//! Files of an archive are opened without following links: one could lead out of the directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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
