//! Who waits for a permit, who holds one, and the worker that keeps its slot meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paceline::workers::OnCrash;
use paceline::{Call, Failed, Failure, JobId, Work, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

/// Beyond a permit's own time.
const BEYOND: Duration = Duration::from_mins(1);

/// Those that wait for their turn, and those that have it.
#[derive(Clone, Default)]
pub(crate) struct Permits(Arc<Office>);

#[derive(Default)]
struct Office {
    desk: Mutex<Desk>,
    /// Rung when somebody gets a permit.
    granted: Notify,
}

#[derive(Default)]
struct Desk {
    waiting: HashMap<u64, oneshot::Sender<()>>,
    holders: HashMap<JobId, oneshot::Sender<Settling>>,
    next: u64,
}

/// How a call went.
struct Settling {
    work: Work,
    heard: oneshot::Sender<()>,
}

/// What the job of a permit carries.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Payload {
    pub(super) permit: u64,
    pub(super) ttl_ms: u64,
}

impl Permits {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lines up for a turn.
    pub(super) fn wait(&self) -> Waiting {
        use std::hash::{BuildHasher as _, Hasher as _, RandomState};
        let (grant, granted) = oneshot::channel();
        let mut desk = self.desk();
        if desk.next == 0 {
            // Numbers start where no earlier process was.
            desk.next = RandomState::new().build_hasher().finish() >> 16;
        }
        desk.next += 1;
        let number = desk.next;
        desk.waiting.insert(number, grant);
        Waiting { permits: self.clone(), number, granted }
    }

    /// Says how the call of a permit went; whether anybody held it.
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

    /// From now on it can be settled.
    fn hold(&self, permit: JobId) -> Holding<'_> {
        let (settle, settled) = oneshot::channel();
        self.desk().holders.insert(permit, settle);
        self.0.granted.notify_waiters();
        Holding { permits: self, permit, settled }
    }
}

/// One who waits for its turn. Dropped, it does no longer.
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

/// One who has it. Dropped, it can no longer be settled.
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

    /// Tells whoever waits that it is its turn.
    fn grant(&self, permit: u64) -> Result<(), Failed> {
        let Some(waiter) = self.0.desk().waiting.remove(&permit) else {
            return Err(lost("gone", "nobody waits for it any more"));
        };
        waiter.send(()).map_err(|()| lost("gone", "its caller has left"))
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
            // Its holder has it from an earlier process, or never heard of it: nobody knows.
            Some(passed) => left = left.saturating_sub(passed),
            None => self.grant(permit)?,
        }
        match tokio::time::timeout(left, &mut holding.settled).await {
            Ok(Ok(Settling { work, heard })) => {
                let _ = heard.send(());
                work
            }
            _ => Err(lost("unknown", "the permit was not settled in its time")),
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
