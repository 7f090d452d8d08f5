//! The one loop: it gathers inputs, takes a turn, and then carries out what the turn decided.
//! While a commit is on its way to disk the next batch gathers, so commits group by themselves.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};

use paceline_core::{
    Admission, AttemptId, AttemptResult, Event, JobId, Now, Numbered, Report, Span, Submission,
    SubmitError, Time,
};
use paceline_store::{Store, StoreError};
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::clock::Clock;
use crate::following::News;
use crate::run::{Runner, panic_text};
use crate::turn::{Admissions, Done, Held, Input, Machine, Reply};
use crate::view::{JobView, View};

/// Messages that one turn takes in at most.
const MOST_GATHERED: usize = 4_096;
/// While something is due by the wall clock, that clock is looked at this often: it may have been
/// stepped, or the machine may have slept.
const CLOCK_CHECK: Span = Span::secs(30);
/// How long the end waits for dropped attempts to be gone. One that still holds its slot then keeps
/// it from no call of this process.
const LET_GO_WITHIN: Span = Span::secs(1);
/// The time after a turn in which finished work is forgotten: a quarter of the time that the turn
/// took, within these bounds.
const FORGET_WITHIN: (Span, Span) = (Span::millis(5), Span::millis(50));

/// A message to the loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// Jobs, each with its follower.
    Submit(Vec<(Submission, mpsc::UnboundedSender<News>)>),
    /// Anything else that changes something.
    Input(Input<Waiter>),
    /// A look at the engine, after the turn.
    Look(Look),
    /// A caller follows a job that was submitted earlier, and is answered with its state.
    Follow(JobId, Follower, oneshot::Sender<Option<JobView>>),
    /// A caller no longer follows a job.
    Unfollow(JobId),
    /// A caller waits until no work is left.
    AwaitIdle(oneshot::Sender<()>),
    Started(AttemptId, Time),
    /// The upstream has answered an attempt, which started at this moment.
    Answered(AttemptId, Time),
    Told(AttemptId, Option<Time>, AttemptResult),
    /// An attempt has ended: when it started, and its verdict unless that was told before.
    Over(AttemptId, Option<Time>, Option<AttemptResult>),
    /// The engine takes no new work; running calls have this long to finish.
    Stop(Span),
}

impl Message {
    /// An input, and where its caller gets its answer.
    pub(crate) fn input<R: Send + 'static>(
        input: impl FnOnce(Reply<R>) -> Input<Waiter>,
    ) -> (Message, oneshot::Receiver<R>) {
        let (to, answer) = Reply::channel();
        (Message::Input(input(to)), answer)
    }

    /// A look at the engine, and where its caller gets what it sees. Callers that went away in the
    /// meantime cost no look.
    pub(crate) fn look<R: Send + 'static>(
        look: impl FnOnce(&mut View<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> (Message, oneshot::Receiver<R>) {
        let (to, answer) = oneshot::channel();
        let look = move |view: &mut View<'_>| {
            if !to.is_closed() {
                let _ = to.send(look(view)?);
            }
            Ok(())
        };
        (Message::Look(Look(Box::new(look))), answer)
    }
}

/// A caller's look at the engine.
pub(crate) struct Look(Box<LookFn>);

type LookFn = dyn FnOnce(&mut View<'_>) -> Result<(), StoreError> + Send;

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Look")
    }
}

/// The callers of a submission: one follower for each job, or one caller for all of them.
#[derive(Debug)]
pub(crate) enum Waiter {
    Followers(Vec<Follower>),
    Caller(Reply<Admissions>),
}

/// A caller that hears of a job until its own deadline; `Time::NEVER` for none (D1).
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) news: mpsc::UnboundedSender<News>,
    pub(crate) deadline: Time,
}

/// Why the engine has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Ended {
    /// It was stopped: what is unfinished waits in the store for the next start.
    #[error("the engine has stopped: unfinished work waits in the store for the next start")]
    Stopped,
    /// The store failed. Nothing was answered that was not written.
    #[error("the engine has ended because its store failed: {0}")]
    Failed(Arc<StoreError>),
    /// The engine itself panicked, which is a bug. Everything that was answered is in the store.
    #[error("the engine has ended because of a bug in it: {0}")]
    Panicked(Arc<str>),
}

pub(crate) struct Driver<S> {
    machine: Machine<S>,
    clock: Arc<Clock>,
    runner: Runner,
    messages: Receiver<Message>,
    followers: HashMap<JobId, Vec<Follower>>,
    /// Callers that follow a job from the end of this turn on.
    latecomers: Vec<(JobId, Follower, oneshot::Sender<Option<JobView>>)>,
    /// Looks to be taken after this turn.
    looks: Vec<Look>,
    idle: Vec<oneshot::Sender<()>>,
    events: broadcast::Sender<Event>,
    kept: broadcast::Sender<Arc<[Numbered]>>,
    rolls: Rolls,
    commits: Arc<Commits>,
    /// When running calls are dropped, once the engine was told to stop.
    stop_at: Option<Time>,
    heartbeat: Option<Heartbeat>,
}

/// The number of commits, and the time they took.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    count: AtomicU64,
    micros: AtomicU64,
}

impl Commits {
    /// Takes note of the number so far, and of the time of the last turn.
    fn count(&self, commits: u64, took: Span) {
        if self.count.swap(commits, Ordering::Relaxed) != commits {
            self.micros.fetch_add(took.0, Ordering::Relaxed);
        }
    }

    pub(crate) fn so_far(&self) -> (u64, Span) {
        (self.count.load(Ordering::Relaxed), Span(self.micros.load(Ordering::Relaxed)))
    }
}

/// A callback that the loop makes as long as it turns.
pub(crate) struct Heartbeat {
    pub(crate) every: Span,
    pub(crate) beat: Box<dyn FnMut() + Send>,
    /// When it is due next.
    pub(crate) at: Time,
}

impl<S: Store> Driver<S> {
    pub(crate) fn new(
        machine: Machine<S>,
        clock: Arc<Clock>,
        runner: Runner,
        messages: Receiver<Message>,
        (events, kept): (broadcast::Sender<Event>, broadcast::Sender<Arc<[Numbered]>>),
        commits: Arc<Commits>,
        heartbeat: Option<Heartbeat>,
    ) -> Driver<S> {
        Driver {
            machine,
            clock,
            runner,
            messages,
            followers: HashMap::new(),
            latecomers: Vec::new(),
            looks: Vec::new(),
            idle: Vec::new(),
            events,
            kept,
            rolls: Rolls::new(),
            commits,
            stop_at: None,
            heartbeat,
        }
    }

    /// Runs until it is stopped or its store fails, and says which.
    pub(crate) fn run(mut self, ended: &OnceLock<Ended>) {
        let end = match catch_unwind(AssertUnwindSafe(|| self.turns())) {
            Ok(Ok(())) => Ended::Stopped,
            Ok(Err(error)) => Ended::Failed(Arc::new(error)),
            Err(panic) => Ended::Panicked(panic_text(&*panic)),
        };
        // Followers read the reason as soon as their channels close.
        let _ = ended.set(end);
        self.runner.abort_all();
        self.let_go();
    }

    /// Waits until dropped attempts are gone, so that the next engine on this store finds nothing of
    /// them on the wire (L5). A verdict that comes at this point is lost.
    fn let_go(&mut self) {
        let until = self.clock.time() + LET_GO_WITHIN;
        while !self.runner.is_idle() {
            match self.messages.recv_timeout(until.since(self.clock.time()).into()) {
                Ok(Message::Over(attempt, ..)) => self.runner.over(attempt),
                Ok(_) if self.clock.time() < until => {}
                _ => return,
            }
        }
    }

    fn turns(&mut self) -> Result<(), StoreError> {
        let mut inbox = Vec::new();
        let mut wake_at = Some(Time::ZERO);
        loop {
            self.gather(&mut inbox, wake_at);
            self.beat();
            let reading = self.clock.reading();
            let inputs = self.inputs(&mut inbox, reading.now.time);
            let done = self.machine.turn(inputs, reading)?;
            let took = self.clock.time().since(reading.now.time);
            self.commits.count(self.machine.commits(), took);
            wake_at = done.wake_at;
            self.act(done, reading.now)?;
            // Workers are started and callers answered by now: this delays only the next turn.
            let within = Span(took.0 / 4).clamp(FORGET_WITHIN.0, FORGET_WITHIN.1);
            let until = self.clock.time() + within;
            self.machine.forget(reading.now, || self.clock.time() >= until)?;
            let forgets_at = self.machine.forgets_at();
            wake_at = Some(wake_at.map_or(forgets_at, |at| at.min(forgets_at)));
            if let Some(stop_at) = self.stop_at {
                if self.runner.may_stop() || self.clock.time() >= stop_at {
                    return Ok(());
                }
                wake_at = Some(wake_at.map_or(stop_at, |at| at.min(stop_at)));
            }
        }
    }

    /// Waits for a message or for `wake_at`, and takes all messages that are there.
    fn gather(&mut self, inbox: &mut Vec<Message>, wake_at: Option<Time>) {
        let wait = wake_at.map_or(CLOCK_CHECK, |at| at.since(self.clock.time()));
        let by_wall = self.machine.core().waits_for_wall_clock();
        let wait = if by_wall { wait.min(CLOCK_CHECK) } else { wait };
        let beat = self.heartbeat.as_ref().map(|it| it.at.since(self.clock.time()));
        let wait = beat.map_or(wait, |beat| wait.min(beat));
        let first = match self.messages.try_recv() {
            Ok(message) => Some(message),
            Err(_) if wait == Span::ZERO => None,
            Err(_) => match self.messages.recv_timeout(wait.into()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Message::Stop(Span::ZERO)),
            },
        };
        inbox.extend(first);
        while inbox.len() < MOST_GATHERED
            && let Ok(message) = self.messages.try_recv()
        {
            inbox.push(message);
        }
    }

    /// Makes the heartbeat if it is due.
    fn beat(&mut self) {
        let now = self.clock.time();
        if let Some(heartbeat) = self.heartbeat.as_mut().filter(|it| it.at <= now) {
            heartbeat.at = now + heartbeat.every;
            (heartbeat.beat)();
        }
    }

    /// Turns messages into inputs of the machine, and handles those that it need not know.
    fn inputs(&mut self, inbox: &mut Vec<Message>, now: Time) -> Vec<Input<Waiter>> {
        let mut inputs = Vec::with_capacity(inbox.len() + 8);
        for message in inbox.drain(..) {
            match message {
                Message::Submit(jobs) => {
                    let followers = jobs.into_iter().map(|(job, news)| {
                        let deadline = job.deadline.map_or(Time::NEVER, |span| now + span);
                        (job, Follower { news, deadline })
                    });
                    let (jobs, followers) = followers.unzip();
                    let input = Input::Submit(jobs, Waiter::Followers(followers));
                    inputs.extend(self.unless_stopping(input));
                }
                Message::Input(input) => inputs.extend(self.unless_stopping(input)),
                Message::Look(look) => self.looks.push(look),
                Message::Follow(job, follower, to) => self.latecomers.push((job, follower, to)),
                Message::Unfollow(job) => self.unfollow(job),
                Message::AwaitIdle(waiter) => self.idle.push(waiter),
                Message::Started(attempt, at) => inputs.push(Input::Started(attempt, at)),
                Message::Answered(attempt, started_at) => {
                    inputs.push(Input::Started(attempt, started_at));
                    inputs.push(Input::Answered(attempt));
                }
                Message::Told(attempt, started_at, told) => {
                    inputs.extend(started_at.map(|at| Input::Started(attempt, at)));
                    inputs.push(Input::Told(attempt, told, self.rolls.next()));
                }
                Message::Over(attempt, started_at, told) => {
                    self.runner.over(attempt);
                    inputs.extend(started_at.map(|at| Input::Started(attempt, at)));
                    inputs.extend(told.map(|told| Input::Told(attempt, told, self.rolls.next())));
                    inputs.push(Input::Ended(attempt));
                }
                Message::Stop(grace) => {
                    let stop_at = now + grace;
                    self.stop_at = Some(self.stop_at.map_or(stop_at, |at| at.min(stop_at)));
                    self.machine.halt();
                }
            }
        }
        inputs
    }

    fn unless_stopping(&self, input: Input<Waiter>) -> Option<Input<Waiter>> {
        if self.stop_at.is_some() { refused(input) } else { Some(input) }
    }

    /// Everything is durable: workers start, callers are answered, subscribers are told.
    fn act(&mut self, done: Done<Waiter>, now: Now) -> Result<(), StoreError> {
        for (start, payload) in done.starts {
            self.runner.start(start, payload);
        }
        for attempt in done.aborts {
            self.runner.abort(attempt);
        }
        for (waiter, admissions) in done.admissions {
            self.admitted(waiter, admissions);
        }
        done.replies.into_iter().for_each(Held::give);
        for (job, follower, to) in std::mem::take(&mut self.latecomers) {
            let view = self.machine.view(now).job(job)?;
            if view.as_ref().is_some_and(|view| view.stored.report.is_none()) {
                self.add_latecomer(job, follower);
            }
            let _ = to.send(view);
        }
        for event in done.events {
            self.tell(event);
        }
        for partial in done.partials {
            self.tell_partial(&partial);
        }
        if !done.kept.is_empty() && self.kept.receiver_count() > 0 {
            let _ = self.kept.send(done.kept.into());
        }
        if !self.idle.is_empty() && self.machine.core().is_idle() {
            for waiter in self.idle.drain(..) {
                let _ = waiter.send(());
            }
        }
        for look in std::mem::take(&mut self.looks) {
            look.0(&mut self.machine.view(now))?;
        }
        Ok(())
    }

    fn admitted(&mut self, waiter: Waiter, admissions: Admissions) {
        let followers = match waiter {
            Waiter::Followers(followers) => followers,
            Waiter::Caller(caller) => return caller.give(admissions),
        };
        for (follower, admission) in followers.into_iter().zip(admissions) {
            let job = admission.as_ref().ok().and_then(Admission::job);
            let heard = follower.news.send(News::Admitted(Box::new(admission))).is_ok();
            if let Some(job) = job.filter(|_| heard) {
                self.add_follower(job, follower);
            }
        }
    }

    fn add_follower(&mut self, job: JobId, follower: Follower) {
        let followers = self.followers.entry(job).or_default();
        // Followers that have gone are dropped whenever the list would have to grow.
        if followers.len() == followers.capacity() {
            followers.retain(|follower| !follower.news.is_closed());
        }
        followers.push(follower);
    }

    /// A follower whose deadline passed before it could follow gets the partial report at once.
    fn add_latecomer(&mut self, job: JobId, follower: Follower) {
        let now = self.clock.reading().now;
        match self.machine.core().partial(job, now).filter(|_| follower.deadline <= now.time) {
            Some(partial) => drop(follower.news.send(News::Finished(Arc::new(partial)))),
            None => self.add_follower(job, follower),
        }
    }

    /// Tells callers that have run out of time while the job goes on.
    fn tell_partial(&mut self, partial: &Arc<Report>) {
        let Some(followers) = self.followers.get_mut(&partial.job) else { return };
        followers.retain(|follower| {
            let over = follower.deadline <= partial.finished_at;
            if over {
                let _ = follower.news.send(News::Finished(partial.clone()));
            }
            !over
        });
    }

    /// Drops followers that have gone, so that a job without followers costs nothing here.
    fn unfollow(&mut self, job: JobId) {
        if let Some(followers) = self.followers.get_mut(&job) {
            followers.retain(|follower| !follower.news.is_closed());
            if followers.is_empty() {
                self.followers.remove(&job);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        match &event {
            Event::Settled(call, report) => {
                if let Some(followers) = self.followers.get(&call.job) {
                    for follower in followers {
                        let _ = follower.news.send(News::Settled(Box::new(report.clone())));
                    }
                }
            }
            Event::Finished(report) => {
                for follower in self.followers.remove(&report.job).into_iter().flatten() {
                    let _ = follower.news.send(News::Finished(report.clone()));
                }
            }
            Event::Accepted(_) | Event::Started(..) | Event::Closed(..) => {}
        }
        if self.events.receiver_count() > 0 {
            let _ = self.events.send(event);
        }
    }
}

/// Refuses new work, since the engine is stopping; other inputs go on.
fn refused(input: Input<Waiter>) -> Option<Input<Waiter>> {
    match input {
        Input::Submit(jobs, waiter) | Input::SubmitOnce(jobs, _, waiter) => match waiter {
            Waiter::Followers(followers) => {
                for Follower { news, .. } in followers {
                    let _ = news.send(News::Admitted(Box::new(Err(SubmitError::Stopping))));
                }
            }
            Waiter::Caller(caller) => {
                caller.give(jobs.iter().map(|_| Err(SubmitError::Stopping)).collect());
            }
        },
        Input::Retry(_, caller) => caller.give(Err(SubmitError::Stopping.into())),
        Input::RunService(_, caller) => caller.give(Err(SubmitError::Stopping.into())),
        input => return Some(input),
    }
    None
}

/// Random numbers for the jitter of retries.
struct Rolls(u64);

impl Rolls {
    fn new() -> Rolls {
        Rolls(random())
    }

    fn next(&mut self) -> u64 {
        // SplitMix64: every state is visited once, and neighbours look nothing alike.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// One number from the system's randomness.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
