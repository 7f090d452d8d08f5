//! What a file server holds and knows, and what it decides about each request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paceline_core::{Span, Time};

use super::After;
use super::fault::{Fault, Posted, Rule, covers, without_query};
use super::file::{File, Resource, Response};
use super::log::{Log, RequestRecord};
use super::reply::{Deed, Manner, Reply};
use crate::request::Request;
use crate::serve::read_clock;

/// The state that a server and its connections share.
#[derive(Debug)]
pub(crate) struct Shelf {
    started: Instant,
    books: Mutex<Books>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Books {
    places: BTreeMap<String, Place>,
    generated: Vec<(String, u64)>,
    rules: BTreeMap<u64, Posted>,
    rules_told: u64,
    versions_put: u64,
    pub(crate) log: Log,
    pub(crate) welcome: super::Welcome,
    pub(crate) connections: u64,
}

/// What stands at a path, and what will.
#[derive(Debug)]
struct Place {
    resource: Resource,
    /// Bytes of an older version, still on their way, count for nothing.
    version: u64,
    next: VecDeque<(After, Resource)>,
    requests: u64,
    sent_bytes: u64,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) deed: Deed,
    pub(crate) manner: Manner,
    pub(crate) open: Open,
}

impl Shelf {
    pub(crate) fn new() -> Arc<Shelf> {
        let books = Mutex::new(Books::default());
        Arc::new(Shelf { started: read_clock(), books, changed: Condvar::new() })
    }

    /// The books stay readable after a test panicked while it looked at them.
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(Span::from(read_clock().duration_since(self.started)).0)
    }

    /// Decides about a request and opens it; nothing if the log is full.
    ///
    /// The clock is read under the lock, so that the order of the log is the order of time.
    pub(crate) fn arrive(
        self: &Arc<Shelf>,
        request: &Request,
        connection: u64,
    ) -> Option<Decision> {
        let mut books = self.books();
        if books.log.is_full() {
            return None;
        }
        let now = self.now();
        let (faults, gates) = books.meet(&request.target);
        let deed = books.decide(request, &faults);
        let place = books.log.arrived(now, request, connection, deed.status());
        let version = books.version(&request.target);
        if let Some(version) = &version {
            books.count(version, 1, 0);
        }
        drop(books);
        self.changed.notify_all();
        let open = Open { shelf: self.clone(), place, version, gates, ended: false };
        Some(Decision { deed, manner: Manner::of(&faults), open })
    }

    /// Waits until `seen` holds for the log; says whether it did within `patience`.
    pub(crate) fn wait_until(
        &self,
        patience: Duration,
        seen: impl Fn(&[RequestRecord]) -> bool,
    ) -> bool {
        let books = self.books();
        let waited = self.changed.wait_timeout_while(books, patience, |b| !seen(b.log.entries()));
        let (books, _) = waited.unwrap_or_else(PoisonError::into_inner);
        seen(books.log.entries())
    }
}

impl Books {
    pub(crate) fn put(&mut self, path: &str, resource: Resource) {
        self.versions_put += 1;
        let (version, next) = (self.versions_put, VecDeque::new());
        let place = Place { resource, version, next, requests: 0, sent_bytes: 0 };
        self.places.insert(path.to_string(), place);
    }

    pub(crate) fn remove(&mut self, path: &str) {
        self.places.remove(path);
    }

    pub(crate) fn then(&mut self, path: &str, after: After, resource: Resource) {
        let place = self.places.get_mut(path);
        let place = place.unwrap_or_else(|| panic!("nothing was put at `{path}` before"));
        place.next.push_back((after, resource));
    }

    pub(crate) fn generate(&mut self, pattern: &str, size: u64) {
        self.generated.push((pattern.to_string(), size));
    }

    pub(crate) fn post(&mut self, pattern: &str, rule: Rule) {
        self.rules.insert(self.rules_told, Posted::new(pattern, rule));
        self.rules_told += 1;
    }

    pub(crate) fn heal(&mut self, pattern: &str) {
        self.rules.retain(|_, posted| posted.pattern != pattern);
    }

    /// The faults that a request meets, and the rules that count it while it is open.
    fn meet(&mut self, target: &str) -> (Vec<Fault>, Vec<u64>) {
        let (mut faults, mut gates) = (Vec::new(), Vec::new());
        let mut ran_out_one = false;
        for (&id, posted) in &mut self.rules {
            let waits = posted.runs_out() && ran_out_one;
            if waits || !covers(&posted.pattern, target) || !posted.takes_turn(target) {
                continue;
            }
            ran_out_one |= posted.runs_out();
            for fault in &posted.rule.faults {
                match fault {
                    Fault::AtMost { in_flight, .. } if posted.in_flight < *in_flight => {
                        posted.in_flight += 1;
                        gates.push(id);
                    }
                    fault => faults.push(fault.clone()),
                }
            }
        }
        (faults, gates)
    }

    fn decide(&self, request: &Request, faults: &[Fault]) -> Deed {
        let instead = faults.iter().find_map(|fault| match fault {
            Fault::Hang => Some(Deed::Hang),
            Fault::Close => Some(Deed::Close),
            Fault::Reset => Some(Deed::Reset),
            Fault::Raw(bytes) => Some(Deed::Raw(bytes.clone())),
            Fault::EndlessHeaders => Some(Deed::EndlessHeaders),
            Fault::Respond(response) => {
                Some(Deed::Reply(Reply::to(request, &response.clone().into(), faults)))
            }
            // Those with room left were taken out when the request met them.
            Fault::AtMost { retry_after, .. } => {
                Some(Deed::Reply(Reply::to(request, &too_many(*retry_after), faults)))
            }
            _ => None,
        });
        instead.unwrap_or_else(|| {
            let mut heard = request.clone();
            for fault in faults {
                if let Fault::Ignore(name) = fault {
                    heard.headers.remove(&name.to_ascii_lowercase());
                }
            }
            Deed::Reply(Reply::to(&heard, &self.resource(request), faults))
        })
    }

    fn resource(&self, request: &Request) -> Resource {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Response::status(405).header("allow", "GET, HEAD").into();
        }
        let target = request.target.as_str();
        if let Some(place) = self.place(target) {
            return self.places[place].resource.clone();
        }
        let path = without_query(target);
        match self.generated.iter().rev().find(|(pattern, _)| covers(pattern, target)) {
            Some((_, size)) => generated(path, *size).into(),
            None => Response::status(404).body("nothing here\n").into(),
        }
    }

    /// Where a target is kept: by itself, or without its query.
    fn place<'a>(&self, target: &'a str) -> Option<&'a str> {
        [target, without_query(target)].into_iter().find(|path| self.places.contains_key(*path))
    }

    fn version(&self, target: &str) -> Option<Version> {
        let path = self.place(target)?;
        Some(Version { path: path.to_string(), number: self.places[path].version })
    }

    /// Counts what was asked and sent of a version, and moves on to what comes next at its path.
    fn count(&mut self, version: &Version, requests: u64, sent_bytes: u64) {
        let place = self.places.get_mut(&version.path);
        let Some(place) = place.filter(|place| place.version == version.number) else { return };
        place.requests += requests;
        place.sent_bytes += sent_bytes;
        let due = place.next.front().is_some_and(|(after, _)| match after {
            After::Requests(n) => place.requests >= *n,
            After::Bytes(n) => place.sent_bytes >= *n,
        });
        if due {
            let mut next = std::mem::take(&mut place.next);
            let (_, resource) = next.pop_front().expect("just seen");
            self.put(&version.path, resource);
            self.places.get_mut(&version.path).expect("just put").next = next;
        }
    }
}

/// What stood at a path when a request came.
#[derive(Debug)]
struct Version {
    path: String,
    number: u64,
}

fn generated(path: &str, size: u64) -> File {
    let file = File::named(path, size);
    let tag = match &file.content {
        super::content::Content::Made { seed, .. } => format!("\"{seed:016x}-{size}\""),
        super::content::Content::Kept(_) => unreachable!("a named file is made"),
    };
    file.etag(&tag)
}

fn too_many(retry_after: Option<u32>) -> Resource {
    let response = Response::status(429).body("too many requests at once\n");
    match retry_after {
        Some(seconds) => response.retry_after(&seconds.to_string()).into(),
        None => response.into(),
    }
}

/// A request that is open; it ends however its connection ends.
#[derive(Debug)]
pub(crate) struct Open {
    shelf: Arc<Shelf>,
    place: usize,
    version: Option<Version>,
    gates: Vec<u64>,
    ended: bool,
}

impl Open {
    /// Counts bytes of the body before they go out, so that a client that has them finds them counted.
    pub(crate) fn sends(&self, bytes: usize) {
        let mut books = self.shelf.books();
        books.log.sent(self.place, bytes as u64);
        if let Some(version) = &self.version {
            books.count(version, 0, bytes as u64);
        }
        drop(books);
        self.shelf.changed.notify_all();
    }

    /// Takes back bytes that did not go out after all.
    pub(crate) fn kept(&self, bytes: usize) {
        self.shelf.books().log.unsent(self.place, bytes as u64);
    }

    /// Ends it, before its last bytes go out: a client that has them may ask again at once.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut books = self.shelf.books();
        let now = self.shelf.now();
        books.log.ended(self.place, now);
        for gate in &self.gates {
            if let Some(posted) = books.rules.get_mut(gate) {
                posted.in_flight -= 1;
            }
        }
        drop(books);
        self.shelf.changed.notify_all();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end();
    }
}
