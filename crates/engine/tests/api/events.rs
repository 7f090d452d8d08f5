//! Events that are kept: numbered without gaps, told again to subscribers that missed them.

use paceline::events::{Happened, Numbered};
use paceline::{Call, Job, Lane, Outcome, Paceline};

fn engine(path: &std::path::Path, keep: u64) -> Paceline {
    let builder = Paceline::open(path).lane(Lane::new("a")).keep_events(keep);
    let worker = |_: Call| async { Outcome::done("a value that is not kept") };
    builder.worker("ask", worker).start().expect("it starts")
}

async fn run(pace: &Paceline, jobs: usize) {
    for job in pace.submit_all((0..jobs).map(|n| Job::new("ask", &n).on(["a"]))).await {
        job.expect("accepted").report().await.expect("a report");
    }
}

fn ids(events: &[Numbered]) -> Vec<u64> {
    events.iter().map(|event| event.id).collect()
}

#[tokio::test]
async fn numbers_have_no_gap_through_restarts_and_what_was_missed_is_told_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let pace = engine(&path, 1_000);
    let mut live = pace.numbered_events();
    run(&pace, 1).await;
    let (first, next) = pace.kept_events(0, 100).await.expect("events");
    assert_eq!(ids(&first), [1, 2, 3, 4], "accepted, started, settled, finished");
    assert_eq!(next, 5);
    assert!(matches!(first[0].what, Happened::Accepted { .. }));
    assert!(matches!(first[3].what, Happened::Finished { .. }));
    let mut heard = Vec::new();
    while heard.len() < 4 {
        heard.extend(live.recv().await.expect("a turn").iter().cloned());
    }
    assert_eq!(heard, first, "what is told is what is kept");
    pace.stop(std::time::Duration::ZERO).await.expect("stopped");
    drop(pace);

    let pace = engine(&path, 1_000);
    run(&pace, 1).await;
    let (missed, _) = pace.kept_events(4, 100).await.expect("events");
    assert_eq!(ids(&missed), [5, 6, 7, 8]);
    assert_eq!(ids(&pace.kept_events(5, 2).await.expect("events").0), [6, 7]);
    assert_eq!(pace.kept_events(8, 100).await.expect("events"), (Vec::new(), 9));
}

#[tokio::test]
async fn old_events_are_forgotten_and_the_last_ones_stay() {
    let directory = tempfile::tempdir().expect("a directory");
    let pace = engine(&directory.path().join("store.db"), 20);
    for _ in 0..30 {
        run(&pace, 1).await;
    }
    let (events, next) = pace.kept_events(0, 1_000).await.expect("events");
    assert_eq!(next, 121);
    let kept = ids(&events);
    assert_eq!(kept, (kept[0]..121).collect::<Vec<u64>>());
    assert!((20..60).contains(&kept.len()), "{}", kept.len());
}
