//! Workers: code that makes one attempt, from call to outcome.

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

/// Code that makes one attempt. Closures from [`Call`] to [`Work`] are workers.
pub trait Worker: Send + Sync + 'static {
    /// Makes one attempt: one request on the wire, no retries of its own (B5).
    fn run(&self, call: Call) -> impl Future<Output = Work> + Send;

    /// Whether a call with this payload makes sense on this lane; asked without I/O, before
    /// anything is charged (J6).
    fn applies(&self, _payload: &[u8], _lane: &str) -> bool {
        true
    }

    /// What becomes of a call under which the process died (B2).
    fn on_crash(&self) -> OnCrash {
        OnCrash::Repeat
    }

    /// Whether a call keeps the worker of the pool that it needs to start. Those that only wait for
    /// somebody need none: they keep their lane's slot alone.
    fn keeps_worker(&self) -> bool {
        true
    }

    /// How long an attempt with this payload may take, where that is not the lane's to say.
    fn timeout(&self, _payload: &[u8], _lane: &str) -> Option<Duration> {
        None
    }

    /// Whether the worker calls [`Call::sending`] itself, right before its request is written.
    /// Others are taken to send when they start.
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
    /// Its job and its place there.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// The lane it visits.
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

    /// Which attempt of the call this is, the first being 1.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// For a call that an earlier process began and that outlived it ([`OnCrash::TakeUp`]): how long
    /// it has been under way.
    pub fn taken_up(&self) -> Option<Duration> {
        self.begun_at.map(|at| self.attempt.since(at))
    }

    /// The payload as it was submitted.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Failed> {
        let payload = serde_json::from_slice(&self.payload);
        payload
            .map_err(|error| Failed::of(Failure::permanent("payload").because(&error.to_string())))
    }

    /// The payload's JSON text.
    pub fn payload_bytes(&self) -> &[u8] {
        &self.payload
    }

    /// To be called right before the request is written, by workers that say
    /// [`Worker::sends_itself`]. Past `send_by` the answer is [`Late`]: return it with `?`, and
    /// the call keeps its place while nothing is charged (L4).
    pub fn sending(&self) -> Result<Time, Late> {
        self.attempt.sending()
    }

    /// What the wall clock shows, for workers that read or write dates.
    pub fn wall(&self) -> std::time::SystemTime {
        crate::clock::system_time(crate::clock::wall())
    }

    /// To be called when the service has answered in full and nothing of the attempt is on the
    /// wire any more: its sockets are closed or back in a pool. The slots of its lane, its group
    /// and the pool are free from then on, and a gap from the finish begins; so the next call need
    /// not wait while this one writes what it got to disk. A lane that sends out one call to see
    /// how the service is waits for the verdict all the same (L7).
    ///
    /// The attempt goes on until its future is done, within the lane's timeout, and counts as
    /// running for `stop` and `idle`. A [`Hold`] no longer keeps the slot. To say it twice, after
    /// the outcome, or before anything was sent changes nothing; nor does it while
    /// `Settings::max_answered` others were answered and are not done.
    pub fn answered(&self) {
        self.attempt.answered();
    }

    /// Returns `true` once the outcome of this attempt is decided, so that nothing more counts: it
    /// was cancelled, ran out of time, or the engine stopped. Work that outlives the worker's future
    /// looks at it to end early.
    pub fn is_over(&self) -> bool {
        self.attempt.is_over()
    }

    /// What was kept under this name, be it before a restart.
    pub async fn note(&self, name: &str) -> Result<Option<Blob>, Ended> {
        let name = name.to_string();
        self.attempt.ask(Message::look(move |view| view.note(&name))).await
    }

    /// Keeps something under a name, or nothing any more; durable when it returns. One name is one
    /// note for the whole engine.
    pub async fn keep(&self, name: &str, note: Option<&[u8]>) -> Result<(), Ended> {
        let (name, note) = (name.into(), note.map(Into::into));
        self.attempt.ask(Message::input(|to| Input::Keep(name, note, to))).await
    }

    /// Keeps the lane's slot until the guard is dropped, for work that outlives the worker's
    /// future: a thread, a child process (L5).
    pub fn hold(&self) -> Hold {
        Hold { _attempt: self.attempt.clone() }
    }
}

/// While it lives, the attempt has not ended.
#[derive(Debug)]
pub struct Hold {
    _attempt: Arc<Attempt>,
}
