//! A disk that fills up under the engine (B4). Apart from the other tests: for a moment, a process
//! that is just being started shares the locks of its parent's stores.
#![cfg(target_os = "linux")]

#[path = "../../store/tests/small_disk/mod.rs"]
mod small_disk;

use std::time::Duration;

use paceline::report::JobState;
use paceline::{Call, Ended, Job, JobId, Lane, NotSubmitted, Outcome, Paceline, StoreError, Work};
use small_disk::Disk;

async fn never(_: Call) -> Work {
    std::future::pending().await
}

async fn nothing(_: Call) -> Work {
    Outcome::empty()
}

fn ask(payload: &str) -> Job {
    Job::new("ask", payload).on(["a"])
}

async fn jobs(pace: &Paceline, state: Option<JobState>) -> Vec<JobId> {
    let (jobs, _) = pace.list(None, 1_000, state).await.expect("running");
    jobs.into_iter().map(|job| job.stored.record.id).collect()
}

#[tokio::test]
#[ignore = "mounts a small disk: `./test` runs it"]
async fn b4_a_full_disk_ends_the_engine_and_loses_nothing_accepted() {
    let disk = Disk::of("4m");
    let path = disk.path().join("store.db");
    let lane = Lane::new("a");
    let pace = Paceline::open(&path).lane(lane.clone()).worker("ask", never).start().expect("new");
    let mut running = pace.submit(ask("runs")).await.expect("accepted");
    let payload = "x".repeat(100_000);
    let mut accepted = vec![running.id()];
    let failed = loop {
        match pace.submit(ask(&payload)).await {
            Ok(job) => accepted.push(job.id()),
            Err(error) => break error,
        }
        assert!(accepted.len() < 1_000, "the disk is small");
    };
    let expected = format!(
        "the engine has ended because its store failed: \
         no room left on the disk of `{}`: free some space and start again",
        path.display()
    );
    assert_eq!(failed.to_string(), expected);
    assert!(matches!(failed, NotSubmitted::Ended(Ended::Failed(_))));
    assert_eq!(running.next().await, None, "nothing is answered that was not written");
    let ended = running.report().await.expect_err("it has ended");
    assert!(matches!(&ended, Ended::Failed(error) if matches!(**error, StoreError::Full { .. })));
    let stop = pace.stop(Duration::ZERO).await.expect_err("it did not stop, it failed");
    assert_eq!(stop.to_string(), expected);
    let refused = pace.submit(ask("late")).await.expect_err("it has ended");
    assert_eq!(refused.to_string(), expected);

    disk.remount("size=64m");
    let pace = Paceline::open(&path).lane(lane).worker("ask", nothing).start().expect("the store");
    let found = jobs(&pace, None).await;
    for id in &accepted {
        assert!(found.contains(id), "{id} is lost");
    }
    pace.idle().await.expect("running");
    assert_eq!(jobs(&pace, Some(JobState::Done)).await, found);
    let job = pace.submit(ask("x")).await.expect("there is room again");
    job.report().await.expect("a report");
    pace.stop(Duration::ZERO).await.expect("stopped");
}
