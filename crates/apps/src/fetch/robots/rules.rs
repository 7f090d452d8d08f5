//! What robots.txt of each server allows, asked once per server and run.

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

/// Servers whose rules are remembered, and rules in all; beyond it all are asked again.
const MOST_SERVERS: usize = 10_000;
const MOST_RULES: usize = 1_000_000;

/// Whoever waits for rules waits no longer than this for another attempt to bring them.
pub(super) const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// A promise of the engine is good for this long (L4).
const PROMISED: Duration = Duration::from_millis(50);

/// The rules of all servers that were asked.
#[derive(Default)]
pub(in crate::fetch) struct Rules {
    known: Mutex<BTreeMap<Origin, Known>>,
    /// How many rules they have in all.
    count: AtomicUsize,
}

enum Known {
    Asking(Arc<Notify>),
    /// One attempt is on its way there, since then.
    Elsewhere(Detour, Instant, Arc<Notify>),
    /// And since when its lane has been told.
    Rules(Arc<Robots>, Option<Instant>),
}

/// What an attempt has to do about the rules.
pub(super) enum Look {
    /// Here they are.
    Rules(Arc<Robots>),
    /// Here they are, but the lane hears of them only now: an attempt that was promised before
    /// must not go if they ask for a gap.
    News(Arc<Robots>),
    /// This attempt asks for them, instead of what it came for.
    Ask(Asking),
    /// They are to be had elsewhere, and this attempt goes there.
    Elsewhere(Detour),
    /// Another attempt is asking; it may fail without a word.
    Wait(OwnedNotified),
}

impl Rules {
    pub(super) fn look(self: &Arc<Rules>, url: &Url) -> Look {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut known = self.lock();
        match known.get_mut(&origin) {
            Some(Known::Rules(rules, told_at)) => {
                let told_at = told_at.get_or_insert_with(Instant::now);
                let news = told_at.elapsed() < PROMISED;
                if news { Look::News(rules.clone()) } else { Look::Rules(rules.clone()) }
            }
            Some(Known::Elsewhere(detour, since, _)) if since.elapsed() >= LONGEST_WAIT => {
                *since = Instant::now();
                Look::Elsewhere(detour.clone())
            }
            // Made under the lock, so that no answer slips by between looking and waiting.
            Some(Known::Asking(told) | Known::Elsewhere(_, _, told)) => {
                Look::Wait(told.clone().notified_owned())
            }
            None => {
                if known.len() >= MOST_SERVERS {
                    forget(&mut known);
                }
                let told = Arc::new(Notify::new());
                known.insert(origin.clone(), Known::Asking(told.clone()));
                Look::Ask(Asking { rules: self.clone(), origin, told })
            }
        }
    }

    /// Whether the rules of this server are known by now.
    pub(in crate::fetch) fn knows(&self, url: &Url) -> bool {
        let origin = Origin::of(url).expect("only http and https come here");
        matches!(self.lock().get(&origin), Some(Known::Rules(..)))
    }

    /// These are the rules of this server.
    pub(super) fn learn(&self, url: &Url, robots: Robots) {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut known = self.lock();
        let count = self.count.fetch_add(robots.count(), Ordering::Relaxed) + robots.count();
        if count > MOST_RULES {
            forget(&mut known);
            self.count.store(robots.count(), Ordering::Relaxed);
        }
        let before = known.insert(origin, Known::Rules(Arc::new(robots), None));
        if let Some(Known::Elsewhere(_, _, told)) = before {
            told.notify_waiters();
        }
    }

    /// The rules of this server are elsewhere, unless somebody has them by now. Whoever says so
    /// goes there.
    pub(super) fn lead(&self, url: &Url, detour: &Detour) {
        let origin = Origin::of(url).expect("only http and https come here");
        let mut known = self.lock();
        let told = match known.get(&origin) {
            Some(Known::Rules(..)) => return,
            Some(Known::Elsewhere(_, _, told)) => told.clone(),
            Some(Known::Asking(_)) | None => Arc::default(),
        };
        known.insert(origin, Known::Elsewhere(detour.clone(), Instant::now(), told));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Origin, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget(known: &mut BTreeMap<Origin, Known>) {
    known.retain(|_, known| matches!(known, Known::Asking(_)));
}

/// The duty to ask; dropped without an answer, it falls to the next attempt.
pub(super) struct Asking {
    rules: Arc<Rules>,
    origin: Origin,
    told: Arc<Notify>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut known = self.rules.lock();
        if matches!(known.get(&self.origin), Some(Known::Asking(_))) {
            known.remove(&self.origin);
        }
        drop(known);
        self.told.notify_waiters();
    }
}
