//! Copies of a store: one without its log is refused, whatever was being done to it (B1).

mod story;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use paceline_store::{Sqlite, Store as _, StoreError};
use rusqlite::{Connection, OpenFlags};
use story::{Contents, Story};

fn log(path: &Path) -> PathBuf {
    let name = path.file_name().expect("a name").to_str().expect("text");
    path.with_file_name(format!("{name}-wal"))
}

/// A directory, and an open store in it with this number of batches.
fn open_store(batches: usize) -> (tempfile::TempDir, PathBuf, Sqlite) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("it is there").join("store.db");
    let mut store = Sqlite::open(&path).expect("a new store");
    let mut story = Story::new(1, 300);
    for _ in 0..batches {
        let (stamp, writes) = story.batch(10);
        store.commit(&stamp, &writes).expect("a commit");
    }
    (directory, path, store)
}

/// A copy of the file alone.
fn copy(path: &Path) -> PathBuf {
    let copy = path.with_file_name("copy of 50%? #1.db");
    fs::copy(path, &copy).expect("a copy");
    copy
}

/// Returns `true` if the file itself carries the mark, whatever its log holds.
fn marked(path: &Path) -> bool {
    let alone = path.with_file_name("alone.db");
    fs::copy(path, &alone).expect("a copy");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let address = format!("file:{}?immutable=1", alone.display());
    let connection = Connection::open_with_flags(address, flags).expect("a database");
    let sql = "SELECT count(*) FROM opened";
    connection.query_row(sql, [], |row| row.get::<_, u32>(0)).expect("a count") == 1
}

#[test]
fn b1_a_copy_without_its_log_is_refused_and_says_what_to_do() {
    let (_directory, path, store) = open_store(3);
    assert!(marked(&path), "the file itself says that it is open");
    let copy = copy(&path);
    let before = fs::read(&copy).expect("the copy");
    for _ in 0..2 {
        let error = Sqlite::open(&copy).expect_err("its newest commits are missing").to_string();
        assert_eq!(
            error,
            format!(
                "`{0}` was copied while in use, and `{0}-wal` with its newest commits is missing: \
                 copy both files while no process uses them, make the copy with `paceline store \
                 backup`, or open what is there with `--accept-older`",
                copy.display()
            )
        );
    }
    assert_eq!(fs::read(&copy).expect("the copy"), before);
    assert!(!log(&copy).exists(), "a refusal leaves no log that the next look would take for one");
    drop(store);
}

#[test]
fn b1_an_older_state_is_opened_by_those_who_ask_for_it_and_is_whole_from_then_on() {
    let (_directory, path, store) = open_store(3);
    let copy = copy(&path);
    let found = Contents::of(&mut Sqlite::open_older(&copy).expect("as it is"));
    assert!(found.batches() < 3, "the copy is older");
    drop(store);
    assert_eq!(Contents::of(&mut Sqlite::open(&copy).expect("accepted before")), found);
}

#[test]
fn b1_both_files_together_are_the_whole_store() {
    let (_directory, path, store) = open_store(3);
    let copy = copy(&path);
    fs::copy(log(&path), log(&copy)).expect("a copy");
    let mut story = Story::new(1, 300);
    let batches: Vec<_> = (0..3).map(|_| story.batch(10)).collect();
    let copied = Contents::of(&mut Sqlite::open(&copy).expect("a store"));
    assert_eq!(Some(&copied), Contents::after_each(&batches).last());
    drop(store);
}

#[test]
fn b1_a_closed_store_is_one_file_that_can_be_copied() {
    let (_directory, path, store) = open_store(3);
    drop(store);
    assert!(!marked(&path) && !log(&path).exists());
    let copied = Contents::of(&mut Sqlite::open(&copy(&path)).expect("a store"));
    assert_eq!(copied.batches(), 3);
}

#[test]
fn a_store_that_is_only_read_is_not_written() {
    let (_directory, path, store) = open_store(3);
    drop(store);
    let before = fs::read(&path).expect("the file");
    let mut store = Sqlite::open(&path).expect("the store");
    assert_eq!(Contents::of(&mut store).batches(), 3);
    assert!(!marked(&path), "there is nothing that the file does not hold");
    drop(store);
    assert_eq!(fs::read(&path).expect("the file"), before);
}

/// The files of a process that dies between two steps of opening or closing.
#[test]
fn b1_a_process_may_die_at_any_instant_of_opening_or_closing_and_the_store_opens() {
    let sql = |path: &Path, sql: &str| {
        let connection = Connection::open(path).expect("a database");
        let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        connection.set_db_config(keep, true).expect("SQL");
        connection.execute_batch(sql).expect("SQL");
    };
    let set = "INSERT INTO opened VALUES (1);";
    let move_it = "PRAGMA wal_checkpoint(TRUNCATE);";
    let clear = "DELETE FROM opened;";
    for steps in [
        vec![set],
        vec![set, move_it],
        vec![set, move_it, clear],
        vec![set, move_it, clear, move_it],
    ] {
        let (_directory, path, store) = open_store(3);
        drop(store);
        sql(&path, &steps.concat());
        assert!(log(&path).exists(), "{steps:?}");
        // A reader may look before a process writes, and look again.
        for _ in 0..2 {
            let mut store = Sqlite::open(&path).expect("a store");
            assert_eq!(Contents::of(&mut store).batches(), 3, "{steps:?}");
        }
        assert!(!marked(&path) && !log(&path).exists(), "{steps:?}");
        let mut store = Sqlite::open(&path).expect("a store");
        store.commit(&Story::new(2, 10).batch(1).0, &[]).expect("a commit");
        assert!(marked(&path), "{steps:?}");
    }
}

#[test]
fn b1_a_start_that_fails_does_not_lock_the_next_one_out() {
    let (_directory, path, store) = open_store(3);
    let copy = copy(&path);
    fs::copy(log(&path), log(&copy)).expect("a copy");
    drop(store);
    let newer = Connection::open(&copy).expect("a database");
    let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    newer.set_db_config(keep, true).expect("SQL");
    newer.execute_batch("PRAGMA user_version = 99").expect("SQL");
    assert!(matches!(Sqlite::open(&copy), Err(StoreError::Newer { .. })));
    newer.execute_batch("PRAGMA user_version = 7").expect("SQL");
    drop(newer);
    assert_eq!(Contents::of(&mut Sqlite::open(&copy).expect("a store")).batches(), 3);
}

#[test]
fn b1_a_store_of_an_earlier_build_opens_as_before() {
    let (_directory, path, store) = open_store(3);
    drop(store);
    let earlier = Connection::open(&path).expect("a database");
    let back = "DROP TABLE opened; DROP TABLE leaving; DROP INDEX cache_by_expiry;
                ALTER TABLE meta DROP COLUMN leaving; PRAGMA user_version = 4";
    earlier.execute_batch(back).expect("SQL");
    drop(earlier);
    assert_eq!(Contents::of(&mut Sqlite::open(&path).expect("a store")).batches(), 3);
}

const CHILD: &str = "PACELINE_TEST_STORE";

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("it is alive");
        self.0.wait().expect("it is a child of this process");
    }
}

#[test]
fn b1_a_process_killed_while_it_opens_and_closes_leaves_no_lock() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let mut acknowledged = 0;
    for round in 0..40_u32 {
        let mut child = Killed(
            Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "the_child_opens_and_closes", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::piped())
                .spawn()
                .expect("a child"),
        );
        let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
        let mut more = 1 + round % 3;
        while more > 0 {
            let line = lines.next().expect("it goes on").expect("text");
            more -= u32::from(line.starts_with("acknowledged "));
        }
        // A different moment each time: after an acknowledgement the process closes and opens the
        // store.
        for spin in 0..round * 20_000 {
            std::hint::black_box(spin);
        }
        drop(child);
        let mut store = Sqlite::open(&path).expect("not locked out");
        let found = store.load(&mut |_| ()).expect("a load").expect("it was written").time.0;
        assert!(found > acknowledged, "an acknowledged commit is lost");
        acknowledged = found;
    }
}

#[test]
fn the_child_opens_and_closes() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    loop {
        let mut store = Sqlite::open(Path::new(&path)).expect("not locked out");
        let last = store.load(&mut |_| ()).expect("a load").unwrap_or_default();
        let next = paceline_core::Stamp { time: paceline_core::Time(last.time.0 + 1), ..last };
        store.commit(&next, &[]).expect("a commit");
        println!("\nacknowledged {}", next.time.0);
        let _ = std::io::stdout().flush();
    }
}
