//! The files of an open store, and whether they are still where they were opened.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::mark;

/// Which file it is, whatever it is called.
type Inode = (u64, u64);

/// The files that this process has open, by what they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    file: Inode,
    /// The log, once something was written to it.
    log: Option<Inode>,
}

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// They are where they were.
    Here,
    /// The log is gone. The connection still has it, and can move it into the file.
    LogGone,
    /// The file is gone, or another one has its name or its log's.
    Elsewhere,
}

impl Place {
    /// The file that was just opened at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Place> {
        let file = inode(path)?.ok_or(ErrorKind::NotFound)?;
        Ok(Place { file, log: None })
    }

    /// From now on the log counts too. SQLite makes it once and keeps it until the end.
    pub(super) fn with_log(self, path: &Path) -> io::Result<Place> {
        let log = inode(&mark::log(path))?.ok_or(ErrorKind::NotFound)?;
        Ok(Place { log: Some(log), ..self })
    }

    /// Looks whether they are still there.
    pub(super) fn look(self, path: &Path) -> io::Result<Found> {
        if inode(path)? != Some(self.file) {
            return Ok(Found::Elsewhere);
        }
        Ok(match (self.log, inode(&mark::log(path))?) {
            (None, _) => Found::Here,
            (Some(_), None) => Found::LogGone,
            (own, found) if own == found => Found::Here,
            _ => Found::Elsewhere,
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
