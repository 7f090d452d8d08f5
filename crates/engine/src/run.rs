//! Run: attempts as tasks, each with its timeout, its abort and its one ending. Only this file
//! spawns.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use paceline_core::{AttemptId, AttemptResult, Blob, Failure, OnCrash, Span, Start, Time};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::driver::{Ended, Message};
use crate::outcome::{Failed, Late};
use crate::worker::{AnyWorker, Call, Running};

/// The time that an attempt may take on a lane that sets no timeout.
pub const DEFAULT_TIMEOUT: Span = Span::secs(60);

/// Workers by kind.
pub(crate) type Workers = HashMap<Arc<str>, Arc<dyn AnyWorker>>;

/// Where attempts run.
pub(crate) struct Runner {
    workers: Arc<Workers>,
    runtime: Handle,
    clock: Arc<Clock>,
    messages: Sender<Message>,
    running: HashMap<AttemptId, AbortHandle>,
    /// Those of them that outlive this process.
    outlive: HashSet<AttemptId>,
    /// Started when it is first needed.
    alarm: Option<Alarm>,
}

impl Runner {
    pub(crate) fn new(
        workers: Arc<Workers>,
        runtime: Handle,
        clock: Arc<Clock>,
        messages: Sender<Message>,
    ) -> Runner {
        Runner {
            workers,
            runtime,
            clock,
            messages,
            running: HashMap::new(),
            outlive: HashSet::new(),
            alarm: None,
        }
    }

    /// Starts an attempt whose reservation is durable.
    pub(crate) fn start(&mut self, start: Start, payload: Blob) {
        let worker = self.workers.get(&start.kind).expect("admission checked the kind").clone();
        let attempt = Arc::new(Attempt {
            id: start.attempt,
            send_by: start.send_by,
            tell_start: start.tell_start,
            start_told: AtomicBool::new(start.begun_at.is_some()),
            started_at: AtomicU64::new(start.begun_at.unwrap_or_default().0),
            answered: AtomicBool::new(false),
            late: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            over: AtomicBool::new(false),
            told: Mutex::new(None),
            clock: self.clock.clone(),
            messages: self.messages.clone(),
        });
        let call = Call {
            id: start.call,
            lane: start.lane,
            kind: start.kind,
            number: start.before + 1,
            payload,
            begun_at: start.begun_at,
            attempt: attempt.clone(),
        };
        let timeout = worker.timeout(&call.payload, &call.lane).map(Span::from);
        let timeout = timeout.or(start.timeout).unwrap_or(DEFAULT_TIMEOUT);
        // An attempt that is taken up has used part of its time.
        let passed = start.begun_at.map_or(Span::ZERO, |at| self.clock.time().since(at));
        let timeout = Span(timeout.0.saturating_sub(passed.0));
        if worker.on_crash() == OnCrash::TakeUp {
            self.outlive.insert(start.attempt);
        }
        let moment = self.moment(start.attempt, start.start_at);
        let task = self.runtime.spawn(async move {
            // Dropped after the worker's future and everything that it held.
            let attempt = attempt;
            if let Some(moment) = moment {
                moment.await;
            }
            // Made here, so that the loop's thread pays nothing for it.
            let span = span_of(&call);
            let told = attend(&*worker, call, &attempt, timeout).instrument(span).await;
            attempt.tell(told);
        });
        self.running.insert(start.attempt, task.abort_handle());
    }

    /// The wait of an attempt that was promised ahead of its moment: no slow commit delays it.
    fn moment(&mut self, attempt: AttemptId, at: Time) -> Option<impl Future<Output = ()> + use<>> {
        let clock = self.clock.clone();
        if at <= clock.time() {
            return None;
        }
        let alarm = self.alarm.get_or_insert_with(|| Alarm::start(clock.clone()));
        let rung = alarm.at(at, attempt);
        Some(async move {
            let _ = rung.await;
            let left = at.since(clock.time());
            if left > Span::ZERO {
                tokio::time::sleep(left.into()).await;
            }
        })
    }

    /// Drops the future of an attempt; its end is told like any other.
    pub(crate) fn abort(&mut self, attempt: AttemptId) {
        if let Some(task) = self.running.get(&attempt) {
            task.abort();
        }
    }

    /// The attempt has ended.
    pub(crate) fn over(&mut self, attempt: AttemptId) {
        self.running.remove(&attempt);
        self.outlive.remove(&attempt);
    }

    /// Returns `true` if a stop would cut off no attempt: those that outlive the process are taken up.
    pub(crate) fn may_stop(&self) -> bool {
        self.running.len() == self.outlive.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Drops whatever still runs.
    pub(crate) fn abort_all(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

/// The span in which a worker runs: its log lines tell which attempt they are about.
fn span_of(call: &Call) -> tracing::Span {
    let (job, lane, kind) = (call.id.job.0, &*call.lane, &*call.kind);
    tracing::info_span!("attempt", job, lane, kind, attempt = call.number)
}

/// Says that the outcome of an attempt is decided, be its future done or dropped.
struct Deciding<'a>(&'a Attempt);

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// Runs the worker within its time; a panic is an outcome like any other (J5).
async fn attend(
    worker: &dyn AnyWorker,
    call: Call,
    attempt: &Attempt,
    timeout: Span,
) -> AttemptResult {
    let _deciding = Deciding(attempt);
    if !worker.sends_itself()
        && let Err(late) = call.sending()
    {
        return Failed::from(late).into_told(true);
    }
    let mut work = match catch_unwind(AssertUnwindSafe(|| worker.start(call))) {
        Ok(work) => work,
        Err(panic) => return panicked(&*panic),
    };
    let told = run_out(&mut work, attempt, timeout).await;
    // Dropping what the future holds may panic too.
    match catch_unwind(AssertUnwindSafe(|| drop(work))) {
        Ok(()) => told,
        Err(panic) => panicked(&*panic),
    }
}

async fn run_out(work: &mut Running<'_>, attempt: &Attempt, timeout: Span) -> AttemptResult {
    let caught = std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => {
                attempt.goes_on();
                Poll::Pending
            }
            Ok(Poll::Ready(outcome)) => Poll::Ready(Ok(outcome)),
            Err(panic) => Poll::Ready(Err(panicked(&*panic))),
        }
    });
    match tokio::time::timeout(timeout.into(), caught).await {
        Ok(Ok(Ok(outcome))) => outcome.0,
        Ok(Ok(Err(failed))) => {
            let late = attempt.start().is_none() && attempt.late.load(Ordering::Relaxed);
            failed.into_told(late)
        }
        Ok(Err(panicked)) => panicked,
        // Nothing was sent, and no upstream is to blame.
        Err(_) if attempt.queued.load(Ordering::Relaxed) => Failed::from(Late).into_told(true),
        Err(_) => {
            let answered = attempt.answered.load(Ordering::Relaxed);
            let lacking = if answered { "answered, but not finished" } else { "no answer" };
            let message = format!("{lacking} in {timeout}");
            Failed::of(Failure::transient("timeout").because(&message)).into_told(false)
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> AttemptResult {
    let failure = Failure::permanent("panic").because(&panic_text(panic));
    Failed::lost(failure).into_told(false)
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").into()
}

/// One attempt under way. It ends, and the driver is told, when its last holder is dropped.
#[derive(Debug)]
pub(crate) struct Attempt {
    id: AttemptId,
    send_by: Time,
    tell_start: bool,
    start_told: AtomicBool,
    /// Microseconds; zero while nothing was sent.
    started_at: AtomicU64,
    /// Whether its upstream has answered in full.
    answered: AtomicBool,
    /// Whether its worker was told that it is too late to send.
    late: AtomicBool,
    /// Whether it waits for a thread of the blocking pool.
    queued: AtomicBool,
    /// Whether its outcome is decided.
    over: AtomicBool,
    told: Mutex<Option<AttemptResult>>,
    clock: Arc<Clock>,
    messages: Sender<Message>,
}

impl Attempt {
    pub(crate) fn id(&self) -> AttemptId {
        self.id
    }

    pub(crate) fn since(&self, at: Time) -> std::time::Duration {
        self.clock.time().since(at).into()
    }

    /// Stamps the start, on the worker's own thread: the last check stands right before the
    /// write, so a stall of any length cannot push a request past its reservation (L4).
    pub(crate) fn sending(&self) -> Result<Time, Late> {
        if let Some(before) = self.start() {
            return Ok(before);
        }
        let now = self.clock.time();
        if now > self.send_by {
            self.late.store(true, Ordering::Relaxed);
            return Err(Late);
        }
        self.started_at.store(now.0, Ordering::Release);
        if self.tell_start {
            self.tell_start(now);
        }
        Ok(now)
    }

    /// The attempt has to wait: its start is told now, so that its request counts even if its call
    /// ends in the meantime (J1). An attempt that is over at once tells its start with its end.
    pub(crate) fn goes_on(&self) {
        if let Some(at) = self.start() {
            self.tell_start(at);
        }
    }

    fn tell_start(&self, at: Time) {
        if !self.start_told.load(Ordering::Relaxed)
            && !self.start_told.swap(true, Ordering::Relaxed)
        {
            self.send(Message::Started(self.id, at));
        }
    }

    /// The upstream has answered: the driver is told at once, and once.
    pub(crate) fn answered(&self) {
        // A request that was never sent has no answer.
        if let Some(started_at) = self.start()
            && !self.answered.swap(true, Ordering::Relaxed)
        {
            self.send(Message::Answered(self.id, started_at));
        }
    }

    /// Tells the verdict: at once if the slot is still held elsewhere, else with the end.
    fn tell(self: Arc<Attempt>, told: AttemptResult) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        if let Err(held) = Arc::try_unwrap(self).map(drop)
            && let Some(told) = held.told.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            held.send(Message::Told(held.id, held.start(), told));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Its worker waits for a thread, or has one.
    pub(crate) fn set_queued(&self, queued: bool) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// How long the attempt may still be sent.
    pub(crate) fn left(&self) -> std::time::Duration {
        self.send_by.since(self.clock.time()).into()
    }

    pub(crate) fn start(&self) -> Option<Time> {
        let started_at = self.started_at.load(Ordering::Acquire);
        (started_at > 0).then_some(Time(started_at))
    }

    /// Asks the driver on behalf of the worker.
    pub(crate) async fn ask<R>(
        &self,
        (message, answer): (Message, oneshot::Receiver<R>),
    ) -> Result<R, Ended> {
        self.send(message);
        answer.await.map_err(|_| Ended::Stopped)
    }

    fn send(&self, message: Message) {
        // The driver is gone only when the engine has ended.
        let _ = self.messages.send(message);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let told = self.told.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.messages.send(Message::Over(self.id, self.start(), told));
    }
}
