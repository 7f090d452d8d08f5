//! The directory that files go to, and that nothing leaves: every folder below it is opened from
//! its parent, and no link is followed on the way.

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

/// Where this tool keeps its own things.
pub(super) const OWN_FOLDER: &str = ".paceline";

/// How names of half files and their notes begin.
pub(super) const LEFT_OVER: &str = ".paceline-";

/// One folder, open.
pub(super) type Folder = Arc<OwnedFd>;

/// The directory of all targets.
pub(super) struct Directory {
    root: Folder,
    open: Mutex<BTreeMap<String, Folder>>,
}

/// Whether missing folders are made on the way.
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
    /// Opens the directory, made if it is not there. The path itself may lead through links: it is
    /// the user's choice.
    pub(super) fn open(path: &Path) -> io::Result<Directory> {
        std::fs::create_dir_all(path)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Directory { root: Arc::new(root), open: Mutex::default() })
    }

    /// Whether anything of this program lies in the directory itself, such as a half file.
    pub(super) fn has_left_overs(&self) -> io::Result<bool> {
        for entry in rustix::fs::Dir::read_from(&*self.root)? {
            let entry = entry?;
            if entry.file_name().to_bytes().starts_with(LEFT_OVER.as_bytes()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The folder of a target, made if it is not there.
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

    /// What has this name, as far as one can see.
    pub(super) fn kind(&self, path: &str) -> Option<There> {
        let (folder, name) = split(path);
        let folder = match folder {
            "" => self.root.clone(),
            folder => self.walk(folder, Missing::Leave).ok()?,
        };
        let found = rustix::fs::statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Some(There::Folder),
            // Whoever put a link there has to be told that nothing goes through it.
            FileType::Symlink => None,
            _ => Some(There::File),
        }
    }

    /// The length of whatever has this name; nothing if nothing has.
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

/// The length of a plain file in a folder; something that is no plain file counts as there.
pub(super) fn length(folder: &Folder, name: &str) -> io::Result<Option<u64>> {
    match rustix::fs::statat(&**folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found.st_size as u64)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file of ours for reading and writing, made if it is not there.
pub(super) fn create(folder: &Folder, name: &str, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&**folder, name, flags, Mode::from_raw_mode(0o666))?.into())
}

/// The same for a file that only its owner may read.
pub(super) fn create_private(folder: &Folder, name: &str) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&**folder, name, flags, Mode::from_raw_mode(0o600))?.into())
}

/// Opens a file of ours that is there, for reading and writing.
pub(super) fn existing(folder: &Folder, name: &str) -> io::Result<Option<File>> {
    open_existing(folder, name, OFlags::RDWR)
}

/// Opens a file that is there, whosever it is, for reading.
pub(super) fn readable(folder: &Folder, name: &str) -> io::Result<Option<File>> {
    // A pipe must not hold us up until somebody writes to it.
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

/// Removes a file of ours; one that is gone already is no trouble.
pub(super) fn remove(folder: &Folder, name: &str) {
    let _ = rustix::fs::unlinkat(&**folder, name, AtFlags::empty());
}

/// Whether a file may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// What has that name is replaced.
    Anything,
    /// Only if nothing has that name.
    Nothing,
}

/// Gives a file its name; says whether that worked, which with [`Over::Nothing`] it may not.
pub(super) fn rename(folder: &Folder, from: &str, to: &str, over: Over) -> io::Result<bool> {
    let flags = match over {
        Over::Anything => RenameFlags::empty(),
        Over::Nothing => RenameFlags::NOREPLACE,
    };
    match rustix::fs::renameat_with(&**folder, from, &**folder, to, flags) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) if over == Over::Nothing => Ok(false),
        // A file system without this kind of renaming has hard links, which do the same.
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
