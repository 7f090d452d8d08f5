//! WARC archives of downloads, read by the usual tools.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::Command;

use paceline_core::Span;
use paceline_mock::files::{Fault, File, Files, Framing, Response};

use crate::{Place, generated};

fn python(place: &Place, arguments: &[&str]) -> String {
    let python = std::env::var_os("PACELINE_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    let output = command.current_dir(place.path().join("files")).args(arguments).output();
    let output = output.expect("python starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn archives(place: &Place) -> Vec<String> {
    let names = place.names().into_iter();
    names.filter(|name| PathBuf::from(name).extension().is_some_and(|end| end == "gz")).collect()
}

/// `warcio check` finds no error, and the index is the one that `cdxj-indexer` makes.
#[track_caller]
fn is_sound(place: &Place, answers: usize) {
    let files = archives(place);
    let all: Vec<&str> = files.iter().map(String::as_str).collect();
    python(place, &[&["-m", "warcio.cli", "check"], all.as_slice()].concat());
    let expected = python(place, &[&["-m", "cdxj_indexer.main"], all.as_slice()].concat());
    let mut expected: Vec<&str> = expected.lines().collect();
    expected.sort_unstable();
    let written = std::fs::read_to_string(place.file("web.cdxj")).expect("an index");
    let written: Vec<&str> = written.lines().collect();
    assert_eq!(written, expected);
    assert_eq!(written.len(), answers);
}

#[test]
#[ignore = "needs warcio and cdxj-indexer: ./test installs them and asks for it"]
fn an_archive_holds_every_answer_and_the_tools_of_archives_agree() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 30_000);
    server
        .put("/page", File::of("<p>hello</p>").header("content-type", "text/html; charset=utf-8"));
    server.put("/chunked", File::named("c", 100_000).framing(Framing::Chunked));
    server.put("/empty", File::of(""));
    server.put("/moved", Response::redirect(301, "/page?from=moved"));
    server.put("/gone", Response::status(410).body("it was here"));
    server.on("/f/3", Fault::Respond(Response::status(500).body("not now")).first(1));
    let mut urls = generated(&server, "f", 20);
    urls.extend(["/page", "/chunked", "/empty", "/moved", "/gone"].map(|path| server.url(path)));
    let list = place.list(urls);
    let ended = place.fetch(&["-i", &list, "--warc", "web", "--header", "Cookie: s3cret"]).exits(1);
    assert_eq!(ended.class(), "status_410");
    // Twenty files, one of them twice, five others, and the page behind the redirect.
    assert_eq!(server.log().len(), 27);
    is_sound(&place, 27);
    let shown =
        python(&place, &["-m", "warcio.cli", "index", "-f", "warc-type", "web-00001.warc.gz"]);
    assert_eq!(shown.matches("\"request\"").count(), 27);
    assert_eq!(shown.matches("\"warcinfo\"").count(), 1);
    let page = place.file("page");
    assert_eq!(std::fs::read(page).expect("there"), b"<p>hello</p>");
}

#[test]
#[ignore = "needs warcio and cdxj-indexer: ./test installs them and asks for it"]
fn an_archive_goes_on_after_a_kill() {
    let (server, place) = (Files::start(), Place::new());
    server.generate("/f/*", 50_000);
    server.on("*", Fault::Latency(std::time::Duration::from_millis(3)));
    let list = place.list(generated(&server, "f", 150));
    for goal in [40, 80, 120] {
        let running = place.start(&["-i", &list, "--warc", "web"]);
        server.wait_until(|log| log.len() >= goal);
        running.kill();
    }
    place.fetch(&["-i", &list, "--warc", "web"]).exits(0);
    let files = archives(&place);
    let all: Vec<&str> = files.iter().map(String::as_str).collect();
    python(&place, &[&["-m", "warcio.cli", "check"], all.as_slice()].concat());
    let index = std::fs::read_to_string(place.file("web.cdxj")).expect("an index");
    for n in 0..150 {
        let url = format!("\"url\": \"{}\"", server.url(&format!("/f/{n}")));
        assert!(index.contains(&url), "{url} is not in the archive");
    }
    is_sound(&place, index.lines().count());
}

#[test]
fn an_archive_has_no_headers_that_may_be_secrets() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/a", File::of("a"));
    let headers = ["--header", "X-Api-Key: s3cret", "--header", "Accept-Language: bg"];
    place.fetch(&[&[&server.url("/a"), "--warc", "web"], &headers[..]].concat()).exits(0);
    assert_eq!(server.log()[0].header("x-api-key"), Some("s3cret"));
    let packed = std::fs::read(place.file("web-00001.warc.gz")).expect("an archive");
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&*packed).read_to_string(&mut text).expect("text");
    assert!(text.contains("accept-language: bg") && !text.contains("s3cret"), "{text}");
}

#[test]
fn no_download_takes_a_name_of_the_archive() {
    let (server, place) = (Files::start(), Place::new());
    let own = ["web.cdxj", "web.cdxj.new", "WEB.cdxj.part", "web-00002.warc.gz"];
    for name in own {
        server.put(&format!("/{name}"), File::of("com,evil)/ 2026 {}"));
    }
    let by_server = File::of("b").header("content-disposition", "filename=web.cdxj.sort");
    server.put("/b", by_server);
    let list = place.list(own.map(|name| server.url(&format!("/{name}"))));
    let both = ["-i", &list, &server.url("/b"), "--warc", "web", "--content-disposition"];
    let ended = place.fetch(&both).exits(0);
    assert_eq!(ended.summary("fetched"), 5);
    let index = std::fs::read_to_string(place.file("web.cdxj")).expect("an index");
    assert_eq!((index.lines().count(), index.contains("evil")), (5, false), "{index}");
    for done in ended.of("done") {
        let file = done["file"].as_str().expect("a name");
        assert!(place.file(file).exists() && file != "web.cdxj", "{file}");
    }
    assert_eq!(place.names().len(), 7, "{:?}", place.names());
    place.fetch(&both).exits(0);
    assert_eq!(server.log().len(), 5);
}

#[test]
fn a_refusal_counts_in_an_archive_too_when_its_body_breaks() {
    let (server, place) = (Files::start(), Place::new());
    let broken = |response: Response| {
        let cut = Fault::Cut(7, paceline_mock::files::Ending::Close);
        Fault::Respond(response.body("x".repeat(500))).and(cut)
    };
    server.put("/a", File::of("a"));
    server.on("/a", broken(Response::status(429).retry_after("1")).first(1));
    server.on("/gone", broken(Response::status(404)));
    server.put("/b", File::of("b"));
    server.on("/moved", broken(Response::redirect(302, "/b")));
    let urls = ["/a", "/gone", "/moved"].map(|path| server.url(path));
    let [a, gone, moved] = urls.each_ref().map(String::as_str);
    let ended = place.fetch(&[a, gone, moved, "--warc", "web"]).exits(1);
    assert_eq!((ended.class(), ended.summary("fetched")), ("status_404", 2), "{ended:?}");
    assert_eq!(server.log_of("/gone").len(), 1);
    let log = server.log_of("/a");
    assert!(log.len() == 2 && log[1].at.since(log[0].at) >= Span::secs(1), "{log:?}");
}
