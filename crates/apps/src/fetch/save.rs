//! Gives complete files their names: synced in groups, renamed, and only then reported as saved.
//! One thread does it, so that a hundred small files cost one sync and not a hundred.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::directory::{Folder, Over, readable, remove, rename};
use super::part::{Complete, Part};
use super::progress::Progress;
use super::record::{Archive, Recorded};
use super::warc::WarcError;

/// Files that wait for the disk at most. A download beyond that keeps its slot until there is room.
pub(super) const MOST_WAITING: usize = 400;
/// The longest time that a group waits for more files.
const GATHER: Duration = Duration::from_millis(20);
/// The interval at which it checks for more files.
const LOOK: Duration = Duration::from_millis(2);
/// Up to this number files are synced one by one; beyond it, the whole file system is synced.
const FEW: usize = 4;

/// The name that a complete file is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetName {
    /// This name, which must be free.
    New(String),
    /// This name, even if it is taken.
    Replace(String),
    /// The first name if it is free, else the second.
    Either(String, String),
}

/// An error of naming a complete file.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveError {
    #[error("`{0}` exists with other contents: move it away, or replace it with `--overwrite`")]
    Exists(String),
    #[error("cannot write: {0}")]
    Disk(#[from] io::Error),
    #[error("the archive cannot be written: {0}")]
    Archive(String),
    #[error("the program is ending")]
    Ending,
}

impl SaveError {
    fn archive(error: &WarcError) -> SaveError {
        let cause = std::error::Error::source(error);
        let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        SaveError::Archive(format!("{error}{cause}"))
    }
}

/// A message to the thread.
enum Message {
    Save(Box<Order>),
    End,
}

/// One order for the thread.
struct Order {
    /// The file to name, if the response was a file.
    file: Option<Filed>,
    /// The exchange for the archive.
    recorded: Option<Box<Recorded>>,
    done: oneshot::Sender<Result<String, SaveError>>,
}

struct Filed {
    complete: Complete,
    target_name: TargetName,
}

/// A handle to the thread that saves files.
pub(super) struct Saver {
    orders: Sender<Message>,
    room: Semaphore,
}

impl Saver {
    /// Starts the thread, which returns the archive when it ends.
    pub(super) fn start(
        mark: File,
        archive: Option<Archive>,
        progress: Arc<Progress>,
    ) -> io::Result<(Saver, JoinHandle<Option<Archive>>)> {
        let (orders, inbox) = channel();
        let thread = std::thread::Builder::new().name("paceline-disk".to_string());
        let thread = thread.spawn(move || run(&inbox, &mark, archive, &progress))?;
        Ok((Saver { orders, room: Semaphore::new(MOST_WAITING) }, thread))
    }

    /// Waits for room for one more file. A download calls this before it releases its slot.
    pub(super) async fn room(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.room.acquire().await.expect("the semaphore is never closed")
    }

    /// Gives a complete file its name. When this returns, the file survives a power cut.
    pub(super) async fn save(
        &self,
        part: Part,
        target_name: TargetName,
        recorded: Option<Box<Recorded>>,
    ) -> Result<String, SaveError> {
        self.order(Some(Filed { complete: part.complete(), target_name }), recorded).await
    }

    /// Ends the thread after all earlier orders.
    pub(super) fn end(&self) {
        // An error means that the thread has already ended.
        let _ = self.orders.send(Message::End);
    }

    /// Writes a response that is not a file into the archive.
    pub(super) async fn record(&self, recorded: Box<Recorded>) -> Result<(), SaveError> {
        self.order(None, Some(recorded)).await.map(drop)
    }

    async fn order(
        &self,
        file: Option<Filed>,
        recorded: Option<Box<Recorded>>,
    ) -> Result<String, SaveError> {
        let (done, told) = oneshot::channel();
        let order = Order { file, recorded, done };
        self.orders.send(Message::Save(Box::new(order))).map_err(|_| SaveError::Ending)?;
        told.await.unwrap_or(Err(SaveError::Ending))
    }
}

fn run(
    inbox: &Receiver<Message>,
    mark: &File,
    mut archive: Option<Archive>,
    progress: &Progress,
) -> Option<Archive> {
    let mut patience = Duration::ZERO;
    loop {
        let (group, over) = gather(inbox, patience, progress);
        patience = if group.len() > 1 { GATHER } else { Duration::ZERO };
        save(group, mark, archive.as_mut());
        if over {
            return archive;
        }
    }
}

/// The next group, and whether it is the last. When files arrive in quick succession a group waits
/// a moment for more, which saves syncs; no slot is held meanwhile.
fn gather(
    inbox: &Receiver<Message>,
    patience: Duration,
    progress: &Progress,
) -> (Vec<Order>, bool) {
    let mut group = Vec::new();
    let take = |told: Result<Message, RecvTimeoutError>, group: &mut Vec<Order>| match told {
        Ok(Message::Save(order)) => {
            group.push(*order);
            None
        }
        Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => Some(true),
        Err(RecvTimeoutError::Timeout) => Some(false),
    };
    if let Some(over) = take(inbox.recv().map_err(RecvTimeoutError::from), &mut group) {
        return (group, over);
    }
    let until = Instant::now() + patience;
    while group.len() < MOST_WAITING / 2 {
        let left = until.saturating_duration_since(Instant::now());
        match take(inbox.recv_timeout(left.min(LOOK)), &mut group) {
            Some(true) => return (group, true),
            // No body is in transfer, so no file can arrive soon.
            Some(false) if left <= LOOK || progress.is_idle() => break,
            Some(false) | None => {}
        }
    }
    (group, false)
}

fn save(mut group: Vec<Order>, mark: &File, archive: Option<&mut Archive>) {
    group = written(group);
    if let Some(archive) = archive {
        group = archived(group, archive);
    }
    let folders = folders(&group);
    let files = group.iter_mut().filter_map(|order| order.file.as_mut());
    let synced = files
        .map(|filed| filed.complete.file())
        .collect::<io::Result<Vec<_>>>()
        .and_then(|files| sync(&files, &folders));
    renew(mark);
    let mut named = Vec::with_capacity(group.len());
    for order in group {
        let result = match (&synced, order.file) {
            (Err(error), file) => {
                if let Some(filed) = file {
                    filed.complete.discard();
                }
                Err(SaveError::Disk(copied(error)))
            }
            (Ok(()), None) => Ok(String::new()),
            (Ok(()), Some(filed)) => filed.give_name(),
        };
        named.push((order.done, result));
    }
    let synced = sync_folders(&folders);
    for (done, result) in named {
        let result = match &synced {
            Ok(()) => result,
            Err(error) => Err(SaveError::Disk(copied(error))),
        };
        // The download may have been stopped in the meantime: the file is saved all the same.
        let _ = done.send(result);
    }
}

/// Writes files that were small enough to wait in memory.
fn written(group: Vec<Order>) -> Vec<Order> {
    let mut kept = Vec::with_capacity(group.len());
    for mut order in group {
        match order.file.as_mut().map(|filed| filed.complete.file()) {
            None | Some(Ok(_)) => kept.push(order),
            Some(Err(error)) => order.refuse(SaveError::Disk(error)),
        }
    }
    kept
}

/// Writes the exchanges to the archive, and syncs it before any file of the group is named.
fn archived(group: Vec<Order>, archive: &mut Archive) -> Vec<Order> {
    let mut kept = Vec::with_capacity(group.len());
    for mut order in group {
        let written = match order.recorded.take() {
            None => Ok(()),
            Some(recorded) => {
                let body = order.file.as_mut().and_then(|filed| filed.complete.file().ok());
                archive.write(*recorded, body)
            }
        };
        match written {
            Ok(()) => kept.push(order),
            Err(error) => order.refuse(SaveError::archive(&error)),
        }
    }
    match archive.sync() {
        Ok(()) => kept,
        Err(error) => {
            for order in kept {
                order.refuse(SaveError::archive(&error));
            }
            Vec::new()
        }
    }
}

impl Order {
    fn refuse(self, error: SaveError) {
        if let Some(filed) = self.file {
            filed.complete.discard();
        }
        // The download may have been stopped in the meantime.
        let _ = self.done.send(Err(error));
    }
}

/// Updates the time of the mark. If the process dies between naming a file and reporting it, the
/// file is not younger than the mark. Without a mark the age of the store is used.
fn renew(mark: &File) {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
    let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let times = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    let _ = rustix::fs::futimens(mark, &times);
}

/// The folders that the files of a group are in, each once.
fn folders(group: &[Order]) -> Vec<Folder> {
    let all = group.iter().filter_map(|order| order.file.as_ref());
    let by_number = all.map(|filed| &filed.complete.folder).map(|it| (it.as_raw_fd(), it.clone()));
    by_number.collect::<BTreeMap<_, _>>().into_values().collect()
}

fn sync(files: &[&File], folders: &[Folder]) -> io::Result<()> {
    if files.len() > FEW {
        return sync_systems(folders);
    }
    files.iter().try_for_each(|file| file.sync_data())
}

fn sync_folders(folders: &[Folder]) -> io::Result<()> {
    if folders.len() > FEW {
        return sync_systems(folders);
    }
    folders.iter().try_for_each(|folder| Ok(rustix::fs::fsync(&**folder)?))
}

/// Syncs the file systems that these folders are on, with all that is in them.
fn sync_systems(folders: &[Folder]) -> io::Result<()> {
    let mut systems = BTreeSet::new();
    for folder in folders {
        if systems.insert(rustix::fs::fstat(&**folder)?.st_dev) {
            rustix::fs::syncfs(&**folder)?;
        }
    }
    Ok(())
}

impl Filed {
    fn give_name(mut self) -> Result<String, SaveError> {
        let target_name = self.target_name.clone();
        let name = match target_name {
            TargetName::Replace(name) => {
                let Complete { folder, .. } = &self.complete;
                rename(folder, &self.complete.temporary(), &name, Over::Anything)?;
                name
            }
            TargetName::New(name) | TargetName::Either(name, _) if self.claim(&name)? => name,
            TargetName::Either(_, other) if self.claim(&other)? => other,
            TargetName::New(name) | TargetName::Either(_, name) => {
                self.complete.discard();
                return Err(SaveError::Exists(name));
            }
        };
        self.complete.forget_note();
        Ok(name)
    }

    /// Takes a name that is free, or whose file has the same bytes: a crash between the naming and
    /// the commit leaves such a file behind.
    fn claim(&mut self, name: &str) -> io::Result<bool> {
        let (folder, temporary) = (self.complete.folder.clone(), self.complete.temporary());
        if rename(&folder, &temporary, name, Over::Nothing)? {
            return Ok(true);
        }
        let same = match readable(&folder, name) {
            Ok(Some(found)) if found.metadata()?.is_file() => {
                same_bytes(self.complete.file()?, &found)?
            }
            // A folder, a link, or a file without read permission.
            Ok(_) | Err(_) => false,
        };
        if same {
            remove(&folder, &temporary);
        }
        Ok(same)
    }
}

fn same_bytes(one: &File, other: &File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (one, other);
    one.rewind()?;
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let read = one.read(&mut left)?;
        if read == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..read])?;
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}

/// Copies an error, for every member of a group.
fn copied(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::directory::Directory;

    struct Fixture {
        directory: tempfile::TempDir,
        folder: Folder,
        saver: Saver,
        thread: JoinHandle<Option<Archive>>,
    }

    impl Fixture {
        fn new() -> Fixture {
            let directory = tempfile::tempdir().expect("a directory");
            let folder = Directory::open(directory.path()).and_then(|d| d.folder(""));
            let mark = tempfile::tempfile().expect("a mark");
            let (saver, thread) = Saver::start(mark, None, Arc::default()).expect("a thread");
            Fixture { directory, folder: folder.expect("open"), saver, thread }
        }

        async fn save(
            &self,
            id: &str,
            bytes: &[u8],
            target_name: TargetName,
        ) -> Result<String, SaveError> {
            let mut part = Part::fresh(self.folder.clone(), id, None);
            part.append(bytes).expect("written");
            self.saver.save(part, target_name, None).await
        }

        /// The names and contents of all files, once the thread has ended.
        fn end(self) -> Vec<(String, Vec<u8>)> {
            self.saver.end();
            self.thread.join().expect("it ends");
            let entries = std::fs::read_dir(self.directory.path()).expect("there");
            let read = entries.map(|entry| {
                let path = entry.expect("an entry").path();
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                (name, std::fs::read(&path).expect("read"))
            });
            let mut found: Vec<_> = read.collect();
            found.sort();
            found
        }
    }

    #[tokio::test]
    async fn a_name_that_is_taken_is_refused() {
        let fixture = Fixture::new();
        let new = |name: &str| TargetName::New(name.to_string());
        fixture.save("1", b"one", new("a")).await.expect("saved");
        let refused = fixture.save("2", b"two", new("a")).await.expect_err("it is taken");
        assert!(matches!(refused, SaveError::Exists(name) if name == "a"));
        let either = TargetName::Either("a".to_string(), "a-2".to_string());
        assert_eq!(fixture.save("3", b"three", either).await.expect("saved"), "a-2");
        fixture.save("4", b"four", TargetName::Replace("a-2".to_string())).await.expect("saved");
        let pairs = [("a", b"one".to_vec()), ("a-2", b"four".to_vec())];
        assert_eq!(fixture.end(), pairs.map(|(name, bytes)| (name.to_string(), bytes)));
    }

    #[tokio::test]
    async fn the_same_bytes_under_the_same_name_are_the_same_file() {
        let fixture = Fixture::new();
        for id in ["1", "2"] {
            let saved = fixture.save(id, b"same", TargetName::New("a".to_string())).await;
            assert_eq!(saved.expect("saved"), "a");
        }
        assert_eq!(fixture.end(), [("a".to_string(), b"same".to_vec())]);
    }

    #[tokio::test]
    async fn a_large_group_is_saved_completely() {
        let fixture = Fixture::new();
        let names: Vec<String> = (0..300).map(|n| format!("f{n:03}")).collect();
        let saves = names
            .iter()
            .map(|name| fixture.save(name, name.as_bytes(), TargetName::New(name.clone())));
        for saved in futures_util::future::join_all(saves).await {
            saved.expect("saved");
        }
        let expected = names.iter().map(|name| (name.clone(), name.clone().into_bytes()));
        assert_eq!(fixture.end(), expected.collect::<Vec<_>>());
    }
}
