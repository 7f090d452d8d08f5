//! A store whose files are taken away under a running engine: it ends, and acknowledges nothing for
//! longer than a second (B4).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use paceline::{
    Call, Ended, JobId, Lane, NotSubmitted, Paceline, StartError, StopError, StoreError, Work,
};
use tokio::time::Instant;

use crate::desk::{ask, soon, start};

/// For a second something may be acknowledged in vain; the rest is for a slow machine.
const BOUND: Duration = Duration::from_millis(1_000 + 500);

/// An engine at work on a store of its own.
async fn at_work() -> (tempfile::TempDir, PathBuf, Paceline) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("it is there").join("store.db");
    let worker = |_: Call| async { std::future::pending::<Work>().await };
    let pace = start(Paceline::open(&path).lane(Lane::new("a")).worker("ask", worker));
    soon(pace.submit(ask("before"))).await.expect("accepted");
    (directory, path, pace)
}

/// Submits until it is refused, in time and with the reason. Returns what was accepted.
async fn submitted_until_refused(pace: &Paceline, path: &Path) -> Vec<JobId> {
    let taken = Instant::now();
    let mut accepted = Vec::new();
    let error = loop {
        match soon(pace.submit(ask("after"))).await {
            Ok(job) => accepted.push(job.id()),
            Err(error) => break error,
        }
        assert!(taken.elapsed() < BOUND, "{} acknowledged in vain", accepted.len());
    };
    let NotSubmitted::Ended(Ended::Failed(cause)) = &error else { panic!("{error}") };
    assert!(matches!(**cause, StoreError::Gone { .. }), "{cause}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    let stop = soon(pace.stop(Duration::ZERO)).await.expect_err("it did not stop, it failed");
    assert!(matches!(stop, StopError::Ended(Ended::Failed(_))));
    accepted
}

#[tokio::test]
async fn b4_a_deleted_store_ends_the_engine() {
    let (_directory, path, pace) = at_work().await;
    fs::remove_file(&path).expect("it is there");
    submitted_until_refused(&pace, &path).await;
}

#[tokio::test]
async fn b4_a_store_replaced_by_a_copy_ends_the_engine_and_the_copy_keeps_its_log() {
    let (_directory, path, pace) = at_work().await;
    let log = path.with_file_name("store.db-wal");
    for file in [&path, &log] {
        let copy = file.with_extension("copy");
        fs::copy(file, &copy).expect("a copy");
        fs::rename(copy, file).expect("replaced");
    }
    let copied = fs::read(&log).expect("the log of the copy");
    submitted_until_refused(&pace, &path).await;
    drop(pace);
    // Opening takes the log up: it has to be the copy's, and there.
    assert!(copied == fs::read(&log).expect("it is not the engine's to delete"));
    let (jobs, _) = soon(opened(&path).await.list(None, 9, None)).await.expect("running");
    assert_eq!(jobs.len(), 1, "the copy is as it was made");
}

#[tokio::test]
async fn b4_a_deleted_log_ends_the_engine_and_loses_nothing() {
    let (_directory, path, pace) = at_work().await;
    fs::remove_file(path.with_file_name("store.db-wal")).expect("it is there");
    let accepted = submitted_until_refused(&pace, &path).await;
    drop(pace);
    let pace = opened(&path).await;
    for job in accepted {
        let found = soon(pace.job(job)).await.expect("running");
        assert!(found.is_some(), "{job} is lost");
    }
}

/// The store, once the engine that failed has closed its files.
async fn opened(path: &Path) -> Paceline {
    let opening = async {
        loop {
            match Paceline::open(path).lane(Lane::new("a")).at_rest().start() {
                Ok(pace) => return pace,
                Err(StartError::Store(StoreError::InUse { .. })) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    soon(opening).await
}
