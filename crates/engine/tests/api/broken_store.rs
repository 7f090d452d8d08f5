//! Stores that cannot be opened.

use std::fs;
use std::path::Path;

use paceline::{Lane, Paceline};

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
