//! Files, disks and directories that fail: a clear error each, and nothing accepted is lost.

#[cfg(target_os = "linux")]
mod small_disk;
mod story;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use paceline_core::{Blob, JobId, JobRecord, JobSpec, Stamp, Terms, Time, Write};
use paceline_store::{JobFilter, Sqlite, Store, StoreError};
use rusqlite::Connection;
#[cfg(target_os = "linux")]
use small_disk::Disk;
use story::{Contents, Story};

/// The error of opening `path`, in words; `PATH` stands for the path.
#[track_caller]
fn refusal(path: &Path) -> String {
    let error = Sqlite::open(path).expect_err("it cannot be opened");
    error.to_string().replace(&path.display().to_string(), "PATH")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn job(id: u64) -> Write {
    let terms = Terms::default();
    let spec = JobSpec::new("fetch", &["host:a"]).into();
    let payload: Blob = b"x".as_slice().into();
    Write::Job(JobRecord { id: JobId(id), submitted_at: Time(1), terms, spec }, payload)
}

#[track_caller]
fn new_store(path: &Path, jobs: u64) {
    let mut store = Sqlite::open(path).expect("a new store");
    let writes: Vec<Write> = (1..=jobs).map(job).collect();
    store.commit(&Stamp::default(), &writes).expect("a commit");
}

const FOREIGN: &str = "`PATH` is not a Paceline store: name another file, or move this one away";

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let directory = directory();
    let path = directory.path().join("notes.txt");
    for contents in [b"dear diary".to_vec(), vec![0; 10_000], vec![0xA5; 10_000]] {
        fs::write(&path, &contents).expect("a file");
        assert_eq!(refusal(&path), FOREIGN);
        assert_eq!(fs::read(&path).expect("the file"), contents);
    }
}

#[test]
fn the_database_of_another_program_is_left_alone() {
    let directory = directory();
    let path = directory.path().join("other.db");
    let other = Connection::open(&path).expect("a database");
    other.execute_batch("CREATE TABLE jobs (id); PRAGMA user_version = 1").expect("SQL");
    drop(other);
    let before = fs::read(&path).expect("the file");
    assert_eq!(refusal(&path), FOREIGN);
    assert_eq!(fs::read(&path).expect("the file"), before);
}

#[test]
fn an_empty_file_becomes_a_store() {
    let directory = directory();
    let path = directory.path().join("store.db");
    fs::write(&path, b"").expect("a file");
    new_store(&path, 1);
}

#[test]
fn a_store_of_a_newer_program_is_left_alone() {
    let directory = directory();
    let path = directory.path().join("store.db");
    new_store(&path, 1);
    let newer = Connection::open(&path).expect("a database");
    newer.pragma_update(None, "user_version", 8).expect("SQL");
    drop(newer);
    assert_eq!(
        refusal(&path),
        "`PATH` was written by a newer program (version 8 of the store, this program knows 7): \
         use the newer program"
    );
}

#[test]
fn a_row_that_no_version_wrote_is_reported_as_damage() {
    for (sql, what) in [
        ("UPDATE jobs SET spec = x'01ff'", "a job cannot be read"),
        ("UPDATE jobs SET spec = x'' WHERE id = 2", "a job cannot be read"),
        ("UPDATE jobs SET spec = CAST(x'02' || substr(spec, 2) AS BLOB)", "a job cannot be read"),
        ("UPDATE jobs SET spec = CAST(spec || x'00' AS BLOB)", "a job cannot be read"),
        ("UPDATE jobs SET spec = 'text'", "a job cannot be read"),
        ("UPDATE jobs SET terms = 5", "a job's terms cannot be read"),
    ] {
        let directory = directory();
        let path = directory.path().join("store.db");
        new_store(&path, 3);
        Connection::open(&path).expect("a database").execute_batch(sql).expect("SQL");
        let mut store = Sqlite::open(&path).expect("the damage is deeper");
        let error = store.load(&mut |_| ()).expect_err(sql).to_string();
        assert!(error.contains(" is damaged (") && error.contains(what), "{sql}: {error}");
    }
}

#[test]
fn a_file_cut_short_is_damage_and_said_to_be() {
    let directory = directory();
    let path = directory.path().join("store.db");
    new_store(&path, 5_000);
    let whole = fs::read(&path).expect("the file");
    fs::write(&path, &whole[..whole.len() / 2]).expect("a file");
    let error = match Sqlite::open(&path) {
        Ok(mut store) => store.load(&mut |_| ()).expect_err("half of it is missing"),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn a_directory_that_is_not_there_is_to_be_created() {
    let directory = directory();
    let missing = "no directory for `PATH`: create it first";
    assert_eq!(refusal(&directory.path().join("no/store.db")), missing);
    fs::write(directory.path().join("file"), b"").expect("a file");
    assert_eq!(refusal(&directory.path().join("file/store.db")), missing);
}

const UNWRITABLE: &str =
    "cannot write `PATH`: make it and its directory writable, or name another store";

#[test]
#[cfg(target_os = "linux")]
fn a_directory_that_is_not_writable_is_named() {
    // Not even root creates files here.
    assert_eq!(refusal(Path::new("/sys/store.db")), UNWRITABLE);
    assert_eq!(refusal(Path::new("/sys")), UNWRITABLE);
}

#[test]
#[ignore = "mounts a small disk: `./test` runs it"]
#[cfg(target_os = "linux")]
fn a_store_on_a_disk_gone_read_only_is_named_and_keeps_everything() {
    let disk = Disk::of("8m");
    let path = disk.path().join("store.db");
    new_store(&path, 10);
    disk.remount("ro");
    assert_eq!(refusal(&path), UNWRITABLE);
    disk.remount("rw");
    let mut store = Sqlite::open(&path).expect("the store");
    assert_eq!(store.list(None.into(), 100, JobFilter::All).expect("a list").len(), 10);
}

#[test]
#[ignore = "mounts a small disk: `./test` runs it"]
#[cfg(target_os = "linux")]
fn b4_a_full_disk_ends_the_store_and_loses_nothing_accepted() {
    let disk = Disk::of("4m");
    let path = disk.path().join("store.db");
    let mut store = Sqlite::open(&path).expect("a new store");
    let mut told = Story::new(9, 20_000);
    let mut batches = Vec::new();
    let error = loop {
        let (stamp, writes) = told.batch(10);
        let done = store.commit(&stamp, &writes);
        batches.push((stamp, writes));
        if let Err(error) = done {
            break error;
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    let again = store.commit(&batches[0].0, &[]).expect_err("it has ended").to_string();
    assert!(again.contains("what it holds is unknown: start again"), "{again}");
    drop(store);
    disk.remount("size=64m");
    let found = Contents::of(&mut Sqlite::open(&path).expect("the store"));
    assert!(found.batches() + 1 >= batches.len(), "an acknowledged batch is lost");
    let after = Contents::after_each(&batches);
    assert_eq!(found, after[found.batches()]);
}

#[test]
#[ignore = "mounts a small disk: `./test` runs it"]
#[cfg(target_os = "linux")]
fn a_disk_without_any_room_is_named() {
    let disk = Disk::of("4k");
    let expected = "no room left on the disk of `PATH`: free some space and start again";
    assert_eq!(refusal(&disk.path().join("store.db")), expected);
}

const CHILD: &str = "PACELINE_TEST_STORE";

#[test]
fn a_second_process_is_told_who_owns_the_store() {
    let directory = directory();
    let path = directory.path().join("store.db");
    let mut child = child(&path);
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    lines.map_while(Result::ok).find(|line| line == "open").expect("the child has it");
    let expected =
        format!("`PATH` is in use by process {}: stop it first, or name another store", child.id());
    assert_eq!(refusal(&path), expected);
    #[cfg(unix)]
    {
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let error = Sqlite::open(&link).expect_err("the same file by another name").to_string();
        assert!(error.contains(&format!("process {}", child.id())), "{error}");
    }
    // The lock goes with its process, however that ends.
    child.kill().expect("it is alive");
    child.wait().expect("it is a child of this process");
    Sqlite::open(&path).expect("free again");
}

#[test]
fn a_store_belongs_to_one_owner_within_a_process_too() {
    let directory = directory();
    let path = directory.path().join("store.db");
    let first = Sqlite::open(&path).expect("a new store");
    let me = format!("in use by process {}:", std::process::id());
    assert!(refusal(&path).contains(&me));
    drop(first);
    Sqlite::open(&path).expect("free again");
}

fn child(path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_child_holds_the_store", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

#[test]
fn the_child_holds_the_store() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let _store = Sqlite::open(Path::new(&path)).expect("a new store");
    println!("\nopen");
    // Until its parent is gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
