//! Finished jobs are forgotten as fast as they finish, and the file does not grow.

use std::path::Path;
use std::time::Duration;

use paceline::{Call, Lane, Outcome, Paceline};
use tokio::time::Instant;

use crate::desk::{ask, soon, start};

const JOBS: usize = 10_000;
/// Forgetting that many took four seconds when it went by steps of a fixed size; a look comes within
/// a second.
const FORGOTTEN_WITHIN: Duration = Duration::from_millis(2_500);

fn engine(path: &Path) -> Paceline {
    let worker = |_: Call| async { Outcome::empty() };
    start(
        Paceline::open(path)
            .lane(Lane::new("a").in_flight(256))
            .workers(256, 256)
            .worker("ask", worker)
            .keep_finished(Duration::from_millis(50)),
    )
}

/// Runs many jobs, and waits until the engine has forgotten them, which it has in time.
async fn run_and_forget(pace: &Paceline) {
    let payload = "x".repeat(200);
    for _ in 0..JOBS / 1_000 {
        for job in soon(pace.submit_all((0..1_000).map(|_| ask(&payload)))).await {
            job.expect("accepted");
        }
    }
    soon(pace.idle()).await.expect("running");
    let finished = Instant::now();
    while !soon(pace.list(None, 1, None)).await.expect("running").0.is_empty() {
        assert!(finished.elapsed() < FORGOTTEN_WITHIN, "they are not forgotten");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn finished_jobs_are_forgotten_as_fast_as_they_finish_and_their_room_is_used_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let pace = engine(&path);
    run_and_forget(&pace).await;
    let size = || path.metadata().expect("the file").len();
    let once = size();
    for _ in 0..3 {
        run_and_forget(&pace).await;
    }
    assert!(size() < once * 3 / 2, "{once} bytes became {}", size());
}
