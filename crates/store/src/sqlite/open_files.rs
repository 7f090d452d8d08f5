//! The files of an open store, and whether they are still where they were opened.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::mark;

/// Device and number: a file whatever its name.
type Inode = (u64, u64);

/// The files that this process has open, by their inodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFiles {
    file: Inode,
    /// The log, once something was written to it.
    log: Option<Inode>,
}

/// The result of looking at their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilesCheck {
    /// Both are where they were opened.
    InPlace,
    /// The log is gone. The connection still has it, and can move it into the file.
    LogGone,
    /// The file is gone, or another one has its name or its log's.
    Gone,
}

impl OpenFiles {
    /// The file that was just opened at `path`.
    pub(super) fn of(path: &Path) -> io::Result<OpenFiles> {
        let file = inode(path)?.ok_or(ErrorKind::NotFound)?;
        Ok(OpenFiles { file, log: None })
    }

    /// From now on the log counts too. SQLite makes it once and keeps it until the end.
    pub(super) fn with_log(self, path: &Path) -> io::Result<OpenFiles> {
        let log = inode(&mark::log(path))?.ok_or(ErrorKind::NotFound)?;
        Ok(OpenFiles { log: Some(log), ..self })
    }

    /// Looks which files now have their paths.
    pub(super) fn check(self, path: &Path) -> io::Result<FilesCheck> {
        if inode(path)? != Some(self.file) {
            return Ok(FilesCheck::Gone);
        }
        Ok(match (self.log, inode(&mark::log(path))?) {
            (None, _) => FilesCheck::InPlace,
            (Some(_), None) => FilesCheck::LogGone,
            (own, found) if own == found => FilesCheck::InPlace,
            _ => FilesCheck::Gone,
        })
    }
}

fn inode(path: &Path) -> io::Result<Option<Inode>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
