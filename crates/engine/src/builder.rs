//! The description of an engine before it runs: its lanes, its workers, its store.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use paceline_core::{
    Event, KindTerms, Limits, SERVICE_KIND, Settings, SettingsError, Setup, Span, SpanError, Time,
};
use paceline_store::{Memory, Sqlite, Store, StoreError};
use tokio::sync::broadcast;

use crate::clock::Clock;
use crate::driver::{Heartbeat, random};
use crate::lane::{Group, Lane, LaneError};
use crate::paceline::Paceline;
use crate::run::Workers;
use crate::service::{self, Roster, Service, ServiceError};
use crate::span::IntoSpan;
use crate::turn::Machine;
use crate::worker::Worker;

/// Events by which a slow subscriber may fall behind before it misses some.
const MOST_EVENTS_BEHIND: usize = 4_096;

/// The description of an engine, made by [`Paceline::open`] or [`Paceline::in_memory`].
///
/// Mistakes in it, such as a span that is none, are errors of [`Builder::start`].
pub struct Builder {
    path: Option<PathBuf>,
    lanes: Vec<Lane>,
    groups: Vec<Group>,
    workers: Workers,
    problem: Option<StartError>,
    services: Vec<Service>,
    rosters: Vec<Roster>,
    settings: Settings,
    keep_finished: Span,
    cache_bytes: usize,
    keep_events: u64,
    forget: Vec<Arc<str>>,
    at_rest: bool,
    accept_older: bool,
    beside: Beside,
}

/// Parts of the description that are no rules: the heartbeat and the events.
pub(crate) struct Beside {
    pub(crate) heartbeat: Option<Heartbeat>,
    pub(crate) events: broadcast::Sender<Event>,
}

impl Default for Beside {
    fn default() -> Beside {
        Beside { heartbeat: None, events: broadcast::Sender::new(MOST_EVENTS_BEHIND) }
    }
}

impl Builder {
    pub(crate) fn new(path: Option<PathBuf>) -> Builder {
        Builder {
            path,
            lanes: Vec::new(),
            groups: Vec::new(),
            workers: Workers::new(),
            problem: None,
            services: Vec::new(),
            rosters: Vec::new(),
            settings: Settings { hash_seed: random(), ..Settings::default() },
            keep_finished: Span::days(7),
            cache_bytes: 64 << 20,
            keep_events: 0,
            forget: Vec::new(),
            at_rest: false,
            accept_older: false,
            beside: Beside::default(),
        }
    }

    /// Adds a lane, or a template whose name ends in `*`.
    #[must_use]
    pub fn lane(mut self, lane: Lane) -> Builder {
        self.lanes.push(lane);
        self
    }

    /// Adds a group: limits that several lanes share.
    #[must_use]
    pub fn group(mut self, group: Group) -> Builder {
        self.groups.push(group);
        self
    }

    /// Registers the worker that runs calls of this kind.
    ///
    /// The kind is stored with every job. A job whose kind has no worker when the engine starts stays
    /// in the store and waits for a program that has one.
    #[must_use]
    pub fn worker(mut self, kind: &str, worker: impl Worker) -> Builder {
        if self.workers.insert(kind.into(), Arc::new(worker)).is_some() {
            return self.fail(StartError::Twice { what: "worker", name: kind.to_string() });
        }
        self
    }

    /// Adds a service: work that comes again. The worker of the kind [`SERVICE_KIND`] runs it.
    #[must_use]
    pub fn service(mut self, service: Service) -> Builder {
        self.services.push(service);
        self
    }

    /// Adds a roster: a list of services that are run in turn.
    #[must_use]
    pub fn roster(mut self, roster: Roster) -> Builder {
        self.rosters.push(roster);
        self
    }

    /// Sets the size of the pool: `base` slots that are always there, and `max` slots when the queue
    /// grows; 10 and 20 by default. The first running call of each lane takes no slot.
    #[must_use]
    pub fn workers(mut self, base: u32, max: u32) -> Builder {
        match (NonZeroU32::new(base), NonZeroU32::new(max)) {
            (Some(base), Some(max)) => {
                (self.settings.pool.base, self.settings.pool.max) = (base, max);
                self
            }
            (None, _) => self.fail(StartError::Zero("workers.base")),
            (_, None) => self.fail(StartError::Zero("workers.max")),
        }
    }

    /// Changes any other setting.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Builder {
        change(&mut self.settings);
        self
    }

    /// How long finished jobs and their reports are kept; 7 days by default.
    #[must_use]
    pub fn keep_finished(mut self, keep: impl IntoSpan) -> Builder {
        match keep.into_span() {
            Ok(keep) => {
                self.keep_finished = keep;
                self
            }
            Err(error) => self.fail(StartError::Span { setting: "keep_finished", error }),
        }
    }

    /// Bytes of cached answers held in memory at most.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Builder {
        self.cache_bytes = bytes;
        self
    }

    /// Keeps at least this many of the last events, numbered, for subscribers that come back; none
    /// by default. Every turn with an event is then synced to disk.
    #[must_use]
    pub fn keep_events(mut self, events: u64) -> Builder {
        self.keep_events = events;
        self
    }

    /// Removes these notes in the first commit, before any call starts.
    #[must_use]
    pub fn forget_notes(mut self, notes: Vec<Arc<str>>) -> Builder {
        self.forget = notes;
        self
    }

    /// Starts no call: for programs that look, submit or cancel, and leave the calls to another
    /// process.
    #[must_use]
    pub fn at_rest(mut self) -> Builder {
        self.at_rest = true;
        self
    }

    /// Opens a store whose log is missing in the older state that its file holds. Without this call
    /// such a store is refused: it was copied while in use, and the changes in its log are lost.
    #[must_use]
    pub fn accept_older(mut self) -> Builder {
        self.accept_older = true;
        self
    }

    /// Calls `beat` from within the loop, at least once per span, so that a watchdog of the process
    /// sees that the engine is alive. It must not block.
    #[must_use]
    pub fn heartbeat(
        mut self,
        every: impl IntoSpan,
        beat: impl FnMut() + Send + 'static,
    ) -> Builder {
        match every.into_span() {
            Ok(every) => {
                let every = every.max(Span::millis(1));
                let beat = Box::new(beat);
                self.beside.heartbeat = Some(Heartbeat { every, beat, at: Time::ZERO });
                self
            }
            Err(error) => self.fail(StartError::Span { setting: "heartbeat", error }),
        }
    }

    /// Keeps the first mistake until the start.
    fn fail(mut self, problem: StartError) -> Builder {
        self.problem = self.problem.or(Some(problem));
        self
    }

    /// Subscribes to events from the first turn on; see [`Paceline::events`].
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.beside.events.subscribe()
    }

    /// Opens the store, takes up the work in it, and runs. Workers run on the tokio runtime in which
    /// this is called.
    pub fn start(mut self) -> Result<Paceline, StartError> {
        let setup = self.setup()?;
        let begin = if self.at_rest { Begin::AtRest } else { Begin::Working };
        let keep =
            Keep { finished: self.keep_finished, events: self.keep_events, not: self.forget };
        let also = (begin, self.beside);
        let workers = Arc::new(self.workers);
        match self.path {
            Some(path) => {
                let open = if self.accept_older { Sqlite::open_older } else { Sqlite::open };
                let store = open(&path)?.with_cache(self.cache_bytes);
                start(setup, store, workers, keep, also)
            }
            None => start(setup, Memory::default(), workers, keep, also),
        }
    }

    fn setup(&mut self) -> Result<Setup, StartError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        self.settings.check()?;
        let mut groups: Vec<(String, paceline_core::GroupLimits)> = Vec::new();
        for group in self.groups.drain(..) {
            let (name, limits) = group.build()?;
            if groups.iter().any(|(other, _)| *other == name) {
                return Err(StartError::Twice { what: "group", name });
            }
            groups.push((name, limits));
        }
        let mut lanes: Vec<(Arc<str>, Limits)> = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        for lane in self.lanes.drain(..) {
            let (name, limits) = lane.build()?;
            if !names.insert(name.clone()) {
                return Err(StartError::Twice { what: "lane", name });
            }
            if let Some(group) = &limits.group
                && !groups.iter().any(|(known, _)| known == group)
            {
                return Err(StartError::UnknownGroup { lane: name, group: group.clone() });
            }
            lanes.push((name.into(), limits));
        }
        let mut kinds = Vec::with_capacity(self.workers.len());
        for (name, worker) in &self.workers {
            paceline_core::check_name("kind", name)?;
            let keeps_worker = worker.keeps_worker();
            let terms = KindTerms::new(name.clone(), worker.on_crash());
            kinds.push(KindTerms { keeps_worker, ..terms });
        }
        // The map's order is random; sorted, one description makes one setup.
        kinds.sort_by(|a, b| a.name.cmp(&b.name));
        let services = std::mem::take(&mut self.services);
        let (services, rosters) = service::build(services, std::mem::take(&mut self.rosters))?;
        if self.workers.contains_key(SERVICE_KIND) {
            lanes.push((service::OWN_LANES.into(), service::own_limits()));
        } else if !services.is_empty() {
            return Err(StartError::NoServiceWorker);
        }
        Ok(Setup { settings: self.settings.clone(), lanes, groups, kinds, services, rosters })
    }
}

/// Whether an engine starts calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    Working,
    AtRest,
}

/// How much is kept of work that is over.
#[derive(Clone, Debug, Default)]
struct Keep {
    finished: Span,
    events: u64,
    /// Notes to remove.
    not: Vec<Arc<str>>,
}

fn start(
    setup: Setup,
    store: impl Store + 'static,
    workers: Arc<Workers>,
    keep: Keep,
    (begin, beside): (Begin, Beside),
) -> Result<Paceline, StartError> {
    let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
    let groups = setup.groups.iter().map(|(name, _)| name.clone()).collect();
    let mut clock = None;
    let (machine, _) = Machine::open(setup, store, keep.finished, |last| {
        clock.insert(Arc::new(Clock::start(last))).reading()
    })?;
    let mut machine = machine.keeping_events(keep.events).forgetting(keep.not);
    if begin == Begin::AtRest {
        machine.halt();
    }
    let clock = clock.expect("opening reads the clock");
    Paceline::launch(machine, clock, runtime, workers, (groups, beside)).map_err(StartError::Thread)
}

/// An engine that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The description of a lane or group is invalid.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// A lane is in a group that is not described.
    #[error(
        "lane `{lane}` is in the group `{group}`, which does not exist: add it, or leave it out"
    )]
    UnknownGroup {
        /// The lane.
        lane: String,
        /// Its group.
        group: String,
    },
    /// A lane, group or kind is described twice.
    #[error("{what} `{name}` is described twice")]
    Twice {
        /// `lane`, `group` or `worker`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A setting that is zero.
    #[error("`{0}` is zero: set it to at least 1")]
    Zero(&'static str),
    /// A setting that is not a span of time.
    #[error("`{setting}`: {error}")]
    Span {
        /// The setting.
        setting: &'static str,
        /// The reason.
        error: SpanError,
    },
    /// The name of a kind is invalid.
    #[error(transparent)]
    Kind(#[from] paceline_core::NameError),
    /// The description of a service or roster is invalid.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// There are services and no worker that runs them.
    #[error("no worker for the kind `{SERVICE_KIND}`: register one, it runs the services")]
    NoServiceWorker,
    /// Two settings contradict each other.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no tokio runtime to run workers on.
    #[error("no tokio runtime here: call `start` from within one")]
    NoRuntime,
    /// The system gave no thread for the loop.
    #[error("the system gave no thread for the engine")]
    Thread(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Ended;
    use paceline_core::{Blob, CachedAnswer, JobId, Lookup, Numbered, Record, Stamp, Write};
    use paceline_store::{Cursor, JobFilter, StoredJob};

    /// A store with a bug, to stand for any bug on the driver's thread.
    struct Broken;

    impl Store for Broken {
        fn load(&mut self, _: &mut dyn FnMut(Record)) -> Result<Option<Stamp>, StoreError> {
            Ok(None)
        }
        fn commit(&mut self, _: &Stamp, writes: &[Write]) -> Result<(), StoreError> {
            assert!(writes.is_empty(), "a bug");
            Ok(())
        }
        fn payload(&mut self, _: JobId) -> Result<Option<Blob>, StoreError> {
            Ok(None)
        }
        fn answers(
            &mut self,
            lookups: &[Lookup],
            _: Time,
        ) -> Result<Vec<Option<CachedAnswer>>, StoreError> {
            Ok(vec![None; lookups.len()])
        }
        fn list(
            &mut self,
            _: Cursor,
            _: usize,
            _: JobFilter,
        ) -> Result<Vec<StoredJob>, StoreError> {
            Ok(Vec::new())
        }
        fn job(&mut self, _: JobId) -> Result<Option<StoredJob>, StoreError> {
            Ok(None)
        }
        fn note(&mut self, _: &str) -> Result<Option<Blob>, StoreError> {
            Ok(None)
        }
        fn notes(&mut self, _: &str) -> Result<Vec<Arc<str>>, StoreError> {
            Ok(Vec::new())
        }
        fn finished(&mut self, keys: &[Blob]) -> Result<Vec<Option<StoredJob>>, StoreError> {
            Ok(vec![None; keys.len()])
        }
        fn events(&mut self, _: u64, _: usize) -> Result<Vec<Numbered>, StoreError> {
            Ok(Vec::new())
        }
        fn forget_events(&mut self, _: u64) -> Result<(), StoreError> {
            Ok(())
        }
        fn prune(&mut self, _: Time, _: Time) -> Result<usize, StoreError> {
            Ok(0)
        }
    }

    /// An engine whose first commit fails.
    fn broken(beside: Beside) -> Paceline {
        let lanes = vec![("a".into(), Limits::default())];
        let setup = Setup { lanes, ..Setup::default() };
        let also = (Begin::Working, beside);
        start(setup, Broken, Arc::default(), Keep::default(), also).expect("it starts")
    }

    #[tokio::test]
    async fn b4_a_look_shows_nothing_that_was_not_written() {
        let (entered, mut at_beat) = tokio::sync::mpsc::unbounded_channel();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let beat = move || {
            let _ = entered.send(());
            let _ = wait.recv();
        };
        let every = Span::hours(1);
        let heartbeat = Some(Heartbeat { every, beat: Box::new(beat), at: Time::ZERO });
        let pace = broken(Beside { heartbeat, ..Beside::default() });
        // The loop stands still until both messages wait for the same turn.
        at_beat.recv().await.expect("it beats");
        let release = async { drop(release) };
        let (paused, seen, ()) = tokio::join!(pace.pause("a"), pace.lanes(), release);
        paused.expect_err("it was not written");
        seen.expect_err("it shows a lane as paused that is not");
    }

    #[tokio::test]
    async fn a_bug_in_the_engine_is_told_as_a_bug_to_every_caller_that_waits() {
        let pace = broken(Beside::default());
        let told = pace.pause("a").await.expect_err("it has ended");
        assert_eq!(told.to_string(), "the engine has ended because of a bug in it: a bug");
        assert!(matches!(pace.ended().await, Ended::Panicked(_)));
        assert!(pace.stop(std::time::Duration::ZERO).await.is_err());
    }
}
