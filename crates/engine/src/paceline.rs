//! The handle of a running engine.

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
use crate::view::{Filter, JobView, View};

/// Submissions on their way to the loop at most; further ones wait.
const MOST_SUBMITTING: usize = 65_536;
/// Turns by which a slow reader of their events may fall behind.
const MOST_TURNS_BEHIND: usize = 1_024;
/// Keys in one look: more of them take several looks, with turns of the loop in between.
const MOST_KEYS: usize = 1_000;

/// A handle to a running engine; clones are handles to the same one.
///
/// It stops when it is told to, or when the last handle is dropped. What a method returns is durable:
/// it survives a crash, if the engine has a file.
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

/// The workers, which a handle asks only whether a call applies.
struct Applies(Arc<Workers>);

impl std::fmt::Debug for Applies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Paceline {
    /// Describes an engine whose work survives in this file, which is made if there is none.
    pub fn open(path: impl AsRef<Path>) -> Builder {
        Builder::new(Some(path.as_ref().to_path_buf()))
    }

    /// Describes an engine whose work is gone with the process: for tests, and for work that may be
    /// lost.
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

    /// The answer, or why there is none. A turn that fails drops its callers before the reason is
    /// set: they wait for the end.
    async fn answered<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, Ended> {
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.ended().await),
        }
    }

    fn send(&self, message: Message) -> Result<(), Ended> {
        self.shared.messages.send(message).map_err(|_| end(&self.shared.ended))
    }

    /// Follows a job that was submitted earlier, even before a restart: outcomes from now on, then
    /// the report. `None` if there is no such job.
    pub async fn follow(&self, job: JobId) -> Result<Option<Following>, Ended> {
        self.follow_until(job, Time::NEVER).await
    }

    /// Follows a job for a caller with a deadline, counted from now. If it passes while the job goes
    /// on for other callers, the report holds what there is by then.
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

    /// Withdraws from a job without waiting for the answer, for callers that are about to end.
    pub fn withdraw(&self, job: JobId) {
        // An engine that has ended runs nothing.
        let _ = self.send(Message::Input(Input::Cancel(job, Reply::none())));
    }

    /// Submits a finished job again, for the lanes that gave no answer. This makes a new job.
    pub async fn retry(&self, job: JobId) -> Result<Admission, RetryError> {
        self.ask(|to| Input::Retry(job, to)).await?
    }

    /// Why each waiting call of a job waits, by call number; empty for a job that is finished or
    /// unknown.
    pub async fn why(&self, job: JobId) -> Result<Vec<(u16, Why)>, Ended> {
        self.look(move |view| Ok(view.why(job))).await
    }

    /// Looks up one job, finished or not.
    pub async fn job(&self, job: JobId) -> Result<Option<JobView>, Ended> {
        self.look(move |view| view.job(job)).await
    }

    /// The payload of a job, finished or not, as JSON text.
    pub async fn payload(&self, job: JobId) -> Result<Option<Blob>, Ended> {
        self.look(move |view| view.payload(job)).await
    }

    /// The time until a moment of engine time; zero if it has passed.
    pub fn until(&self, moment: Time) -> Duration {
        moment.since(self.shared.clock.time()).into()
    }

    /// The time since a moment of engine time; zero if it is still to come.
    pub fn passed(&self, moment: Time) -> Duration {
        self.shared.clock.time().since(moment).into()
    }

    /// The time of the wall clock.
    pub fn now(&self) -> SystemTime {
        crate::clock::system_time(crate::clock::wall())
    }

    /// The moment of the wall clock that belongs to a moment of engine time.
    pub fn wall(&self, moment: Time) -> SystemTime {
        let now = self.shared.clock.reading().now;
        crate::clock::system_time(now.wall_time(moment))
    }

    /// A page of jobs that pass the filter, and the job after which the next page starts, if there is
    /// one. `None` begins with the oldest job, [`Cursor::NEWEST`] with the newest. A page may be short,
    /// or empty, although there is a next one: one page looks at 2,000 jobs at most.
    pub async fn list(
        &self,
        from: impl Into<Cursor>,
        most: usize,
        filter: impl Into<Filter>,
    ) -> Result<(Vec<JobView>, Option<JobId>), Ended> {
        let (from, filter) = (from.into(), filter.into());
        self.look(move |view| view.list(from, most, &filter)).await
    }

    /// The jobs with this key: the newest finished one, and the unfinished one, where they exist.
    pub async fn keyed(&self, key: impl AsRef<[u8]>) -> Result<Vec<JobView>, Ended> {
        let key = key.as_ref().into();
        self.look(move |view| view.keyed(&key)).await
    }

    /// The figures of the whole engine: waiting, running and finished work.
    pub async fn summary(&self) -> Result<Summary, Ended> {
        self.look(|view| Ok(view.summary())).await
    }

    /// For each key the newest finished job that was submitted with it, whether or not there is an
    /// unfinished one. So a program can go through a long list again and do nothing twice. Jobs
    /// forgotten after [`Builder::keep_finished`] are not found.
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

    /// The state of all lanes, by name.
    pub async fn lanes(&self) -> Result<Vec<LaneStatus>, Ended> {
        self.look(|view| Ok(view.lanes())).await
    }

    /// The state of all services, by name.
    pub async fn services(&self) -> Result<Vec<ServiceStatus>, Ended> {
        self.look(|view| Ok(view.services())).await
    }

    /// The state of all rosters, by name.
    pub async fn rosters(&self) -> Result<Vec<RosterStatus>, Ended> {
        self.look(|view| Ok(view.rosters())).await
    }

    /// Runs a service now, whatever its timing. One that runs already is joined.
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

    /// Marks a service as never run: it is due at the next check.
    pub async fn reset_service(&self, name: &str) -> Result<(), ResetServiceError> {
        Ok(self.ask(|to| Input::ResetService(name.into(), to)).await??)
    }

    /// Replaces all services and rosters. Runs that are under way go on.
    pub async fn set_services(
        &self,
        services: Vec<Service>,
        rosters: Vec<Roster>,
    ) -> Result<(), SetServicesError> {
        let (services, rosters) = crate::service::build(services, rosters)?;
        Ok(self.ask(|to| Input::SetServices(services, rosters, to)).await?)
    }

    /// The note with this name, kept by a worker or by a program.
    pub async fn note(&self, name: &str) -> Result<Option<Blob>, Ended> {
        let name = name.to_string();
        self.look(move |view| view.note(&name)).await
    }

    /// Keeps a note under a name, or removes it; durable when it returns.
    pub async fn keep(&self, name: &str, note: Option<&[u8]>) -> Result<(), Ended> {
        let (name, note) = (name.into(), note.map(Into::into));
        self.ask(|to| Input::Keep(name, note, to)).await
    }

    async fn act(&self, lane: &str, act: LaneAct) -> Result<(), ControlError> {
        Ok(self.ask(|to| Input::Lane(lane.into(), act, to)).await??)
    }

    /// Pauses a lane: running calls go on, no new call starts. A pause survives a restart.
    pub async fn pause(&self, lane: &str) -> Result<(), ControlError> {
        self.act(lane, LaneAct::Pause).await
    }

    /// Resumes a paused lane.
    pub async fn resume(&self, lane: &str) -> Result<(), ControlError> {
        self.act(lane, LaneAct::Resume).await
    }

    /// Lifts the cooldowns and slow-downs of a lane. Its limits still hold.
    pub async fn reset(&self, lane: &str) -> Result<(), ControlError> {
        self.act(lane, LaneAct::Reset).await
    }

    /// Changes the limits of a lane or template from now on, until the engine stops.
    pub async fn change(&self, lane: Lane) -> Result<(), ChangeError> {
        self.set_limits(lane, LaneAct::Change).await
    }

    /// Adds a lane or template, or changes its limits, until the engine stops. A lane that the store
    /// knows and that was not described at the start is refused as unknown: its history was not read.
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

    /// Subscribes to events from now on. They are sent after they are durable. A subscriber that falls
    /// far behind misses events, and its receiver says how many.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Subscribes to the kept events of each turn, from now on; see [`Builder::keep_events`]. A
    /// subscriber that falls behind gets the rest from [`Paceline::kept_events`].
    pub fn numbered_events(&self) -> broadcast::Receiver<Arc<[Numbered]>> {
        self.shared.kept.subscribe()
    }

    /// Kept events with numbers above `after`, at most `most` and never more than 1,000, and the number
    /// of the next event to come. If the first number is not `after + 1`, older events are forgotten.
    pub async fn kept_events(
        &self,
        after: u64,
        most: usize,
    ) -> Result<(Vec<Numbered>, u64), Ended> {
        self.look(move |view| view.events(after, most)).await
    }

    /// The number of durable commits since the start. Submissions at the same time share one.
    pub fn commits(&self) -> u64 {
        self.shared.commits.so_far().0
    }

    /// The time that the turns of these commits took, in all.
    pub fn commit_time(&self) -> Duration {
        self.shared.commits.so_far().1.into()
    }

    /// Resolves when no work is waiting, running, due or to be retried.
    pub async fn idle(&self) -> Result<(), Ended> {
        let (waiter, idle) = oneshot::channel();
        self.send(Message::AwaitIdle(waiter))?;
        self.answered(idle).await
    }

    /// Stops the engine: it takes no new work, lets running calls finish within `grace`, and leaves
    /// the rest in the store for the next start. May be called again: the shorter grace counts.
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
