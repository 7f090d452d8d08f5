//! One file of an archive: records are appended, and a record that fails leaves nothing behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha1::{Digest as _, Sha1};

use super::WarcError;
use super::line::RecordLocation;
use super::record::{PIECE, written};

/// Bytes that are buffered in memory.
const BUFFERED: usize = 256 << 10;

/// A file that is being written.
pub(super) struct Segment {
    path: PathBuf,
    name: String,
    /// The id of the first record of the file; all others refer to it.
    pub(super) opening_id: String,
    file: File,
    written: u64,
    /// The bytes at `written`. After a write error they are written again at the same offset.
    buffer: Vec<u8>,
}

/// A body that is written to a record, with its expected digest.
pub(super) struct Payload<'a> {
    pub(super) source: &'a mut dyn Read,
    pub(super) url: &'a str,
    pub(super) length: u64,
    pub(super) digest: &'a str,
}

impl Segment {
    /// Makes the file. An existing file is never touched.
    pub(super) fn create(
        directory: &Path,
        name: String,
        opening_id: String,
    ) -> Result<Segment, WarcError> {
        let path = directory.join(&name);
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(WarcError::disk("create", &path))?;
        Ok(Segment { path, name, opening_id, file, written: 0, buffer: Vec::new() })
    }

    /// The offset of the next record.
    pub(super) fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends one record: header, the start of its block, and the rest of it.
    pub(super) fn append(
        &mut self,
        header: &str,
        block: &[u8],
        payload: Option<Payload<'_>>,
    ) -> Result<RecordLocation, WarcError> {
        let offset = self.end();
        let path = self.path.clone();
        let refused = || WarcError::disk("write to", &path);
        let mut member = GzEncoder::new(&mut *self, Compression::default());
        member.write_all(header.as_bytes()).map_err(refused())?;
        member.write_all(block).map_err(refused())?;
        if let Some(payload) = payload {
            payload.copy(|piece| member.write_all(piece).map_err(refused()))?;
        }
        member.write_all(b"\r\n\r\n").map_err(refused())?;
        member.finish().map_err(refused())?;
        Ok(RecordLocation { file: self.name.clone(), offset, length: self.end() - offset })
    }

    /// Discards all bytes from `end` on. Those on disk are removed by the next sync; until then
    /// they are like the torn end after a crash.
    pub(super) fn roll_back(&mut self, end: u64) {
        self.buffer.truncate(end.saturating_sub(self.written) as usize);
        self.written = self.written.min(end);
    }

    /// Syncs the file, so that all records so far survive a crash.
    pub(super) fn sync(&mut self) -> Result<(), WarcError> {
        self.flush()
            .and_then(|()| {
                if self.file.metadata()?.len() > self.written {
                    self.file.set_len(self.written)?;
                }
                self.file.sync_data()
            })
            .map_err(WarcError::disk("write to", &self.path))
    }
}

impl Write for Segment {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= BUFFERED {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Payload<'_> {
    /// Reads the body in pieces. Fails if it differs from the one that was digested before.
    fn copy(self, mut to: impl FnMut(&[u8]) -> Result<(), WarcError>) -> Result<(), WarcError> {
        let mut digest = Sha1::new();
        let mut piece = vec![0; PIECE];
        let mut left = self.length;
        while left > 0 {
            let count = PIECE.min(left.try_into().unwrap_or(PIECE));
            let count = self
                .source
                .read(&mut piece[..count])
                .map_err(|source| WarcError::Body { url: self.url.to_owned(), source })?;
            if count == 0 {
                break;
            }
            digest.update(&piece[..count]);
            to(&piece[..count])?;
            left -= count as u64;
        }
        if left > 0 || written(digest) != self.digest {
            return Err(WarcError::BodyChanged { url: self.url.to_owned() });
        }
        Ok(())
    }
}
