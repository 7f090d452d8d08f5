//! The calls of one client that an upstream saw, by its own log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use paceline_mock::{LogEntry, Summary};

use super::wanted::number_of;

/// The counts of one upstream, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) calls: u64,
    /// Calls answered 429.
    pub(super) refused: u64,
    pub(super) bans: u64,
    /// Calls that broke a limit by more than the tolerance.
    pub(super) broken: usize,
    /// Calls that got an answer, each counted once.
    pub(super) answers: usize,
    /// The jobs that it answered.
    pub(super) answered: BTreeSet<u32>,
    /// The jobs whose calls reached it.
    pub(super) asked: BTreeSet<u32>,
    /// Calls that it answered more than once.
    pub(super) repeated: usize,
}

impl Score {
    pub(super) fn of(summary: &Summary, log: &[LogEntry]) -> Score {
        let mut times = BTreeMap::<u32, usize>::new();
        let mut asked = BTreeSet::new();
        for (number, entry) in log.iter().filter_map(|entry| Some((number_of(&entry.path)?, entry)))
        {
            asked.insert(number);
            if entry.status == Some(200) {
                *times.entry(number).or_default() += 1;
            }
        }
        Score {
            calls: summary.calls,
            refused: status(summary, 429),
            bans: summary.bans,
            broken: summary.violations(),
            answers: times.len(),
            repeated: times.values().filter(|&&times| times > 1).count(),
            answered: times.into_keys().collect(),
            asked,
        }
    }

    /// All upstreams of a client together.
    pub(super) fn all<'a>(scores: impl IntoIterator<Item = &'a Score>) -> Score {
        let mut all = Score::default();
        scores.into_iter().for_each(|score| all += score);
        all
    }
}

impl AddAssign<&Score> for Score {
    fn add_assign(&mut self, other: &Score) {
        self.calls += other.calls;
        self.refused += other.refused;
        self.bans += other.bans;
        self.broken += other.broken;
        self.answers += other.answers;
        self.answered.extend(&other.answered);
        self.asked.extend(&other.asked);
        self.repeated += other.repeated;
    }
}

/// The number of calls with this status.
pub(super) fn status(summary: &Summary, status: u16) -> u64 {
    summary.by_status.get(&status.to_string()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, status: u16) -> LogEntry {
        let path = path.to_string();
        LogEntry { call: 1, at_us: 0, path, status: Some(status), in_flight: 1, ended_at: None }
    }

    #[test]
    fn an_answer_counts_once_and_a_job_once_over_all_services() {
        let log = [
            entry("/job/1", 429),
            entry("/job/1", 200),
            entry("/job/2", 200),
            entry("/job/2", 200),
            entry("/job/3", 500),
            entry("/elsewhere", 200),
        ];
        let by_status = [("200", 4), ("429", 1), ("500", 1)];
        let by_status = by_status.map(|(status, calls)| (status.to_string(), calls)).into();
        let summary = Summary { calls: 6, by_status, bans: 1, ..Summary::default() };
        let score = Score::of(&summary, &log);
        assert_eq!((score.calls, score.refused, score.bans), (6, 1, 1));
        assert_eq!((score.answers, score.repeated), (2, 1));
        assert_eq!((score.answered.len(), score.asked.len()), (2, 3));
        let both = Score::all([&score, &score]);
        assert_eq!((both.calls, both.answers, both.answered.len()), (12, 4, 2));
    }
}
