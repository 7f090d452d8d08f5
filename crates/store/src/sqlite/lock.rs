//! One file, one owner: a lock beside the store that names its process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::StoreError;

/// A process that starts another shares its locks with it for a moment: a lock that this process
/// has just released may still be held by its child. So a lock that names this process is tried
/// again, for 200 ms.
const OWN_TRIES: u32 = 40;
const OWN_WAIT: Duration = Duration::from_millis(5);

/// The lock of a store, held as long as the store is open. The system releases it when the process
/// dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of the store at `path`, or returns an error that names its owner.
    ///
    /// The lock file stays when the lock goes: deleting it would let two processes lock two
    /// different files of the same name.
    pub(super) fn take(path: &Path) -> Result<Lock, StoreError> {
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create(true).truncate(false).open(beside(path));
        let mut file = open.map_err(|error| refusal(path, error))?;
        let mut tries = 0;
        while let Err(error) = file.try_lock() {
            if let TryLockError::Error(error) = error {
                return Err(refusal(path, error));
            }
            let pid = named_in(&mut file);
            tries += 1;
            if pid != Some(std::process::id()) || tries > OWN_TRIES {
                return Err(StoreError::InUse { path: path.into(), pid });
            }
            pause(OWN_WAIT);
        }
        sign(&mut file).map_err(|error| refusal(path, error))?;
        Ok(Lock { _file: file })
    }
}

/// The lock file of the store at `path`.
pub(super) fn beside(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

/// The process that has the store at `path`, if one has.
pub(super) fn owner(path: &Path) -> Option<u32> {
    let mut file = OpenOptions::new().read(true).write(true).open(beside(path)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => named_in(&mut file),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

#[expect(clippy::disallowed_methods, reason = "no event tells that a child has let go of a lock")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}

fn sign(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn named_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn refusal(path: &Path, error: std::io::Error) -> StoreError {
    let path = path.to_path_buf();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::NoDirectory { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { path },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::IsADirectory => {
            StoreError::Unwritable { path, source: error.into() }
        }
        _ => StoreError::Failed { path, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_a_child_of_this_process_still_shares_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.db");
        let lock = Lock::take(&path).expect("it is free");
        // The same lock in a second descriptor, as a fork makes it.
        let Lock { _file: file } = lock;
        let shared = file.try_clone().expect("a descriptor");
        drop(file);
        let child = std::thread::spawn(move || {
            pause(4 * OWN_WAIT);
            drop(shared);
        });
        Lock::take(&path).expect("it comes free");
        child.join().expect("it only waits");
    }
}
