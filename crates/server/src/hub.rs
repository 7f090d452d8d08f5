//! The hub: receives each event once, and passes it to subscribers, metrics and the log.
//!
//! Each event is formatted once for all subscribers. A slow subscriber delays no other: one that
//! falls behind reads the rest from the store.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use paceline::Paceline;
use paceline::events::{Happened, Numbered};
use paceline::lanes::LaneStatus;
use paceline::report::CallOutcome;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::meters::Meters;
use crate::server::word;
use crate::view::LaneShown;
use paceline_apps::api::{stamp, wall};

/// Frames by which a subscriber may fall behind before it reads from the store.
const MOST_BEHIND: usize = 1_024;
/// The shortest time between two frames of gauges.
const GAUGES_EVERY: Duration = Duration::from_millis(500);
/// Lanes in one frame of gauges; the rest follows in the next.
const MOST_GAUGES: usize = 500;
/// The time without events after which subscribers get a comment, which keeps connections alive.
const SILENCE: Duration = Duration::from_secs(20);

/// Bytes that go to all subscribers at once.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The events in it; `None` for gauges and comments.
    pub(crate) events: Option<Arc<[Numbered]>>,
    pub(crate) bytes: Bytes,
}

/// Distributes frames to subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    frames: broadcast::Sender<Frame>,
}

impl Hub {
    pub(crate) fn new() -> Hub {
        Hub { frames: broadcast::channel(MOST_BEHIND).0 }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Frame> {
        self.frames.subscribe()
    }

    fn send(&self, events: Option<Arc<[Numbered]>>, bytes: impl Into<Bytes>) {
        // An error means that there is no subscriber, which is no problem.
        let _ = self.frames.send(Frame { events, bytes: bytes.into() });
    }

    /// Passes events on until the engine ends.
    pub(crate) async fn run(&self, pace: &Paceline, meters: &Meters) {
        let mut kept = pace.numbered_events();
        let mut gauges = Gauges::default();
        let mut silence = tokio::time::interval(SILENCE);
        loop {
            tokio::select! {
                events = kept.recv() => match events {
                    Ok(events) => {
                        self.tell(&events, meters);
                        gauges.dirty = true;
                    }
                    Err(RecvError::Lagged(turns)) => {
                        tracing::warn!(turns, "the event subscriber fell behind: the log has a gap");
                    }
                    Err(RecvError::Closed) => return,
                },
                () = gauges.due() => {
                    gauges.dirty = false;
                    if self.frames.receiver_count() == 0 {
                        continue;
                    }
                    match gauges.look(pace).await {
                        Some(text) if !text.is_empty() => self.send(None, text),
                        Some(_) => {}
                        None => return,
                    }
                }
                _ = silence.tick() => self.send(None, &b": silence\n\n"[..]),
                _ = pace.ended() => return,
            }
        }
    }

    fn tell(&self, events: &Arc<[Numbered]>, meters: &Meters) {
        for event in events.iter() {
            meters.count(&event.what);
            log(event);
        }
        if self.frames.receiver_count() > 0 {
            self.send(Some(events.clone()), words(events.iter()));
        }
    }
}

/// Lanes as they were last sent.
#[derive(Default)]
struct Gauges {
    dirty: bool,
    shown_at: Option<Instant>,
    shown: BTreeMap<Arc<str>, LaneStatus>,
}

impl Gauges {
    /// Resolves when gauges may have changed and the next frame is due.
    async fn due(&self) {
        if !self.dirty {
            return std::future::pending().await;
        }
        if let Some(at) = self.shown_at {
            tokio::time::sleep_until(at + GAUGES_EVERY).await;
        }
    }

    /// The lanes that have changed, as text of the stream; `None` if the engine has ended.
    async fn look(&mut self, pace: &Paceline) -> Option<String> {
        self.shown_at = Some(Instant::now());
        let mut text = String::new();
        let mut told = 0;
        let lanes = pace.lanes().await.ok()?;
        if self.shown.len() > lanes.len() {
            // Some lanes are gone: forget all, and send the rest anew.
            self.shown.clear();
        }
        for lane in lanes {
            // The `open_at` of an open lane is always now: that alone is no change.
            let same = |before: &LaneStatus| {
                let open_at = if lane.why_closed.is_some() { lane.open_at } else { before.open_at };
                *before == LaneStatus { open_at, ..lane.clone() }
            };
            if self.shown.get(&lane.name).is_some_and(same) {
                continue;
            }
            if told == MOST_GAUGES {
                self.dirty = true;
                break;
            }
            told += 1;
            let shown = serde_json::to_string(&LaneShown::of(pace, &lane)).unwrap_or_default();
            let _ = write!(text, "event: lane\ndata: {shown}\n\n");
            self.shown.insert(lane.name.clone(), lane);
        }
        Some(text)
    }
}

/// Events as text of the stream.
pub(crate) fn words<'a>(events: impl IntoIterator<Item = &'a Numbered>) -> String {
    let mut text = String::new();
    for event in events {
        let (name, data) = (name(&event.what), data(event));
        let _ = write!(text, "id: {}\nevent: {name}\ndata: {data}\n\n", event.id);
    }
    text
}

fn name(what: &Happened) -> &'static str {
    match what {
        Happened::Accepted { .. } => "accepted",
        Happened::Started { .. } => "started",
        Happened::Settled { .. } => "settled",
        Happened::Finished { .. } => "finished",
        Happened::Closed { .. } => "closed",
    }
}

fn data(event: &Numbered) -> Value {
    let mut data = match &event.what {
        Happened::Accepted { job } => json!({ "job": job }),
        Happened::Started { job, call, lane } => json!({ "job": job, "call": call, "lane": lane }),
        Happened::Settled { job, call, lane, outcome, attempts, waited, ran } => {
            let mut data = json!({
                "job": job, "call": call, "lane": lane, "outcome": outcome.name(),
                "attempts": attempts, "waited_ms": waited.as_millis(), "ran_ms": ran.as_millis(),
            });
            match outcome {
                CallOutcome::Failed(failure) => data["class"] = (*failure.class).into(),
                CallOutcome::Skipped(skip) => data["reason"] = skip.reason().into(),
                _ => {}
            }
            data
        }
        Happened::Finished { job, state, answer } => {
            json!({ "job": job, "state": state, "answer": answer })
        }
        Happened::Closed { lane, until } => json!({ "lane": lane, "until": stamp(wall(*until)) }),
    };
    data["at"] = stamp(wall(event.at)).into();
    data
}

/// Logs one line per event.
fn log(event: &Numbered) {
    let id = event.id;
    match &event.what {
        Happened::Accepted { job } => tracing::info!(event = id, job = job.0, "accepted"),
        Happened::Started { job, call, lane } => {
            tracing::info!(event = id, job = job.0, call, lane = &**lane, "started");
        }
        Happened::Settled { job, call, lane, outcome, attempts, waited, ran } => {
            let (waited_ms, ran_ms) = (waited.as_millis(), ran.as_millis());
            let why = match outcome {
                CallOutcome::Failed(failure) => Some(&*failure.class),
                CallOutcome::Skipped(skip) => Some(skip.reason()),
                _ => None,
            };
            let (job, lane, outcome) = (job.0, &**lane, outcome.name());
            tracing::info!(
                event = id,
                job,
                call,
                lane,
                outcome,
                why,
                attempts,
                waited_ms,
                ran_ms,
                "settled"
            );
        }
        Happened::Finished { job, state, .. } => {
            tracing::info!(event = id, job = job.0, state = word(*state), "finished");
        }
        Happened::Closed { lane, until } => {
            let until = stamp(wall(*until));
            tracing::info!(event = id, lane = &**lane, until, "closed");
        }
    }
}
