//! Lists in all formats, and the names of files.

use std::io::Write as _;
use std::process::Stdio;

use paceline_mock::files::{File, Files, Response};

use crate::Place;

/// sha-256 of `hello`.
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn server() -> Files {
    let server = Files::start();
    for path in ["/a", "/b", "/c/a", "/d/a", "/x/y/z.txt"] {
        server.put(path, File::of(format!("this is {path}")));
    }
    server.put("/hello", File::of("hello"));
    server
}

fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn addresses_as_arguments_land_beside_each_other() {
    let (server, place) = (server(), Place::new());
    place.fetch(&[&server.url("/a"), &server.url("/b")]).exits(0);
    assert_eq!(place.names(), ["a", "b"]);
    assert_eq!(read(&place, "b"), "this is /b");
}

#[test]
fn one_name_wanted_by_several_gives_stable_distinct_ones() {
    let (server, first, second) = (server(), Place::new(), Place::new());
    for place in [&first, &second] {
        let list = place.list(["/a", "/c/a", "/d/a"].map(|path| server.url(path)));
        place.fetch(&["-i", &list]).exits(0);
        assert_eq!(read(place, "a"), "this is /a");
    }
    assert_eq!(first.names().len(), 3);
    assert_eq!(first.names(), second.names());
}

#[test]
fn a_tree_has_folders_for_host_and_path() {
    let (server, place) = (server(), Place::new());
    place.fetch(&[&server.url("/x/y/z.txt"), &server.url("/c/a"), "--tree"]).exits(0);
    let host = format!("127.0.0.1+{}", server.addr().port());
    assert_eq!(place.names(), [format!("{host}/c/a"), format!("{host}/x/y/z.txt")]);
}

#[test]
fn the_one_file_may_be_named_and_checked() {
    let (server, place) = (server(), Place::new());
    let checksum = format!("sha-256={HELLO}");
    place.fetch(&[&server.url("/hello"), "-o", "sub/h.txt", "--checksum", &checksum]).exits(0);
    assert_eq!(read(&place, "sub/h.txt"), "hello");
    let ended = place.fetch(&[&server.url("/a"), "-o", "no.txt", "--checksum", &checksum]).exits(1);
    assert_eq!(ended.class(), "checksum");
    assert!(!place.file("no.txt").exists());
    assert_eq!(server.requests("/a"), 1, "a wrong checksum is not tried again");
}

#[test]
fn lists_of_aria2_name_folders_files_and_checksums() {
    let (server, place) = (server(), Place::new());
    let list = place.list([
        "# a comment".to_string(),
        server.url("/hello"),
        "  out=h.txt".to_string(),
        format!("  checksum=sha-256={HELLO}"),
        server.url("/a"),
        "  dir=deep/er".to_string(),
        "  max-connection-per-server=4".to_string(),
    ]);
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!(place.names(), ["deep/er/a", "h.txt"]);
}

#[test]
fn json_lines_come_from_a_pipe() {
    let (server, place) = (server(), Place::new());
    let mut command = place.command(&["-i", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    for (path, out) in [("/a", "one"), ("/b", "two")] {
        let line = format!("{{\"url\": \"{}\", \"out\": \"{out}\"}}\n", server.url(path));
        pipe.write_all(line.as_bytes()).expect("the pipe is read");
    }
    drop(pipe);
    crate::Running::of(child).end().exits(0);
    assert_eq!(place.names(), ["one", "two"]);
}

#[test]
fn a_checksum_file_is_a_list_with_its_base() {
    let (server, place) = (server(), Place::new());
    let list = place.list([format!("{HELLO}  hello"), format!("{HELLO} *a")]);
    let ended = place.fetch(&["-i", &list, "--base", &server.url("/")]).exits(1);
    assert_eq!(place.names(), ["hello"]);
    assert_eq!(ended.class(), "checksum");
}

#[test]
fn j3_mirrors_are_asked_one_after_another() {
    let (first, second, place) = (Files::start(), Files::start_on("127.0.0.2"), Place::new());
    first.put("/m", Response::status(404));
    second.put("/m", File::of("from the mirror"));
    let list = place.list([format!("{}\t{}", first.url("/m"), second.url("/m"))]);
    let ended = place.fetch(&["-i", &list]).exits(0);
    assert_eq!(read(&place, "m"), "from the mirror");
    assert_eq!((first.log().len(), second.log().len()), (1, 1));
    assert_eq!(ended.of("done")[0]["from"], second.url("/m"));
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!((first.log().len(), second.log().len()), (1, 1));
}

#[test]
fn an_existing_file_that_was_not_fetched_is_kept() {
    let (server, place) = (server(), Place::new());
    std::fs::create_dir(place.path().join("files")).expect("made");
    std::fs::write(place.file("a"), "mine").expect("written");
    let ended = place.fetch(&[&server.url("/a")]).exits(1);
    assert_eq!(ended.class(), "exists");
    assert_eq!((read(&place, "a").as_str(), server.log().len()), ("mine", 0));
    place.fetch(&[&server.url("/a"), "--overwrite"]).exits(0);
    assert_eq!(read(&place, "a"), "this is /a");
}

#[test]
fn what_failed_is_a_list_that_can_be_fetched_later() {
    let (server, place) = (server(), Place::new());
    let urls = ["/a", "/late", "/d/late"].map(|path| server.url(path));
    let list = place.list(urls);
    place.fetch(&["-i", &list, "--failed-out", "failed.txt"]).exits(1);
    server.put("/late", File::of("at last"));
    server.put("/d/late", File::of("at last too"));
    place.fetch(&["-i", "failed.txt"]).exits(0);
    assert_eq!(read(&place, "late"), "at last");
    assert_eq!(place.names().len(), 3);
    let requests = server.log().len();
    let ended = place.fetch(&["-i", &list]).exits(0);
    assert_eq!((ended.summary("there"), server.log().len()), (3, requests));
}

#[test]
fn mistakes_of_a_list_have_their_place_and_the_rest_is_fetched() {
    let (server, place) = (server(), Place::new());
    let list = place.list([server.url("/a"), "ftp://example.org/x".to_string(), server.url("/b")]);
    let ended = place.fetch(&["-i", &list]).exits(1);
    assert_eq!(place.names(), ["a", "b"]);
    assert!(ended.stderr.contains("list.txt:2: "), "{}", ended.stderr);
    assert_eq!(ended.summary("mistakes"), 1);
}

#[track_caller]
fn is_usage(arguments: &[&str], expected: &str) {
    let ended = Place::new().fetch(arguments).exits(2);
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn more_jobs_than_files_may_be_open_are_refused() {
    let place = Place::new();
    let inner = place.command(&["http://127.0.0.1:9/x", "-j", "64"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 100 && exec \"$@\"", "sh"]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(place.path());
    let output = command.output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("`--jobs 64` needs 192 open files and 100 are allowed"), "{told}");
}

#[test]
fn wrong_usage_is_exit_two_and_has_a_remedy() {
    is_usage(&[], "nothing to fetch");
    is_usage(&["http://a/1", "http://a/2", "-o", "x"], "exactly one URL");
    is_usage(&["example.org/x"], "https://");
    is_usage(&["http://a/1", "--every", "soon"], "is not a span of time");
    is_usage(&["http://a/1", "--header", "nonsense"], "NAME: VALUE");
    is_usage(&["http://a/1", "--decode", "--warc", "w"], "cannot be used with");
    is_usage(&["-i", "no-such-list"], "no-such-list");
    is_usage(&["http://a/1", "--warc", "a/b"], "cannot name WARC files");
    is_usage(&["http://a/1", "--per-host", "0"], "at least 1");
}

#[test]
fn an_existing_file_is_recognised_by_its_urls_or_by_its_checksum() {
    let (server, place) = (server(), Place::new());
    place.fetch(&[&server.url("/hello")]).exits(0);
    let manifest = format!("{HELLO}  hello\n");
    std::fs::write(place.path().join("SHA256SUMS"), manifest).expect("written");
    let arguments = ["-i", "SHA256SUMS", "--base", &server.url("/")];
    let ended = place.fetch(&arguments).exits(0);
    assert_eq!((ended.summary("there"), server.log().len()), (1, 1));
    // The same for a file that something else has put there.
    std::fs::remove_dir_all(place.file(".paceline")).expect("removed");
    let ended = place.fetch(&arguments).exits(0);
    assert_eq!((ended.summary("there"), server.log().len()), (1, 1));
    std::fs::write(place.file("hello"), "something else").expect("written");
    std::fs::remove_dir_all(place.file(".paceline")).expect("removed");
    let ended = place.fetch(&arguments).exits(1);
    assert_eq!((ended.class(), server.log().len()), ("exists", 1));
}

#[test]
fn a_list_may_be_the_file_of_its_own_failures() {
    let (server, place) = (server(), Place::new());
    let list = place.list([server.url("/a"), server.url("/nowhere")]);
    place.fetch(&["-i", &list, "--failed-out", &list]).exits(1);
    let left = std::fs::read_to_string(&list).expect("there");
    assert!(left.contains("/nowhere") && !left.contains("/a\n"), "{left}");
}

#[test]
fn a_list_with_unread_lines_is_not_replaced_by_its_failures() {
    let (server, place) = (server(), Place::new());
    let list = place.list([server.url("/a"), "no address".to_string(), server.url("/nowhere")]);
    let before = std::fs::read_to_string(&list).expect("there");
    let ended = place.fetch(&["-i", &list, "--failed-out", &list]).exits(1);
    assert_eq!(std::fs::read_to_string(&list).expect("there"), before);
    let failed = std::fs::read_to_string(format!("{list}.failed")).expect("there");
    assert!(failed.contains("/nowhere") && ended.stderr.contains("list.txt.failed"), "{failed}");
}

#[test]
fn deferred_work_is_the_same_by_its_list_and_by_its_failures() {
    let (server, place) = (server(), Place::new());
    let list = place.list([server.url("/a"), server.url("/b"), server.url("/c/a")]);
    let slowly = ["-i", &list, "--every", "10s", "--deadline", "500ms", "--failed-out", "failed"];
    place.fetch(&slowly).exits(75);
    place.fetch(&["-i", "failed"]).exits(0);
    assert_eq!((place.names().len(), server.log().len()), (3, 3), "{:?}", place.names());
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!((place.names().len(), server.log().len()), (3, 3), "{:?}", place.names());
}

#[test]
fn a_file_that_came_meanwhile_is_not_taken_for_the_deferred_one() {
    let (server, place) = (server(), Place::new());
    let list = place.list([server.url("/b"), server.url("/a")]);
    place.fetch(&["-i", &list, "--every", "10s", "--deadline", "500ms"]).exits(75);
    assert_eq!(place.names(), ["b"]);
    std::fs::write(place.file("a"), "half of it").expect("written");
    // As if that were not right after it.
    place.make_old(&["fetch.db", "fetch.db-wal", "named"]);
    let ended = place.fetch(&["-i", &list]).exits(1);
    assert_eq!(ended.class(), "exists");
    assert_eq!(read(&place, "a"), "half of it");
}

#[test]
fn b1_a_file_that_took_long_and_was_named_right_before_a_kill_is_there() {
    let (server, place) = (server(), Place::new());
    place.fetch(&[&server.url("/hello")]).exits(0);
    place.make_old(&["fetch.db", "fetch.db-wal", "named"]);
    let list = place.list([server.url("/b"), server.url("/a")]);
    place.fetch(&["-i", &list, "--every", "10s", "--deadline", "500ms"]).exits(75);
    // As that run would have left it, had it died after a long download.
    std::fs::write(place.file("a"), "all of it").expect("written");
    place.make_old(&["fetch.db", "fetch.db-wal"]);
    let ended = place.fetch(&["-i", &list]).exits(0);
    assert_eq!((ended.summary("there"), server.log().len()), (2, 2), "{ended:?}");
    assert_eq!(read(&place, "a"), "all of it");
}

#[test]
fn a_run_does_its_own_work_and_not_what_another_left() {
    let (server, place) = (server(), Place::new());
    let list = place.list([server.url("/a"), server.url("/b"), server.url("/hello")]);
    place.fetch(&["-i", &list, "--every", "10s", "--deadline", "300ms"]).exits(75);
    assert_eq!(place.names(), ["a"]);
    let ended = place.fetch(&[&server.url("/x/y/z.txt")]).exits(0);
    assert_eq!((ended.summary("fetched"), server.log().len()), (1, 2));
    place.fetch(&["-i", &list]).exits(0);
    assert_eq!((place.names().len(), server.log().len()), (4, 4));
    // The same address, but another file.
    place.fetch(&[&server.url("/x/y/z.txt"), "--tree"]).exits(0);
    assert_eq!((place.names().len(), server.log().len()), (5, 5));
}

#[test]
fn two_runs_in_one_directory_do_not_mix() {
    let (server, place) = (server(), Place::new());
    let running = place.start(&[&server.url("/a"), &server.url("/b"), "--every", "10s"]);
    server.wait_until(|log| log.len() == 1);
    let ended = place.fetch(&[&server.url("/hello")]).exits(1);
    assert!(ended.stderr.contains("choose another directory with `-d`"), "{}", ended.stderr);
    running.kill();
}

#[test]
fn a_list_that_is_not_there_is_noticed_before_anything_is_done() {
    let place = Place::new();
    place.fetch(&["-i", "no-such-list", "--failed-out", "failed"]).exits(2);
    assert!(!place.file(".paceline").exists());
    let left = std::fs::read_dir(place.path()).expect("there").map(|entry| entry.expect("one"));
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "files"), "{left:?}");
}

#[test]
fn a_file_may_be_called_as_a_folder_is() {
    let (server, place) = (server(), Place::new());
    server.put("/c", File::of("a file where others have a folder"));
    server.put("/d", File::of("another one"));
    let paths = ["/c/a", "/c", "/d", "/d/a", "/d"];
    let list = place.list(paths.map(|path| server.url(path)));
    place.fetch(&["-i", &list, "--tree"]).exits(0);
    let names = place.names();
    assert_eq!(names.len(), 4, "{names:?}");
    place.fetch(&["-i", &list, "--tree"]).exits(0);
    assert_eq!((place.names(), server.log().len()), (names, 4));
}

#[test]
fn one_address_that_cannot_be_a_lane_does_not_end_the_run() {
    let (server, place) = (server(), Place::new());
    let long = format!("http://{}.invalid:1/x", "a.".repeat(115));
    let list = place.list([long, server.url("/a")]);
    place.fetch(&["-i", &list, "--retries", "0"]).exits(1);
    assert_eq!(place.names(), ["a"]);
}

#[test]
fn a_deadline_with_lines_unread_is_not_the_end() {
    let (server, place) = (server(), Place::new());
    let mut command = place.command(&["-i", "-", "--deadline", "500ms"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(format!("{}\n", server.url("/a")).as_bytes()).expect("the pipe is read");
    crate::Running::of(child).end().exits(75);
    drop(pipe);
}

#[test]
fn a_closed_stdout_does_not_change_the_exit() {
    let (server, place) = (server(), Place::new());
    let mut command = place.command(&[&server.url("/nowhere")]);
    let mut child = command.spawn().expect("it runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn every_checksum_that_a_list_names_for_a_file_is_held_against_it() {
    let (server, place) = (Files::start(), Place::new());
    server.put("/f", File::of("hello"));
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let right = format!("SHA256 (f) = {sha256}\nMD5 (f) = 5d41402abc4b2a76b9719d911017c592\n");
    let wrong = format!("{right}SHA1 (f) = {}\n", "0".repeat(40));
    let sums = |text: &str| {
        let file = place.path().join("SUMS");
        std::fs::write(&file, text).expect("written");
        place.fetch(&["-i", &file.display().to_string(), "--base", &server.url("/")])
    };
    let ended = sums(&wrong).exits(1);
    assert_eq!((ended.class(), ended.summary("fetched")), ("checksum", 1), "{ended:?}");
    sums(&right).exits(0);
    assert_eq!(read(&place, "f"), "hello");
}
