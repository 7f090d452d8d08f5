//! Plans: from an item of the list to a job with a key and a target.

use paceline::jobs::JobView;
use paceline::report::CallOutcome;
use paceline::{Job, Span};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::directory::Directory;
use super::item::Item;
use super::name::{self, Taken, Wanted};
use super::options::{Existing, Fetched, Naming, Options};
use super::request::Coding;
use super::task::{Named, Saved, Task, Version};
use super::warc::is_own;
use crate::http::Origin;

/// The kind of jobs that fetch files.
pub(super) const KIND: &str = "fetch";

/// The same for two items with the same URLs and the same target.
pub(super) type Key = [u8; 32];

/// The file that an earlier run saved for an item.
pub(super) enum Earlier {
    /// No file.
    Nothing,
    /// The file that the list wants.
    Current(Saved),
    /// A file that is not what the list wants now.
    Outdated(Saved),
}

/// What to do with an item.
pub(super) enum Plan {
    /// Nothing: its file exists.
    There(Saved),
    /// Fetch it.
    Fetch(Box<Task>),
    /// Report that a file with its name exists.
    Exists(String),
    /// Report that another item, another entry of the same item, or the archive has its name.
    Wanted(String),
    /// Report this error.
    Fail(String),
}

/// Plans items, and gives them their names.
pub(super) struct Planner {
    naming: Naming,
    existing: Existing,
    fetched: Fetched,
    coding: Coding,
    archive: Option<String>,
    wanted: Wanted,
}

impl Planner {
    pub(super) fn new(options: &Options) -> Planner {
        let Options { naming, existing, fetched, coding, .. } = *options;
        let (archive, wanted) = (options.warc.clone(), Wanted::default());
        Planner { naming, existing, fetched, coding, archive, wanted }
    }

    /// The key of an item.
    pub(super) fn key(&self, item: &Item) -> Key {
        let mut hash = Sha256::new();
        for url in &item.urls {
            hash.update(url.as_str());
            hash.update("\n");
        }
        for place in [&item.dir, &item.out] {
            hash.update("\n");
            hash.update(place.as_deref().unwrap_or_default());
        }
        // Another target is other work.
        if self.naming == Naming::Tree && item.out.is_none() {
            hash.update("\n\ntree");
        }
        if self.coding == Coding::Decode {
            hash.update("\n\ndecode");
        }
        hash.finalize().into()
    }

    /// The keys under which a job of an item may exist: its own, that of an entry that names the
    /// target, as lists of failures do, and that of an entry without target.
    pub(super) fn keys_of(&self, item: &Item, target: &str) -> [Key; 3] {
        let plain = Item { urls: item.urls.clone(), out: None, dir: None, checksum: None };
        let named = Item { out: Some(target.to_string()), ..plain.clone() };
        [self.key(item), self.key(&named), self.key(&plain)]
    }

    /// A target that is in use.
    fn taken(&mut self, target: &str) {
        let parts: Vec<String> = target.split('/').map(str::to_string).collect();
        self.wanted.among_folders(&parts, |_| None);
        self.wanted.take(target);
    }

    /// The parts of a path that is derived from a URL.
    fn named_by(&self, url: &Url) -> Vec<String> {
        match self.naming {
            Naming::Tree => name::tree(url),
            Naming::Flat | Naming::ByServer => vec![name::from_url(url)],
        }
    }

    /// Plans an item, given the file of an earlier run.
    pub(super) fn plan(&mut self, item: &Item, known: Earlier, directory: &Directory) -> Plan {
        let (saved, have) = match known {
            Earlier::Nothing => return self.fresh(item, directory),
            Earlier::Current(saved) if self.fetched == Fetched::Keep => {
                self.taken(&saved.file);
                return Plan::There(saved);
            }
            Earlier::Current(saved) => {
                let Saved { etag, last_modified, .. } = &saved;
                let (etag, last_modified) = (etag.clone(), last_modified.clone());
                (saved, Some(Version { etag, last_modified }))
            }
            // No conditional request: the list wants another version.
            Earlier::Outdated(saved) => (saved, None),
        };
        self.taken(&saved.file);
        let (named, had) = (Named::Renew, Some(saved.bytes));
        Plan::Fetch(Box::new(Task { named, have, had, ..task(item, saved.file) }))
    }

    fn fresh(&mut self, item: &Item, directory: &Directory) -> Plan {
        let parts = match self.parts(item, directory) {
            Ok(parts) => parts,
            Err(message) => return Plan::Fail(message),
        };
        let target = parts.join("/");
        let is_own = self.archive.as_ref().is_some_and(|archive| is_own(archive, &target));
        if is_own || self.wanted.take(&target) == Taken::Again {
            return Plan::Wanted(target);
        }
        self.fetch_to(target, item, directory)
    }

    /// Plans an item whose name is taken.
    pub(super) fn plan_distinct(&mut self, item: &Item, directory: &Directory) -> Plan {
        let mut parts = match self.parts(item, directory) {
            Ok(parts) => parts,
            Err(message) => return Plan::Fail(message),
        };
        let last = parts.pop().expect("there is a name");
        let urls: Vec<&str> = item.urls.iter().map(Url::as_str).collect();
        parts.push(name::distinct(&last, &urls.join("\n")));
        let target = parts.join("/");
        self.wanted.take(&target);
        self.fetch_to(target, item, directory)
    }

    fn fetch_to(&self, target: String, item: &Item, directory: &Directory) -> Plan {
        let by_server = self.naming == Naming::ByServer && item.out.is_none();
        let named = match (self.existing, by_server) {
            (Existing::Overwrite, _) => Named::Replace,
            (Existing::Keep, true) => Named::ByServer,
            (Existing::Keep, false) => Named::New,
        };
        // A path that cannot be examined, such as one behind a link, is not free either.
        if named == Named::New && !matches!(directory.length(&target), Ok(None)) {
            return Plan::Exists(target);
        }
        Plan::Fetch(Box::new(Task { named, ..task(item, target) }))
    }

    /// The path of an item below the directory.
    fn parts(&mut self, item: &Item, directory: &Directory) -> Result<Vec<String>, String> {
        let url = item.urls.first().expect("an item has an address");
        let mut parts = match &item.dir {
            Some(dir) => name::relative(dir).map_err(|error| error.to_string())?,
            None => Vec::new(),
        };
        parts.extend(match &item.out {
            Some(out) => name::relative(out).map_err(|error| error.to_string())?,
            None => self.named_by(url),
        });
        Ok(self.wanted.among_folders(&parts, |path| directory.kind(path)))
    }
}

fn task(item: &Item, target: String) -> Task {
    let hash = Sha256::digest(&target);
    Task {
        urls: item.urls.iter().map(Url::to_string).collect(),
        target,
        named: Named::New,
        part: data_encoding::HEXLOWER.encode(&hash[..8]),
        checksum: item.checksum.clone(),
        have: None,
        had: None,
        unsplit: false,
        via: Vec::new(),
        seen: Vec::new(),
        detour: None,
    }
}

/// The file that a finished job saved, if any.
pub(super) fn saved(view: &JobView) -> Option<Saved> {
    let report = view.stored.report.as_ref()?;
    report.calls.iter().find_map(|call| match &call.outcome {
        CallOutcome::Done { value, .. } => serde_json::from_slice(value).ok(),
        _ => None,
    })
}

/// The job of a task: one mirror after another.
pub(super) fn job(task: &Task, key: &Key, options: &Terms) -> Job {
    let mut job = Job::new(KIND, task).key(key).first_conclusive();
    for url in &task.urls {
        let origin = Url::parse(url).ok().as_ref().and_then(Origin::of);
        job = job.on([origin.expect("the list was read").lane()]);
    }
    job.attempts(options.attempts).max_wait(options.max_wait)
}

/// The terms of every job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) attempts: u16,
    pub(super) max_wait: Span,
}
