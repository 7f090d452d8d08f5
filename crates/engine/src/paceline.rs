//! The engine as programs embed it: a handle to the loop.

mod hand_in;

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use paceline_core::{
    Admission, Blob, Cancelled, Event, JobId, LaneStatus, Limits, Numbered, RosterStatus,
    ServiceStatus, Span, Summary, Time, Why,
};
use paceline_store::{Cursor, Store, StoreError};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};

use crate::answer::{Filter, JobView, View};
use crate::builder::{Beside, Builder};
use crate::clock::Clock;
use crate::driver::{Commits, Driver, Ended, Follower, Message, Waiter};
use crate::error::{
    ChangeError, ControlError, FollowError, ResetServiceError, RetryError, SetServicesError,
    StopError,
};
use crate::following::{Following, NotSubmitted, end};
use crate::lane::Lane;
use crate::run::{Runner, Workers};
use crate::service::{Roster, Service};
use crate::span::IntoSpan;
use crate::turn::{Input, LaneAct, Machine, Reply};

/// Submissions on their way to the loop at most; more wait their turn.
const MOST_SUBMITTING: usize = 65_536;
/// Turns whose events a slow reader of them may fall behind.
const MOST_TURNS_BEHIND: usize = 1_024;
/// Keys in one question: more are asked for in turns, so that others get theirs in between.
const MOST_KEYS: usize = 1_000;

/// A running engine. Clones are handles to the same one; it stops when it is told to, or when the
/// last handle is dropped.
#[derive(Clone, Debug)]
pub struct Paceline {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    messages: Sender<Message>,
    events: broadcast::Sender<Event>,
    kept: broadcast::Sender<Arc<[Numbered]>>,
    workers: Applies,
    groups: Vec<String>,
    submitting: Semaphore,
    ended: Arc<OnceLock<Ended>>,
    commits: Arc<Commits>,
    over: tokio::sync::watch::Receiver<()>,
    clock: Arc<Clock>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop(Span::ZERO));
    }
}

/// The workers, asked only whether a call applies.
struct Applies(Arc<Workers>);

impl std::fmt::Debug for Applies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Paceline {
    /// An engine whose work survives in this file.
    pub fn open(path: impl AsRef<Path>) -> Builder {
        Builder::new(Some(path.as_ref().to_path_buf()))
    }

    /// An engine whose work is gone with the process: for tests and for work that may be lost.
    pub fn in_memory() -> Builder {
        Builder::new(None)
    }

    /// Runs the loop on a thread of its own; this is the first handle to it.
    pub(crate) fn launch(
        machine: Machine<impl Store + 'static>,
        clock: Arc<Clock>,
        runtime: tokio::runtime::Handle,
        workers: Arc<Workers>,
        (groups, Beside { heartbeat, events }): (Vec<String>, Beside),
    ) -> std::io::Result<Paceline> {
        let (messages, inbox) = channel();
        let commits = Arc::new(Commits::default());
        let (kept, _) = broadcast::channel(MOST_TURNS_BEHIND);
        let runner = Runner::new(workers.clone(), runtime, clock.clone(), messages.clone());
        let driver = Driver::new(
            machine,
            clock.clone(),
            runner,
            inbox,
            (events.clone(), kept.clone()),
            commits.clone(),
            heartbeat,
        );
        let ended = Arc::new(OnceLock::new());
        let (alive, over) = tokio::sync::watch::channel(());
        let reason = ended.clone();
        std::thread::Builder::new().name("paceline".to_string()).spawn(move || {
            driver.run(&reason);
            drop(alive);
        })?;
        let submitting = Semaphore::new(MOST_SUBMITTING);
        let workers = Applies(workers);
        let shared = Shared {
            messages,
            events,
            kept,
            workers,
            groups,
            submitting,
            ended,
            commits,
            over,
            clock,
        };
        Ok(Paceline { shared: Arc::new(shared) })
    }

    /// Changes something, and answers once that is durable.
    async fn ask<R: Send + 'static>(
        &self,
        input: impl FnOnce(Reply<R>) -> Input<Waiter>,
    ) -> Result<R, Ended> {
        let (message, answer) = Message::input(input);
        self.send(message)?;
        self.answered(answer).await
    }

    /// Looks at the engine between two turns.
    async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&mut View<'_>) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, Ended> {
        let (message, answer) = Message::look(look);
        self.send(message)?;
        self.answered(answer).await
    }

    /// The answer, or why there is none. A turn that fails lets go of its askers before anybody
    /// knows why: they wait for the end.
    async fn answered<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, Ended> {
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.ended().await),
        }
    }

    fn send(&self, message: Message) -> Result<(), Ended> {
        self.shared.messages.send(message).map_err(|_| end(&self.shared.ended))
    }

    /// Follows a job that was submitted earlier, be it before a restart; outcomes from now on,
    /// then the report. Nothing for a job that nobody knows.
    pub async fn follow(&self, job: JobId) -> Result<Option<Following>, Ended> {
        self.follow_until(job, Time::NEVER).await
    }

    /// The same for a caller whose job was handed in with a deadline, so long from now: if that
    /// passes while the job goes on for others, the caller gets what there is by then.
    pub async fn follow_within(
        &self,
        job: JobId,
        deadline: impl IntoSpan,
    ) -> Result<Option<Following>, FollowError> {
        let deadline = self.shared.clock.time() + deadline.into_span()?;
        Ok(self.follow_until(job, deadline).await?)
    }

    async fn follow_until(&self, job: JobId, deadline: Time) -> Result<Option<Following>, Ended> {
        let (news_of, news) = mpsc::unbounded_channel();
        let (asker, answer) = oneshot::channel();
        self.send(Message::Follow(job, Follower { news: news_of, deadline }, asker))?;
        let Some(view) = self.answered(answer).await? else { return Ok(None) };
        let report = view.stored.report.map(Arc::new);
        let (admission, ended) = (Admission::Joined(job), self.shared.ended.clone());
        let messages = self.shared.messages.clone();
        Ok(Some(Following { admission, job, news, ended, report, messages }))
    }

    /// Withdraws from a job; the last caller to do so cancels it. A job that has finished is told
    /// apart from one that never existed.
    pub async fn cancel(&self, job: JobId) -> Result<Cancelled, Ended> {
        self.ask(|to| Input::Cancel(job, to)).await
    }

    /// The same without waiting for the answer, for callers that are on their way out.
    pub fn withdraw(&self, job: JobId) {
        // An engine that has ended runs nothing.
        let _ = self.send(Message::Input(Input::Cancel(job, Reply::none())));
    }

    /// Submits a finished job again, for the lanes that gave no answer.
    pub async fn retry(&self, job: JobId) -> Result<Admission, RetryError> {
        self.ask(|to| Input::Retry(job, to)).await?
    }

    /// Why each waiting call of a job waits, by call number (W3).
    pub async fn why(&self, job: JobId) -> Result<Vec<(u16, Why)>, Ended> {
        self.look(move |view| Ok(view.why(job))).await
    }

    /// One job, finished or not.
    pub async fn job(&self, job: JobId) -> Result<Option<JobView>, Ended> {
        self.look(move |view| view.job(job)).await
    }

    /// The payload of a job, finished or not, as JSON text.
    pub async fn payload(&self, job: JobId) -> Result<Option<Blob>, Ended> {
        self.look(move |view| view.payload(job)).await
    }

    /// How long it is until a moment that the engine named; zero if that has passed.
    pub fn until(&self, moment: Time) -> Duration {
        moment.since(self.shared.clock.time()).into()
    }

    /// How long ago a moment was that the engine named; zero if it is still to come.
    pub fn passed(&self, moment: Time) -> Duration {
        self.shared.clock.time().since(moment).into()
    }

    /// What the wall clock shows.
    pub fn now(&self) -> SystemTime {
        crate::clock::system_time(crate::clock::wall())
    }

    /// The moment of the wall clock at which engine time shows this.
    pub fn wall(&self, moment: Time) -> SystemTime {
        let now = self.shared.clock.reading().now;
        crate::clock::system_time(now.wall_time(moment))
    }

    /// A page of jobs that fit, from there on, and the job after which the next page starts, if there
    /// is one. `None` begins with the oldest, [`Cursor::NEWEST`] with the newest. A page may be
    /// short, or empty, though there is a next one: no question looks at more than so many jobs.
    pub async fn list(
        &self,
        from: impl Into<Cursor>,
        most: usize,
        filter: impl Into<Filter>,
    ) -> Result<(Vec<JobView>, Option<JobId>), Ended> {
        let (from, filter) = (from.into(), filter.into());
        self.look(move |view| view.list(from, most, &filter)).await
    }

    /// The jobs with this key: the newest finished one, and the unfinished one.
    pub async fn keyed(&self, key: impl AsRef<[u8]>) -> Result<Vec<JobView>, Ended> {
        let key = key.as_ref().into();
        self.look(move |view| view.keyed(&key)).await
    }

    /// How much there is of everything.
    pub async fn summary(&self) -> Result<Summary, Ended> {
        self.look(|view| Ok(view.summary())).await
    }

    /// For each key the newest finished job that was submitted with it (D1), as the store has it,
    /// be there an unfinished one or not: so a long list can be gone through again without doing
    /// anything twice. Jobs forgotten after `keep_finished` are not found.
    pub async fn finished(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Option<JobView>>, Ended> {
        let keys: Vec<Blob> = keys.into_iter().map(|key| key.as_ref().into()).collect();
        let mut found = Vec::with_capacity(keys.len());
        for some in keys.chunks(MOST_KEYS) {
            let some = some.to_vec();
            found.extend(self.look(move |view| view.finished(&some)).await?);
        }
        Ok(found)
    }

    /// How all lanes are doing, by name.
    pub async fn lanes(&self) -> Result<Vec<LaneStatus>, Ended> {
        self.look(|view| Ok(view.lanes())).await
    }

    /// How all services are doing, by name.
    pub async fn services(&self) -> Result<Vec<ServiceStatus>, Ended> {
        self.look(|view| Ok(view.services())).await
    }

    /// How all rosters are doing, by name.
    pub async fn rosters(&self) -> Result<Vec<RosterStatus>, Ended> {
        self.look(|view| Ok(view.rosters())).await
    }

    /// Runs a service now, whatever its timing; one that runs already is joined (S3).
    pub async fn run_service(&self, name: &str) -> Result<Following, NotSubmitted> {
        let admission = self.ask(|to| Input::RunService(name.into(), to)).await??;
        if let Admission::Refused { lane, retry_at } = admission {
            return Err(full(lane, retry_at));
        }
        let job = admission.job().expect("runs join what runs already");
        let mut following = self.follow(job).await?.expect("it was accepted");
        following.admission = admission;
        Ok(following)
    }

    /// Marks a service as never run: it is due at the next check (S1).
    pub async fn reset_service(&self, name: &str) -> Result<(), ResetServiceError> {
        Ok(self.ask(|to| Input::ResetService(name.into(), to)).await??)
    }

    /// Changes what services and rosters there are; what is under way goes on (S2).
    pub async fn set_services(
        &self,
        services: Vec<Service>,
        rosters: Vec<Roster>,
    ) -> Result<(), SetServicesError> {
        let (services, rosters) = crate::service::build(services, rosters)?;
        Ok(self.ask(|to| Input::SetServices(services, rosters, to)).await?)
    }

    /// What is kept under this name, by a worker or by a program.
    pub async fn note(&self, name: &str) -> Result<Option<Blob>, Ended> {
        let name = name.to_string();
        self.look(move |view| view.note(&name)).await
    }

    /// Keeps something under a name, or nothing any more; durable when it returns.
    pub async fn keep(&self, name: &str, note: Option<&[u8]>) -> Result<(), Ended> {
        let (name, note) = (name.into(), note.map(Into::into));
        self.ask(|to| Input::Keep(name, note, to)).await
    }

    async fn act(&self, lane: &str, act: LaneAct) -> Result<(), ControlError> {
        Ok(self.ask(|to| Input::Lane(lane.into(), act, to)).await??)
    }

    /// Stops a lane: what runs goes on, nothing new starts.
    pub async fn pause(&self, lane: &str) -> Result<(), ControlError> {
        self.act(lane, LaneAct::Pause).await
    }

    /// Lets a paused lane go on.
    pub async fn resume(&self, lane: &str) -> Result<(), ControlError> {
        self.act(lane, LaneAct::Resume).await
    }

    /// Lifts a lane's cooldown, ladder and slow-downs; its limits hold on (L6).
    pub async fn reset(&self, lane: &str) -> Result<(), ControlError> {
        self.act(lane, LaneAct::Reset).await
    }

    /// Changes the limits of a lane or template from now on, until the engine stops (L11).
    pub async fn change(&self, lane: Lane) -> Result<(), ChangeError> {
        self.set_limits(lane, LaneAct::Change).await
    }

    /// Adds a lane or template, or changes its limits, until the engine stops. A lane that was known
    /// before the start, and not configured then, is refused as unknown: its history was not read.
    pub async fn set_lane(&self, lane: Lane) -> Result<(), ChangeError> {
        self.set_limits(lane, LaneAct::Set).await
    }

    async fn set_limits(
        &self,
        lane: Lane,
        act: impl FnOnce(Box<Limits>) -> LaneAct,
    ) -> Result<(), ChangeError> {
        let (lane, limits) = lane.build()?;
        if let Some(group) = &limits.group
            && !self.shared.groups.contains(group)
        {
            return Err(ChangeError::UnknownGroup { lane, group: group.clone() });
        }
        Ok(self.act(&lane, act(Box::new(limits))).await?)
    }

    /// What happens from now on, told after it is durable. A subscriber that falls far behind
    /// misses events and is told how many.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// What is kept of the events of each turn, from now on (see [`Builder::keep_events`]). Whoever
    /// falls behind asks [`Paceline::kept_events`] for the rest.
    pub fn numbered_events(&self) -> broadcast::Receiver<Arc<[Numbered]>> {
        self.shared.kept.subscribe()
    }

    /// Kept events with numbers above `after`, so many at most (1,000), and the number of the next
    /// one to come. The first may be later than the one after `after`: older ones are forgotten.
    pub async fn kept_events(
        &self,
        after: u64,
        most: usize,
    ) -> Result<(Vec<Numbered>, u64), Ended> {
        self.look(move |view| view.events(after, most)).await
    }

    /// Durable commits since the start: how well submissions share them shows in this.
    pub fn commits(&self) -> u64 {
        self.shared.commits.so_far().0
    }

    /// How long the turns took that these commits ended, all together.
    pub fn commit_time(&self) -> Duration {
        self.shared.commits.so_far().1.into()
    }

    /// Resolves when nothing is waiting, running, due or to be retried (B3).
    pub async fn idle(&self) -> Result<(), Ended> {
        let (waiter, idle) = oneshot::channel();
        self.send(Message::AwaitIdle(waiter))?;
        self.answered(idle).await
    }

    /// Takes no new work, lets running calls finish within `grace`, and leaves the rest durable
    /// for the next start. May be called again: the shorter grace counts (B3).
    pub async fn stop(&self, grace: impl IntoSpan) -> Result<(), StopError> {
        let _ = self.send(Message::Stop(grace.into_span()?));
        match self.ended().await {
            Ended::Stopped => Ok(()),
            failed @ (Ended::Failed(_) | Ended::Panicked(_)) => Err(failed.into()),
        }
    }

    /// Resolves when the engine has ended, with the reason.
    pub async fn ended(&self) -> Ended {
        // The sender is never used, only dropped, with the store already closed.
        let _ = self.shared.over.clone().changed().await;
        end(&self.shared.ended)
    }
}

fn full(lane: Option<Arc<str>>, retry_at: Option<Time>) -> NotSubmitted {
    NotSubmitted::Full { lane, retry_at: retry_at.map(crate::clock::system_time) }
}
