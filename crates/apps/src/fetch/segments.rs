//! A large file over several connections. The first response gives its length; each further piece
//! is a job of its own, charged to the host like any other request (B5).

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::StatusCode;
use paceline::report::CallOutcome;
use paceline::{Call, Failed, Failure, Job, Outcome, Priority, Report, Work, Worker};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::attempt_end::{AttemptEnd, permanent, transient};
use super::body::{Receiving, Whole};
use super::checksum::Checksum;
use super::directory::{existing, split};
use super::part::{Note, Part, Split, boot_id};
use super::request::Span;
use super::response::{content_range, version};
use super::task::{Saved, Task, Version};
use super::worker::{Attempt, Get};
use crate::http::announced::retry_after;
use crate::http::{Exchange, HttpError, Origin, announcing, is_redirect, refusal};

/// The kind of jobs that fetch pieces.
pub(super) const KIND: &str = "segment";
/// The lane of calls that wait for the pieces of their file. It has no host and no limits.
pub(super) const LANE: &str = "split";
/// The length of the first piece. Smaller files come in one response.
pub(super) const FIRST: u64 = 4 << 20;
/// The smallest and the largest piece. A piece that breaks is fetched anew.
const SMALLEST: u64 = 4 << 20;
const LARGEST: u64 = 64 << 20;
/// Files whose pieces are fetched at the same time, at most.
pub(super) const MOST_SPLIT: usize = 64;
/// Pieces per connection, so that a slow connection does not delay the file.
const PER_CONNECTION: u64 = 4;

/// Failures of a piece after which the file is no longer available at its URL.
const GONE: [&str; 4] = ["status_401", "status_403", "status_404", "status_410"];

/// The payload of a piece's job.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Piece {
    /// The task of its file. The last of its redirects is the URL to fetch.
    task: Task,
    etag: String,
    /// The length of the whole file.
    total: u64,
    from: u64,
    /// The last byte, itself included.
    to: u64,
}

/// The files whose pieces are being fetched. Their calls hold no slot, so only this bounds them.
/// Beyond it files come in one piece.
#[derive(Debug)]
pub(super) struct Splitting {
    most: usize,
    parts: Mutex<BTreeSet<String>>,
}

impl Splitting {
    pub(super) fn new(connections: u32) -> Splitting {
        let most = if connections > 1 { MOST_SPLIT } else { 0 };
        Splitting { most, parts: Mutex::default() }
    }

    /// Returns `true` if one more file may be split.
    pub(super) fn has_room(&self) -> bool {
        self.lock().len() < self.most
    }

    fn begin(&self, part: &str) {
        self.lock().insert(part.to_string());
    }

    fn end(&self, part: &str) {
        self.lock().remove(part);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The split of a file of this length.
pub(super) fn split_of(total: u64, connections: u32, begun: u64) -> Split {
    let pieces = u64::from(connections) * PER_CONNECTION;
    let size = (total.saturating_sub(FIRST) / pieces).clamp(SMALLEST, LARGEST);
    Split { first: FIRST, size, begun }
}

impl Split {
    /// The pieces after the first, as first and last byte.
    fn pieces(self, total: u64) -> impl Iterator<Item = (u64, u64)> {
        let starts = (0..).map(move |n: u64| self.first + n * self.size);
        let starts = starts.take_while(move |from| *from < total);
        starts.map(move |from| (from, (from + self.size).min(total) - 1))
    }
}

impl Attempt<'_> {
    /// Fetches the pieces after the first one, on the lane without host, and names the file.
    pub(super) async fn assemble(&self) -> Result<Saved, AttemptEnd> {
        self.get.splitting.begin(&self.task.part);
        let worked = self.assemble_pieces().await;
        self.get.splitting.end(&self.task.part);
        worked
    }

    async fn assemble_pieces(&self) -> Result<Saved, AttemptEnd> {
        self.belongs_to_this_run().await?;
        if self.get.rules.as_ref().is_some_and(|rules| !rules.knows(self.url)) {
            // Back to the host: its rules must be known before its pieces are fetched.
            return Err(AttemptEnd::Moved(Box::new(self.task.again(self.url)), self.url.clone()));
        }
        let (folder, _) = split(&self.task.target);
        let folder = self.get.directory.folder(folder)?;
        let algorithm = self.task.checksum.as_ref().map(Checksum::algorithm);
        let part = Part::resume(&folder, &self.task.part, algorithm)?.filter(Part::is_split);
        let whole = part.as_ref().and_then(Whole::of);
        let (Some(part), Some(whole)) = (part, whole) else {
            return Err(AttemptEnd::Moved(Box::new(self.task.again(self.url)), self.url.clone()));
        };
        let note = part.note.as_ref().expect("a split file has a note");
        let total = note.total.expect("a split file has a length");
        let split = note.split.expect("this one is split");
        let mut task = self.task.again(self.url);
        if task.via.last() != Some(&note.url) {
            task.via.push(note.url.clone());
        }
        let first = Piece { task, etag: note.etag.clone(), total, from: 0, to: split.first - 1 };
        // From here on this call only waits: its slot is of more use to the pieces.
        self.call.sending().map_err(|_| AttemptEnd::Late)?;
        self.call.answered();
        match self.pieces(&first, split).await {
            Ok(()) => {
                let part = part.filled(total)?;
                Receiving { attempt: self, folder, algorithm }.finish(part, whole).await
            }
            // Several servers behind one name may have different validators for one version: fetch
            // it in one piece.
            Err(AttemptEnd::Failed(failure)) if &*failure.class == "changed" => {
                part.discard();
                let task = Task { unsplit: true, ..self.task.again(self.url) };
                Err(AttemptEnd::Moved(Box::new(task), self.url.clone()))
            }
            // The URL of a redirect may expire: start over from the URL in the list.
            Err(AttemptEnd::Failed(failure)) if GONE.contains(&&*failure.class) => {
                let first = self.task.meant(self.call.id().index);
                let Some(first) = first.filter(|first| first != self.url) else {
                    return Err(AttemptEnd::Failed(failure));
                };
                part.discard();
                Err(AttemptEnd::Moved(Box::new(self.task.anew(&first)), first))
            }
            Err(end) => Err(end),
        }
    }

    /// Submits the missing pieces, a limited number at a time, and waits for all of them.
    async fn pieces(&self, first: &Piece, split: Split) -> Result<(), AttemptEnd> {
        let pace = self.get.pace().ok_or(AttemptEnd::Late)?;
        let wanted: Vec<_> = split.pieces(first.total).collect();
        let keys: Vec<_> = wanted.iter().map(|(from, _)| first.key(*from, split)).collect();
        let finished = pace.finished(&keys).await.map_err(|_| AttemptEnd::Late)?;
        let done = |view: &Option<paceline::jobs::JobView>| {
            view.as_ref().and_then(|view| view.stored.report.as_ref()).is_some_and(is_done)
        };
        let mut left = wanted.into_iter().zip(keys).zip(finished.iter().map(done));
        let mut under_way = FuturesUnordered::new();
        let mut trouble = None;
        loop {
            while trouble.is_none() && under_way.len() < self.get.segments as usize {
                let Some((((from, to), key), done)) = left.next() else { break };
                if !done {
                    let piece = Piece { from, to, ..first.clone() };
                    let job = piece.job(&key, self.get);
                    let following = pace.submit(job).await;
                    let following =
                        following.map_err(|error| transient("queue", &error.to_string()))?;
                    under_way.push(async move { (following.id(), following.report().await) });
                }
            }
            let Some((_, report)) = under_way.next().await else { break };
            let report = report.map_err(|_| AttemptEnd::Late)?;
            if trouble.is_none() && !is_done(&report) {
                trouble = Some(failure_of_pieces(&report));
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

fn is_done(report: &Report) -> bool {
    report.calls.iter().any(|call| matches!(call.outcome, CallOutcome::Done { .. }))
}

fn failure_of_pieces(report: &Report) -> AttemptEnd {
    let failure = report.calls.iter().rev().find_map(|call| match &call.outcome {
        CallOutcome::Failed(failure) => Some(failure.clone()),
        _ => None,
    });
    match failure {
        // The piece was retried as often as the options allow: do not retry the whole file.
        Some(failure) => AttemptEnd::Failed(Failure { retryable: false, ..failure }),
        None => permanent("throttled", "the host kept throttling requests"),
    }
}

impl Piece {
    /// The key of the piece at this offset. Pieces of another download of the same file have other
    /// keys.
    fn key(&self, from: u64, split: Split) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(format!("{} {} {from}", self.task.part, split.begun));
        hash.finalize().to_vec()
    }

    fn url(&self) -> Option<Url> {
        self.task.url(0)
    }

    fn job(&self, key: &[u8], get: &Get) -> Job {
        let origin = self.url().as_ref().and_then(Origin::of).expect("it was asked before");
        // Ahead of new files, so that files in progress are finished first.
        let job = Job::new(KIND, self).on([origin.lane()]).key(key).priority(Priority::Completion);
        job.attempts(get.attempts).max_wait(get.max_wait)
    }
}

/// The worker of pieces.
pub(super) struct SegmentWorker(pub(super) Arc<Get>);

impl Worker for SegmentWorker {
    async fn run(&self, call: Call) -> Work {
        let piece: Piece = call.payload()?;
        let Some(url) = piece.url() else {
            return Err(Failed::of(Failure::permanent("payload").because("no address")));
        };
        let mut attempt = Attempt::new(&self.0, &call, &piece.task, &url);
        let worked = attempt.piece(&piece).await;
        let announced = attempt.announced;
        let work = match worked {
            Ok(()) => Outcome::done(()),
            Err(end) => {
                self.0.tell(&call, &url, &end);
                end.into_work()
            }
        };
        announcing(work, announced)
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

impl Attempt<'_> {
    /// Fetches one piece, and writes it at its offset.
    async fn piece(&mut self, piece: &Piece) -> Result<(), AttemptEnd> {
        self.belongs_to_this_run().await?;
        let (get, call, url) = (self.get, self.call, self.url);
        let (folder, _) = split(&piece.task.target);
        let folder = get.directory.folder(folder)?;
        let file = existing(&folder, &Part::name(&piece.task.part))?;
        let file =
            file.ok_or_else(|| permanent("changed", "the partial file is gone: starting over"))?;
        self.obey_piece().await?;
        let span =
            Span::Of { from: piece.from, to: Some(piece.to), etag: Some(piece.etag.clone()) };
        let (of, now) = ((&piece.task, call.id().index), call.wall());
        let request = get.manners.request(&get.client, of, url, &span, get.coding, now);
        let exchange = self.send(url, request).await?;
        self.note_limits(&exchange);
        match exchange.status {
            StatusCode::PARTIAL_CONTENT => self.receive_piece(piece, exchange, file).await,
            status if is_redirect(status) => {
                get.client.discard(url, exchange).await;
                Err(permanent(
                    "changed",
                    "the server now redirects the file elsewhere: starting over",
                ))
            }
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE => {
                let message = "the file has changed on the server: starting over";
                Err(permanent("changed", message))
            }
            status => {
                let wait = retry_after(&exchange.headers, call.wall());
                get.client.discard(url, exchange).await;
                Err(AttemptEnd::Refused(refusal(status, wait)))
            }
        }
    }

    async fn receive_piece(
        &self,
        piece: &Piece,
        mut exchange: Exchange,
        file: File,
    ) -> Result<(), AttemptEnd> {
        let (get, call, url) = (self.get, self.call, self.url);
        let Version { etag, .. } = version(&exchange.headers);
        let fits = content_range(&exchange.headers).is_some_and(|range| {
            (range.from, range.to, range.total) == (piece.from, piece.to, Some(piece.total))
        });
        if !fits || etag.as_ref() != Some(&piece.etag) {
            return Err(permanent(
                "changed",
                "a piece of the file does not match the rest: starting over",
            ));
        }
        let length = piece.to - piece.from + 1;
        let reading = get.progress.begin(call.attempt(), &piece.task.target, 0, Some(length));
        let mut at = piece.from;
        while let Some(bytes) = get.client.piece(url, &mut exchange).await? {
            if at + bytes.len() as u64 > piece.to + 1 {
                return Err(permanent("range", "the server sent more bytes than were requested"));
            }
            get.rate.pay(bytes.len()).await;
            reading.received(bytes.len());
            tokio::task::block_in_place(|| file.write_all_at(&bytes, at))?;
            at += bytes.len() as u64;
        }
        if at != piece.to + 1 {
            return Err(HttpError::Short(at - piece.from).into());
        }
        get.client.finish(url, exchange).await;
        call.answered();
        // Sync before the store says that the piece is complete.
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        synced.map_err(io::Error::other)??;
        Ok(())
    }
}

impl Receiving<'_, '_> {
    /// Begins the split, after the first piece of a larger file.
    pub(super) fn splits(&self, exchange: &Exchange, version: &Version) -> Option<Note> {
        let range = content_range(&exchange.headers)?;
        let (total, etag) = (range.total?, version.strong()?);
        let first = range.from == 0 && range.to + 1 == FIRST && total > FIRST;
        first.then(|| Note {
            url: self.attempt.url.to_string(),
            etag: etag.to_string(),
            total: Some(total),
            boot: boot_id().to_string(),
            synced: 0,
            disposition: None,
            split: Some(split_of(total, self.attempt.get.segments, self.begun_at())),
        })
    }

    /// Identifies this download among all of the same file, also across power cuts.
    fn begun_at(&self) -> u64 {
        let since = self.attempt.call.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(total: u64, connections: u32, expected_pieces: usize) {
        let split = split_of(total, connections, 1);
        let pieces: Vec<_> = split.pieces(total).collect();
        assert_eq!(pieces.len(), expected_pieces);
        let mut at = split.first;
        for (from, to) in pieces {
            assert_eq!(from, at);
            assert!(to >= from);
            at = to + 1;
        }
        assert_eq!(at, total.max(FIRST));
    }

    #[test]
    fn pieces_cover_the_rest_of_the_file_exactly() {
        check(FIRST, 4, 0);
        check(FIRST + 1, 4, 1);
        check(100 << 20, 4, 16);
        check((2 << 30) + 12_345, 4, 32);
        check(SMALLEST * 3 + 7, 64, 3);
    }
}
