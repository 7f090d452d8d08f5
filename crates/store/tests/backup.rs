//! Copies made while a process writes: whole, closed, and with all that was acknowledged (B1).

#[cfg(target_os = "linux")]
mod small_disk;
mod story;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use paceline_store::{Backup, BackupError, Memory, MissingLog, Sqlite, Store, StoreError, backup};
use rusqlite::Connection;
use story::{Contents, Story};

const CHILD: &str = "PACELINE_TEST_STORE";

/// A process that commits until it is killed, at the latest when this is dropped.
struct Busy {
    child: Child,
    acknowledged: Arc<AtomicUsize>,
}

impl Busy {
    fn on(path: &Path) -> Busy {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_child_commits_until_it_is_killed", "--nocapture"])
            .env(CHILD, path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let counter = acknowledged.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(number) = line.strip_prefix("acknowledged ") {
                    counter.store(number.parse().expect("a number"), Ordering::Release);
                }
            }
        });
        Busy { child, acknowledged }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Acquire)
    }

    fn wait_for(&self, batches: usize) {
        while self.acknowledged() < batches {
            std::thread::yield_now();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn story() -> impl Iterator<Item = (paceline_core::Stamp, Vec<paceline_core::Write>)> {
    let mut story = Story::new(3, 600);
    std::iter::repeat_with(move || story.batch(20))
}

#[test]
fn the_child_commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut store = Sqlite::open(Path::new(&path)).expect("a new store");
    for (number, (stamp, writes)) in (1..).zip(story()) {
        store.commit(&stamp, &writes).expect("a commit");
        println!("\nacknowledged {number}");
        let _ = std::io::stdout().flush();
    }
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("it is there");
    (directory, path)
}

fn copy(source: &Path, target: &Path) -> Result<Backup, BackupError> {
    backup(source, target, MissingLog::Refuse, |_| ControlFlow::Continue(()))
}

/// A closed store with `batches` batches.
fn closed(path: &Path, batches: usize) {
    let mut store = Sqlite::open(path).expect("a new store");
    for (stamp, writes) in story().take(batches) {
        store.commit(&stamp, &writes).expect("a commit");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

#[test]
fn b1_copies_made_under_load_are_whole_and_hold_all_that_was_acknowledged() {
    let (_alive, home) = directory();
    let path = home.join("store.db");
    let busy = Busy::on(&path);
    let mut memory = Memory::default();
    let mut told = story();
    let mut batches = 0;
    for number in 0..12 {
        busy.wait_for(40 * number + 1);
        let before = busy.acknowledged();
        let target = home.join(format!("copy-{number}.db"));
        let made = copy(&path, &target).expect("a copy");
        assert!(!target.with_file_name(format!("copy-{number}.db-wal")).exists(), "it is closed");
        let mode = target.metadata().expect("the copy").permissions().mode();
        assert_eq!((mode & 0o777, made.bytes), (0o600, target.metadata().expect("it").len()));

        let found = Contents::of(&mut Sqlite::open(&target).expect("it needs no log"));
        assert!(found.batches() >= before, "batch {before} is not in the copy");
        while batches < found.batches() {
            let (stamp, writes) = told.next().expect("it goes on");
            memory.commit(&stamp, &writes).expect("memory never fails");
            batches += 1;
        }
        assert_eq!(found, Contents::of(&mut memory), "the copy is no state that ever was");
        let connection = Connection::open(&target).expect("a database");
        let check = "PRAGMA integrity_check";
        let whole: String = connection.query_row(check, [], |row| row.get(0)).expect("a check");
        assert_eq!(whole, "ok");
    }
    // The owner goes on.
    busy.wait_for(busy.acknowledged() + 20);
}

/// Batches of a store that is copied in several steps.
const BEFORE: usize = 20;

#[test]
fn b1_a_copy_made_in_many_steps_is_the_store_as_it_was_at_the_first() {
    let (_alive, home) = directory();
    let (path, target) = (home.join("store.db"), home.join("copy.db"));
    let mut store = Sqlite::open(&path).expect("a new store");
    let mut told = Story::new(7, 60_000);
    let mut commit = || {
        let (stamp, writes) = told.batch(200);
        store.commit(&stamp, &writes).expect("a commit");
    };
    (0..BEFORE).for_each(|_| commit());
    let mut steps = 0;
    let made = backup(&path, &target, MissingLog::Refuse, |_| {
        steps += 1;
        commit();
        // A copy that began anew after each commit would never end.
        if steps < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(made.expect("a copy").bytes > 16 << 20 && steps > 2, "{steps} steps are too few");
    let copied = Contents::of(&mut Sqlite::open(&target).expect("a store"));
    assert_eq!(copied.batches(), BEFORE);
}

#[test]
fn b1_a_store_that_a_killed_process_left_is_copied_and_left_as_it_is() {
    let (_alive, home) = directory();
    let path = home.join("store.db");
    let busy = Busy::on(&path);
    busy.wait_for(50);
    let acknowledged = Arc::clone(&busy.acknowledged);
    drop(busy);
    let log = home.join("store.db-wal");
    let before = (fs::read(&path).expect("the file"), fs::read(&log).expect("its log"));
    copy(&path, &home.join("copy.db")).expect("a copy");
    assert!(before == (fs::read(&path).expect("the file"), fs::read(&log).expect("its log")));
    let of = |name: &str| Contents::of(&mut Sqlite::open(&home.join(name)).expect("a store"));
    let (copied, original) = (of("copy.db"), of("store.db"));
    assert!(copied == original && copied.batches() >= acknowledged.load(Ordering::Acquire));
}

#[test]
fn a_store_at_rest_is_copied_and_nothing_is_left_beside_it() {
    let (_alive, home) = directory();
    closed(&home.join("store.db"), 5);
    let before = fs::read(home.join("store.db")).expect("the file");
    let made = copy(&home.join("store.db"), &home.join("copy.db")).expect("a copy");
    assert_eq!(names(&home), ["copy.db", "store.db", "store.db.lock"]);
    assert!(before == fs::read(home.join("store.db")).expect("the file"));
    let mut store = Sqlite::open(&home.join("copy.db")).expect("a store");
    let batches: Vec<_> = story().take(5).collect();
    assert_eq!(Some(&Contents::of(&mut store)), Contents::after_each(&batches).last());
    let all = store.list(None.into(), 1_000, paceline_store::JobFilter::All).expect("a list");
    let finished = all.iter().filter(|job| job.report.is_some()).count() as u64;
    assert_eq!((made.unfinished, made.finished), (all.len() as u64 - finished, finished));
}

/// The error of a copy, in words; `HOME` stands for the directory. Nothing is left of it.
#[track_caller]
fn refusal(home: &Path, source: &str, target: &str) -> String {
    let before = names(home);
    let error = copy(&home.join(source), &home.join(target)).expect_err("it is refused");
    assert_eq!(names(home), before);
    error.to_string().replace(&home.display().to_string(), "HOME")
}

#[test]
fn a_store_that_cannot_be_copied_is_named_and_nothing_is_left() {
    let (_alive, home) = directory();
    closed(&home.join("store.db"), 1);
    fs::write(home.join("taken.db"), b"mine").expect("a file");
    fs::write(home.join("notes.txt"), b"dear diary").expect("a file");
    fs::write(home.join("empty.db"), b"").expect("a file");
    closed(&home.join("newer.db"), 1);
    let newer = Connection::open(home.join("newer.db")).expect("a database");
    newer.pragma_update(None, "user_version", 99).expect("SQL");
    drop(newer);

    let exists = "`HOME/taken.db` exists: name a file that does not, or move it away";
    assert_eq!(refusal(&home, "store.db", "taken.db"), exists);
    assert_eq!(fs::read(home.join("taken.db")).expect("the file"), b"mine");
    // The log of a deleted store would be read as the log of the copy.
    fs::write(home.join("gone.db-wal"), b"old").expect("a file");
    let left = "`HOME/gone.db-wal` was left by another store: move it away, or choose \
                another name for the copy";
    assert_eq!(refusal(&home, "store.db", "gone.db"), left);
    let missing = "no directory for `HOME/no/copy.db`: create it first";
    assert_eq!(refusal(&home, "store.db", "no/copy.db"), missing);
    let none = "no store at `HOME/none.db`: name one that exists";
    assert_eq!(refusal(&home, "none.db", "copy.db"), none);
    for (source, words) in [
        ("notes.txt", "`HOME/notes.txt` is not a Paceline store"),
        ("empty.db", "`HOME/empty.db` is not a Paceline store"),
        ("newer.db", "`HOME/newer.db` was written by a newer program (version 99"),
    ] {
        let error = refusal(&home, source, "copy.db");
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn b1_a_file_without_its_log_is_copied_only_by_those_who_ask_for_it() {
    let (_alive, home) = directory();
    let mut store = Sqlite::open(&home.join("store.db")).expect("a new store");
    for (stamp, writes) in story().take(3) {
        store.commit(&stamp, &writes).expect("a commit");
    }
    fs::copy(home.join("store.db"), home.join("alone.db")).expect("a copy");
    let (source, target) = (home.join("alone.db"), home.join("copy.db"));
    let error = copy(&source, &target).expect_err("its newest commits are missing");
    assert!(matches!(error, BackupError::Store(StoreError::LogMissing { .. })), "{error}");
    backup(&source, &target, MissingLog::Accept, |_| ControlFlow::Continue(())).expect("a copy");
    Sqlite::open(&target).expect("a closed store");
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing() {
    let (_alive, home) = directory();
    closed(&home.join("store.db"), 1);
    let before = names(&home);
    let stop = |_| ControlFlow::Break(());
    let stopped = backup(&home.join("store.db"), &home.join("copy.db"), MissingLog::Refuse, stop);
    assert!(matches!(stopped, Err(BackupError::Stopped)));
    assert_eq!(names(&home), before);
}

#[test]
#[ignore = "mounts a small disk: `./test` runs it"]
#[cfg(target_os = "linux")]
fn a_full_disk_leaves_no_part_of_a_copy() {
    let (_alive, home) = directory();
    let mut store = Sqlite::open(&home.join("store.db")).expect("a new store");
    let mut told = Story::new(9, 20_000);
    for _ in 0..100 {
        let (stamp, writes) = told.batch(20);
        store.commit(&stamp, &writes).expect("a commit");
    }
    let disk = small_disk::Disk::of("1m");
    let error = copy(&home.join("store.db"), &disk.path().join("copy.db")).expect_err("no room");
    assert!(matches!(error, BackupError::Store(StoreError::Full { .. })), "{error}");
    assert_eq!(names(&disk.path()), [""; 0]);
    disk.remount("size=64m");
    copy(&home.join("store.db"), &disk.path().join("copy.db")).expect("there is room now");
}
