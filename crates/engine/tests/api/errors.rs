//! Errors of workers: any of them is a failure with `?`, and its causes are shown.

use std::error::Error;

use anyhow::Context;
use paceline::report::JobState;
use paceline::{Call, Failure, Lane, Outcome, Paceline, Work, Worker};

use crate::desk::{ask, soon, start};

#[track_caller]
fn check(worker: impl Worker, expected: &'static str) -> impl Future<Output = ()> {
    let pace = start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker));
    async move {
        let job = pace.submit(ask("x").attempts(1)).await.expect("accepted");
        let report = soon(job.report()).await.expect("a report");
        assert_eq!(report.state, JobState::Failed);
        assert_eq!(report.calls[0].to_string(), expected);
    }
}

fn number(text: &str) -> anyhow::Result<u32> {
    text.parse().with_context(|| format!("`{text}` is no year")).context("asking for a year")
}

#[tokio::test]
async fn any_error_ends_a_worker_with_a_question_mark() {
    let by_anyhow = |_: Call| async { Outcome::done(number("soon")?) };
    check(
        by_anyhow,
        "a: failed (error): asking for a year: `soon` is no year: invalid digit found in string",
    )
    .await;
    let by_box = |_: Call| async {
        let boxed: Result<u32, Box<dyn Error + Send + Sync>> = Err("a box".into());
        Outcome::done(boxed?)
    };
    check(by_box, "a: failed (error): a box").await;
    let by_std = |_: Call| async { Outcome::done(std::fs::read_to_string("/no/such/file")?) };
    check(by_std, "a: failed (error): No such file or directory (os error 2)").await;
    let by_failure = |_: Call| async {
        Err::<(), _>(Failure::permanent("status_404").because("not there"))?;
        Outcome::empty()
    };
    check(by_failure, "a: failed (status_404): not there").await;
}

/// Sleeps past its reservation on the first attempt, and hides behind `anyhow` that it was late.
struct Late;

impl Worker for Late {
    async fn run(&self, call: Call) -> Work {
        let ask = async {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            anyhow::Ok(call.sending()?)
        };
        let _: paceline::Time = ask.await?;
        Outcome::done(call.number())
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn l4_a_late_worker_loses_no_attempt_behind_anyhow() {
    let pace = start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", Late));
    // The promise doubles each time that it was too short: 50, 100, 200, 400 ms.
    let job = pace.submit(ask("x").attempts(1)).await.expect("accepted");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!((report.state, report.calls[0].attempts), (JobState::Done, 1), "{report}");
}
