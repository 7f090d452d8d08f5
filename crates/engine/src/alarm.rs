//! Alarm: wakes attempts that were promised ahead of their moment (W5).
//!
//! A thread of its own, because the runtime's timers are good to a millisecond or two, and a commit
//! in the driver may take longer than that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use paceline_core::{AttemptId, Time};
use tokio::sync::oneshot;

use crate::clock::Clock;

/// Rings for each sleeper at its moment. Its thread ends with it.
pub(crate) struct Alarm(Sender<Bell>);

struct Bell {
    at: Time,
    attempt: AttemptId,
    sleeper: oneshot::Sender<()>,
}

impl Alarm {
    pub(crate) fn start(clock: Arc<Clock>) -> Alarm {
        let (bells, inbox) = channel();
        let name = "paceline-alarm".to_string();
        // Without the thread, sleepers fall back on the runtime's timers.
        let _ = std::thread::Builder::new().name(name).spawn(move || ring(&inbox, &clock));
        Alarm(bells)
    }

    /// Resolves at the moment `at`, or early with an error if there is no thread.
    pub(crate) fn at(&self, at: Time, attempt: AttemptId) -> oneshot::Receiver<()> {
        let (sleeper, rung) = oneshot::channel();
        let _ = self.0.send(Bell { at, attempt, sleeper });
        rung
    }
}

fn ring(inbox: &Receiver<Bell>, clock: &Clock) {
    let mut sleepers = BTreeMap::new();
    loop {
        let now = clock.time();
        while let Some(first) = sleepers.first_entry()
            && first.key() <= &(now, AttemptId(u64::MAX))
        {
            let sleeper: oneshot::Sender<()> = first.remove();
            // An attempt that was aborted in the meantime does not listen.
            let _ = sleeper.send(());
        }
        let bell = match sleepers.first_key_value() {
            Some(((at, _), _)) => inbox.recv_timeout(at.since(now).into()),
            None => inbox.recv().map_err(RecvTimeoutError::from),
        };
        match bell {
            Ok(bell) => {
                sleepers.insert((bell.at, bell.attempt), bell.sleeper);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
