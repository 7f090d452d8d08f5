//! WARC files of this program, checked with common archive tools.

use std::fmt::Write as _;
use std::fs;
use std::io::{Cursor, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use jiff::{Timestamp, ToSpan as _};
use paceline_apps::fetch::warc::{Exchange, Options, Truncated, Writer, surt};
use url::Url;

/// A reproducible stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ self.0 >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.next() as usize % choices.len()]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

fn python(arguments: &[&str]) -> String {
    let python = std::env::var("PACELINE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    let output = command.args(arguments).output().expect("python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).expect("python prints text");
    assert!(output.status.success(), "`{python} {arguments:?}`: {text}{errors}");
    assert_eq!(errors, "", "`{python} {arguments:?}` has something to say");
    text
}

struct Answer {
    url: String,
    address: Option<&'static str>,
    status: u16,
    reason: &'static str,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
    truncated: Truncated,
    metadata: Vec<(&'static str, String)>,
}

fn answer(url: impl Into<String>, content_type: &'static [u8], body: impl Into<Vec<u8>>) -> Answer {
    let (url, body) = (url.into(), body.into());
    let length = body.len().to_string().into_bytes();
    let headers = vec![("content-type", content_type.to_vec()), ("content-length", length)];
    let metadata =
        vec![("fetchTimeMs", "12".to_owned()), ("via", "http://a.example/\r\nx: y".to_owned())];
    let (address, truncated) = (Some("192.0.2.1"), Truncated::No);
    Answer { url, address, status: 200, reason: "OK", headers, body, truncated, metadata }
}

fn odd_answers() -> Vec<Answer> {
    let mut numbers = Numbers(7);
    let html = "<p>hello</p>\r\n\r\nWARC/1.1\r\n\r\n";
    let plain = |path: &str| answer(format!("http://example.com{path}"), b"text/plain", html);
    let typed =
        |path: &str, kind: &'static [u8]| answer(format!("http://t.example{path}"), kind, html);
    let zipped = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(html.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    };
    let chunked =
        vec![("transfer-encoding", b"chunked".to_vec()), ("content-type", b"a/b".to_vec())];
    let odd_bytes = vec![("x-odd", b"caf\xe9 \xff\x80\"\\".to_vec()), ("x-empty", Vec::new())];
    let many = (0..500).map(|_| ("x-many", b"v".repeat(200))).collect();
    let mut answers = vec![
        answer("https://www.Example.com:443/A/B?z=1&a=2#part", b"text/html; charset=utf-8", html),
        answer("http://me:secret@example.com/private", b"text/html", html),
        answer("http://example.com/empty", b"text/html", ""),
        answer("http://[2001:db8::1]:8080/six", b"image/png", numbers.bytes(1_000)),
        answer("http://192.0.2.7/seven?q=%C3%A9&q=a+b&Q=%26", b"application/json", "{}"),
        answer("http://bücher.example/straße?ö=ä|\\\"<>", b"text/html", html),
        answer("http://example.com/big", b"application/octet-stream", numbers.bytes(5 << 20)),
        answer("http://example.com/zeros", b"application/octet-stream", vec![0; 5 << 20]),
        Answer { status: 404, reason: "Not Found", ..plain("/missing") },
        Answer { status: 302, headers: vec![("location", b"/other".to_vec())], ..plain("/moved") },
        Answer { status: 999, reason: "", ..plain("/linked-in") },
        Answer {
            status: 204,
            reason: "No  Content \t",
            headers: vec![],
            body: vec![],
            ..plain("/none")
        },
        Answer { status: 304, address: Some("2001:db8::2"), body: vec![], ..plain("/same") },
        Answer {
            headers: vec![("content-encoding", b"gzip".to_vec())],
            body: zipped,
            ..plain("/gz")
        },
        Answer { headers: vec![("content-encoding", b"gzip".to_vec())], ..plain("/not-gz") },
        Answer { headers: vec![("content-encoding", b"br".to_vec())], ..plain("/not-br") },
        Answer { headers: chunked, ..plain("/chunked") },
        Answer { headers: odd_bytes, ..plain("/odd-bytes") },
        Answer { headers: many, address: None, ..plain("/many") },
        Answer { truncated: Truncated::Length, ..plain("/cut") },
        Answer { truncated: Truncated::Time, ..plain("/late") },
        Answer { truncated: Truncated::Disconnect, metadata: vec![], ..plain("/gone") },
        Answer { url: format!("http://example.com/{}", "long/".repeat(4_000)), ..plain("/") },
        typed("/1", b""),
        typed("/2", b"; charset=x"),
        typed("/3", b"TEXT/Html charset=x"),
        typed("/4", b"caf\xc3\xa9\xc2\xa0x"),
        typed("/5", b"caf\xe9\xa0x"),
        typed("/6", b"\"quoted\\\" \xf0\x9f\x98\x80"),
        typed("/7", b"a\tb"),
    ];
    for n in 0..200 {
        let path = format!("/page/{n}?n={}", numbers.next() % 100);
        answers.push(Answer { body: numbers.bytes(n * 50), ..plain(&path) });
    }
    answers
}

fn write(directory: &Path, name: &str, answers: &[Answer], max_size: u64) -> PathBuf {
    let mut numbers = Numbers(name.len() as u64 + max_size);
    let mut options = Options::new(move || {
        let bytes = [numbers.next(), numbers.next()].map(u64::to_le_bytes);
        *bytes.as_flattened().as_array().expect("two times eight")
    });
    options.max_size = max_size;
    let mut writer = Writer::open(directory, name, options).expect("a writer");
    let mut at: Timestamp = "2026-02-28T23:59:59.999999999Z".parse().expect("a moment");
    for answer in answers {
        let mut headers = HeaderMap::new();
        for (name, value) in &answer.headers {
            let value = HeaderValue::from_bytes(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        let exchange = Exchange {
            url: &Url::parse(&answer.url).expect("an address"),
            at,
            address: answer.address.map(|address| address.parse::<IpAddr>().expect("an address")),
            request_head: b"GET /x HTTP/1.1\r\nhost: h\r\ncookie: a=b\r\n\r\n",
            status: answer.status,
            reason: answer.reason,
            headers: &headers,
            truncated: answer.truncated,
            metadata: &answer.metadata,
        };
        let length = answer.body.len() as u64;
        writer.write(&exchange, &mut Cursor::new(&answer.body), length).expect("written");
        at += 1_234_567.microseconds();
    }
    writer.finish().expect("an index")
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory");
    let paths = entries.map(|entry| entry.expect("an entry").path().display().to_string());
    let mut files: Vec<String> = paths.filter(|path| path.ends_with(".warc.gz")).collect();
    files.sort();
    files
}

/// Runs both tools on all files of a directory with this index.
#[track_caller]
fn check(directory: &Path, index: &Path) {
    let files = files(directory);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let checker = ["-c", "import sys, warcio.cli; sys.exit(warcio.cli.main())", "check"];
    assert_eq!(python(&[&checker, &files[..]].concat()), "");
    let indexer = ["-c", "from cdxj_indexer.main import main; main()"];
    let theirs = python(&[&indexer, &files[..]].concat());
    let mut theirs: Vec<&str> = theirs.lines().collect();
    theirs.sort_unstable();
    let ours = fs::read_to_string(index).expect("the index");
    let ours: Vec<&str> = ours.lines().collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
#[ignore = "needs warcio and cdxj-indexer: ./test installs them"]
fn archive_tools_find_no_error_and_make_the_same_index() {
    let directory = tempfile::tempdir().expect("a directory");
    let answers = odd_answers();
    write(directory.path(), "odd", &answers, 300_000);
    let index = write(directory.path(), "odd", &answers[..20], 1 << 30);
    assert!(files(directory.path()).len() > 4, "split over several files");
    assert_eq!(fs::read_to_string(&index).expect("text").lines().count(), answers.len() + 20);
    check(directory.path(), &index);
}

#[test]
#[ignore = "needs warcio and cdxj-indexer: ./test installs them"]
fn the_tools_see_the_very_records_that_were_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let answers = odd_answers();
    write(directory.path(), "odd", &answers, 1 << 30);
    let reader = "
import sys, hashlib
from warcio.archiveiterator import ArchiveIterator
for record in ArchiveIterator(open(sys.argv[1], 'rb')):
    if record.rec_type == 'response':
        print(record.http_headers.get_statuscode(), hashlib.sha1(record.raw_stream.read()).hexdigest())
";
    let theirs = python(&["-W", "ignore", "-c", reader, &files(directory.path())[0]]);
    let mut ours = String::new();
    for answer in &answers {
        let digest = <sha1::Sha1 as sha1::Digest>::digest(&answer.body);
        let digest = data_encoding::HEXLOWER.encode(&digest);
        writeln!(ours, "{} {digest}", answer.status).expect("memory");
    }
    assert_eq!(theirs, ours);
}

const HOSTS: [&str; 20] = [
    "example.com",
    "WWW.Example.COM",
    "www1.example.org",
    "www.www.example.com",
    "www.com",
    "1.2.3.4",
    "0x7f.1",
    "2130706433",
    "[2001:DB8::A]",
    "[::ffff:1.2.3.4]",
    "bücher.de",
    "xn--fa-hia.de",
    "example.com.",
    "a..b",
    "a...b",
    "..a",
    "1.2..",
    "08..",
    "wwww.a_b.c",
    "www23.4.example",
];

const PORTS: [&str; 6] = ["", "", ":80", ":443", ":8080", ":0"];

const PARTS: [&str; 46] = [
    "/",
    "/",
    "/",
    "//",
    "/.",
    "/..",
    "/%2e%2e",
    "/%252e%252E/",
    "a",
    "B",
    "é",
    "%C3%a9",
    "%",
    "%2",
    "%25",
    "%2541",
    "%253",
    "%2F",
    "%3f",
    "%23",
    "%00",
    "%0a",
    "%20",
    "+",
    " ",
    "~",
    "\\",
    "|",
    "{",
    "^",
    "`",
    ";",
    ":",
    "@",
    "!$&'()*,=",
    ".aspx",
    "/page.aspx",
    "/(abcdefghij0123456789ABCD)/",
    "/(a(abcdefghij0123456789abcd)B(abcdefghij0123456789abcd))/x.aspx",
    "(",
    ")",
    "index.html",
    "%61",
    "🐎",
    "%ff",
    "\"<>",
];

const ARGUMENTS: [&str; 30] = [
    "&",
    "&",
    "&",
    "=",
    "=",
    "a",
    "b=1",
    "B=2",
    "a=",
    "&&",
    "%26",
    "%3D",
    "%2526",
    "é",
    "+",
    "%20",
    "#x",
    "jsessionid=0123456789abcdefghijklmnopqrstuv",
    "JSESSIONID=0123456789abcdefghijklmnopqrstuvw",
    "PHPSESSID=0123456789ABCDEF0123456789ABCDEF",
    "sid=0123456789ABCDEF0123456789ABCDEF",
    "ASPSESSIONIDabcdefgh=abcdefghijklmnopqrstuvwx",
    "ASPSESSIONIDabcdefg1=abcdefghijklmnopqrstuvwx",
    "CFID=1&CFTOKEN=2",
    "cfid=",
    "cftoken=",
    "cfid=cfid=3",
    "?",
    "/",
    "'",
];

fn odd_address(numbers: &mut Numbers) -> String {
    let mut url = numbers.pick(&["http://", "https://", "HTTP://"]).to_owned();
    url.push_str(numbers.pick(&HOSTS));
    url.push_str(numbers.pick(&PORTS));
    if !numbers.next().is_multiple_of(8) {
        url.push('/');
        (0..numbers.next() % 9).for_each(|_| url.push_str(numbers.pick(&PARTS)));
    }
    if numbers.next().is_multiple_of(2) {
        url.push('?');
        (0..numbers.next() % 9).for_each(|_| url.push_str(numbers.pick(&ARGUMENTS)));
    }
    url
}

#[test]
#[ignore = "needs warcio and cdxj-indexer: ./test installs them"]
fn the_keys_of_odd_addresses_equal_those_of_the_python_library() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut numbers = Numbers(11);
    let mut urls: Vec<Url> = Vec::new();
    while urls.len() < 50_000 {
        if let Ok(mut url) = Url::parse(&odd_address(&mut numbers)) {
            url.set_fragment(None);
            urls.push(url);
        }
    }
    let list = directory.path().join("urls");
    let text: Vec<String> = urls.iter().map(Url::to_string).collect();
    fs::write(&list, text.join("\n")).expect("room");
    let keys =
        "import sys, surt\nfor line in open(sys.argv[1]): print(surt.surt(line.rstrip('\\n')))";
    let theirs = python(&["-W", "ignore", "-c", keys, list.to_str().expect("text")]);
    for (url, theirs) in urls.iter().zip(theirs.lines()) {
        assert_eq!(surt(url), theirs, "`{url}`");
    }
    assert_eq!(theirs.lines().count(), urls.len());
}
