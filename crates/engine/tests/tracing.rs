//! Spans of attempts: a worker's log lines tell which attempt they are about.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use paceline::{Call, Failed, Failure, Job, Lane, Outcome, Paceline, Work, blocking};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Fails the first time.
fn ask(call: &Call) -> Work {
    tracing::info!("asked");
    if call.number() == 1 {
        return Err(Failed::of(Failure::transient("busy")));
    }
    Outcome::empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_runs_in_a_span_with_its_job_lane_kind_and_number() {
    let lines = Lines::default();
    let writer = lines.clone();
    let format = tracing_subscriber::fmt().without_time().with_target(false).with_ansi(false);
    format.with_writer(move || writer.clone()).init();
    let pace = Paceline::in_memory()
        .lane(Lane::new("a"))
        .worker("ask", |call: Call| async move {
            tokio::task::yield_now().await;
            ask(&call)
        })
        .worker("block", blocking(ask))
        .start()
        .expect("a sound description");
    for kind in ["ask", "block"] {
        let job = pace.submit(Job::new(kind, "x").on(["a"]).backoff("1ms")).await;
        job.expect("accepted").report().await.expect("a report");
    }
    let lines = lines.0.lock().expect("written").clone();
    let expected = r#" INFO attempt{job=1 lane="a" kind="ask" attempt=1}: asked
 INFO attempt{job=1 lane="a" kind="ask" attempt=2}: asked
 INFO attempt{job=2 lane="a" kind="block" attempt=1}: asked
 INFO attempt{job=2 lane="a" kind="block" attempt=2}: asked
"#;
    assert_eq!(String::from_utf8_lossy(&lines), expected);
}
