//! The worker of downloads: one attempt, which sends one request.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hyper::{Request, StatusCode};
use paceline::workers::Announced;
use paceline::{Call, Failed, Failure, JobId, Paceline, Work, Worker};
use tokio::sync::Notify;
use url::Url;

use super::attempt_end::{AttemptEnd, permanent, transient};
use super::body::{Receiving, Whole};
use super::checksum::Checksum;
use super::directory::{Directory, split};
use super::part::Part;
use super::progress::{Event, Progress, Watch};
use super::rate::ByteRate;
use super::record::Sent;
use super::request::{Coding, Manners, Span, head};
use super::response::is_empty;
use super::robots::Rules;
use super::save::Saver;
use super::segments::{self, Splitting};
use super::task::{How, Named, Saved, Task, Version, shown};
use crate::http::announced::{announced, retry_after};
use crate::http::{Client, Exchange, Refusal, Upload, announcing, is_redirect, led_to, refusal};

/// The state that all attempts share.
pub(super) struct Get {
    pub(super) client: Client,
    pub(super) manners: Manners,
    pub(super) directory: Arc<Directory>,
    pub(super) saver: Arc<Saver>,
    pub(super) progress: Arc<Progress>,
    pub(super) watch: Arc<dyn Watch>,
    pub(super) rate: ByteRate,
    pub(super) coding: Coding,
    /// The largest file, in bytes.
    pub(super) largest: u64,
    /// Attempts per call.
    pub(super) attempts: u16,
    /// The longest wait for a closed host.
    pub(super) max_wait: paceline::Span,
    /// Connections per large file.
    pub(super) segments: u32,
    /// Files whose pieces are being fetched.
    pub(super) splitting: Splitting,
    /// The engine, while it runs: pieces of large files are jobs of their own.
    pub(super) pace: Mutex<Option<Paceline>>,
    /// The rules of servers, if robots.txt is in use.
    pub(super) rules: Option<Arc<Rules>>,
    /// The name of the archive that responses are written to, if there is one.
    pub(super) archive: Option<String>,
    /// The traces of an earlier run.
    pub(super) left_over: LeftOver,
}

/// The traces of an earlier run.
#[derive(Debug, Default)]
pub(super) struct LeftOver {
    /// Its last job, once it is known.
    pub(super) last_job: OnceLock<JobId>,
    /// Notified when its jobs are cancelled.
    pub(super) ended: Notify,
    /// Whether there may be partial files.
    pub(super) half_files: AtomicBool,
    /// The time of its last write to its store or naming of files, in seconds. None of its files is
    /// younger.
    pub(super) until: i64,
}

/// The worker of downloads.
pub(super) struct FetchWorker(pub(super) Arc<Get>);

impl Worker for FetchWorker {
    async fn run(&self, call: Call) -> Work {
        let task: Task = call.payload()?;
        let Some(url) = task.url(call.id().index) else {
            return Err(Failed::of(Failure::permanent("payload").because("no address")));
        };
        let mut attempt = Attempt::new(&self.0, &call, &task, &url);
        let worked = match call.lane() {
            segments::LANE => attempt.assemble().await,
            _ => attempt.run().await,
        };
        let end = match worked {
            Ok(saved) => AttemptEnd::Saved(Box::new(saved)),
            Err(end) => end,
        };
        let announced = attempt.announced;
        self.0.tell(&call, &url, &end);
        announcing(end.into_work(), announced)
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

impl Get {
    /// The engine, if it still runs.
    pub(super) fn pace(&self) -> Option<Paceline> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The file that a task of an earlier run completed: the program was killed between naming and
    /// reporting it. A file that is younger than that run came from elsewhere.
    pub(super) fn standing(&self, task: &Task) -> Option<Saved> {
        if task.named != Named::New {
            return None;
        }
        let (folder, _) = split(&task.target);
        let half = format!("{folder}/{}", Part::name(&task.part));
        let is_half = self.directory.length(half.trim_start_matches('/')).ok()?.is_some();
        let metadata = self.left_over_file(&task.target).filter(|_| !is_half)?;
        // The process that named it may have died before it removed the note.
        Part::forget(&self.directory.folder(folder).ok()?, &task.part);
        Some(Saved::standing(&task.url(0)?, &task.target, metadata.len(), None))
    }

    /// Returns `true` if an earlier run may have named this file just before it died.
    pub(super) fn is_left_over(&self, path: &str) -> bool {
        self.left_over_file(path).is_some()
    }

    fn left_over_file(&self, path: &str) -> Option<Metadata> {
        let metadata = self.directory.plain_file(path).ok()??.metadata().ok()?;
        (metadata.ctime() <= self.left_over.until).then_some(metadata)
    }

    /// Refuses a file that is too large.
    pub(super) fn check_size(&self, length: Option<u64>) -> Result<(), AttemptEnd> {
        if length.is_none_or(|length| length <= self.largest) {
            return Ok(());
        }
        Err(self.too_large())
    }

    pub(super) fn too_large(&self) -> AttemptEnd {
        let most = self.largest;
        let message = format!("larger than {most} bytes: allow more with `--max-size`");
        permanent("too_large", &message)
    }

    /// Reports attempts that may be retried to the watcher.
    pub(super) fn tell(&self, call: &Call, url: &Url, end: &AttemptEnd) {
        let throttled = |retry_after: Option<Duration>| Event::Throttled {
            lane: call.lane().to_string(),
            retry_after,
        };
        let again = |failure: &Failure| {
            (failure.retryable && call.number() < self.attempts).then(|| Event::Retry {
                url: shown(url),
                class: failure.class.to_string(),
                message: failure.message.as_deref().unwrap_or_default().to_string(),
                attempt: call.number(),
            })
        };
        let event = match end {
            AttemptEnd::Refused(Refusal::Throttled(span)) => Some(throttled(*span)),
            AttemptEnd::Refused(Refusal::Failed(failure, _)) | AttemptEnd::Failed(failure) => {
                again(failure)
            }
            AttemptEnd::Saved(_)
            | AttemptEnd::Moved(..)
            | AttemptEnd::Split(_)
            | AttemptEnd::Late => None,
        };
        if let Some(event) = event {
            self.watch.event(&event);
        }
    }
}

/// One attempt.
pub(super) struct Attempt<'a> {
    pub(super) get: &'a Get,
    pub(super) call: &'a Call,
    pub(super) task: &'a Task,
    pub(super) url: &'a Url,
    /// The request, for the archive.
    pub(super) sent: Option<Sent>,
    pub(super) announced: Option<Announced>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(get: &'a Get, call: &'a Call, task: &'a Task, url: &'a Url) -> Attempt<'a> {
        Attempt { get, call, task, url, sent: None, announced: None }
    }

    async fn run(&mut self) -> Result<Saved, AttemptEnd> {
        self.belongs_to_this_run().await?;
        self.obey().await?;
        let (folder, _) = split(&self.task.target);
        let folder = self.get.directory.folder(folder)?;
        let algorithm = self.task.checksum.as_ref().map(Checksum::algorithm);
        let resumes = self.get.coding == Coding::Identity
            && self.get.archive.is_none()
            && self.task.have.is_none();
        let half_files = self.get.left_over.half_files.load(Ordering::Relaxed);
        let half = if !half_files && split(&self.task.target).0.is_empty() {
            None
        } else if resumes {
            Part::resume(&folder, &self.task.part, algorithm)?
        } else {
            Part::forget(&folder, &self.task.part);
            None
        };
        let half = half.filter(|part| self.can_resume(part));
        if let Some(whole) = half.as_ref().and_then(Whole::of) {
            let part = half.expect("just seen");
            if part.is_split() {
                return Err(AttemptEnd::Split(Box::new(self.task.again(self.url))));
            }
            return Receiving { attempt: self, folder, algorithm }.finish(part, whole).await;
        }
        let span = match &half {
            Some(Part { length, note: Some(note), .. }) => {
                Span::Of { from: *length, to: None, etag: Some(note.etag.clone()) }
            }
            _ if resumes && !self.task.unsplit && self.get.splitting.has_room() => {
                Span::Of { from: 0, to: Some(segments::FIRST - 1), etag: None }
            }
            _ => Span::Whole,
        };
        let (get, of) = (self.get, (self.task, self.call.id().index));
        let now = self.call.wall();
        let request = get.manners.request(&get.client, of, self.url, &span, get.coding, now);
        if get.archive.is_some() {
            self.sent = request.as_ref().map(|request| Sent { head: head(request), at: now });
        }
        let exchange = self.send(self.url, request).await?;
        self.note_limits(&exchange);
        let receiving = Receiving { attempt: self, folder, algorithm };
        match exchange.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => receiving.receive(exchange, half).await,
            StatusCode::RANGE_NOT_SATISFIABLE
                if half.is_none() && span != Span::Whole && is_empty(&exchange.headers) =>
            {
                receiving.nothing(exchange).await
            }
            _ => Err(self.without_file(exchange, half).await),
        }
    }

    /// Fails for jobs of an earlier run, since this run follows its own list. The exception is a
    /// file that was completed and not reported.
    pub(super) async fn belongs_to_this_run(&self) -> Result<(), AttemptEnd> {
        let left_over = &self.get.left_over;
        let earlier = left_over.last_job.get();
        if earlier.is_some_and(|last| self.call.id().job > *last) {
            return Ok(());
        }
        if let Some(saved) = self.get.standing(self.task) {
            return Err(AttemptEnd::Saved(Box::new(saved)));
        }
        let ended = left_over.ended.notified();
        if left_over.last_job.get().is_none() {
            // The job is about to be cancelled, and this attempt with it.
            ended.await;
        }
        Err(permanent("left", "the job was left by an earlier run"))
    }

    /// Sends one request.
    pub(super) async fn send(
        &self,
        url: &Url,
        request: Option<Request<Upload>>,
    ) -> Result<Exchange, AttemptEnd> {
        let request = request
            .ok_or_else(|| permanent("address", "the URL cannot be sent in an HTTP request"))?;
        let attempt = self.get.client.begin(self.call, url).await?;
        self.get.progress.sent();
        Ok(attempt.send(request).await?)
    }

    /// Handles a response without a file: a redirect, an unchanged file, or a refusal.
    async fn without_file(&self, exchange: Exchange, half: Option<Part>) -> AttemptEnd {
        let (status, url) = (exchange.status, self.url);
        let wait = retry_after(&exchange.headers, self.call.wall());
        let led_to = led_to(url, &exchange.headers);
        if self.get.archive.is_some() {
            if let Err(end) = self.archive(exchange).await {
                return end;
            }
        } else {
            self.get.client.discard(url, exchange).await;
        }
        match (status, &self.task.have) {
            (StatusCode::NOT_MODIFIED, Some(have)) => self.unchanged(have),
            (StatusCode::RANGE_NOT_SATISFIABLE, _) if half.is_some() => {
                half.into_iter().for_each(Part::discard);
                transient("changed", "the file has changed on the server: starting over")
            }
            _ if is_redirect(status) => match self.task.redirected(url, led_to) {
                Ok((task, to)) => AttemptEnd::Moved(Box::new(task), to),
                Err(error) => permanent(error.class(), &format!("{status}: {error}")),
            },
            _ => AttemptEnd::Refused(refusal(status, wait)),
        }
    }

    fn unchanged(&self, have: &Version) -> AttemptEnd {
        let length = self.get.directory.length(&self.task.target);
        match length {
            Ok(Some(bytes)) => {
                let (target, checksum) = (&self.task.target, self.task.checksum.as_ref());
                let Version { etag, last_modified } = have.clone();
                let standing = Saved::standing(self.url, target, bytes, checksum);
                AttemptEnd::Saved(Box::new(Saved {
                    etag,
                    last_modified,
                    how: How::Unchanged,
                    ..standing
                }))
            }
            Ok(None) => transient("gone", "the file has disappeared from disk"),
            Err(error) => error.into(),
        }
    }

    /// Returns `true` if a partial file can be resumed: it has the same URL, and its split is
    /// allowed.
    fn can_resume(&self, part: &Part) -> bool {
        let same = part.note.as_ref().is_some_and(|note| note.url == self.url.as_str());
        same && (!part.is_split() || self.get.segments > 1)
    }

    /// Notes the limits that the server announces, in addition to the gap of its rules (L8).
    pub(super) fn note_limits(&mut self, exchange: &Exchange) {
        if let Some(heard) = announced(&exchange.headers, self.call.wall()) {
            let every = self.announced.and_then(|announced| announced.every).max(heard.every);
            self.announced = Some(Announced { every, ..heard });
        }
    }
}
