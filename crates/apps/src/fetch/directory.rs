//! The target directory. No file is written outside it: every folder below it is opened from its
//! parent, and no link is followed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::name::There;

/// Folders that are kept open.
const MOST_OPEN: usize = 256;

/// The folder for the files of this tool.
pub(super) const OWN_FOLDER: &str = ".paceline";

/// The prefix of the names of partial files and their notes.
pub(super) const LEFT_OVER: &str = ".paceline-";

/// One folder, open.
pub(super) type Folder = Arc<OwnedFd>;

/// The directory of all targets.
pub(super) struct Directory {
    root: Folder,
    open: Mutex<BTreeMap<String, Folder>>,
}

/// Whether missing folders are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Leave,
}

/// A path below the directory, as folder and name.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Directory {
    /// Opens the directory, and makes it if it is missing. The path itself may lead through links:
    /// the user chose it.
    pub(super) fn open(path: &Path) -> io::Result<Directory> {
        std::fs::create_dir_all(path)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Directory { root: Arc::new(root), open: Mutex::default() })
    }

    /// Returns `true` if the directory itself holds files of this program, such as partial files.
    pub(super) fn has_left_overs(&self) -> io::Result<bool> {
        for entry in rustix::fs::Dir::read_from(&*self.root)? {
            let entry = entry?;
            if entry.file_name().to_bytes().starts_with(LEFT_OVER.as_bytes()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The folder of a target. It is made if it is missing.
    pub(super) fn folder(&self, path: &str) -> io::Result<Folder> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = open.get(path) {
            return Ok(folder.clone());
        }
        let folder = self.walk(path, Missing::Make)?;
        if open.len() >= MOST_OPEN {
            open.clear();
        }
        open.insert(path.to_string(), folder.clone());
        Ok(folder)
    }

    fn walk(&self, path: &str, missing: Missing) -> io::Result<Folder> {
        let mut at = self.root.clone();
        for name in path.split('/') {
            if missing == Missing::Make {
                match rustix::fs::mkdirat(&*at, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
            at = Arc::new(rustix::fs::openat(&*at, name, flags, Mode::empty())?);
        }
        Ok(at)
    }

    /// A plain file that is there.
    pub(super) fn plain_file(&self, path: &str) -> io::Result<Option<File>> {
        let (folder, name) = split(path);
        let folder = match folder {
            "" => self.root.clone(),
            folder => match self.walk(folder, Missing::Leave) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                walked => walked?,
            },
        };
        match readable(&folder, name) {
            Ok(Some(file)) if file.metadata()?.is_file() => Ok(Some(file)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The kind of file with this name.
    pub(super) fn kind(&self, path: &str) -> Option<There> {
        let (folder, name) = split(path);
        let folder = match folder {
            "" => self.root.clone(),
            folder => self.walk(folder, Missing::Leave).ok()?,
        };
        let found = rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Some(There::Folder),
            // A link is an error of its own, since links are never followed.
            FileType::Symlink => None,
            _ => Some(There::File),
        }
    }

    /// The length of the file with this name, of any kind; `None` if there is none.
    pub(super) fn length(&self, path: &str) -> io::Result<Option<u64>> {
        let (folder, name) = split(path);
        let folder = match folder {
            "" => Ok(self.root.clone()),
            folder => self.walk(folder, Missing::Leave),
        };
        match folder {
            Ok(folder) => length(&folder, name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The length of a regular file in a folder. A file of another kind counts as existing.
pub(super) fn length(folder: &Folder, name: &str) -> io::Result<Option<u64>> {
    match rustix::fs::statat(&**folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found.st_size as u64)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file of this program for reading and writing. It is made if it is missing.
pub(super) fn create(folder: &Folder, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&**folder, name, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Like `create`, for a file that only its owner may read.
pub(super) fn create_private(folder: &Folder, name: &str) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&**folder, name, flags, Mode::from_raw_mode(0o600))?.into())
}

/// Opens an existing file of this program for reading and writing.
pub(super) fn existing(folder: &Folder, name: &str) -> io::Result<Option<File>> {
    open_existing(folder, name, OFlags::RDWR)
}

/// Opens any existing file for reading.
pub(super) fn readable(folder: &Folder, name: &str) -> io::Result<Option<File>> {
    // Opening a pipe must not block until it has a writer.
    open_existing(folder, name, OFlags::RDONLY | OFlags::NONBLOCK)
}

fn open_existing(folder: &Folder, name: &str, access: OFlags) -> io::Result<Option<File>> {
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&**folder, name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file of this program. A missing file is no error.
pub(super) fn remove(folder: &Folder, name: &str) {
    let _ = rustix::fs::unlinkat(&**folder, name, AtFlags::empty());
}

/// The file that a rename may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Any file with that name is replaced.
    Anything,
    /// None: the name must be free.
    Nothing,
}

/// Renames a file. Returns `false` if the name is taken, which only [`Over::Nothing`] can.
pub(super) fn rename(folder: &Folder, from: &str, to: &str, over: Over) -> io::Result<bool> {
    let flags = match over {
        Over::Anything => RenameFlags::empty(),
        Over::Nothing => RenameFlags::NOREPLACE,
    };
    match rustix::fs::renameat_with(&**folder, from, &**folder, to, flags) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) if over == Over::Nothing => Ok(false),
        // A file system without this kind of rename: a hard link has the same effect.
        Err(Errno::INVAL) if over == Over::Nothing => {
            match rustix::fs::linkat(&**folder, from, &**folder, to, AtFlags::empty()) {
                Ok(()) => {
                    remove(folder, from);
                    Ok(true)
                }
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_and_links_are_not_followed() {
        let outside = tempfile::tempdir().expect("a directory");
        let inside = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(inside.path()).expect("it opens");
        directory.folder("a/b").expect("it is made");
        assert!(inside.path().join("a/b").is_dir());
        std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).expect("a link");
        assert!(directory.folder("out").is_err());
        assert!(directory.folder("out/deeper").is_err());
        assert!(directory.length("out/x").is_err());
        assert_eq!(std::fs::read_dir(outside.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn a_file_behind_a_link_is_neither_written_nor_replaced() {
        let outside = tempfile::tempdir().expect("a directory");
        let inside = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(inside.path()).expect("it opens");
        let folder = directory.folder("").expect("the root");
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "kept").expect("written");
        std::os::unix::fs::symlink(&secret, inside.path().join("x")).expect("a link");
        assert!(create(&folder, "x", OFlags::TRUNC).is_err());
        create(&folder, "new", OFlags::TRUNC).expect("made");
        assert!(!rename(&folder, "new", "x", Over::Nothing).expect("it answers"));
        assert!(rename(&folder, "new", "x", Over::Anything).expect("it answers"));
        assert_eq!(std::fs::read(&secret).expect("there"), b"kept");
        assert!(inside.path().join("x").symlink_metadata().expect("there").is_file());
    }

    #[test]
    fn a_length_is_that_of_the_file_itself() {
        let inside = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(inside.path()).expect("it opens");
        std::fs::write(inside.path().join("x"), "12345").expect("written");
        assert_eq!(directory.length("x").expect("read"), Some(5));
        assert_eq!(directory.length("y").expect("read"), None);
        assert_eq!(directory.length("no/such/folder").expect("read"), None);
    }
}
