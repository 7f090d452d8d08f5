//! The wait that a call would have if it joined its lane now, behind the calls ahead of it (W1).

use crate::core::Core;
use crate::job::Submission;
use crate::lane::{Demand, Lane};
use crate::ledger::Ledger;
use crate::limits::{GapFrom, Window};
use crate::priority::Priority;
use crate::time::{Now, Span, Time};

impl Core {
    /// The earliest start of a job that asked to be refused if it is late; `None` if that is within
    /// its `start_within`. Limits and the calls ahead are counted. The time that those calls take
    /// is not known, so a job that is let in may still be late, and one that is refused would have
    /// been.
    pub(crate) fn too_late(&self, submission: &Submission, now: Now) -> Option<Time> {
        let budget = submission.spec.start_within.filter(|_| submission.in_time)?;
        let priority = submission.priority.unwrap_or_default();
        let cost = submission.spec.cost.get();
        let lanes = submission.spec.stages.first()?.iter();
        // A lane that does not exist yet is open.
        let known = lanes.map(|name| self.lane_names.get(name).map(|&lane| &self.lanes[lane]));
        let starts = known.map(|lane| match lane {
            Some(lane) => self.foreseen(lane, Demand { priority, rank: priority, cost }, now.time),
            None => now.time,
        });
        starts.min().filter(|at| *at > now.time + budget)
    }

    /// The earliest start of a call with this demand.
    fn foreseen(&self, lane: &Lane, demand: Demand, now: Time) -> Time {
        if lane.paused {
            return Time::NEVER;
        }
        let group = lane.group.map(|group| &self.groups[group]);
        let first = lane.opening(demand).latest(self.group_opening(lane, demand.cost));
        let (mut ahead, mut gaps) = (0, Span::ZERO);
        for priority in Priority::ALL.into_iter().filter(|other| *other <= demand.priority) {
            let waiting = lane.queues.of(priority).len() as u64;
            ahead += waiting;
            let gap = lane.gap(priority);
            // A gap from the finish starts when the response is here: no jitter is left to allow
            // for.
            let slack = match lane.limits.gap_from {
                GapFrom::Start if gap > Span::ZERO => lane.slack,
                GapFrom::Start | GapFrom::Finish => Span::ZERO,
            };
            gaps += (gap + slack).times(waiting);
        }
        let ahead = Ahead { calls: ahead, slack: lane.slack };
        let windows = lane.limits.windows.iter().zip(lane.since);
        let windows = windows.map(|(window, since)| {
            after(&lane.ledger, window, window.allowed(demand.priority), since, ahead, now)
        });
        let of_group = group.into_iter().flat_map(|group| {
            let windows = group.limits.windows.iter().zip(&group.since);
            windows.map(move |(window, &since)| {
                let max = u64::from(window.rate.max.get());
                after(&group.ledger, window, max, since, ahead, now)
            })
        });
        let by_gaps = first.at.max(now) + gaps;
        windows.chain(of_group).fold(by_gaps, Time::max)
    }
}

/// Calls that go first, and how long after its start each of them counts.
#[derive(Clone, Copy)]
struct Ahead {
    calls: u64,
    slack: Span,
}

/// The moment at which a window has room for one call after these others.
fn after(
    ledger: &Ledger,
    window: &Window,
    allowed: u64,
    since: Time,
    ahead: Ahead,
    now: Time,
) -> Time {
    if allowed == 0 {
        return Time::NEVER;
    }
    // A whole window's worth of calls ahead takes a whole window.
    let (whole, rest) = (ahead.calls / allowed, ahead.calls % allowed);
    let cost = u32::try_from(rest + 1).unwrap_or(u32::MAX);
    let at = ledger.opening(window.rate.per, allowed, since, cost).max(now);
    at + (window.rate.per + ahead.slack).times(whole)
}
