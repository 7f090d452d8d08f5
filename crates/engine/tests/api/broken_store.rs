//! Stores that cannot be opened, and one whose disk fills up under the engine (B4).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paceline::{Ended, Job, JobState, Lane, NotSubmitted, Paceline, StoreError};

use crate::desk::{ask, desk, soon, start};

/// What `start` says about the store at `path`; `PATH` stands for the path.
#[track_caller]
fn refusal(path: &Path) -> String {
    let error = Paceline::open(path).start().expect_err("it cannot be opened");
    error.to_string().replace(&path.display().to_string(), "PATH")
}

#[tokio::test]
async fn what_is_no_store_is_named_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().canonicalize().expect("it is there");
    let garbage = home.join("garbage.db");
    fs::write(&garbage, [0xA5; 5_000]).expect("a file");
    let foreign = "`PATH` is not a Paceline store: name another file, or move this one away";
    assert_eq!(refusal(&garbage), foreign);
    assert_eq!(fs::read(&garbage).expect("the file"), [0xA5; 5_000]);
    assert_eq!(refusal(&home.join("no/store.db")), "no directory for `PATH`: create it first");
    #[cfg(target_os = "linux")]
    assert_eq!(
        refusal(Path::new("/sys/store.db")),
        "cannot write `PATH`: make it and its directory writable, or name another store"
    );
}

#[tokio::test]
async fn b1_a_log_cut_short_takes_nothing_with_it_that_the_file_holds() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let open = |path: &Path| {
        let (worker, desk) = desk();
        (start(Paceline::open(path).lane(Lane::new("a")).worker("ask", worker)), desk)
    };
    let (pace, _desk) = open(&path);
    pace.submit_all((0..20).map(|n| ask(&n.to_string()))).await;
    soon(pace.stop(std::time::Duration::ZERO)).await.expect("stopped");
    let (pace, _desk) = open(&path);
    pace.submit_all((0..20).map(|n| ask(&n.to_string()))).await;
    // The file as it is while the engine runs, with half of its log.
    let copy = directory.path().join("copy.db");
    fs::copy(&path, &copy).expect("a copy");
    let log = fs::read(path.with_file_name("store.db-wal"));
    let log = log.expect("a log");
    fs::write(copy.with_file_name("copy.db-wal"), &log[..log.len() / 2]).expect("half a log");
    let (copied, _desk) = open(&copy);
    let (jobs, _) = soon(copied.list(None, 100, None)).await.expect("running");
    assert!((20..=40).contains(&jobs.len()), "{} jobs", jobs.len());
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn b4_a_full_disk_ends_the_engine_and_loses_nothing_accepted() {
    let Some(disk) = Disk::of("4m") else { return };
    let path = disk.path().join("store.db");
    let (worker, mut visits) = desk();
    let pace = start(Paceline::open(&path).lane(Lane::new("a")).worker("ask", worker));
    let mut running = pace.submit(ask("runs")).await.expect("accepted");
    let mut visit = visits.next().await;
    let payload = "x".repeat(100_000);
    let mut accepted = vec![running.id()];
    let failed = loop {
        match soon(pace.submit(ask(&payload))).await {
            Ok(job) => accepted.push(job.id()),
            Err(error) => break error,
        }
        assert!(accepted.len() < 1_000, "the disk is small");
    };
    let real = path.canonicalize().expect("it is there");
    let expected = format!(
        "the engine has ended because its store failed: \
         no room left on the disk of `{}`: free some space and start again",
        real.display()
    );
    assert_eq!(failed.to_string(), expected);
    assert!(matches!(failed, NotSubmitted::Ended(Ended::Failed(_))));
    visit.dropped().await;
    assert_eq!(soon(running.next()).await, None, "nothing is answered that was not written");
    let ended = soon(running.report()).await.expect_err("it has ended");
    assert!(matches!(&ended, Ended::Failed(error) if matches!(**error, StoreError::Full { .. })));
    let stop = soon(pace.stop(std::time::Duration::ZERO)).await.expect_err("it did not stop");
    assert_eq!(stop.to_string(), expected);
    let late = soon(pace.submit(ask("late"))).await.expect_err("it has ended");
    assert_eq!(late.to_string(), expected);

    disk.remount("size=64m");
    let (worker, mut visits) = desk();
    let pace = start(Paceline::open(&path).lane(Lane::new("a")).worker("ask", worker));
    let (jobs, _) = soon(pace.list(None, 1_000, None)).await.expect("running");
    for id in &accepted {
        assert!(jobs.iter().any(|job| job.stored.record.id == *id), "{id} is lost");
    }
    for _ in &jobs {
        visits.next().await.answer(paceline::Outcome::empty());
    }
    soon(pace.idle()).await.expect("running");
    let (done, _) = soon(pace.list(None, 1_000, Some(JobState::Done))).await.expect("running");
    assert_eq!(done.len(), jobs.len());
    let job = pace.submit(Job::new("ask", "x")).await.expect("there is room again");
    soon(job.report()).await.expect("a report");
}

/// A small disk of its own, where the system lets us have one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn of(size: &str) -> Option<Disk> {
        let disk = Disk(tempfile::tempdir().expect("a directory"));
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(disk.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(disk);
        }
        eprintln!("skipped: only root can mount a small disk");
        None
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().expect("it is there")
    }

    #[track_caller]
    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.path()).status();
        assert!(status.expect("it could mount before").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // An engine may still be closing its files; lazily gone is gone all the same.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
    }
}
