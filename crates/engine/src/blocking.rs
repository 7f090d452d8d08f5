//! Workers that block their thread: a closure per attempt on tokio's pool for blocking work.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_core::Failure;
use tokio::sync::oneshot;

use crate::outcome::{Failed, Late, Work};
use crate::worker::{Call, Worker};

/// Makes a worker of a closure that blocks its thread: it reads files, computes, or calls a library
/// that is not async. Each attempt runs on tokio's pool for blocking work
/// ([`spawn_blocking`](tokio::task::spawn_blocking)).
///
/// A closure that runs cannot be stopped from outside. When its call is cancelled, or runs out of
/// time, the job hears of it at once, while the slot of the lane stays taken until the closure has
/// really returned: the lane's limit of calls in flight holds, and what the closure returns is
/// dropped. A long one looks at [`Call::is_over`] now and then, and returns early. An attempt that
/// is over before a thread was free for it is not run, and frees its slot at once. A tokio runtime
/// that is dropped waits for the closures that run.
///
/// The attempt is charged when the closure begins, not when it waits for a thread.
///
/// ```
/// use paceline::{Call, Lane, Outcome, Paceline, blocking};
///
/// let builder = Paceline::in_memory().lane(Lane::new("disk").in_flight(4)).worker(
///     "digest",
///     blocking(|call: &Call| {
///         let bytes = std::fs::read(call.payload::<String>()?)?;
///         Outcome::done(bytes.len())
///     }),
/// );
/// # drop(builder);
/// ```
pub fn blocking<F>(work: F) -> Blocking<F>
where
    F: Fn(&Call) -> Work + Send + Sync + 'static,
{
    Blocking(Arc::new(work))
}

/// Beyond this after the end of its reservation no thread can still stamp an attempt.
const MARGIN: Duration = Duration::from_millis(1);

/// The call of a closure that waits for a thread, until that takes it. If the attempt ends before, the
/// call goes with it, and its slot is free: a closure that finds no call does nothing.
struct Queued(Arc<Mutex<Option<Call>>>);

impl Queued {
    fn take(&self) -> Option<Call> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A worker made by [`blocking`].
#[derive(Clone, Debug)]
pub struct Blocking<F>(Arc<F>);

impl<F> Worker for Blocking<F>
where
    F: Fn(&Call) -> Work + Send + Sync + 'static,
{
    async fn run(&self, call: Call) -> Work {
        let (work, span) = (self.0.clone(), tracing::Span::current());
        let (attempt, (begin, begun)) = (call.attempt.clone(), oneshot::channel());
        attempt.set_queued(true);
        let queued = Queued(Arc::new(Mutex::new(Some(call))));
        let waiting = queued.0.clone();
        let ran = tokio::task::spawn_blocking(move || {
            let _in_span = span.enter();
            // From here on the thread owns the call, and with it the slot, until the closure returns.
            let call = Queued(waiting).take().ok_or(Late)?;
            call.sending()?;
            call.attempt.set_queued(false);
            // Its request counts from here on, even if the call ends before it returns (J1).
            call.attempt.goes_on();
            let _ = begin.send(());
            work(&call)
        });
        // Past its reservation the closure would only learn that it is late. It must not wait for a
        // thread until the timeout: that would be a failure of a lane that nothing was sent to.
        let in_time = attempt.left() + MARGIN;
        if tokio::time::timeout(in_time, begun).await.is_err() && attempt.start().is_none() {
            return Err(Late.into());
        }
        drop(attempt);
        match ran.await {
            Ok(work) => work,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is on its way out.
            Err(error) => {
                Err(Failed::lost(Failure::transient("ended").because(&error.to_string())))
            }
        }
    }

    /// The closure may wait for a thread: the start is stamped when it begins.
    fn sends_itself(&self) -> bool {
        true
    }
}
