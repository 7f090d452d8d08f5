//! `paceline demo` as a newcomer runs it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use tempfile::TempDir;

/// A demo whose temporary directories are in one of ours, so that what it leaves there is seen.
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

#[test]
fn paceline_breaks_no_limit_and_loses_nothing_where_the_naive_client_does_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = demo(&directory).output().expect("it runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let stderr = String::from_utf8(output.stderr).expect("text");
    let told = format!("{stdout}{stderr}");
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(empty(directory.path()), "{told}");

    let rows: Vec<[u64; 8]> = stdout.lines().filter_map(numbers).collect();
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
        let row = stdout.lines().find_map(|line| line.strip_prefix(name));
        row.unwrap_or_else(|| panic!("no `{name}`: {told}")).split_whitespace().collect()
    };
    let [naive, "0"] = row("limits broken")[..] else { panic!("{told}") };
    assert_ne!(naive, "0", "{told}");
    let [naive, "of", jobs, paced, "of", _] = row("jobs answered")[..] else { panic!("{told}") };
    let [naive, jobs, paced] = [naive, jobs, paced].map(|word| word.parse::<u32>().expect(word));
    assert!(naive < paced && paced < jobs, "{told}");
    assert!(stdout.contains(&format!("; 0 of {jobs} lost, 0 reported twice.\n")), "{told}");
    check_lines(&stderr, jobs);
}

/// What it says on the way: plain lines, and the whole story.
fn check_lines(stderr: &str, jobs: u32) {
    assert!(!stderr.contains('\x1b'), "no terminal, no escapes: {stderr}");
    for part in [
        "an interactive job comes to steady, where ",
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

/// A demo that has got as far as to have a worker process.
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

    /// Sends a signal to the demo, not to its worker; the rest of what both say. It ends when
    /// nobody is left to say anything.
    fn signalled(mut self, signal: &str) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        assert!(!alive(self.worker), "{rest}");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[test]
fn ctrl_c_leaves_neither_a_process_nor_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, rest) = Started::new(&directory).signalled("-INT");
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.ends_with("nothing is left behind\n"), "{rest}");
    assert!(empty(directory.path()), "{rest}");
}

#[test]
fn the_worker_process_ends_when_its_parent_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (code, _) = Started::new(&directory).signalled("-KILL");
    assert_eq!(code, None);
}
