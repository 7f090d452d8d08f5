//! A run: reads the list as fast as there is room, submits jobs in groups, and reports their
//! results.

mod earlier;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use paceline::{
    Ended, Following, JobId, NotSubmitted, Paceline, Report, StartError, StopError, StoreError,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::checksum::Checksum;
use super::directory::{Directory, OWN_FOLDER};
use super::input::Mistake;
use super::item::Item;
use super::options::Options;
use super::plan::{Earlier, KIND, Key, Plan, Planner, Terms, job};
use super::progress::{Event, Failed, Progress, Watch};
use super::record::Archive;
use super::save::Saver;
use super::segments::{self, SegmentWorker};
use super::settled::{Settled, failed, settled};
use super::setup::{STORE, engine, get, left_over, make_own, mark};
use super::summary::{End, Summary};
use super::task::{How, Saved, Task, shown};
use super::warc::WarcError;
use super::worker::{FetchWorker, Get};

/// Unfinished jobs at most, which bounds the part of the list in memory.
pub(super) const MOST_OPEN: usize = 20_000;
/// Jobs per commit at most: nothing else starts during it.
const BATCH: usize = 128;
/// Entries with a checksum of their own that may wait for one unfinished file.
const MOST_DOUBLES: usize = 64;
/// The time that an interrupted run gives its downloads.
const GRACE: Duration = Duration::from_secs(3);

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The directory cannot be opened.
    #[error("cannot use the directory `{}`", .0.display())]
    Directory(PathBuf, #[source] std::io::Error),
    /// Another process uses the directory.
    #[error(
        "another program fetches into `{}`{}: wait until it ends, or choose another directory \
        with `-d`",
        .0.display(), .1.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse(PathBuf, Option<u32>),
    /// The store or the engine cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The engine ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The engine did not stop in order.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The archive cannot be written.
    #[error("the archive cannot be written")]
    Archive(#[source] WarcError),
}

/// The items of the list, as they are read.
pub type Items = mpsc::Receiver<Result<Item, Mistake>>;

/// A run.
pub struct Run {
    pace: Paceline,
    directory: Arc<Directory>,
    progress: Arc<Progress>,
    watch: Arc<dyn Watch>,
    planner: Planner,
    terms: Terms,
    deadline: Option<Instant>,
    started_at: Instant,
    summary: Summary,
    open: BTreeMap<JobId, (Key, Task)>,
    keys: BTreeSet<Key>,
    /// Files that an earlier run completed, with their URLs.
    standing: BTreeMap<String, (Vec<String>, Saved)>,
    /// Files that an earlier run may have replaced before it died.
    replaced: BTreeSet<String>,
    /// Entries with a checksum whose file is being fetched for another entry.
    doubles: BTreeMap<Key, Vec<Item>>,
    /// Such entries whose file is finished, to be planned again.
    again: Vec<Result<Item, Mistake>>,
    following: FuturesUnordered<Pin<Box<dyn Future<Output = JobReport> + Send>>>,
    get: Arc<Get>,
    thread: std::thread::JoinHandle<Option<Archive>>,
}

type JobReport = (JobId, Result<Arc<Report>, Ended>);

impl Run {
    /// Opens the directory and its store, and cancels unfinished jobs of an earlier run.
    pub async fn start(options: Options, watch: Arc<dyn Watch>) -> Result<Run, FetchError> {
        let path = options.directory.clone();
        let refused = |error| FetchError::Directory(path.clone(), error);
        let directory = Arc::new(Directory::open(&path).map_err(refused)?);
        let own = path.join(OWN_FOLDER);
        make_own(&own).map_err(refused)?;
        let archive = match &options.warc {
            Some(name) => Some(Archive::open(&path, name).map_err(FetchError::Archive)?),
            None => None,
        };
        let planner = Planner::new(&options);
        let terms =
            Terms { attempts: options.retries.saturating_add(1), max_wait: options.max_wait };
        let deadline = options.deadline.map(|span| Instant::now() + span);
        let progress = Arc::new(Progress::default());
        let left_over = left_over(&own, &directory).map_err(refused)?;
        let mark = mark(&own).map_err(refused)?;
        let (saver, thread) = Saver::start(mark, archive, progress.clone()).map_err(refused)?;
        let saver = Arc::new(saver);
        let store = Paceline::open(own.join(STORE));
        let store = if options.accept_older { store.accept_older() } else { store };
        let builder = engine(&options, store);
        let get =
            get(options, directory.clone(), saver, progress.clone(), watch.clone(), left_over);
        let builder = builder.worker(KIND, FetchWorker(get.clone()));
        let pace = builder.worker(segments::KIND, SegmentWorker(get.clone())).start();
        let pace = pace.map_err(|error| match error {
            StartError::Store(StoreError::InUse { pid, .. }) => {
                FetchError::InUse(path.clone(), pid)
            }
            error => error.into(),
        })?;
        *get.pace.lock().unwrap_or_else(PoisonError::into_inner) = Some(pace.clone());
        let mut run = Run {
            pace,
            directory,
            progress,
            watch,
            planner,
            terms,
            deadline,
            started_at: Instant::now(),
            summary: Summary::default(),
            open: BTreeMap::new(),
            keys: BTreeSet::new(),
            standing: BTreeMap::new(),
            replaced: BTreeSet::new(),
            doubles: BTreeMap::new(),
            again: Vec::new(),
            following: FuturesUnordered::new(),
            get,
            thread,
        };
        run.clear().await?;
        Ok(run)
    }

    /// The counters of the run.
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// The engine.
    pub fn paceline(&self) -> Paceline {
        self.pace.clone()
    }

    fn follow(&mut self, following: Following, key: Key, task: Task) {
        let id = following.id();
        self.open.insert(id, (key, task));
        self.keys.insert(key);
        self.following.push(Box::pin(async move { (id, following.report().await) }));
    }

    /// Fetches all items. Ends early when `stop` resolves.
    pub async fn finish(
        mut self,
        mut items: Items,
        stop: impl Future<Output = ()>,
    ) -> Result<Summary, FetchError> {
        tokio::pin!(stop);
        let mut batch = Vec::with_capacity(BATCH);
        let (mut more, deadline) = (true, self.deadline);
        let end = loop {
            if !more && self.open.is_empty() && self.again.is_empty() {
                break End::Complete;
            }
            let room = MOST_OPEN.saturating_sub(self.open.len()).min(BATCH);
            let wants = room > 0 && (more || !self.again.is_empty());
            tokio::select! {
                biased;
                () = &mut stop => break End::Interrupted,
                () = until(deadline) => break End::Deadline,
                Some((id, report)) = self.following.next() => self.told(id, &*report?),
                read = next(&mut items, &mut self.again, &mut batch, room), if wants => {
                    more = more && read > 0;
                    if !more {
                        self.progress.end_list();
                    }
                    // This may read whole files, which takes time.
                    tokio::select! {
                        biased;
                        () = &mut stop => {
                            more = true;
                            break End::Interrupted;
                        }
                        () = until(deadline) => {
                            more = true;
                            break End::Deadline;
                        }
                        admitted = self.admit(std::mem::take(&mut batch)) => admitted?,
                    }
                }
            }
        };
        drop(items);
        self.summary.unread = more;
        self.end(end).await
    }

    /// Plans a batch of items, and submits their jobs in one commit.
    async fn admit(&mut self, batch: Vec<Result<Item, Mistake>>) -> Result<(), FetchError> {
        let mut items = Vec::with_capacity(batch.len());
        for read in batch {
            match read {
                Ok(item) => items.push((self.planner.key(&item), item)),
                Err(mistake) => {
                    self.summary.mistakes += 1;
                    self.watch.event(&Event::Mistake(mistake));
                }
            }
        }
        // A repeated entry. One with a checksum is planned again when the file is finished.
        let mut crowd = Vec::new();
        items.retain(|(key, item)| {
            let first = self.keys.insert(*key);
            if !first && item.checksum.is_some() {
                let doubles = self.doubles.entry(*key).or_default();
                let known = doubles.iter().any(|double| double.checksum == item.checksum);
                match doubles.len() {
                    _ if known => {}
                    0..MOST_DOUBLES => doubles.push(item.clone()),
                    _ => crowd.push(item.clone()),
                }
            }
            first
        });
        for item in crowd {
            let message =
                format!("more than {MOST_DOUBLES} entries with different checksums for one file");
            self.leave(&item, Plan::Fail(message));
        }
        self.progress.add_listed(items.len() as u64);
        let keys: Vec<Key> = items.iter().map(|(key, _)| *key).collect();
        let finished = self.pace.finished(&keys).await?;
        let mut ready = Vec::with_capacity(items.len());
        for ((key, item), finished) in items.into_iter().zip(finished) {
            let known = self.known(&item, finished.as_ref()).await?;
            let mut plan = self.planner.plan(&item, known, &self.directory);
            if let Plan::Wanted(target) = &plan {
                plan = match self.known_by_target(&item, target).await? {
                    Earlier::Nothing => self.planner.plan_distinct(&item, &self.directory),
                    known => self.planner.plan(&item, known, &self.directory),
                };
            }
            if let Plan::Exists(target) = &plan {
                let known = self.known_by_target(&item, target).await?;
                if !matches!(known, Earlier::Nothing) {
                    plan = self.planner.plan(&item, known, &self.directory);
                }
            }
            match plan {
                Plan::Fetch(task) => ready.push((key, *task)),
                other => {
                    self.release(&key, item.checksum.as_ref());
                    self.leave(&item, other);
                }
            }
        }
        self.submit(ready).await
    }

    /// Submits tasks in one commit. A task that the engine refuses fails by itself.
    async fn submit(&mut self, ready: Vec<(Key, Task)>) -> Result<(), FetchError> {
        let jobs: Vec<_> = ready.iter().map(|(key, task)| job(task, key, &self.terms)).collect();
        let admitted = self.pace.submit_all(jobs).await;
        for ((key, task), admitted) in ready.into_iter().zip(admitted) {
            match admitted {
                Ok(following) => self.follow(following, key, task),
                Err(NotSubmitted::Ended(ended)) => return Err(ended.into()),
                Err(refused) => {
                    self.release(&key, task.checksum.as_ref());
                    self.summary.failed += 1;
                    let event = Event::Failed(failed(task, "refused", &refused.to_string()));
                    self.watch.event(&event);
                }
            }
        }
        Ok(())
    }

    /// Reports an item that makes no job.
    fn leave(&mut self, item: &Item, plan: Plan) {
        let (class, target, message) = match plan {
            Plan::Fetch(_) | Plan::Wanted(_) => unreachable!("those make jobs"),
            Plan::There(saved) => {
                self.summary.skipped += 1;
                self.watch.event(&Event::Skipped { url: shown(&item.urls[0]), saved });
                return;
            }
            Plan::Fail(message) => ("name", String::new(), message),
            Plan::Exists(target) => {
                let message = format!(
                    "`{target}` exists with other contents: move it away, or replace it with \
                    `--overwrite`"
                );
                ("exists", target, message)
            }
        };
        self.summary.failed += 1;
        let urls = item.urls.iter().map(ToString::to_string).collect();
        let (class, checksum) = (class.to_string(), item.checksum.clone());
        self.watch.event(&Event::Failed(Failed { urls, target, checksum, class, message }));
    }

    /// A job is finished: entries for the same file with other checksums can be planned again.
    fn release(&mut self, key: &Key, held_to: Option<&Checksum>) {
        self.keys.remove(key);
        let doubles = self.doubles.remove(key).into_iter().flatten();
        let others = doubles.filter(|item| item.checksum.as_ref() != held_to);
        self.again.extend(others.map(Ok));
    }

    /// Handles the report of a job.
    fn told(&mut self, id: JobId, report: &Report) {
        let Some((key, task)) = self.open.remove(&id) else { return };
        self.release(&key, task.checksum.as_ref());
        let url = task.urls.first().and_then(|url| url::Url::parse(url).ok());
        let url = url.map(|url| shown(&url)).unwrap_or_default();
        let event = match settled(report) {
            Settled::Saved(saved) => {
                match saved.how {
                    How::Unchanged => self.summary.unchanged += 1,
                    How::Fetched | How::Resumed | How::There => self.summary.fetched += 1,
                }
                let attempts = report.calls.iter().map(|call| call.attempts).sum();
                Event::Done { url, saved, attempts }
            }
            Settled::Failed(failure) => {
                self.summary.failed += 1;
                let message = failure.message.as_deref().unwrap_or_default();
                Event::Failed(failed(task, &failure.class, message))
            }
            Settled::Deferred(class, message) => {
                self.summary.deferred += 1;
                Event::Deferred(failed(task, class, &message))
            }
        };
        self.watch.event(&event);
    }

    /// Lets running downloads finish within the grace, and leaves the rest for the next run.
    async fn end(mut self, end: End) -> Result<Summary, FetchError> {
        let grace = if end == End::Complete { Duration::ZERO } else { GRACE };
        let pace = self.pace.clone();
        let drain = async {
            while let Some((id, report)) = self.following.next().await {
                if let Ok(report) = report {
                    self.told(id, &report);
                }
            }
        };
        let (stopped, ()) = tokio::join!(pace.stop(grace), drain);
        stopped?;
        // The engine and its workers hold each other: break the cycle.
        self.get.pace.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.get.saver.end();
        let archive = tokio::task::spawn_blocking(|| self.thread.join());
        let archive =
            archive.await.expect("joining does not panic").expect("saving does not panic");
        if let Some(archive) = archive {
            archive.finish().map_err(FetchError::Archive)?;
        }
        for (_, (_, task)) in std::mem::take(&mut self.open) {
            let message = match end {
                End::Deadline => {
                    self.summary.deferred += 1;
                    "the deadline passed"
                }
                End::Complete | End::Interrupted => {
                    self.summary.parked += 1;
                    "the run was interrupted"
                }
            };
            self.watch.event(&Event::Deferred(failed(task, "unfinished", message)));
        }
        let (bytes, requests) = (self.progress.bytes(), self.progress.requests());
        Ok(Summary { bytes, requests, took: self.started_at.elapsed(), end, ..self.summary })
    }
}

/// The next batch: items to plan again, else items of the list as they come.
async fn next(
    items: &mut Items,
    again: &mut Vec<Result<Item, Mistake>>,
    batch: &mut Vec<Result<Item, Mistake>>,
    most: usize,
) -> usize {
    if again.is_empty() {
        return items.recv_many(batch, most).await;
    }
    let left = again.split_off(again.len().min(most));
    batch.append(again);
    *again = left;
    batch.len()
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
