//! A process that dies at any moment, and one that opens its store: every batch is there entirely
//! or not at all, and all acknowledged ones are there (B1).

mod story;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use paceline_core::{Stamp, Write};
use paceline_store::{Memory, Sqlite, Store};
use story::{Contents, Story};

/// A page of the log: 24 bytes about it, then the page.
const FRAME: usize = 24 + 4096;
const LOG_HEADER: usize = 32;

fn batches(seed: u64, count: usize, writes: usize, payload: usize) -> Vec<(Stamp, Vec<Write>)> {
    let mut story = Story::new(seed, payload);
    (0..count).map(|_| story.batch(writes)).collect()
}

fn log(path: &Path) -> PathBuf {
    path.with_file_name("store.db-wal")
}

/// Every other batch only has to outlive the process; to a reader that makes no difference.
fn write(store: &mut Sqlite, stamp: &Stamp, writes: &[Write]) {
    let done = match stamp.time.0 % 2 {
        0 => store.commit(stamp, writes),
        _ => store.commit_soon(stamp, writes),
    };
    done.expect("a commit");
}

/// The contents of a store that has these bytes as its file and its log.
fn reopened(file: &[u8], log_bytes: &[u8]) -> Contents {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    fs::write(&path, file).expect("a copy");
    fs::write(log(&path), log_bytes).expect("a copy");
    let mut store = Sqlite::open(&path).expect("a store");
    let first = Contents::of(&mut store);
    // Opening settles the contents: a second open finds the same.
    drop(store);
    let second = Contents::of(&mut Sqlite::open(&path).expect("a store"));
    assert_eq!(first, second);
    first
}

#[test]
fn b1_however_the_log_is_cut_a_batch_is_there_entirely_or_not_at_all() {
    let batches = batches(1, 25, 12, 300);
    let after = Contents::after_each(&batches);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let mut store = Sqlite::open(&path).expect("a new store");
    let size = || fs::metadata(log(&path)).expect("a log").len() as usize;
    let mut acknowledged = vec![size()];
    for (stamp, writes) in &batches {
        write(&mut store, stamp, writes);
        acknowledged.push(size());
    }
    let file = fs::read(&path).expect("the file");
    let log = fs::read(log(&path)).expect("its log");
    assert!(log.len() < 500 * FRAME, "no checkpoint has moved anything to the file");

    let frames = (LOG_HEADER..=log.len()).step_by(FRAME);
    let cuts = [0, 1, LOG_HEADER - 1].into_iter().chain(frames.clone());
    for cut in cuts.chain(frames.map(|frame| (frame + FRAME * 2 / 3).min(log.len()))) {
        let survivors = acknowledged.iter().rposition(|&size| size <= cut).unwrap_or(0);
        assert_eq!(reopened(&file, &log[..cut]), after[survivors], "cut at {cut}");
    }
    // A disk may also have allocated a page that was never written, or have kept an older one.
    for (batch, &cut) in acknowledged.iter().enumerate().skip(1).step_by(5) {
        for rest in [0x00, 0xAA] {
            let mut torn = log.clone();
            // It may be torn down to its last byte.
            torn[cut - 64..].fill(rest);
            let lost_its_end = &after[batch - 1];
            assert_eq!(&reopened(&file, &torn), lost_its_end, "from {cut} on {rest}");
        }
    }
}

#[test]
fn b1_dying_between_any_two_commits_loses_nothing_acknowledged() {
    let batches = batches(2, 120, 60, 600);
    let after = Contents::after_each(&batches);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let mut store = Sqlite::open(&path).expect("a new store");
    let mut checkpoints = 0;
    let mut before = Vec::new();
    for ((stamp, writes), expected) in batches.iter().zip(&after[1..]) {
        write(&mut store, stamp, writes);
        let file = fs::read(&path).expect("the file");
        assert_eq!(&reopened(&file, &fs::read(log(&path)).expect("its log")), expected);
        checkpoints += u32::from(file != before);
        before = file;
    }
    assert!(checkpoints > 3, "{checkpoints} checkpoints are too few to say anything");
    assert_eq!(&Contents::of(&mut store), after.last().expect("the last"));
}

const CHILD: &str = "PACELINE_TEST_STORE";

fn child_story() -> impl Iterator<Item = (Stamp, Vec<Write>)> {
    let mut story = Story::new(3, 600);
    std::iter::repeat_with(move || story.batch(20))
}

#[test]
fn b1_a_killed_process_loses_nothing_that_it_acknowledged() {
    for acknowledged in [1, 2, 29, 100, 163, 250, 311] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.db");
        let mut child = child(&path);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut last = 0;
        while last < acknowledged {
            let line = lines.next().expect("it goes on").expect("text");
            last = acknowledgement(&line).unwrap_or(last);
        }
        child.kill().expect("it is alive");
        child.wait().expect("it is a child of this process");
        let heard = lines.map_while(Result::ok).filter_map(|line| acknowledgement(&line)).max();
        let found = Contents::of(&mut Sqlite::open(&path).expect("a store"));
        assert!(found.batches() >= heard.unwrap_or(last), "an acknowledged batch is lost");
        let mut memory = Memory::default();
        for (stamp, writes) in child_story().take(found.batches()) {
            memory.commit(&stamp, &writes).expect("memory never fails");
        }
        assert_eq!(found, Contents::of(&mut memory));
    }
}

fn acknowledgement(line: &str) -> Option<usize> {
    line.strip_prefix("committed ")?.parse().ok()
}

fn child(path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_child_commits_until_it_is_killed", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

#[test]
fn the_child_commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut store = Sqlite::open(Path::new(&path)).expect("a new store");
    let mut out = std::io::stdout();
    writeln!(out).expect("a reader");
    for (stamp, writes) in child_story() {
        write(&mut store, &stamp, &writes);
        writeln!(out, "committed {}", stamp.time.0).and_then(|()| out.flush()).expect("a reader");
    }
}
