//! Waiting clients, holders of permits, and the worker that keeps the slot of a held permit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paceline::workers::OnCrash;
use paceline::{Call, Failed, Failure, JobId, Work, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

/// The time limit of the worker beyond the permit's `ttl`.
const BEYOND: Duration = Duration::from_mins(1);

/// Clients that wait for a permit, and permits that are held.
#[derive(Clone, Default)]
pub(crate) struct Permits(Arc<Office>);

#[derive(Default)]
struct Office {
    desk: Mutex<Desk>,
    /// Notified when a permit is held.
    granted: Notify,
}

#[derive(Default)]
struct Desk {
    waiting: HashMap<u64, oneshot::Sender<()>>,
    holders: HashMap<JobId, oneshot::Sender<Settling>>,
    next: u64,
}

/// The result of a permit's call.
struct Settling {
    work: Work,
    heard: oneshot::Sender<()>,
}

/// The payload of a permit's job.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Payload {
    pub(super) permit: u64,
    pub(super) ttl_ms: u64,
}

impl Permits {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a client that waits for a turn.
    pub(super) fn wait(&self) -> Waiting {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        let (grant, granted) = oneshot::channel();
        let mut desk = self.desk();
        if desk.next == 0 {
            // A random start: jobs of an earlier process must not match a client of this one.
            desk.next = RandomState::new().build_hasher().finish() >> 16;
        }
        desk.next += 1;
        let number = desk.next;
        desk.waiting.insert(number, grant);
        Waiting { permits: self.clone(), number, granted }
    }

    /// Settles a permit. Returns `true` if it was held and is settled now.
    pub(super) async fn settle(&self, permit: JobId, work: Work) -> bool {
        let Some(holder) = self.desk().holders.remove(&permit) else { return false };
        let (heard, hears) = oneshot::channel();
        holder.send(Settling { work, heard }).is_ok() && hears.await.is_ok()
    }

    /// Resolves when the permit is held.
    pub(super) async fn held(&self, permit: JobId) {
        loop {
            let mut granted = std::pin::pin!(self.0.granted.notified());
            granted.as_mut().enable();
            if self.desk().holders.contains_key(&permit) {
                return;
            }
            granted.await;
        }
    }

    /// Makes the permit ready to be settled.
    fn hold(&self, permit: JobId) -> Holding<'_> {
        let (settle, settled) = oneshot::channel();
        self.desk().holders.insert(permit, settle);
        self.0.granted.notify_waiters();
        Holding { permits: self, permit, settled }
    }
}

/// A client that waits for its turn. Dropping it leaves the line.
pub(super) struct Waiting {
    permits: Permits,
    pub(super) number: u64,
    pub(super) granted: oneshot::Receiver<()>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.permits.desk().waiting.remove(&self.number);
    }
}

/// A held permit. Once dropped, it can no longer be settled.
struct Holding<'a> {
    permits: &'a Permits,
    permit: JobId,
    settled: oneshot::Receiver<Settling>,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.permits.desk().holders.remove(&self.permit);
    }
}

/// Keeps the slots of permits until they are settled.
pub(crate) struct PermitWorker(Permits);

impl PermitWorker {
    pub(crate) fn new(permits: Permits) -> PermitWorker {
        PermitWorker(permits)
    }

    /// Tells the waiting client that its turn has come.
    fn grant(&self, permit: u64) -> Result<(), Failed> {
        let Some(waiter) = self.0.desk().waiting.remove(&permit) else {
            return Err(lost("gone", "its caller has disconnected"));
        };
        waiter.send(()).map_err(|()| lost("gone", "its caller has disconnected"))
    }
}

fn lost(class: &str, why: &str) -> Failed {
    Failed::lost(Failure::permanent(class).because(why))
}

impl Worker for PermitWorker {
    async fn run(&self, call: Call) -> Work {
        let Payload { permit, ttl_ms } = call.payload()?;
        let mut left = Duration::from_millis(ttl_ms);
        let mut holding = self.0.hold(call.id().job);
        match call.taken_up() {
            // An earlier process granted it, or died before it did: this one cannot know.
            Some(passed) => left = left.saturating_sub(passed),
            None => self.grant(permit)?,
        }
        match tokio::time::timeout(left, &mut holding.settled).await {
            Ok(Ok(Settling { work, heard })) => {
                let _ = heard.send(());
                work
            }
            _ => Err(lost("unknown", "the permit was not settled within its `ttl`")),
        }
    }

    fn keeps_worker(&self) -> bool {
        false
    }

    fn on_crash(&self) -> OnCrash {
        OnCrash::TakeUp
    }

    fn timeout(&self, payload: &[u8], _lane: &str) -> Option<Duration> {
        let Payload { ttl_ms, .. } = serde_json::from_slice(payload).ok()?;
        Some(Duration::from_millis(ttl_ms) + BEYOND)
    }
}
