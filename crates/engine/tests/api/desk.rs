//! An upstream in the hands of the test: each attempt waits until the test answers it.

use std::future::Future;
use std::time::Duration;

use paceline::{Builder, Call, Failed, Job, Lane, Outcome, Paceline, Report, Span, Work};
use tokio::sync::{mpsc, oneshot};

/// Nothing here takes this long; a test that waits for it has failed.
const FOREVER: Duration = Duration::from_secs(20);

/// The result of `future`, which is sure to come.
#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        let waited = tokio::time::timeout(FOREVER, future).await;
        waited.unwrap_or_else(|_| panic!("nothing came at {place}"))
    }
}

/// Where attempts arrive.
pub(crate) struct Desk {
    visits: mpsc::UnboundedReceiver<Visit>,
}

/// One attempt under way. It holds nothing of the engine's: only the worker's future does.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) job: u64,
    pub(crate) lane: String,
    pub(crate) payload: String,
    pub(crate) number: u16,
    answer: oneshot::Sender<Work>,
}

/// A worker, and the desk at which its attempts arrive.
pub(crate) fn desk() -> (impl Fn(Call) -> Answer + Send + Sync + 'static, Desk) {
    let (arrive, visits) = mpsc::unbounded_channel();
    let worker = move |call: Call| -> Answer {
        let arrive = arrive.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let visit = Visit {
                job: call.id().job.0,
                lane: call.lane().to_string(),
                payload: String::from_utf8_lossy(call.payload_bytes()).into_owned(),
                number: call.number(),
                answer,
            };
            let _ = arrive.send(visit);
            // A test that lets go of a visit leaves it without an answer.
            match answered.await {
                Ok(work) => work,
                Err(_) => std::future::pending().await,
            }
        })
    };
    (worker, Desk { visits })
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Work> + Send>>;

impl Desk {
    /// The next attempt.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = Visit> {
        let next = soon(self.visits.recv());
        async move { next.await.expect("the engine runs") }
    }

    /// Whether no attempt has arrived.
    pub(crate) fn is_quiet(&self) -> bool {
        self.visits.is_empty()
    }
}

impl Visit {
    pub(crate) fn answer(self, work: Work) {
        let _ = self.answer.send(work);
    }

    pub(crate) fn done(self) {
        let value = format!("{}!", self.payload.trim_matches('"'));
        self.answer(Outcome::done(value));
    }

    pub(crate) fn fail(self, failed: Failed) {
        self.answer(Err(failed));
    }

    /// Whether the worker's future has been dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }

    /// Resolves when the worker's future has been dropped.
    #[track_caller]
    pub(crate) fn dropped(&mut self) -> impl Future<Output = ()> {
        soon(self.answer.closed())
    }
}

/// A worker that says when it was sent, in microseconds of engine time.
pub(crate) async fn when(call: Call) -> Work {
    Outcome::done(call.sending()?.0)
}

/// The moments that `when` told, in the order of the calls.
pub(crate) fn moments(report: &Report) -> Vec<u64> {
    let values = report.calls.iter().map(ToString::to_string);
    let number = |line: String| line.rsplit(' ').next().and_then(|text| text.parse().ok());
    values.map(|line| number(line.clone()).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// From one moment to a later one.
#[track_caller]
pub(crate) fn between(earlier: u64, later: u64) -> Span {
    Span(later.checked_sub(earlier).expect("in this order"))
}

/// An engine in memory with one lane, `a`, and the desk behind it.
pub(crate) fn small() -> (Paceline, Desk) {
    let (worker, desk) = desk();
    (start(Paceline::in_memory().lane(Lane::new("a")).worker("ask", worker)), desk)
}

#[track_caller]
pub(crate) fn start(builder: Builder) -> Paceline {
    builder.start().expect("a sound description")
}

/// A job for lane `a`.
pub(crate) fn ask(payload: &str) -> Job {
    Job::new("ask", payload).on(["a"])
}
