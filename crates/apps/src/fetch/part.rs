//! A partial file: written under a temporary name beside its target, and resumed only if the new
//! bytes are certain to continue the old ones.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::checksum::{Algorithm, Checksum, Hasher};
use super::directory::{Folder, LEFT_OVER, create, create_private, existing, length, remove};

/// Files up to this length stay in memory until they are complete. The thread that names them
/// writes them.
const SMALL: usize = 32 << 10;
/// Shorter files get no note: they are fetched anew.
pub(super) const RESUMED_FROM: u64 = 64 << 10;
/// Bytes between two sync points; a power cut loses nothing before the last one. Early syncs also
/// leave little to sync at the end.
const SYNC_EVERY: u64 = 32 << 20;
/// The longest note that is read.
const LONGEST_NOTE: u64 = 256 << 10;

/// The note about a partial file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Its URL, after all redirects.
    pub(super) url: String,
    /// The strong validator of the version that was begun.
    pub(super) etag: String,
    /// Its whole length, if the server gave one.
    pub(super) total: Option<u64>,
    /// The boot of the machine that wrote it. After another boot only synced bytes count.
    pub(super) boot: String,
    /// Bytes that are synced.
    pub(super) synced: u64,
    /// The name that the server suggests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) disposition: Option<String>,
    /// The split, if its pieces come over several connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) split: Option<Split>,
}

/// The split of a file into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Split {
    /// The length of the first piece, which is complete.
    pub(super) first: u64,
    /// The length of the other pieces.
    pub(super) size: u64,
    /// When it was begun: pieces of an earlier beginning do not count.
    pub(super) begun: u64,
}

/// A file that is being written.
pub(super) struct Part {
    folder: Folder,
    id: String,
    /// Small files stay in `buffer` until they are complete, and cost the disk nothing before.
    file: Option<Arc<File>>,
    buffer: Vec<u8>,
    pub(super) length: u64,
    /// The note on disk, if there is one.
    pub(super) note: Option<Note>,
    algorithm: Option<Algorithm>,
    /// The hash so far, if all bytes were hashed as they came. A resumed file is read again at its
    /// end.
    hasher: Option<Hasher>,
    /// The last sync point, and the task that syncs it.
    asked: u64,
    syncing: Option<JoinHandle<io::Result<u64>>>,
    /// Whether another owner is responsible for the files.
    handed_over: bool,
}

/// Removes a file that cannot be resumed.
impl Drop for Part {
    fn drop(&mut self) {
        if self.note.is_none() && self.file.is_some() && !self.handed_over {
            remove(&self.folder, &Part::name(&self.id));
        }
    }
}

/// A complete file without its final name.
pub(super) struct Complete {
    pub(super) folder: Folder,
    id: String,
    file: Option<Arc<File>>,
    buffer: Vec<u8>,
    noted: bool,
}

impl Complete {
    /// The file with all its bytes, under its temporary name.
    pub(super) fn file(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let file = Part::begin(&self.folder, &self.id)?;
            (&file).write_all(&std::mem::take(&mut self.buffer))?;
            self.file = Some(Arc::new(file));
        }
        Ok(self.file.as_ref().expect("just made"))
    }

    /// The temporary name.
    pub(super) fn temporary(&self) -> String {
        Part::name(&self.id)
    }

    /// Removes it. After a failed write it must not be used: a later sync may report success.
    pub(super) fn discard(&self) {
        self.forget_note();
        remove(&self.folder, &self.temporary());
    }

    /// Removes the note: there is nothing left to resume.
    pub(super) fn forget_note(&self) {
        if self.noted {
            Part::forget(&self.folder, &self.id);
        }
    }
}

impl Part {
    /// The temporary name of a file.
    pub(super) fn name(id: &str) -> String {
        format!("{LEFT_OVER}{id}.part")
    }

    fn note_name(id: &str) -> String {
        format!("{LEFT_OVER}{id}.json")
    }

    /// Begins a file from nothing.
    pub(super) fn fresh(folder: Folder, id: &str, algorithm: Option<Algorithm>) -> Part {
        Part {
            folder,
            id: id.to_string(),
            file: None,
            buffer: Vec::new(),
            length: 0,
            note: None,
            algorithm,
            hasher: algorithm.map(Hasher::new),
            asked: 0,
            syncing: None,
            handed_over: false,
        }
    }

    /// A new file in place of an old one. The note is removed first and the old file is not
    /// overwritten, so that after a power cut no note describes other bytes than its own.
    fn begin(folder: &Folder, id: &str) -> io::Result<File> {
        let name = Part::name(id);
        match create(folder, &name, OFlags::EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove(folder, &Part::note_name(id));
                remove(folder, &name);
                create(folder, &name, OFlags::EXCL)
            }
            created => created,
        }
    }

    /// Removes a note without a file, or with a useless one.
    pub(super) fn forget(folder: &Folder, id: &str) {
        remove(folder, &Part::note_name(id));
    }

    /// Opens a partial file that can be trusted, if there is one; otherwise its note is removed.
    pub(super) fn resume(
        folder: &Folder,
        id: &str,
        algorithm: Option<Algorithm>,
    ) -> io::Result<Option<Part>> {
        if length(folder, &Part::note_name(id))?.is_none() {
            return Ok(None);
        }
        let half = Part::half(folder, id, algorithm)?;
        if half.is_none() {
            Part::forget(folder, id);
        }
        Ok(half)
    }

    fn half(folder: &Folder, id: &str, algorithm: Option<Algorithm>) -> io::Result<Option<Part>> {
        let Some(note) = read_note(folder, id)? else { return Ok(None) };
        let Some(file) = existing(folder, &Part::name(id))? else { return Ok(None) };
        let found = file.metadata()?.len();
        let same_boot = !note.boot.is_empty() && note.boot == boot_id();
        let trusted = match note.split {
            Some(split) => split.first.min(found),
            None if same_boot => found,
            None => note.synced.min(found),
        };
        if trusted == 0 || note.total.is_some_and(|total| trusted > total) {
            return Ok(None);
        }
        if note.split.is_none() {
            file.set_len(trusted)?;
            (&file).seek(SeekFrom::Start(trusted))?;
        }
        Ok(Some(Part {
            folder: folder.clone(),
            id: id.to_string(),
            file: Some(Arc::new(file)),
            buffer: Vec::new(),
            length: trusted,
            note: Some(note),
            algorithm,
            hasher: None,
            asked: trusted,
            syncing: None,
            handed_over: false,
        }))
    }

    /// Discards all bytes, and starts over.
    pub(super) fn restart(self) -> Part {
        let (folder, id, algorithm) = (self.folder.clone(), self.id.clone(), self.algorithm);
        self.discard();
        Part::fresh(folder, &id, algorithm)
    }

    /// The file on disk. It is made if all bytes were in memory so far.
    fn on_disk(&mut self) -> io::Result<&Arc<File>> {
        if self.file.is_none() {
            let file = Part::begin(&self.folder, &self.id)?;
            self.file = Some(Arc::new(file));
            let buffer = std::mem::take(&mut self.buffer);
            let mut file: &File = self.file.as_ref().expect("just made");
            file.write_all(&buffer)?;
        }
        Ok(self.file.as_ref().expect("just made"))
    }

    /// Makes the file resumable.
    pub(super) fn keep_note(&mut self, note: Note) -> io::Result<()> {
        self.on_disk()?;
        write_note(&self.folder, &self.id, &note)?;
        self.note = Some(note);
        Ok(())
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.buffer.len() + piece.len() <= SMALL {
            self.buffer.extend_from_slice(piece);
        } else {
            let length = self.length;
            let mut file: &File = self.on_disk()?;
            if length < SYNC_EVERY {
                file.write_all(piece)?;
            } else {
                // On a slow disk writes block: that must not hold up other downloads.
                tokio::task::block_in_place(|| file.write_all(piece))?;
            }
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(piece);
        }
        self.length += piece.len() as u64;
        Ok(())
    }

    /// Begins a sync, if enough bytes were written.
    pub(super) async fn keep_up(&mut self) -> io::Result<()> {
        if self.length - self.asked >= SYNC_EVERY {
            self.sync_so_far().await?;
        }
        Ok(())
    }

    /// Begins the next sync point, after waiting for the one before.
    async fn sync_so_far(&mut self) -> io::Result<()> {
        if let Some(syncing) = self.syncing.take() {
            let synced = syncing.await.map_err(io::Error::other)??;
            if let Some(note) = &mut self.note {
                note.synced = synced;
                write_note(&self.folder, &self.id, note)?;
            }
        }
        let (file, length) = (self.on_disk()?.clone(), self.length);
        self.syncing = Some(tokio::task::spawn_blocking(move || {
            file.sync_data()?;
            Ok(length)
        }));
        self.asked = self.length;
        Ok(())
    }

    /// Syncs the bytes so far, and makes them resumable as the first of several pieces.
    pub(super) async fn split(&mut self, note: Note) -> io::Result<()> {
        let file = self.on_disk()?.clone();
        tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)??;
        self.keep_note(note)
    }

    /// The file, after its other pieces were written.
    pub(super) fn filled(mut self, total: u64) -> io::Result<Part> {
        let found = self.on_disk()?.metadata()?.len();
        if found != total {
            return Err(io::Error::other(format!("{found} bytes are there, not {total}")));
        }
        self.length = total;
        Ok(self)
    }

    /// Returns `true` if its pieces come over several connections.
    pub(super) fn is_split(&self) -> bool {
        self.note.as_ref().is_some_and(|note| note.split.is_some())
    }

    /// The digest of all bytes, if one is needed. Reports earlier errors of the disk.
    pub(super) async fn digest(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(syncing) = self.syncing.take() {
            syncing.await.map_err(io::Error::other)??;
        }
        let hasher = match (self.hasher.take(), self.algorithm) {
            (None, Some(algorithm)) => {
                let file = self.on_disk()?.clone();
                let hashed = tokio::task::spawn_blocking(move || hash(&file, algorithm)).await;
                Some(hashed.map_err(io::Error::other)??)
            }
            (hasher, _) => hasher,
        };
        Ok(hasher.map(Hasher::finish))
    }

    fn forget_note(&mut self) {
        if self.note.take().is_some() {
            remove(&self.folder, &Part::note_name(&self.id));
        }
    }

    /// Removes its files.
    pub(super) fn discard(mut self) {
        self.forget_note();
    }

    /// All its bytes are there.
    pub(super) fn complete(mut self) -> Complete {
        self.handed_over = true;
        Complete {
            folder: self.folder.clone(),
            id: std::mem::take(&mut self.id),
            file: self.file.take(),
            buffer: std::mem::take(&mut self.buffer),
            noted: self.note.is_some(),
        }
    }
}

fn read_note(folder: &Folder, id: &str) -> io::Result<Option<Note>> {
    let Some(file) = existing(folder, &Part::note_name(id))? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(LONGEST_NOTE).read_to_end(&mut text)?;
    // A power cut may have left anything: an unreadable note counts as missing.
    Ok(serde_json::from_slice(&text).ok())
}

fn write_note(folder: &Folder, id: &str, note: &Note) -> io::Result<()> {
    let text = serde_json::to_vec(note).expect("a note is plain data");
    // One write for the whole note, so that a kill leaves the old or the new one. Only its owner
    // may read it: its URL may contain a login.
    let file = create_private(folder, &Part::note_name(id))?;
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)
}

/// Reads a whole file. Returns `true` if its checksum matches.
pub(super) async fn comes_to(file: File, checksum: &Checksum) -> io::Result<bool> {
    let checksum = checksum.clone();
    let read = move || Ok(checksum.matches(&hash(&file, checksum.algorithm())?.finish()));
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

fn hash(mut file: &File, algorithm: Algorithm) -> io::Result<Hasher> {
    let (mut hasher, mut buffer) = (Hasher::new(algorithm), vec![0; 256 << 10]);
    file.rewind()?;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// The id of this boot of the machine; empty if the system has none.
pub(super) fn boot_id() -> &'static str {
    static BOOT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    BOOT.get_or_init(|| {
        let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        read.map(|id| id.trim().to_string()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::directory::Directory;

    fn note(total: u64) -> Note {
        Note {
            url: "http://a/b".to_string(),
            etag: "\"v1\"".to_string(),
            total: Some(total),
            boot: boot_id().to_string(),
            synced: 0,
            disposition: None,
            split: None,
        }
    }

    fn folder(place: &tempfile::TempDir) -> Folder {
        Directory::open(place.path()).and_then(|directory| directory.folder("")).expect("open")
    }

    /// Resumes a partial file with this note, as a kill leaves it, and returns the bytes that are
    /// kept.
    #[track_caller]
    fn check(bytes: usize, note: Note, believed: Option<u64>) {
        let place = tempfile::tempdir().expect("a directory");
        let folder = folder(&place);
        let mut part = Part::fresh(folder.clone(), "1", None);
        part.keep_note(note).expect("written");
        part.append(&vec![7; bytes]).expect("written");
        drop(part);
        let half = Part::resume(&folder, "1", None).expect("read");
        assert_eq!(half.map(|half| half.length), believed);
        let left = std::fs::read_dir(place.path()).expect("there").count();
        assert_eq!(
            left,
            if believed.is_some() { 2 } else { 1 },
            "a note that is not trusted is removed"
        );
    }

    #[test]
    fn a_partial_file_is_trusted_as_far_as_it_is_synced() {
        check(100_000, note(200_000), Some(100_000));
        check(100_000, note(50_000), None);
        check(0, note(200_000), None);
        let cut = Note { boot: "another".to_string(), ..note(200_000) };
        check(100_000, Note { synced: 64_000, ..cut.clone() }, Some(64_000));
        check(100_000, cut, None);
    }

    #[test]
    fn a_note_that_a_power_cut_tore_was_never_there() {
        let place = tempfile::tempdir().expect("a directory");
        let folder = folder(&place);
        let mut part = Part::fresh(folder.clone(), "1", None);
        part.keep_note(note(200_000)).expect("written");
        part.append(&[7; 1_000]).expect("written");
        drop(part);
        let name = place.path().join(Part::note_name("1"));
        let text = std::fs::read(&name).expect("there");
        for length in 0..text.len() {
            std::fs::write(&name, &text[..length]).expect("written");
            assert!(Part::resume(&folder, "1", None).expect("read").is_none(), "{length}");
        }
    }

    #[test]
    fn a_file_without_a_note_leaves_nothing_behind() {
        let place = tempfile::tempdir().expect("a directory");
        let mut part = Part::fresh(folder(&place), "1", None);
        part.append(&vec![7; SMALL + 1]).expect("written");
        assert_eq!(std::fs::read_dir(place.path()).expect("there").count(), 1);
        drop(part);
        assert_eq!(std::fs::read_dir(place.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_note_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().expect("a directory");
        let mut part = Part::fresh(folder(&place), "1", None);
        part.keep_note(note(200_000)).expect("written");
        let mode = std::fs::metadata(place.path().join(Part::note_name("1"))).expect("there");
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }
}
