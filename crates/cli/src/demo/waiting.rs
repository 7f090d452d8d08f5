//! The unsettled calls of each lane in the order of rank, to find the reason why the first one waits.

use std::collections::{BTreeMap, BTreeSet};

use paceline::lanes::{Reason, Why};
use paceline::{Ended, JobId, Paceline, Priority};

use super::wanted::Wanted;

/// The most calls of a lane whose reason is fetched; the first ones may run, or wait for a retry.
const MOST_ASKED: usize = 6;

/// The unsettled calls, by lane. Their number is limited by the work of the demo.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    lanes: BTreeMap<&'static str, BTreeSet<(Priority, JobId, u16)>>,
}

impl Waiting {
    pub(super) fn add(&mut self, job: JobId, wanted: &Wanted) {
        for (lane, index) in wanted.lanes().zip(0..) {
            self.lanes.entry(lane).or_default().insert((wanted.priority(), job, index));
        }
    }

    pub(super) fn finished(&mut self, job: JobId, wanted: &Wanted) {
        for (lane, index) in wanted.lanes().zip(0..) {
            if let Some(calls) = self.lanes.get_mut(lane) {
                calls.remove(&(wanted.priority(), job, index));
            }
        }
    }

    /// The reason why the first call in a lane's queue waits; if the queue is empty, the reason of a
    /// call that is not in it yet (W3).
    pub(super) async fn why(&self, pace: &Paceline, lane: &str) -> Result<Option<Reason>, Ended> {
        let mut aside = None;
        for &(_, job, index) in self.lanes.get(lane).into_iter().flatten().take(MOST_ASKED) {
            let whys = pace.why(job).await?;
            match whys.into_iter().find(|(call, _)| *call == index) {
                Some((_, why)) if queued(&why) => return Ok(Some(why.reason)),
                Some((_, why)) => aside = aside.or(Some(why.reason)),
                None => {}
            }
        }
        Ok(aside)
    }
}

fn queued(why: &Why) -> bool {
    !matches!(why.reason, Reason::Stage | Reason::NotBefore | Reason::Backoff)
}
