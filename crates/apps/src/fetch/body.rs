//! Writes a body to a file: all the right bytes, or no file.

use std::io::{self, Write};
use std::sync::atomic::Ordering;

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_ENCODING};
use url::Url;

use super::attempt_end::{AttemptEnd, permanent, transient};
use super::checksum::Algorithm;
use super::directory::{Folder, split};
use super::name;
use super::part::{Note, Part, RESUMED_FROM, boot_id};
use super::record::Recorded;
use super::request::Coding;
use super::response::{content_range, version};
use super::save::TargetName;
use super::task::{How, Named, Saved, Task, Version, shown};
use super::warc;
use super::worker::Attempt;
use crate::http::decode::{DecodeError, Decoder};
use crate::http::{Exchange, HttpError};

/// An attempt whose response is a file.
pub(super) struct Receiving<'a, 'b> {
    pub(super) attempt: &'b Attempt<'a>,
    pub(super) folder: Folder,
    pub(super) algorithm: Option<Algorithm>,
}

/// A file whose bytes are complete.
pub(super) struct Whole {
    version: Version,
    how: How,
    /// The name that the server suggests.
    disposition: Option<String>,
    recorded: Option<Box<Recorded>>,
}

impl Whole {
    /// Finishes a part that lacks only its name, or some of its pieces.
    pub(super) fn of(part: &Part) -> Option<Whole> {
        let note = part.note.as_ref()?;
        let complete = note.split.is_some() || note.total == Some(part.length);
        complete.then(|| Whole {
            version: Version { etag: Some(note.etag.clone()), last_modified: None },
            how: How::Resumed,
            disposition: note.disposition.clone(),
            recorded: None,
        })
    }
}

impl Receiving<'_, '_> {
    /// Reads the body into the file.
    pub(super) async fn receive(
        self,
        mut exchange: Exchange,
        half: Option<Part>,
    ) -> Result<Saved, AttemptEnd> {
        let Attempt { get, task, call, .. } = *self.attempt;
        let version = version(&exchange.headers);
        let mut split = None;
        // The length of the complete file, as far as the server says.
        let mut total = exchange.length();
        let (mut part, how) = match (exchange.status, half) {
            (StatusCode::PARTIAL_CONTENT, Some(half)) => {
                let (part, end) = continued(&exchange, &version, half)?;
                total = Some(end);
                (part, How::Resumed)
            }
            (StatusCode::PARTIAL_CONTENT, None) => {
                let (note, end) = self.first_piece(&exchange, &version)?;
                (split, total) = (note, Some(end));
                (self.begun(None), How::Fetched)
            }
            (_, half) => (self.begun(half), How::Fetched),
        };
        get.check_size(split.as_ref().map_or(total, |note: &Note| note.total))?;
        let mut decoder = self.decoder(&exchange)?;
        if decoder.is_none() && split.is_none() && get.archive.is_none() {
            self.note(&mut part, &exchange, &version, total)?;
        }
        let reading = get.progress.begin(call.attempt(), &task.target, part.length, total);
        while let Some(piece) = get.client.piece(self.attempt.url, &mut exchange).await? {
            get.rate.pay(piece.len()).await;
            reading.received(piece.len());
            match &mut decoder {
                None => part.append(&piece)?,
                Some(decoder) => {
                    decoder.push(&piece, &mut part).map_err(|error| undecodable(&error))?;
                }
            }
            if part.length > get.largest {
                part.discard();
                return Err(get.too_large());
            }
            if decoder.is_none() && total.is_some_and(|total| part.length > total) {
                part.discard();
                return Err(permanent("range", "the server sent more bytes than it announced"));
            }
            part.keep_up().await?;
        }
        if let Some(decoder) = decoder {
            // An empty file is empty in every coding.
            if !decoder.is_fresh() {
                decoder.finish().map_err(|error| undecodable(&error))?;
            }
        } else if let Some(total) = total.filter(|total| *total != part.length) {
            return Err(HttpError::Short(part.length.min(total)).into());
        }
        let disposition = disposition(&exchange);
        let recorded = self.attempt.recorded(&exchange);
        get.client.finish(self.attempt.url, exchange).await;
        drop(reading);
        let whole = Whole { version, how, disposition, recorded };
        match split {
            None => self.finish(part, whole).await,
            Some(note) => {
                get.left_over.half_files.store(true, Ordering::Relaxed);
                part.split(Note { disposition: whole.disposition, ..note }).await?;
                Err(AttemptEnd::Split(Box::new(task.again(self.attempt.url))))
            }
        }
    }

    /// The step after the first piece of a file: none if the piece was the whole file.
    fn first_piece(
        &self,
        exchange: &Exchange,
        version: &Version,
    ) -> Result<(Option<Note>, u64), AttemptEnd> {
        let Attempt { get, task, url, .. } = *self.attempt;
        let asked = get.segments > 1 && !task.unsplit;
        let range = content_range(&exchange.headers).filter(|range| range.from == 0 && asked);
        let Some(range) = range else {
            let message = "the server sent a part of the file, but the whole file was requested";
            return Err(permanent("range", message));
        };
        let note = self.splits(exchange, version);
        if note.is_none() && range.total != Some(range.to + 1) {
            let task = Task { unsplit: true, ..task.again(url) };
            return Err(AttemptEnd::Moved(Box::new(task), url.clone()));
        }
        Ok((note, range.to + 1))
    }

    /// An empty file, of which no range can be requested.
    pub(super) async fn nothing(self, exchange: Exchange) -> Result<Saved, AttemptEnd> {
        let version = version(&exchange.headers);
        self.attempt.get.client.discard(self.attempt.url, exchange).await;
        let part = self.begun(None);
        let whole = Whole { version, how: How::Fetched, disposition: None, recorded: None };
        self.finish(part, whole).await
    }

    /// Begins a part at the first byte.
    fn begun(&self, half: Option<Part>) -> Part {
        match half {
            None => Part::fresh(self.folder.clone(), &self.attempt.task.part, self.algorithm),
            Some(part) => part.restart(),
        }
    }

    /// Makes a file resumable, if it is large enough.
    fn note(
        &self,
        part: &mut Part,
        exchange: &Exchange,
        version: &Version,
        total: Option<u64>,
    ) -> io::Result<()> {
        let worth_it = total.is_none_or(|total| total >= RESUMED_FROM);
        let Some(etag) = version.strong().filter(|_| worth_it && part.note.is_none()) else {
            return Ok(());
        };
        self.attempt.get.left_over.half_files.store(true, Ordering::Relaxed);
        part.keep_note(Note {
            url: self.attempt.url.to_string(),
            etag: etag.to_string(),
            total,
            boot: boot_id().to_string(),
            synced: 0,
            disposition: disposition(exchange),
            split: None,
        })
    }

    fn decoder(&self, exchange: &Exchange) -> Result<Option<Decoder>, AttemptEnd> {
        let lines = exchange.headers.get_all(CONTENT_ENCODING).iter();
        let lines: Vec<&str> = lines.map(|value| value.to_str().unwrap_or("?")).collect();
        if lines.is_empty() || self.attempt.get.coding == Coding::Identity {
            return Ok(None);
        }
        let decoder = Decoder::new(&lines.join(","), self.attempt.get.largest);
        decoder.map(Some).map_err(|error| undecodable(&error))
    }

    /// Verifies a complete file, and gives it its name.
    pub(super) async fn finish(self, mut part: Part, whole: Whole) -> Result<Saved, AttemptEnd> {
        let Attempt { get, task, call, url, .. } = *self.attempt;
        let bytes = part.length;
        if let (Some(expected), Some(found)) = (&task.checksum, part.digest().await?)
            && !expected.matches(&found)
        {
            part.discard();
            let found = data_encoding::HEXLOWER.encode(&found);
            let message = format!("checksum mismatch: got {found}, expected {expected}");
            return Err(permanent("checksum", &message));
        }
        let _room = get.saver.room().await;
        // The server is done: its slot must not wait for the disk.
        call.answered();
        let (folder, _) = split(&task.target);
        let target_name = self.target_name(whole.disposition.as_deref(), url);
        let name = get.saver.save(part, target_name, whole.recorded).await?;
        let file = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let Version { etag, last_modified } = whole.version;
        let checksum = task.checksum.as_ref().map(ToString::to_string);
        Ok(Saved { url: shown(url), file, bytes, etag, last_modified, checksum, how: whole.how })
    }

    fn target_name(&self, disposition: Option<&str>, url: &Url) -> TargetName {
        let task = self.attempt.task;
        let (folder, target) = split(&task.target);
        let is_own = |name: &str| {
            let archive = self.attempt.get.archive.as_ref().filter(|_| folder.is_empty());
            archive.is_some_and(|archive| warc::is_own(archive, name))
        };
        match (task.named, disposition) {
            (Named::New, _) => TargetName::New(target.to_string()),
            (Named::Replace | Named::Renew, _) => TargetName::Replace(target.to_string()),
            (Named::ByServer, disposition) => {
                let name = disposition.unwrap_or(target);
                let distinct = name::distinct(name, url.as_str());
                if is_own(name) {
                    TargetName::New(distinct)
                } else {
                    TargetName::Either(name.to_string(), distinct)
                }
            }
        }
    }
}

/// The part that a partial response continues, and its end, if it is certain to be the rest of the
/// same version.
fn continued(
    exchange: &Exchange,
    version: &Version,
    part: Part,
) -> Result<(Part, u64), AttemptEnd> {
    let note = part.note.as_ref().expect("only files with a note are resumed");
    let same = version.etag.as_ref() == Some(&note.etag);
    let range = content_range(&exchange.headers).filter(|range| {
        range.from == part.length
            && range.total == Some(range.to + 1)
            && note.total.is_none_or(|total| range.total == Some(total))
    });
    match range {
        Some(range) if same => Ok((part, range.to + 1)),
        _ => {
            part.discard();
            let message = "the rest of the file does not match its beginning: starting over";
            Err(transient("changed", message))
        }
    }
}

/// The name that the server suggests.
fn disposition(exchange: &Exchange) -> Option<String> {
    let value = exchange.headers.get(CONTENT_DISPOSITION)?;
    name::from_disposition(value.as_bytes())
}

fn undecodable(error: &DecodeError) -> AttemptEnd {
    permanent("decode", &error.to_string())
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
