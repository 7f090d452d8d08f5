//! Workers: code that makes one attempt, from call to outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use paceline_core::{
    About, Announced, AttemptId, AttemptResult, Blob, CallId, Failure, OnCrash, Span, Time, Verdict,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::{Question, Reply};
use crate::driver::Ended;
use crate::run::Attempt;
use crate::turn::Input;

/// What a worker returns: an outcome, or a failure that `?` made of an error.
pub type Work = Result<Outcome, Failed>;

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

    /// What was kept under this name, be it before a restart.
    pub async fn note(&self, name: &str) -> Result<Option<Blob>, Ended> {
        match self.attempt.ask(|to| Input::Ask(Question::Note(name.into()), to)).await? {
            Reply::Note(note) => Ok(note),
            other => unreachable!("a note is answered by {other:?}"),
        }
    }

    /// Keeps something under a name, or nothing any more; durable when it returns. One name is one
    /// note for the whole engine.
    pub async fn keep(&self, name: &str, note: Option<&[u8]>) -> Result<(), Ended> {
        let (name, note) = (name.into(), note.map(Into::into));
        self.attempt.ask(|to| Input::Keep(name, note, to)).await.map(drop)
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

/// Nothing was sent: the reservation ran out before, or the worker thought better of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

/// What an attempt came to.
#[derive(Clone, Debug)]
pub struct Outcome(pub(crate) AttemptResult);

impl Outcome {
    fn of(verdict: Verdict) -> Outcome {
        Outcome(AttemptResult { verdict, announced: None })
    }

    fn found(value: &(impl Serialize + ?Sized), conclusive: bool) -> Work {
        let value = serde_json::to_vec(value);
        let value = value
            .map_err(|error| Failed::of(Failure::permanent("value").because(&error.to_string())))?;
        Ok(Outcome::of(Verdict::Done { conclusive, value: value.into() }))
    }

    /// An answer that settles the question (J2).
    pub fn done(value: impl Serialize) -> Work {
        Outcome::found(&value, true)
    }

    /// An answer that leaves the question open.
    pub fn inconclusive(value: impl Serialize) -> Work {
        Outcome::found(&value, false)
    }

    /// The service answered that there is nothing.
    pub fn empty() -> Work {
        Ok(Outcome::of(Verdict::Empty))
    }

    /// Too fast for the service; with the time it wants to be left alone, if it said so (L6, L7).
    pub fn throttled(retry_after: Option<Duration>) -> Work {
        let retry_after = retry_after.map(Span::from);
        Ok(Outcome::of(Verdict::Throttled { retry_after, again: true }))
    }

    /// The same for a call that cannot be made again: it has failed, and its lane slows down.
    pub fn refused(retry_after: Option<Duration>) -> Work {
        let retry_after = retry_after.map(Span::from);
        Ok(Outcome::of(Verdict::Throttled { retry_after, again: false }))
    }

    /// In vain.
    pub fn failed(failure: Failure) -> Work {
        Err(Failed::of(failure))
    }

    /// To be asked on another lane, with another payload if one is given (J7).
    pub fn moved(lane: &str, payload: Option<&serde_json::value::RawValue>) -> Work {
        let payload = payload.map(|payload| payload.get().as_bytes().into());
        Ok(Outcome::of(Verdict::Moved { lane: lane.into(), payload }))
    }

    /// The same, with what the service said about its limits (L8).
    #[must_use]
    pub fn announcing(mut self, announced: Announced) -> Outcome {
        self.0.announced = Some(announced);
        self
    }
}

/// Why a worker gave up; any error becomes one with `?`.
#[derive(Clone, Debug)]
pub struct Failed(pub(crate) Box<AttemptResult>);

impl Failed {
    /// A failure as it stands.
    pub fn of(failure: Failure) -> Failed {
        let verdict = Verdict::Failed { failure, retry_after: None, about: About::Lane };
        Failed(Box::new(AttemptResult { verdict, announced: None }))
    }

    /// A failure that says something about this call and nothing about its upstream: a short body
    /// after a complete head, a checksum, a range that does not fit. It is retried as any other;
    /// for its lane the upstream has answered.
    pub fn of_this_call(failure: Failure) -> Failed {
        let verdict = Verdict::Failed { failure, retry_after: None, about: About::Call };
        Failed(Box::new(AttemptResult { verdict, announced: None }))
    }

    /// The upstream says that it did not process the request (HTTP/2: GOAWAY with a lower stream id,
    /// `REFUSED_STREAM`). The call keeps its place and its attempts and is sent again as soon as the
    /// limits allow, at most 20 times; then it is a failure that may be retried.
    pub fn not_processed() -> Failed {
        Failed(Box::new(AttemptResult { verdict: Verdict::NotProcessed, announced: None }))
    }

    /// A failure that is not the service's, or nobody knows: its lane takes no note of it.
    pub fn lost(failure: Failure) -> Failed {
        Failed(Box::new(AttemptResult { verdict: Verdict::Lost { failure }, announced: None }))
    }

    /// The service wants to be left alone for so long: closes the lane (L6).
    #[must_use]
    pub fn retry_after(mut self, span: Duration) -> Failed {
        if let Verdict::Failed { retry_after, .. } = &mut self.0.verdict {
            *retry_after = Some(span.into());
        }
        self
    }

    /// The same, with what the service said about its limits (L8).
    #[must_use]
    pub fn announcing(mut self, announced: Announced) -> Failed {
        self.0.announced = Some(announced);
        self
    }
}

impl From<Late> for Failed {
    fn from(_: Late) -> Failed {
        Failed(Box::new(AttemptResult { verdict: Verdict::Unused, announced: None }))
    }
}

/// An error nobody classified may be cured by trying again.
impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::of(Failure::transient("error").because(&error.to_string()))
    }
}
