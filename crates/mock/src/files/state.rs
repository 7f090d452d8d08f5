//! The state that a file server shares with its connections, and its decision about each request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paceline_core::{Span, Time};

use super::After;
use super::fault::{ActiveRule, Fault, Rule, covers, without_query};
use super::file::{File, Resource, Response};
use super::log::{Log, RequestRecord};
use super::response::{Action, Delivery, PreparedResponse};
use crate::request::Request;
use crate::serve::read_clock;

/// Shared by a server and its connections.
#[derive(Debug)]
pub(crate) struct Shared {
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    paths: BTreeMap<String, PathState>,
    generated: Vec<(String, u64)>,
    rules: BTreeMap<u64, ActiveRule>,
    next_rule_id: u64,
    last_version: u64,
    pub(crate) log: Log,
    pub(crate) on_connect: super::OnConnect,
    pub(crate) connections: u64,
}

/// The resource at a path, and the ones queued to replace it.
#[derive(Debug)]
struct PathState {
    resource: Resource,
    /// Bytes still in transit from an older version are not counted for this one.
    version: u64,
    next: VecDeque<(After, Resource)>,
    requests: u64,
    sent_bytes: u64,
}

/// The decision about one request.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) action: Action,
    pub(crate) delivery: Delivery,
    pub(crate) open: OpenRequest,
}

impl Shared {
    pub(crate) fn new() -> Arc<Shared> {
        let state = Mutex::new(State::default());
        Arc::new(Shared { started: read_clock(), state, changed: Condvar::new() })
    }

    /// The state stays readable after a test panicked while it held the lock.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time(Span::from(read_clock().duration_since(self.started)).0)
    }

    /// Decides about a request and logs it as open. Returns `None` if the log is full.
    ///
    /// The clock is read under the lock, so that the order of the log is the order of time.
    pub(crate) fn arrive(
        self: &Arc<Shared>,
        request: &Request,
        connection: u64,
    ) -> Option<Decision> {
        let mut state = self.state();
        if state.log.is_full() {
            return None;
        }
        let now = self.now();
        let (faults, counted_by) = state.faults_for(&request.target);
        let action = state.decide(request, &faults);
        let index = state.log.arrived(now, request, connection, action.status());
        let version = state.version(&request.target);
        if let Some(version) = &version {
            state.count(version, 1, 0);
        }
        drop(state);
        self.changed.notify_all();
        let open = OpenRequest { shared: self.clone(), index, version, counted_by, ended: false };
        Some(Decision { action, delivery: Delivery::of(&faults), open })
    }

    /// Waits until `seen` holds for the log. Returns `false` if `timeout` passes first.
    pub(crate) fn wait_until(
        &self,
        timeout: Duration,
        seen: impl Fn(&[RequestRecord]) -> bool,
    ) -> bool {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, timeout, |s| !seen(s.log.entries()));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        seen(state.log.entries())
    }
}

impl State {
    pub(crate) fn put(&mut self, path: &str, resource: Resource) {
        self.last_version += 1;
        let (version, next) = (self.last_version, VecDeque::new());
        let path_state = PathState { resource, version, next, requests: 0, sent_bytes: 0 };
        self.paths.insert(path.to_string(), path_state);
    }

    pub(crate) fn remove(&mut self, path: &str) {
        self.paths.remove(path);
    }

    pub(crate) fn then(&mut self, path: &str, after: After, resource: Resource) {
        let path_state = self.paths.get_mut(path);
        let path_state = path_state.unwrap_or_else(|| panic!("nothing was put at `{path}` before"));
        path_state.next.push_back((after, resource));
    }

    pub(crate) fn generate(&mut self, pattern: &str, size: u64) {
        self.generated.push((pattern.to_string(), size));
    }

    pub(crate) fn add_rule(&mut self, pattern: &str, rule: Rule) {
        self.rules.insert(self.next_rule_id, ActiveRule::new(pattern, rule));
        self.next_rule_id += 1;
    }

    pub(crate) fn heal(&mut self, pattern: &str) {
        self.rules.retain(|_, active| active.pattern != pattern);
    }

    /// The faults that apply to a request, and the rules that count it while it is open.
    fn faults_for(&mut self, target: &str) -> (Vec<Fault>, Vec<u64>) {
        let (mut faults, mut counted_by) = (Vec::new(), Vec::new());
        let mut took_a_turn = false;
        for (&id, active) in &mut self.rules {
            let waits = active.runs_out() && took_a_turn;
            if waits || !covers(&active.pattern, target) || !active.takes_turn(target) {
                continue;
            }
            took_a_turn |= active.runs_out();
            for fault in &active.rule.faults {
                match fault {
                    Fault::AtMost { in_flight, .. } if active.in_flight < *in_flight => {
                        active.in_flight += 1;
                        counted_by.push(id);
                    }
                    fault => faults.push(fault.clone()),
                }
            }
        }
        (faults, counted_by)
    }

    fn decide(&self, request: &Request, faults: &[Fault]) -> Action {
        let instead = faults.iter().find_map(|fault| match fault {
            Fault::Hang => Some(Action::Hang),
            Fault::Close => Some(Action::Close),
            Fault::Reset => Some(Action::Reset),
            Fault::Raw(bytes) => Some(Action::Raw(bytes.clone())),
            Fault::EndlessHeaders => Some(Action::EndlessHeaders),
            Fault::Respond(response) => Some(Action::Respond(PreparedResponse::to(
                request,
                &response.clone().into(),
                faults,
            ))),
            // `faults_for` left out those that have room.
            Fault::AtMost { retry_after, .. } => Some(Action::Respond(PreparedResponse::to(
                request,
                &too_many(*retry_after),
                faults,
            ))),
            _ => None,
        });
        instead.unwrap_or_else(|| {
            let mut effective = request.clone();
            for fault in faults {
                if let Fault::Ignore(name) = fault {
                    effective.headers.remove(&name.to_ascii_lowercase());
                }
            }
            let resource = self.resource(request);
            Action::Respond(PreparedResponse::to(&effective, &resource, faults))
        })
    }

    fn resource(&self, request: &Request) -> Resource {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Response::status(405).header("allow", "GET, HEAD").into();
        }
        let target = request.target.as_str();
        if let Some(path) = self.stored_path(target) {
            return self.paths[path].resource.clone();
        }
        let path = without_query(target);
        match self.generated.iter().rev().find(|(pattern, _)| covers(pattern, target)) {
            Some((_, size)) => generated(path, *size).into(),
            None => Response::status(404).body("nothing here\n").into(),
        }
    }

    /// The path under which a target is stored: with its query, else without.
    fn stored_path<'a>(&self, target: &'a str) -> Option<&'a str> {
        [target, without_query(target)].into_iter().find(|path| self.paths.contains_key(*path))
    }

    fn version(&self, target: &str) -> Option<Version> {
        let path = self.stored_path(target)?;
        Some(Version { path: path.to_string(), number: self.paths[path].version })
    }

    /// Counts requests and bytes of a version, and moves the path on to its next version when due.
    fn count(&mut self, version: &Version, requests: u64, sent_bytes: u64) {
        let current = self.paths.get_mut(&version.path);
        let Some(current) = current.filter(|it| it.version == version.number) else { return };
        current.requests += requests;
        current.sent_bytes += sent_bytes;
        let due = current.next.front().is_some_and(|(after, _)| match after {
            After::Requests(n) => current.requests >= *n,
            After::Bytes(n) => current.sent_bytes >= *n,
        });
        if due {
            let mut next = std::mem::take(&mut current.next);
            let (_, resource) = next.pop_front().expect("just seen");
            self.put(&version.path, resource);
            self.paths.get_mut(&version.path).expect("just put").next = next;
        }
    }
}

/// The version at a path when a request arrived.
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

/// A request that is open. Dropping it ends it, so it ends however its connection ends.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    shared: Arc<Shared>,
    /// Its index in the log.
    index: usize,
    version: Option<Version>,
    counted_by: Vec<u64>,
    ended: bool,
}

impl OpenRequest {
    /// Counts bytes of the body. Called before they are written, so that a client that has received
    /// them finds them counted.
    pub(crate) fn sends(&self, bytes: usize) {
        let mut state = self.shared.state();
        state.log.sent(self.index, bytes as u64);
        if let Some(version) = &self.version {
            state.count(version, 0, bytes as u64);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Subtracts bytes that were counted and then not written.
    pub(crate) fn kept(&self, bytes: usize) {
        self.shared.state().log.unsent(self.index, bytes as u64);
    }

    /// Ends the request. Called before its last bytes are written: a client that has received them
    /// may send its next request at once, and must find the slot free.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut state = self.shared.state();
        let now = self.shared.now();
        state.log.ended(self.index, now);
        for id in &self.counted_by {
            if let Some(active) = state.rules.get_mut(id) {
                active.in_flight -= 1;
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.end();
    }
}
