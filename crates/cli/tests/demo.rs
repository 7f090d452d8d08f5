//! `paceline demo`, run as a command.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// How long a response of the daemon may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A demo whose temporary directories are inside the test's, so that leftovers are seen.
fn demo(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("demo").env("TMPDIR", directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("a directory").next().is_none()
}

/// The eight numbers of a row: calls, 429s, bans and answers of each client.
fn numbers(row: &str) -> Option<[u64; 8]> {
    let mut numbers: Vec<u64> =
        row.split_whitespace().rev().map_while(|word| word.parse().ok()).take(8).collect();
    numbers.reverse();
    numbers.try_into().ok()
}

/// Reads the output up to this text.
#[track_caller]
fn said_until(lines: &mut impl BufRead, end: &str) -> String {
    let mut said = String::new();
    loop {
        let start = said.len();
        assert!(lines.read_line(&mut said).expect("text") > 0, "`{end}` is missing: {said}");
        if said[start..].contains(end) {
            return said;
        }
    }
}

/// One run for all checks of a whole demo, because it takes half a minute.
#[test]
fn it_compares_both_clients_and_then_serves_a_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = demo(&directory).arg("--serve").spawn().expect("it runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let told = said_until(&mut stderr, "listening on http://127.0.0.1:");
    let table = said_until(&mut stdout, "/api/v1/events");
    let (story, listening) = told.trim_end().rsplit_once('\n').expect("lines");
    let address = listening.strip_prefix("listening on ").and_then(|rest| rest.split(';').next());
    check_daemon(address.expect("where it listens"), &table);

    send(&child, "-INT");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{told}{rest}");
    assert!(rest.ends_with(" removed\n"), "{rest}");
    assert!(empty(directory.path()), "{rest}");
    let jobs = check_table(&table);
    check_lines(story, jobs);
}

/// Runs the lines that it prints, without curl.
fn check_daemon(address: &str, told: &str) {
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("curl ")).collect();
    let [submit, lanes, events] = lines[..] else { panic!("{told}") };
    let mut events = BufReader::new(asked(events, address));
    said_until(&mut events, "event: ready");
    let answer = |line| {
        let mut text = String::new();
        asked(line, address).read_to_string(&mut text).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        text
    };
    let report = answer(submit);
    assert!(report.contains("preference-applied: wait=10") && report.contains("call "), "{report}");
    said_until(&mut events, "event: finished");
    let lanes = answer(lanes);
    for name in ["steady", "windowed", "grumpy", "flaky", "hung"] {
        assert!(lanes.contains(&format!("\"name\":\"{name}\"")), "{lanes}");
    }
}

/// Sends the request of a curl line, which has quotes around headers and, at its end, a body.
fn asked(curl: &str, address: &str) -> TcpStream {
    let url = curl.split(' ').find_map(|word| word.strip_prefix(address)).expect("its address");
    let host = address.strip_prefix("http://").expect("plain HTTP");
    let mut quoted: Vec<&str> = curl.split('\'').skip(1).step_by(2).collect();
    let body = if curl.contains(" -d '") { quoted.pop() } else { None };
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let length = format!("Content-Length: {}", body.len());
    quoted.push(&length);
    let headers = quoted.join("\r\n");
    let mut stream = TcpStream::connect(host).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time above zero");
    write!(
        stream,
        "{method} {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
         \r\n\r\n{body}"
    )
    .expect("it reads");
    stream
}

/// Checks that Paceline breaks no limit and loses nothing, where the naive client does both. Returns
/// the number of jobs.
fn check_table(told: &str) -> u32 {
    let rows: Vec<[u64; 8]> = told.lines().filter_map(numbers).collect();
    let [steady, windowed, grumpy, flaky, hung, all] = rows[..] else { panic!("{told}") };
    for [_, _, _, _, calls, refused, bans, _] in [steady, windowed, grumpy, flaky, hung, all] {
        assert!(calls > 0 && refused == 0 && bans == 0, "{told}");
    }
    for [_, refused, _, answers, _, _, _, paced_answers] in [steady, windowed, grumpy] {
        assert!(refused > 0 && answers < paced_answers, "{told}");
    }
    assert!(grumpy[2] > 0 && all[2] == grumpy[2], "only grumpy bans: {told}");
    assert_eq!((hung[3], hung[7]), (0, 0), "{told}");

    let row = |name: &str| -> Vec<&str> {
        let row = told.lines().find_map(|line| line.strip_prefix(name));
        row.unwrap_or_else(|| panic!("no `{name}`: {told}")).split_whitespace().collect()
    };
    let [naive, "0"] = row("limits broken")[..] else { panic!("{told}") };
    assert_ne!(naive, "0", "{told}");
    let [naive, "of", jobs, paced, "of", _] = row("jobs answered")[..] else { panic!("{told}") };
    let [naive, jobs, paced] = [naive, jobs, paced].map(|word| word.parse::<u32>().expect(word));
    assert!(naive < paced && paced < jobs, "{told}");
    assert!(told.contains(&format!("; 0 of {jobs} lost, 0 reported twice.\n")), "{told}");
    jobs
}

/// Checks the lines of progress: plain text, and all acts.
fn check_lines(stderr: &str, jobs: u32) {
    assert!(!stderr.contains('\x1b'), "no terminal, no escapes: {stderr}");
    for part in [
        "an interactive job arrives at steady, where ",
        "hung is left alone for ",
        "SIGKILL: process ",
        " unfinished jobs in the store, 0 lost",
        "they are answered, and ",
    ] {
        assert!(stderr.contains(part), "`{part}` is missing: {stderr}");
    }
    let last = stderr.trim_end().lines().next_back().expect("lines");
    let (took, said) = last.trim_start().split_once("s  ").expect("a moment");
    assert_eq!(said, format!("{jobs} jobs have their report"));
    assert!(took.parse::<f64>().expect("seconds") < 60.0, "{stderr}");
}

/// A demo that has started its worker process.
struct Started {
    child: Child,
    stderr: BufReader<ChildStderr>,
    worker: u32,
}

impl Started {
    fn new(directory: &TempDir) -> Started {
        let mut child = demo(directory).spawn().expect("it runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        let worker = loop {
            let start = said.len();
            assert!(stderr.read_line(&mut said).expect("text") > 0, "{said}");
            if let Some((_, rest)) = said[start..].split_once("  process ") {
                let (id, _) = rest.split_once(": ").expect("what it did");
                break id.parse().expect("a number");
            }
        };
        assert!(alive(worker) && !empty(directory.path()), "{said}");
        Started { child, stderr, worker }
    }

    /// Sends a signal to the demo, not to its worker, and returns the rest of the output of both. The
    /// output ends when both processes have ended.
    fn signalled(mut self, signal: &str) -> (Option<i32>, String) {
        send(&self.child, signal);
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        // Its files are closed a moment before it is gone; a bug would leave it there for seconds.
        let over = (0..500).any(|_| {
            #[expect(clippy::disallowed_methods, reason = "no event tells that a process is gone")]
            std::thread::sleep(std::time::Duration::from_millis(10));
            !alive(self.worker)
        });
        assert!(over, "{rest}");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
}

/// Returns `true` if a process runs; a zombie does not.
fn alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[test]
fn ctrl_c_leaves_neither_a_process_nor_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, rest) = Started::new(&directory).signalled("-INT");
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.ends_with(" removed\n"), "{rest}");
    assert!(empty(directory.path()), "{rest}");
}

#[test]
fn the_worker_process_ends_when_its_parent_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, _) = Started::new(&directory).signalled("-KILL");
    assert_eq!(code, None);
}
