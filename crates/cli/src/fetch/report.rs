//! The report of a run: events as JSON lines, and at the end a summary with the failures.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use paceline_apps::fetch::{End, Event, Failed, Summary, Watch};
use serde_json::json;
use tempfile::NamedTempFile;

use super::arguments::Output;
use crate::output::say;

/// The most URLs that are shown per class of failure; `--failed-out` has all of them.
const MOST_SHOWN: usize = 5;
/// The most classes that are counted; a server may invent many statuses.
const MOST_CLASSES: usize = 40;
/// The most mistakes of a list that are shown.
const MOST_MISTAKES: u64 = 20;

/// Receives the events of a run and reports them in the chosen format.
pub(super) struct Reporter {
    format: Output,
    tally: Mutex<Tally>,
}

/// The counts and failures so far.
#[derive(Default)]
struct Tally {
    counts: Counts,
    classes: BTreeMap<String, Class>,
    failed_out: Option<FailedOut>,
    /// The first error of stdout; the run continues without it.
    stdout_error: Option<io::Error>,
}

/// The file of failed URLs while it is written.
struct FailedOut {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    /// It has the path of a list that is read.
    is_list: bool,
    error: Option<io::Error>,
}

/// The number of files by result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) done: u64,
    pub(super) there: u64,
    pub(super) failed: u64,
    pub(super) deferred: u64,
    pub(super) mistakes: u64,
}

impl Counts {
    /// Files with a final result.
    pub(super) fn settled(self) -> u64 {
        self.done + self.there + self.failed + self.deferred
    }
}

/// Failures of one kind.
#[derive(Default)]
struct Class {
    count: u64,
    examples: Vec<(String, String)>,
}

impl Reporter {
    pub(super) fn new(
        format: Output,
        failed_out: Option<&Path>,
        lists: &[PathBuf],
    ) -> anyhow::Result<Reporter> {
        let failed_out = failed_out.map(|path| FailedOut::new(path, lists)).transpose()?;
        let tally = Mutex::new(Tally { failed_out, ..Tally::default() });
        Ok(Reporter { format, tally })
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the file of failed URLs if the run did not start.
    pub(super) fn abandon(&self) {
        self.lock().failed_out.take();
    }

    /// Prints the summary of the run.
    pub(super) fn finish(&self, summary: &Summary) -> anyhow::Result<()> {
        let failed_out = self.lock().failed_out.take();
        let aside = failed_out.map(|file| file.finish(summary)).transpose()?.flatten();
        if self.format == Output::Jsonl {
            print(&json!({
                "event": "summary", "fetched": summary.fetched, "there": summary.skipped,
                "unchanged": summary.unchanged, "failed": summary.failed,
                "deferred": summary.deferred, "parked": summary.parked,
                "mistakes": summary.mistakes, "unread": summary.unread, "bytes": summary.bytes,
                "requests": summary.requests, "seconds": summary.took.as_secs_f64(),
                "peak_memory": peak_memory(),
                "end": match summary.end {
                    End::Complete => "complete",
                    End::Deadline => "deadline",
                    End::Interrupted => "interrupted",
                },
            }))?;
        }
        let mut tally = self.lock();
        if let Some(error) = tally.stdout_error.take() {
            return Err(error).context("cannot write to stdout");
        }
        say(totals(summary));
        for (name, class) in &tally.classes {
            say(format_args!("  {} {name}", class.count));
            for (url, message) in &class.examples {
                say(format_args!("      {url}: {message}"));
            }
            let more = class.count - class.examples.len() as u64;
            if more > 0 {
                say(format_args!("      and {more} more"));
            }
        }
        if let Some(hint) = hint(summary) {
            say(hint);
        }
        if let Some((list, aside)) = aside {
            say(format_args!(
                "`{}` has entries that were not read, so it is not replaced: the failed URLs are in `{}`",
                list.display(),
                aside.display()
            ));
        }
        Ok(())
    }
}

impl FailedOut {
    fn new(path: &Path, lists: &[PathBuf]) -> anyhow::Result<FailedOut> {
        let refused = || format!("cannot write `{}`", path.display());
        // Written beside it and renamed at the end: the list that is read may be the same file.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(refused)?;
        let same = |list: &PathBuf| same_file(list, path).unwrap_or(false);
        let is_list = lists.iter().any(same);
        let (path, file) = (path.to_path_buf(), BufWriter::new(file));
        Ok(FailedOut { path, file, is_list, error: None })
    }

    /// Renames it to its final path. A list with lines that were not read, or could not be read, is
    /// not replaced: then returns the path of the list and the path of this file.
    fn finish(self, summary: &Summary) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
        let keeps = self.is_list && (summary.unread || summary.mistakes > 0);
        let mut place = self.path.clone();
        if keeps {
            let mut name = place.file_name().unwrap_or_default().to_os_string();
            name.push(".failed");
            place.set_file_name(name);
        }
        let written = match self.error {
            Some(error) => Err(error),
            None => self.file.into_inner().map_err(io::IntoInnerError::into_error),
        };
        let named = written.and_then(|file| Ok(file.persist(&place)?));
        named.with_context(|| format!("cannot write `{}`", place.display()))?;
        Ok(keeps.then_some((self.path, place)))
    }

    fn keep(&mut self, failed: &Failed) {
        if self.error.is_none() {
            self.error = write(&mut self.file, failed).err();
        }
    }
}

impl Watch for Reporter {
    fn event(&self, event: &Event) {
        let mut tally = self.lock();
        tally.count(event);
        if self.format == Output::Jsonl
            && let Err(error) = print(&line(event))
        {
            tally.stdout_error.get_or_insert(error);
        }
    }
}

impl Tally {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Done { .. } => self.counts.done += 1,
            Event::Skipped { .. } => self.counts.there += 1,
            Event::Failed(failed) => {
                self.counts.failed += 1;
                self.keep(failed);
            }
            Event::Deferred(failed) => {
                self.counts.deferred += 1;
                self.keep(failed);
            }
            Event::Mistake(mistake) => {
                self.counts.mistakes += 1;
                if self.counts.mistakes <= MOST_MISTAKES {
                    say(format_args!("error: {mistake}"));
                }
            }
            Event::Retry { .. } | Event::Throttled { .. } => {}
        }
    }

    fn keep(&mut self, failed: &Failed) {
        if self.classes.len() < MOST_CLASSES || self.classes.contains_key(&failed.class) {
            let class = self.classes.entry(failed.class.clone()).or_default();
            class.count += 1;
            if class.examples.len() < MOST_SHOWN {
                class.examples.push((failed.shown(), failed.message.clone()));
            }
        }
        if let Some(failed_out) = &mut self.failed_out {
            failed_out.keep(failed);
        }
    }
}

/// Returns `true` if a list, which may be `-` for stdin, is the file at a path.
fn same_file(list: &Path, path: &Path) -> io::Result<bool> {
    let file = rustix::fs::stat(path)?;
    let list = if list == Path::new("-") {
        rustix::fs::fstat(io::stdin())?
    } else {
        rustix::fs::stat(list)?
    };
    Ok((list.st_dev, list.st_ino) == (file.st_dev, file.st_ino))
}

/// An entry that this program and aria2c read.
fn write(file: &mut impl io::Write, failed: &Failed) -> io::Result<()> {
    let message = failed.message.replace(['\r', '\n'], " ");
    writeln!(file, "# {}: {message}", failed.class)?;
    writeln!(file, "{}", failed.urls.join("\t"))?;
    if !failed.target.is_empty() {
        writeln!(file, " out={}", failed.target)?;
    }
    if let Some(checksum) = &failed.checksum {
        writeln!(file, " checksum={checksum}")?;
    }
    Ok(())
}

fn line(event: &Event) -> serde_json::Value {
    let failed = |name: &str, failed: &Failed| {
        json!({
            "event": name, "url": failed.shown(), "file": failed.target,
            "class": failed.class, "message": failed.message,
        })
    };
    match event {
        Event::Done { url, saved, attempts } => json!({
            "event": "done", "url": url, "from": saved.url, "file": saved.file,
            "bytes": saved.bytes, "how": saved.how, "attempts": attempts,
        }),
        Event::Skipped { url, saved } => json!({
            "event": "there", "url": url, "file": saved.file, "bytes": saved.bytes,
        }),
        Event::Retry { url, class, message, attempt } => json!({
            "event": "retry", "url": url, "class": class, "message": message,
            "attempt": attempt,
        }),
        Event::Throttled { lane, retry_after } => json!({
            "event": "throttled", "lane": lane,
            "retry_after_seconds": retry_after.map(|span| span.as_secs_f64()),
        }),
        Event::Failed(entry) => failed("failed", entry),
        Event::Deferred(entry) => failed("deferred", entry),
        Event::Mistake(mistake) => json!({ "event": "mistake", "message": mistake.to_string() }),
    }
}

fn print(value: &serde_json::Value) -> io::Result<()> {
    let mut line = serde_json::to_vec(value).expect("an event is plain data");
    line.push(b'\n');
    match io::stdout().lock().write_all(&line) {
        // The reader of stdout is gone; the run continues.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The peak memory of this process in bytes, if the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

fn totals(summary: &Summary) -> String {
    let counts = [
        (summary.fetched, "fetched"),
        (summary.skipped, "there already"),
        (summary.unchanged, "unchanged"),
        (summary.failed, "failed"),
        (summary.deferred, "deferred"),
        (summary.parked, "left for the next run"),
        (
            summary.mistakes,
            if summary.mistakes == 1 { "mistake in the list" } else { "mistakes in the list" },
        ),
    ];
    let mut parts: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if summary.unread {
        parts.push("the rest of the list not read".to_string());
    }
    if parts.is_empty() {
        parts.push("nothing to fetch".to_string());
    }
    let bytes = indicatif::BinaryBytes(summary.bytes);
    let took = summary.took.as_secs_f64();
    let requests = match summary.requests {
        1 => "1 request".to_string(),
        many => format!("{many} requests"),
    };
    format!("{}; {bytes} and {requests} in {took:.1} s", parts.join(", "))
}

fn hint(summary: &Summary) -> Option<&'static str> {
    if summary.end == End::Interrupted {
        Some("run the same command again to continue")
    } else if summary.deferred + summary.parked > 0 || summary.unread {
        Some("run the same command again later to fetch the rest")
    } else {
        None
    }
}
