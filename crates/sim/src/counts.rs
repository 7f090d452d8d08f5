//! Counters for the summary.

use std::collections::BTreeMap;

use paceline_core::{Admission, Event};

use crate::agenda::Act;
use crate::disk::Fault;

/// Sums over one world or many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) jobs: u64,
    pub(crate) calls: u64,
    pub(crate) reports: u64,
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) unused: u64,
    pub(crate) timeouts: u64,
    pub(crate) crashes: u64,
    /// Reservations that a power cut lost.
    pub(crate) forgotten: u64,
    pub(crate) turns: u64,
    pub(crate) rejected: u64,
    pub(crate) kinds: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub(crate) fn more(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    pub(crate) fn act(&mut self, act: &Act) {
        match act {
            Act::Stop(_) => self.more("stop"),
            Act::Crash(_) => self.more("crash"),
            Act::Reboot(_) => self.more("reboot"),
            Act::Restart(_) => self.more("restart with other limits"),
            Act::StepWall(by) if *by < 0 => self.more("clock stepped back"),
            Act::StepWall(_) => self.more("clock stepped forward"),
            Act::FailCommit(Fault::Lost) => self.more("commit failed, lost"),
            Act::FailCommit(Fault::Written) => self.more("commit failed, written"),
            Act::CommitTime(_) => self.more("slow store"),
            Act::RunService(_) => self.more("service run by hand"),
            Act::CancelSome | Act::Cancel(_) => self.more("cancelled"),
            Act::Behaviour(..) => self.more("upstream changes its behaviour"),
            Act::Lane(_, paceline::turn::LaneAct::Change(_)) => self.more("limits changed"),
            Act::Lane(..) => self.more("lane paused, resumed or reset"),
            // `RebootAtPromise` becomes a reboot, and is counted then.
            Act::Submit(_) | Act::Heal | Act::RebootAtPromise(_) => {}
        }
    }

    pub(crate) fn admission(&mut self, admission: &Admission) {
        match admission {
            Admission::Accepted(_) => self.jobs += 1,
            Admission::Joined(_) => self.more("joined"),
            Admission::Replaced(_) => self.more("replaced"),
            Admission::Duplicate(_) => self.more("duplicate refused"),
            Admission::Refused { .. } => self.more("refused for room"),
            Admission::TooLate { .. } => self.more("refused as too late"),
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Settled(_, report) => {
                self.calls += 1;
                self.more(report.outcome.name());
            }
            Event::Finished(_) => self.reports += 1,
            _ => {}
        }
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        self.jobs += other.jobs;
        self.calls += other.calls;
        self.reports += other.reports;
        self.requests += other.requests;
        self.answered += other.answered;
        self.unused += other.unused;
        self.timeouts += other.timeouts;
        self.crashes += other.crashes;
        self.forgotten += other.forgotten;
        self.turns += other.turns;
        self.rejected += other.rejected;
        for (kind, n) in &other.kinds {
            *self.kinds.entry(kind).or_default() += n;
        }
    }
}
