//! The writer: writes exchanges to numbered files, and their index.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use url::Url;

use super::head::{clean, content_type, request_head, response_head, target};
use super::index::{Index, file_name, sync_directory};
use super::line::IndexLine;
use super::record::{Digests, Header, digest, id};
use super::segment::{Payload, Segment};
use super::{Exchange, MAX_HEAD, MAX_NAME, MAX_NUMBER, Options, Truncated, WarcError};

/// Writes exchanges to `NAME-00001.warc.gz` and so on, and their index to `NAME.cdxj`.
///
/// Existing files are never changed. Numbers continue after the highest one.
pub struct Writer {
    directory: PathBuf,
    name: String,
    options: Options,
    next_number: u32,
    segment: Option<Segment>,
    index: Index,
}

/// Refuses a name that cannot be used in file names.
pub fn check_name(name: &str) -> Result<(), WarcError> {
    let fits = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.');
    if !fits || name.contains('/') || name.contains(char::is_control) {
        return Err(WarcError::Name { name: name.to_owned() });
    }
    Ok(())
}

impl Writer {
    /// Repairs the files of an earlier run. The first new file is made with the first exchange.
    pub fn open(directory: &Path, name: &str, options: Options) -> Result<Writer, WarcError> {
        check_name(name)?;
        let index = Index::open(directory, name)?;
        let next_number = index.next_number()?;
        let (directory, name) = (directory.to_owned(), name.to_owned());
        Ok(Writer { directory, name, options, next_number, segment: None, index })
    }

    /// Writes an exchange, whose body is the next `length` bytes. They are read twice, in pieces,
    /// and must be the same both times. After an error nothing of the exchange is in the files.
    pub fn write(
        &mut self,
        exchange: &Exchange<'_>,
        body: &mut (impl Read + Seek),
        length: u64,
    ) -> Result<(), WarcError> {
        let target = target(exchange.url);
        let parts = Parts::of(exchange, &target, length)?;
        let unreadable = |source| WarcError::Body { url: target.to_string(), source };
        let start = body.stream_position().map_err(unreadable)?;
        let digests = Digests::of(&parts.response, body, length).map_err(unreadable)?;
        let changed = || WarcError::BodyChanged { url: target.to_string() };
        let digests = digests.ok_or_else(changed)?;
        body.seek(SeekFrom::Start(start)).map_err(unreadable)?;

        if self.index.is_full() {
            self.sync()?;
        }
        self.turn_over(exchange.at)?;
        let segment = self.segment.as_mut().expect("turned over to one");
        let url = target.as_str();
        let payload = Payload { source: body, url, length, digest: &digests.payload };
        let before = segment.end();
        match parts.append(segment, &mut self.options, &digests, payload) {
            Ok(line) => self.index.push(&line),
            Err(error) => {
                segment.roll_back(before);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Syncs all exchanges so far, so that they survive a crash.
    pub fn sync(&mut self) -> Result<(), WarcError> {
        if let Some(segment) = &mut self.segment {
            segment.sync()?;
        }
        self.index.sync()
    }

    /// Ends the files and writes the index of this run and of all earlier ones under the name.
    pub fn finish(mut self) -> Result<PathBuf, WarcError> {
        self.sync()?;
        self.index.finish()
    }

    #[cfg(test)]
    pub(super) fn segment_mut(&mut self) -> &mut Segment {
        self.segment.as_mut().expect("an exchange was written")
    }

    /// Begins the next file if there is none yet, or the current one has reached its size.
    fn turn_over(&mut self, at: Timestamp) -> Result<(), WarcError> {
        if self.segment.as_ref().is_some_and(|segment| segment.end() <= self.options.max_size) {
            return Ok(());
        }
        self.sync()?;
        self.segment = None;
        if self.next_number > MAX_NUMBER {
            return Err(WarcError::Full { name: self.name.clone() });
        }
        let name = file_name(&self.name, self.next_number);
        self.index.announce(&name)?;
        self.next_number += 1;
        let id = id((self.options.random)());
        let header = Header::new("warcinfo", &id, at).field("WARC-Filename", &name);
        let block = concat!(
            "software: paceline/",
            env!("CARGO_PKG_VERSION"),
            "\r\nformat: WARC File Format 1.1\r\nconformsTo: \
             https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n",
        );
        let mut segment = Segment::create(&self.directory, name, id)?;
        sync_directory(&self.directory)?;
        let header = header.field("WARC-Block-Digest", digest(block.as_bytes()));
        let header = header.before_block("application/warc-fields", block.len() as u64);
        segment.append(&header, block.as_bytes(), None)?;
        self.segment = Some(segment);
        Ok(())
    }
}

/// The parts of an exchange that are in memory.
struct Parts<'a> {
    exchange: &'a Exchange<'a>,
    target: &'a Url,
    response: Vec<u8>,
    request: Vec<u8>,
    metadata: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(
        exchange: &'a Exchange<'a>,
        target: &'a Url,
        length: u64,
    ) -> Result<Parts<'a>, WarcError> {
        let mut metadata = Vec::new();
        for (name, value) in exchange.metadata {
            metadata.extend_from_slice(format!("{name}: ").as_bytes());
            metadata.extend(clean(value.as_bytes()));
            metadata.extend_from_slice(b"\r\n");
        }
        let response = response_head(exchange, length);
        let request = request_head(exchange.request_head);
        let longest = [response.len(), request.len(), metadata.len(), target.as_str().len()];
        let longest = longest.into_iter().max().unwrap_or_default();
        if longest > MAX_HEAD {
            let url = target.as_str().chars().take(MAX_NAME).collect();
            return Err(WarcError::HeadTooLong { url, length: longest });
        }
        Ok(Parts { exchange, target, response, request, metadata })
    }

    /// Appends the three records, and returns the index line of the response.
    fn append(
        &self,
        segment: &mut Segment,
        options: &mut Options,
        digests: &Digests,
        payload: Payload<'_>,
    ) -> Result<String, WarcError> {
        let ids = [(); 3].map(|()| id((options.random)()));
        let header = |kind, id: &str, segment: &Segment| {
            Header::new(kind, id, self.exchange.at)
                .field("WARC-Target-URI", self.target)
                .field("WARC-Warcinfo-ID", &segment.opening_id)
                .optional("WARC-IP-Address", self.exchange.address)
        };

        let response = header("response", &ids[0], segment)
            .field("WARC-Block-Digest", &digests.block)
            .field("WARC-Payload-Digest", &digests.payload)
            .optional("WARC-Truncated", self.exchange.truncated.reason());
        let length = self.response.len() as u64 + payload.length;
        let response = response.before_block("application/http; msgtype=response", length);
        let location = segment.append(&response, &self.response, Some(payload))?;

        let request = header("request", &ids[1], segment)
            .field("WARC-Concurrent-To", &ids[0])
            .field("WARC-Block-Digest", digest(&self.request))
            .field("WARC-Payload-Digest", digest(b""));
        let length = self.request.len() as u64;
        let request = request.before_block("application/http; msgtype=request", length);
        segment.append(&request, &self.request, None)?;

        let metadata = header("metadata", &ids[2], segment)
            .field("WARC-Concurrent-To", &ids[0])
            .field("WARC-Block-Digest", digest(&self.metadata));
        let length = self.metadata.len() as u64;
        // Indexers give records of exactly this type no line.
        let metadata = metadata.before_block("application/warc-fields", length);
        segment.append(&metadata, &self.metadata, None)?;

        let content_type = content_type(self.exchange.headers);
        let line = IndexLine {
            target: self.target,
            at: self.exchange.at,
            content_type: content_type.as_deref(),
            status: &format!("{:03}", self.exchange.status),
            digest: &digests.payload,
            location,
        };
        Ok(line.line())
    }
}

impl Truncated {
    fn reason(self) -> Option<&'static str> {
        match self {
            Truncated::No => None,
            Truncated::Length => Some("length"),
            Truncated::Time => Some("time"),
            Truncated::Disconnect => Some("disconnect"),
        }
    }
}
