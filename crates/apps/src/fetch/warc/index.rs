//! The index: lines are added as records become durable, and sorted at the end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::files::{anew, without_link};
use super::line::location;
use super::lines::{Line, next_line};
use super::repair::repair;
use super::sort::{IN_MEMORY, Sorter};
use super::{MAX_NUMBER, WarcError};

/// Bytes of lines that may wait for the next sync.
const MAX_PENDING: usize = 1 << 20;

/// The prefix of lines that announce a file. No key of a URL begins with it.
const ANNOUNCEMENT: &[u8] = b"# ";

/// The lines of unfinished runs, in `NAME.cdxj.part`, which is locked while open.
pub(super) struct Index {
    directory: PathBuf,
    name: String,
    path: PathBuf,
    part: File,
    end: u64,
    pending: Vec<u8>,
    /// The files of unfinished earlier runs, with their lengths after the repair.
    lengths: BTreeMap<String, u64>,
}

impl Index {
    /// Locks the lines, and repairs the files of unfinished runs.
    pub(super) fn open(directory: &Path, name: &str) -> Result<Index, WarcError> {
        let path = directory.join(format!("{name}.cdxj.part"));
        let part = locked(&path)?;
        sync_directory(directory)?;
        let (directory, name) = (directory.to_owned(), name.to_owned());
        let (pending, lengths) = (Vec::new(), BTreeMap::new());
        let mut index = Index { directory, name, path, part, end: 0, pending, lengths };
        let announced = index.read_back().map_err(WarcError::disk("read", &index.path))?;
        for (file, known) in announced {
            let path = index.directory.join(&file);
            let each = &mut |line: String| {
                index.push(&line);
                if index.is_full() { index.append_pending() } else { Ok(()) }
            };
            let length = repair(&path, &known, each).map_err(WarcError::disk("repair", &path))?;
            index.lengths.insert(file, length);
        }
        index.sync()?;
        Ok(index)
    }

    /// The number after the highest one in the directory and the index.
    pub(super) fn next_number(&self) -> Result<u32, WarcError> {
        let refused = || WarcError::disk("list", &self.directory);
        let mut highest = 0;
        for entry in fs::read_dir(&self.directory).map_err(refused())? {
            let file = entry.map_err(refused())?.file_name();
            let number = file.to_str().and_then(|file| number(&self.name, file));
            highest = highest.max(number.unwrap_or(0));
        }
        // Files may have been moved elsewhere; their lines must not point to new files.
        for file in self.lengths.keys() {
            highest = highest.max(number(&self.name, file).unwrap_or(0));
        }
        let finished = self.finished_path();
        each_line(&finished, &mut |line| {
            let number = location(line).and_then(|location| number(&self.name, &location.file));
            highest = highest.max(number.unwrap_or(0));
            Ok(())
        })
        .map_err(WarcError::disk("read", &finished))?;
        Ok(highest + 1)
    }

    /// Announces a file that is about to be made. Returns when the announcement is durable.
    pub(super) fn announce(&mut self, file: &str) -> Result<(), WarcError> {
        self.pending.extend_from_slice(ANNOUNCEMENT);
        self.push(file);
        self.push("\n");
        self.sync()
    }

    /// Adds the line of a record, which must be durable before the next sync.
    pub(super) fn push(&mut self, line: &str) {
        self.pending.extend_from_slice(line.as_bytes());
    }

    /// Returns `true` if a sync is due.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() > MAX_PENDING
    }

    /// Returns when all lines so far survive a crash.
    pub(super) fn sync(&mut self) -> Result<(), WarcError> {
        self.append_pending()
            .and_then(|()| self.part.sync_data())
            .map_err(WarcError::disk("write to", &self.path))
    }

    /// Sorts the lines of this run and of all earlier ones into `NAME.cdxj`.
    pub(super) fn finish(mut self) -> Result<PathBuf, WarcError> {
        self.sync()?;
        let finished = self.finished_path();
        self.sort_into(&finished).map_err(WarcError::disk("write", &finished))?;
        // From here on these files are complete, and will not be repaired again.
        fs::remove_file(&self.path).map_err(WarcError::disk("remove", &self.path))?;
        sync_directory(&self.directory)?;
        Ok(finished)
    }

    fn finished_path(&self) -> PathBuf {
        self.directory.join(format!("{}.cdxj", self.name))
    }

    fn append_pending(&mut self) -> io::Result<()> {
        self.part.write_all_at(&self.pending, self.end)?;
        self.end += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// The announced files, each with its last record that has a line. A torn line and all lines
    /// after it were never durable, and are dropped.
    fn read_back(&mut self) -> io::Result<BTreeMap<String, Range<u64>>> {
        let mut announced: BTreeMap<String, Range<u64>> = BTreeMap::new();
        let mut reader = BufReader::new(&self.part);
        let mut line = Vec::new();
        let mut end = 0;
        loop {
            match next_line(&mut reader, &mut line) {
                Ok(Line::Whole) => {}
                Ok(Line::Cut | Line::None) => break,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => break,
                Err(error) => return Err(error),
            }
            if let Some(file) = line.strip_prefix(ANNOUNCEMENT) {
                // A name that does not belong to the archive could lead out of the directory.
                let file = std::str::from_utf8(file).ok();
                let Some(file) = file.filter(|file| number(&self.name, file).is_some()) else {
                    break;
                };
                announced.entry(file.to_owned()).or_default();
            } else {
                let Some(location) = location(&line) else { break };
                if let Some(known) = announced.get_mut(&location.file)
                    && known.start <= location.offset
                {
                    *known = location.range();
                }
            }
            end += line.len() as u64 + 1;
        }
        self.part.set_len(end)?;
        self.end = end;
        Ok(announced)
    }

    fn sort_into(&self, finished: &Path) -> io::Result<()> {
        let mut sorter = Sorter::new(finished.with_extension("cdxj.sort"), IN_MEMORY);
        each_line(finished, &mut |line| sorter.push(line))?;
        each_line(&self.path, &mut |line| {
            if line.starts_with(ANNOUNCEMENT) || self.is_lost(line) {
                Ok(())
            } else {
                sorter.push(line)
            }
        })?;
        let new = finished.with_extension("cdxj.new");
        let mut out = BufWriter::new(anew(&new)?);
        sorter.write_to(&mut out)?;
        out.into_inner()?.sync_all()?;
        fs::rename(&new, finished)?;
        File::open(&self.directory)?.sync_all()
    }

    /// Returns `true` if the record of a line is no longer in its file.
    fn is_lost(&self, line: &[u8]) -> bool {
        location(line).is_none_or(|location| {
            self.lengths.get(&location.file).is_some_and(|&length| location.range().end > length)
        })
    }
}

/// The name of a file.
pub(super) fn file_name(name: &str, number: u32) -> String {
    format!("{name}-{number:05}.warc.gz")
}

/// The number in the name of a file, if the file belongs to the archive `name`.
fn number(name: &str, file: &str) -> Option<u32> {
    let digits = file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".warc.gz")?;
    let number = digits.parse().ok().filter(|&number| number <= MAX_NUMBER)?;
    (file_name(name, number) == file).then_some(number)
}

/// Syncs a directory, so that new, renamed and removed files survive a crash.
pub(super) fn sync_directory(directory: &Path) -> Result<(), WarcError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(WarcError::disk("write to", directory))
}

fn each_line(path: &Path, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line)? != Line::None {
        each(&line)?;
    }
    Ok(())
}

fn locked(path: &Path) -> Result<File, WarcError> {
    let refused = || WarcError::disk("open", path);
    loop {
        let file = without_link().create(true).truncate(false).open(path).map_err(refused())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(WarcError::Busy { path: path.to_owned() });
            }
            Err(fs::TryLockError::Error(error)) => return Err(refused()(error)),
        }
        // The holder of the lock may have removed the file when it finished: then this lock is on
        // a file without name, and the name may belong to another file.
        let mine = file.metadata().map_err(refused())?;
        match fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (mine.dev(), mine.ino()) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused()(error)),
        }
    }
}
