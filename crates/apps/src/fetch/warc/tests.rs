//! Tests of the archive with a reader of their own, also after crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write as _};

use flate2::bufread::GzDecoder;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::*;

/// A record as a reader sees it, with its digests checked.
struct Record {
    fields: BTreeMap<String, String>,
    block: Vec<u8>,
    offset: u64,
    length: u64,
}

impl Record {
    fn read(plain: &[u8], offset: u64, length: u64) -> Record {
        let end = position(plain, b"\r\n\r\n");
        let header = std::str::from_utf8(&plain[..end]).expect("text");
        let mut lines = header.split("\r\n");
        assert_eq!(lines.next(), Some("WARC/1.1"));
        let pairs = lines.map(|line| line.split_once(": ").expect("a field"));
        let fields: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let block = plain[end + 4..].strip_suffix(b"\r\n\r\n").expect("the end").to_vec();
        assert_eq!(fields["Content-Length"], block.len().to_string());
        assert_eq!(fields["WARC-Block-Digest"], record::digest(&block));
        if let Some(payload) = fields.get("WARC-Payload-Digest") {
            let body = &block[position(&block, b"\r\n\r\n") + 4..];
            assert_eq!(*payload, record::digest(body));
        }
        Record { fields, block, offset, length }
    }
}

#[track_caller]
fn position(text: &[u8], of: &[u8]) -> usize {
    text.windows(of.len()).position(|window| window == of).expect("it is there")
}

/// All records of a file; fails on anything that is not a whole record.
#[track_caller]
fn records(path: &Path) -> Vec<Record> {
    let bytes = fs::read(path).expect("the file");
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let mut plain = Vec::new();
        GzDecoder::new(&mut rest).read_to_end(&mut plain).expect("a whole member");
        let length = (bytes.len() - rest.len()) as u64 - offset;
        records.push(Record::read(&plain, offset, length));
    }
    records
}

fn warc_files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("text")).collect();
    names.retain(|name| name.ends_with(".warc.gz"));
    names.sort();
    names
}

/// Checks that all files are whole and that the index names exactly their responses, in order;
/// gives the addresses.
#[track_caller]
fn check(directory: &Path) -> Vec<String> {
    let mut present = BTreeSet::new();
    let mut urls = Vec::new();
    for file in warc_files(directory) {
        let records = records(&directory.join(&file));
        assert_eq!(records[0].fields["WARC-Type"], "warcinfo");
        for record in records.iter().filter(|record| record.fields["WARC-Type"] == "response") {
            present.insert((file.clone(), record.offset, record.length));
            urls.push(record.fields["WARC-Target-URI"].clone());
        }
    }
    let index = fs::read_to_string(directory.join("a.cdxj")).expect("the index");
    let places = index.lines().map(|line| line::location(line.as_bytes()).expect("a line"));
    let indexed: Vec<_> = places.map(|place| (place.file, place.offset, place.length)).collect();
    assert_eq!(indexed.len(), present.len());
    assert_eq!(indexed.into_iter().collect::<BTreeSet<_>>(), present);
    assert!(index.lines().is_sorted());
    urls
}

fn open(directory: &Path, max_size: u64) -> Writer {
    let mut count = 0_u8;
    let mut options = Options::new(move || {
        count += 1;
        [count; 16]
    });
    options.max_size = max_size;
    Writer::open(directory, "a", options).expect("a writer")
}

fn write(writer: &mut Writer, url: &str, body: &[u8]) {
    try_write(writer, url, &mut Cursor::new(body), body.len()).expect("written");
}

fn try_write(
    writer: &mut Writer,
    url: &str,
    body: &mut (impl Read + Seek),
    length: usize,
) -> Result<(), WarcError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    let exchange = Exchange {
        url: &Url::parse(url).expect("an address"),
        at: "2026-02-03T04:05:06.789Z".parse().expect("a moment"),
        address: Some([192, 0, 2, 1].into()),
        request_head: b"GET /x HTTP/1.1\r\nhost: a.example\r\ncookie: hidden\r\n\r\n",
        status: 200,
        reason: "OK",
        headers: &headers,
        truncated: Truncated::Length,
        metadata: &[("fetchTimeMs", "12".to_owned()), ("via", "x\r\n\r\ny".to_owned())],
    };
    writer.write(&exchange, body, length as u64)
}

#[test]
fn an_exchange_becomes_three_records_after_the_one_that_opens_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://me:hidden@a.example/x#hidden", b"hello");
    writer.finish().expect("an index");
    let records = records(&directory.path().join("a-00001.warc.gz"));
    let (opening, exchange) = records.split_first().expect("records");
    assert_eq!(opening.fields["WARC-Type"], "warcinfo");
    assert_eq!(opening.fields["WARC-Filename"], "a-00001.warc.gz");
    assert!(opening.block.starts_with(b"software: paceline/"));
    let mut text = String::new();
    for record in exchange {
        for (name, value) in &record.fields {
            writeln!(text, "{name}: {value}").expect("memory");
        }
        writeln!(text, "{}\n", record.block.escape_ascii()).expect("memory");
    }
    assert_eq!(text, include_str!("tests/exchange.txt"));
    assert!(!text.contains("hidden"));
    check(directory.path());
}

#[test]
fn a_file_past_its_size_is_followed_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = open(directory.path(), 3_000);
    for n in 0..10 {
        write(&mut writer, &format!("http://a.example/{n}"), b"hello");
    }
    writer.finish().expect("an index");
    let files = warc_files(directory.path());
    assert!(files.len() > 2, "{files:?}");
    for (n, file) in files.iter().enumerate() {
        assert_eq!(*file, format!("a-{:05}.warc.gz", n + 1));
        let length = fs::metadata(directory.path().join(file)).expect("the file").len();
        assert!(length > 3_000 || n + 1 == files.len(), "{length}");
    }
    assert_eq!(check(directory.path()).len(), 10);
}

#[test]
fn a_later_run_leaves_the_files_of_earlier_ones_alone_and_keeps_their_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    for n in 1..=3 {
        let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
        write(&mut writer, &format!("http://{n}.example/"), b"hello");
        writer.finish().expect("an index");
        assert_eq!(check(directory.path()).len(), n);
    }
    assert_eq!(warc_files(directory.path()).len(), 3);
    // Moved elsewhere, their lines stay, and no other file takes their number.
    fs::remove_file(directory.path().join("a-00003.warc.gz")).expect("removed");
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://4.example/", b"hello");
    let index = fs::read_to_string(writer.finish().expect("an index")).expect("text");
    assert_eq!(index.lines().count(), 4);
    assert_eq!(warc_files(directory.path()).last().expect("a file"), "a-00004.warc.gz");
}

#[test]
fn files_of_others_are_never_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let names =
        ["a-00007.warc.gz", "a-7.warc.gz", "a-000099.warc.gz", "ab-00050.warc.gz", "a-x.warc.gz"];
    for name in names {
        fs::write(directory.path().join(name), "not a record").expect("room");
    }
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://a.example/", b"hello");
    drop(writer);
    open(directory.path(), DEFAULT_MAX_SIZE).finish().expect("an index");
    for name in names {
        let text = fs::read_to_string(directory.path().join(name)).expect("the file");
        assert_eq!(text, "not a record");
        fs::remove_file(directory.path().join(name)).expect("removed");
    }
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://a.example/", b"hello");
    writer.finish().expect("an index");
    check(directory.path());
}

/// A directory in memory where there is one: thousands of crashes on a disk take minutes.
fn quick_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Three exchanges, of which two are durable, left as a crash would leave them. Gives where
/// each record ends.
fn crashed(directory: &Path) -> Vec<u64> {
    let mut writer = open(directory, DEFAULT_MAX_SIZE);
    for n in 1..=2 {
        write(&mut writer, &format!("http://{n}.example/"), b"hello");
    }
    writer.sync().expect("durable");
    write(&mut writer, "http://3.example/", b"hello");
    writer.segment_mut().flush().expect("room");
    drop(writer);
    let records = records(&directory.join("a-00001.warc.gz"));
    records.iter().map(|record| record.offset + record.length).collect()
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("the directory") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("room");
    }
}

/// Goes on after a crash in a directory that `damage` was done to; gives the addresses there.
#[track_caller]
fn check_after(crashed: &Path, damage: impl FnOnce(&Path)) -> Vec<String> {
    let directory = quick_directory();
    copy(crashed, directory.path());
    damage(directory.path());
    // A second crash right after the repair must not matter.
    drop(open(directory.path(), DEFAULT_MAX_SIZE));
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://later.example/", b"hello");
    writer.finish().expect("an index");
    let mut urls = check(directory.path());
    assert_eq!(urls.pop().as_deref(), Some("http://later.example/"));
    urls
}

#[test]
fn a_file_cut_at_any_byte_keeps_its_whole_records_and_only_those() {
    let directory = tempfile::tempdir().expect("a directory");
    let ends = crashed(directory.path());
    let (first, last) = (ends[0], ends[ends.len() - 1]);
    let response_ends: Vec<u64> = ends[1..].iter().step_by(3).copied().collect();
    assert_eq!(response_ends.len(), 3);
    for length in first..=last {
        let cut = |directory: &Path| {
            let path = directory.join("a-00001.warc.gz");
            let mut bytes = fs::read(&path).expect("the file");
            bytes.truncate(length as usize);
            // A file system may give a file its new length before its new bytes.
            bytes.resize(bytes.len() + length as usize % 3 * 50, 0x1f);
            fs::write(path, bytes).expect("room");
        };
        let whole = response_ends.iter().filter(|&&end| end <= length).count();
        assert_eq!(check_after(directory.path(), cut).len(), whole, "cut at {length}");
    }
}

#[test]
fn a_file_cut_within_its_first_record_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://a.example/", b"hello");
    writer.segment_mut().flush().expect("room");
    drop(writer);
    let first = records(&directory.path().join("a-00001.warc.gz"))[0].length;
    for length in [0, 1, 9, 10, 11, first - 1] {
        let urls = check_after(directory.path(), |directory| {
            let path = directory.join("a-00001.warc.gz");
            let file = fs::File::options().write(true).open(path).expect("the file");
            file.set_len(length).expect("cut");
        });
        assert_eq!(urls, Vec::<String>::new());
    }
}

#[test]
fn lines_cut_at_any_byte_come_back_from_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    crashed(directory.path());
    let part = fs::read(directory.path().join("a.cdxj.part")).expect("the lines");
    let announced = position(&part, b"\n") + 1;
    for length in announced..=part.len() {
        let urls = check_after(directory.path(), |directory| {
            let mut torn = part[..length].to_vec();
            torn.resize(length + length % 3 * 50, 0);
            fs::write(directory.join("a.cdxj.part"), torn).expect("room");
        });
        assert_eq!(urls.len(), 3, "cut at {length}");
    }
}

#[test]
fn a_crash_between_the_index_and_the_end_doubles_no_line() {
    let directory = tempfile::tempdir().expect("a directory");
    crashed(directory.path());
    let part = fs::read(directory.path().join("a.cdxj.part")).expect("the lines");
    open(directory.path(), DEFAULT_MAX_SIZE).finish().expect("an index");
    assert_eq!(check(directory.path()).len(), 3);
    fs::write(directory.path().join("a.cdxj.part"), part).expect("room");
    open(directory.path(), DEFAULT_MAX_SIZE).finish().expect("an index");
    assert_eq!(check(directory.path()).len(), 3);
}

/// A body that is another one each time it is read.
struct Changing {
    times: u64,
    state: u64,
}

impl Read for Changing {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *piece {
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.times);
            *byte = (self.state >> 56) as u8;
        }
        Ok(piece.len())
    }
}

impl Seek for Changing {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.times += u64::from(matches!(to, SeekFrom::Start(_)));
        self.state = 1;
        Ok(0)
    }
}

#[test]
fn an_exchange_that_fails_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    write(&mut writer, "http://1.example/", b"hello");
    for length in [10, 3 << 20] {
        let mut body = Changing { times: 1, state: 1 };
        let error = try_write(&mut writer, "http://x.example/", &mut body, length);
        assert!(matches!(error, Err(WarcError::BodyChanged { .. })), "{error:?}");
        write(&mut writer, "http://2.example/", b"hello");
    }
    let error = try_write(&mut writer, "http://x.example/", &mut Cursor::new(b"hell"), 5);
    assert!(matches!(error, Err(WarcError::BodyChanged { .. })), "{error:?}");
    let long = format!("http://x.example/{}", "x".repeat(MAX_HEAD));
    let error = try_write(&mut writer, &long, &mut Cursor::new(b"hello"), 5);
    assert!(matches!(error, Err(WarcError::HeadTooLong { .. })), "{error:?}");
    // One that fails last, so that only the sync can take away what is on the disk of it.
    let mut body = Changing { times: 1, state: 1 };
    try_write(&mut writer, "http://x.example/", &mut body, 3 << 20).expect_err("changed");
    writer.finish().expect("an index");
    assert_eq!(
        check(directory.path()),
        ["http://1.example/", "http://2.example/", "http://2.example/"]
    );
}

#[test]
fn a_body_begins_where_its_reader_stands() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    let mut body = Cursor::new(b"before hello after");
    body.set_position(7);
    try_write(&mut writer, "http://a.example/", &mut body, 5).expect("written");
    writer.finish().expect("an index");
    let records = records(&directory.path().join("a-00001.warc.gz"));
    assert!(records[1].block.ends_with(b"\r\n\r\nhello"));
}

#[test]
fn lines_that_wait_too_long_are_made_durable_without_being_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = open(directory.path(), DEFAULT_MAX_SIZE);
    let url = format!("http://a.example/{}", "x".repeat(500_000));
    for _ in 0..5 {
        write(&mut writer, &url, b"hello");
    }
    let part = fs::metadata(directory.path().join("a.cdxj.part")).expect("the lines");
    assert!(part.len() > 1_000_000, "{}", part.len());
    writer.finish().expect("an index");
    assert_eq!(check(directory.path()).len(), 5);
}

#[test]
fn two_writers_of_one_name_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let writer = open(directory.path(), DEFAULT_MAX_SIZE);
    let second = Writer::open(directory.path(), "a", Options::new(|| [0; 16]));
    assert!(matches!(second.err(), Some(WarcError::Busy { .. })));
    drop(writer);
    open(directory.path(), DEFAULT_MAX_SIZE);
}

#[track_caller]
fn check_refused(name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = Writer::open(directory.path(), name, Options::new(|| [0; 16]));
    assert!(matches!(refused.err(), Some(WarcError::Name { .. })), "`{name}`");
}

#[test]
fn a_name_must_make_a_file_name() {
    for name in ["", ".", "..", ".a", "a/b", "../a", "a\nb", "a\0", &"a".repeat(MAX_NAME + 1)] {
        check_refused(name);
    }
}

#[test]
fn names_in_torn_lines_cannot_lead_out_of_the_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).expect("room");
    let outside = directory.path().join("a-00001.warc.gz");
    fs::write(&outside, "not a record").expect("room");
    fs::write(inner.join("a.cdxj.part"), "# ../a-00001.warc.gz\n").expect("room");
    open(&inner, DEFAULT_MAX_SIZE).finish().expect("an index");
    assert_eq!(fs::read_to_string(outside).expect("the file"), "not a record");
}

#[test]
fn links_are_not_followed() {
    let (outside, directory) = (tempfile::tempdir(), tempfile::tempdir());
    let (outside, directory) = (outside.expect("a directory"), directory.expect("a directory"));
    let secret = outside.path().join("notes");
    fs::write(&secret, "kept").expect("written");
    let link = directory.path().join("a.cdxj.part");
    std::os::unix::fs::symlink(&secret, &link).expect("a link");
    let refused = Writer::open(directory.path(), "a", Options::new(|| [0; 16]));
    assert!(refused.is_err());
    fs::remove_file(&link).expect("removed");
    for name in ["a.cdxj.new", "a.cdxj.sort"] {
        std::os::unix::fs::symlink(&secret, directory.path().join(name)).expect("a link");
    }
    open(directory.path(), u64::MAX).finish().expect("an index");
    assert_eq!(fs::read(&secret).expect("there"), b"kept");
}
