//! Workers: the code that makes one attempt, from call to outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use paceline_core::{AttemptId, Blob, CallId, Failure, OnCrash, Time};
use serde::de::DeserializeOwned;

use crate::driver::{Ended, Message};
use crate::outcome::{Failed, Late, Work};
use crate::run::Attempt;
use crate::turn::Input;

/// The code that makes one attempt. Async closures from [`Call`] to [`Work`] are workers; a worker
/// with state is a struct.
///
/// ```
/// use paceline::{Call, Outcome, Work, Worker};
///
/// struct Lookup {
///     base: String, // an HTTP client, a connection pool ...
/// }
///
/// impl Worker for Lookup {
///     async fn run(&self, call: Call) -> Work {
///         let title: String = call.payload()?;
///         Outcome::done(format!("{}/{title}", self.base))
///     }
/// }
/// ```
pub trait Worker: Send + Sync + 'static {
    /// Makes one attempt: one request on the wire, without retries of its own. One value serves many
    /// calls at once.
    fn run(&self, call: Call) -> impl Future<Output = Work> + Send;

    /// Whether a call with this payload makes sense on this lane. Asked at the submission, without
    /// I/O and before anything is charged; a call that does not apply is skipped.
    fn applies(&self, _payload: &[u8], _lane: &str) -> bool {
        true
    }

    /// What happens to a call that was on the wire when the process died. By default it is repeated.
    fn on_crash(&self) -> OnCrash {
        OnCrash::Repeat
    }

    /// Whether a call occupies a pool slot while it runs. Return `false` for calls that mostly wait;
    /// they hold only the slot of their lane.
    fn keeps_worker(&self) -> bool {
        true
    }

    /// How long an attempt with this payload may take. `None`, the default, leaves it to the lane.
    fn timeout(&self, _payload: &[u8], _lane: &str) -> Option<Duration> {
        None
    }

    /// Whether the worker calls [`Call::sending`] itself, right before it writes its request. By
    /// default the start of the worker counts as the start of the request. Return `true` if it
    /// connects first.
    fn sends_itself(&self) -> bool {
        false
    }
}

impl<F, R> Worker for F
where
    F: Fn(Call) -> R + Send + Sync + 'static,
    R: Future<Output = Work> + Send,
{
    fn run(&self, call: Call) -> impl Future<Output = Work> + Send {
        self(call)
    }
}

/// A worker at work.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Work> + Send + 'a>>;

/// A worker whose type is forgotten.
pub(crate) trait AnyWorker: Send + Sync {
    fn start(&self, call: Call) -> Running<'_>;
    fn applies(&self, payload: &[u8], lane: &str) -> bool;
    fn on_crash(&self) -> OnCrash;
    fn keeps_worker(&self) -> bool;
    fn timeout(&self, payload: &[u8], lane: &str) -> Option<Duration>;
    fn sends_itself(&self) -> bool;
}

impl<W: Worker> AnyWorker for W {
    fn start(&self, call: Call) -> Running<'_> {
        Box::pin(self.run(call))
    }

    fn applies(&self, payload: &[u8], lane: &str) -> bool {
        Worker::applies(self, payload, lane)
    }

    fn on_crash(&self) -> OnCrash {
        Worker::on_crash(self)
    }

    fn keeps_worker(&self) -> bool {
        Worker::keeps_worker(self)
    }

    fn timeout(&self, payload: &[u8], lane: &str) -> Option<Duration> {
        Worker::timeout(self, payload, lane)
    }

    fn sends_itself(&self) -> bool {
        Worker::sends_itself(self)
    }
}

/// One attempt to be made.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) id: CallId,
    pub(crate) lane: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) number: u16,
    pub(crate) payload: Blob,
    pub(crate) begun_at: Option<Time>,
    pub(crate) attempt: Arc<Attempt>,
}

impl Call {
    /// The number of its job, and its place in that job.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// The name of its lane.
    pub fn lane(&self) -> &str {
        &self.lane
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The number of this attempt, never used twice in one store.
    pub fn attempt(&self) -> AttemptId {
        self.attempt.id()
    }

    /// Which attempt of the call this is; the first is 1.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// How long the call has been under way, if an earlier process began it and it outlived that
    /// process ([`OnCrash::TakeUp`]).
    pub fn taken_up(&self) -> Option<Duration> {
        self.begun_at.map(|at| self.attempt.since(at))
    }

    /// The payload, read as a `T`. One that has another form is a failure that is not retried.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Failed> {
        let payload = serde_json::from_slice(&self.payload);
        payload
            .map_err(|error| Failed::of(Failure::permanent("payload").because(&error.to_string())))
    }

    /// The JSON text of the payload.
    pub fn payload_bytes(&self) -> &[u8] {
        &self.payload
    }

    /// Stamps the start of the request, for workers with [`Worker::sends_itself`]: call it right before
    /// the request is written. If the reservation has run out by then the answer is [`Late`]: return it
    /// with `?`. The call keeps its place, and nothing is charged.
    pub fn sending(&self) -> Result<Time, Late> {
        self.attempt.sending()
    }

    /// The time of the wall clock, for workers that read or write dates.
    pub fn wall(&self) -> std::time::SystemTime {
        crate::clock::system_time(crate::clock::wall())
    }

    /// Says that the upstream has answered in full and nothing of the attempt is on the wire any more:
    /// its sockets are closed, or back in a pool. From then on the slots of its lane, its group and the
    /// pool are free, and a gap from the finish begins, so that the next call need not wait while this
    /// one writes its result to disk. A lane that probes its upstream with one call still waits for the
    /// outcome.
    ///
    /// The attempt goes on until its future is done, within its timeout, and counts as running for
    /// `stop` and `idle`. A [`Hold`] no longer keeps the slot. This has no effect when it is called
    /// twice, after the outcome, before the request was sent, or while `Settings::max_answered` other
    /// attempts have answered and are not done.
    pub fn answered(&self) {
        self.attempt.answered();
    }

    /// Returns `true` once the outcome of this attempt is decided, so that nothing more counts: it
    /// was cancelled, ran out of time, or the engine stopped. Work that outlives the worker's future
    /// looks at it to end early.
    pub fn is_over(&self) -> bool {
        self.attempt.is_over()
    }

    /// The note with this name, kept by a worker or a program, even before a restart.
    pub async fn note(&self, name: &str) -> Result<Option<Blob>, Ended> {
        let name = name.to_string();
        self.attempt.ask(Message::look(move |view| view.note(&name))).await
    }

    /// Keeps a note under a name, or removes it; durable when it returns. A name stands for one note in
    /// the whole engine.
    pub async fn keep(&self, name: &str, note: Option<&[u8]>) -> Result<(), Ended> {
        let (name, note) = (name.into(), note.map(Into::into));
        self.attempt.ask(Message::input(|to| Input::Keep(name, note, to))).await
    }

    /// Keeps the slot of the lane until the guard is dropped, for work that outlives the worker's
    /// future: a thread, a child process.
    pub fn hold(&self) -> Hold {
        Hold { _attempt: self.attempt.clone() }
    }
}

/// A guard: while it lives the attempt has not ended, and its slot is taken.
#[derive(Debug)]
pub struct Hold {
    _attempt: Arc<Attempt>,
}
