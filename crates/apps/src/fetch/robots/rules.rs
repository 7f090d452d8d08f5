//! The rules of each server, fetched once per server and run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;
use url::Url;

use crate::fetch::task::Detour;
use crate::http::Origin;
use crate::http::robots::Robots;

/// Servers, and rules over all servers, that are kept. Beyond these limits all are dropped and
/// fetched again.
const MOST_SERVERS: usize = 10_000;
const MOST_RULES: usize = 1_000_000;

/// The longest wait for the attempt that fetches the rules.
pub(super) const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// The time for which a reservation is valid (L4).
const PROMISED: Duration = Duration::from_millis(50);

/// The rules of all servers.
#[derive(Default)]
pub(in crate::fetch) struct Rules {
    known: Mutex<BTreeMap<Origin, ServerRules>>,
    /// The number of rules over all servers.
    count: AtomicUsize,
}

enum ServerRules {
    Asking(Arc<Notify>),
    /// One attempt has followed the redirect, since this moment.
    Elsewhere(Detour, Instant, Arc<Notify>),
    /// The rules, and the moment since which the lane has known their crawl delay.
    Rules(Arc<Robots>, Option<Instant>),
}

/// What an attempt has to do for the rules.
pub(super) enum Look {
    /// Obey these.
    Rules(Arc<Robots>),
    /// Obey these, which are new to the lane: an attempt that was reserved before must not be sent
    /// if they have a crawl delay.
    News(Arc<Robots>),
    /// Fetch the rules in place of the file.
    Ask(Asking),
    /// Fetch the rules from this URL.
    Elsewhere(Detour),
    /// Wait for another attempt that fetches them; it may end without a result.
    Wait(OwnedNotified),
}

impl Rules {
    pub(super) fn look(self: &Arc<Rules>, url: &Url) -> Look {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut known = self.lock();
        match known.get_mut(&origin) {
            Some(ServerRules::Rules(rules, told_at)) => {
                let told_at = told_at.get_or_insert_with(Instant::now);
                let news = told_at.elapsed() < PROMISED;
                if news { Look::News(rules.clone()) } else { Look::Rules(rules.clone()) }
            }
            Some(ServerRules::Elsewhere(detour, since, _)) if since.elapsed() >= LONGEST_WAIT => {
                *since = Instant::now();
                Look::Elsewhere(detour.clone())
            }
            // Made under the lock, so that no notification is missed between checking and waiting.
            Some(ServerRules::Asking(told) | ServerRules::Elsewhere(_, _, told)) => {
                Look::Wait(told.clone().notified_owned())
            }
            None => {
                if known.len() >= MOST_SERVERS {
                    forget(&mut known);
                }
                let told = Arc::new(Notify::new());
                known.insert(origin.clone(), ServerRules::Asking(told.clone()));
                Look::Ask(Asking { rules: self.clone(), origin, told })
            }
        }
    }

    /// Returns `true` if the rules of this server are known.
    pub(in crate::fetch) fn knows(&self, url: &Url) -> bool {
        let origin = Origin::of(url).expect("only http and https come here");
        matches!(self.lock().get(&origin), Some(ServerRules::Rules(..)))
    }

    /// Stores the rules of a server.
    pub(super) fn learn(&self, url: &Url, robots: Robots) {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut known = self.lock();
        let count = self.count.fetch_add(robots.count(), Ordering::Relaxed) + robots.count();
        if count > MOST_RULES {
            forget(&mut known);
            self.count.store(robots.count(), Ordering::Relaxed);
        }
        let before = known.insert(origin, ServerRules::Rules(Arc::new(robots), None));
        if let Some(ServerRules::Elsewhere(_, _, told)) = before {
            told.notify_waiters();
        }
    }

    /// Records that the rules of a server are at another URL, unless they are known by now. The
    /// caller fetches them from there.
    pub(super) fn lead(&self, url: &Url, detour: &Detour) {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut known = self.lock();
        let told = match known.get(&origin) {
            Some(ServerRules::Rules(..)) => return,
            Some(ServerRules::Elsewhere(_, _, told)) => told.clone(),
            Some(ServerRules::Asking(_)) | None => Arc::default(),
        };
        known.insert(origin, ServerRules::Elsewhere(detour.clone(), Instant::now(), told));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Origin, ServerRules>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget(known: &mut BTreeMap<Origin, ServerRules>) {
    known.retain(|_, known| matches!(known, ServerRules::Asking(_)));
}

/// The duty to fetch the rules. If it is dropped without a result, the next attempt takes it over.
pub(super) struct Asking {
    rules: Arc<Rules>,
    origin: Origin,
    told: Arc<Notify>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut known = self.rules.lock();
        if matches!(known.get(&self.origin), Some(ServerRules::Asking(_))) {
            known.remove(&self.origin);
        }
        drop(known);
        self.told.notify_waiters();
    }
}
