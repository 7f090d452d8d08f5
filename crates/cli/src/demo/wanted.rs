//! The work of the demo: one list of jobs for both clients.

use paceline::{Job, Priority};
use serde::{Deserialize, Serialize};

/// A job of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Identifies the job in the store and in the upstreams' logs.
    pub(super) number: u32,
    pub(super) part: Part,
    pub(super) stages: Stages,
    priority: Priority,
    comes: Comes,
}

/// Lanes that are asked together, stage by stage (J3).
type Stages = &'static [&'static [&'static str]];

/// Jobs that are submitted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Part {
    /// Most of the jobs, at the start.
    Bulk,
    /// A user waits at a screen, for a lane that opens soon.
    Urgent,
    /// Searches: the first answer is enough (J2).
    Searches,
    /// A user waits at a screen, for a lane whose window is full.
    Bound,
}

/// The time at which a job of a part is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    AtOnce,
    /// A feed, read a while after the start.
    Delayed,
}

/// The delay of feeds after the start.
const LATER: &str = "8s";
/// The `max_wait` of jobs with a lane that hangs (W1).
const HUNG_MAX_WAIT: &str = "5s";
/// The deadline of all jobs, so that the demo ends even on a busy machine.
const DEADLINE: &str = "42s";

/// The lane of each urgent part.
pub(super) const URGENT_LANE: &str = "steady";
pub(super) const BOUND_LANE: &str = "windowed";

/// All jobs. `windowed` allows 20 in 10 s and gets more than 60 calls: the demo takes 30 s.
pub(super) fn wanted() -> Vec<Wanted> {
    use Comes::{AtOnce, Delayed};
    use Priority::{Background, Completion, Interactive, Rss};
    let groups: [(usize, Part, Stages, Priority, Comes); 14] = [
        (80, Part::Bulk, &[&["steady"]], Background, AtOnce),
        (70, Part::Bulk, &[&["windowed"]], Background, AtOnce),
        (80, Part::Bulk, &[&["grumpy"]], Background, AtOnce),
        (56, Part::Bulk, &[&["flaky"]], Background, AtOnce),
        (8, Part::Bulk, &[&["hung"]], Background, AtOnce),
        (5, Part::Bulk, &[&["hung"], &["flaky"]], Background, AtOnce),
        (12, Part::Bulk, &[&["steady"]], Completion, AtOnce),
        (12, Part::Bulk, &[&["grumpy"]], Completion, AtOnce),
        (1, Part::Bulk, &[&["steady"]], Rss, Delayed),
        (1, Part::Bulk, &[&["windowed"]], Rss, Delayed),
        (1, Part::Bulk, &[&["grumpy"]], Rss, Delayed),
        (1, Part::Urgent, &[&[URGENT_LANE]], Interactive, AtOnce),
        (12, Part::Searches, &[&["steady", "windowed", "grumpy"], &["flaky"]], Completion, AtOnce),
        (1, Part::Bound, &[&[BOUND_LANE]], Interactive, AtOnce),
    ];
    let each = groups.into_iter().flat_map(|(times, part, stages, priority, comes)| {
        std::iter::repeat_n((part, stages, priority, comes), times)
    });
    let numbered = (1..).zip(each);
    numbered
        .map(|(number, (part, stages, priority, comes))| Wanted {
            number,
            part,
            stages,
            priority,
            comes,
        })
        .collect()
}

impl Wanted {
    /// Its lanes, in the order of its calls.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &'static str> {
        self.stages.iter().copied().flatten().copied()
    }

    pub(super) fn priority(&self) -> Priority {
        self.priority
    }

    /// The path of its requests.
    pub(super) fn path(&self) -> String {
        format!("/job/{}", self.number)
    }

    /// The job for Paceline. Its key identifies it, also in a process that finds it in the store.
    pub(super) fn job(&self) -> Job {
        let job = Job::new("ask", &self.path()).key(self.number.to_string()).deadline(DEADLINE);
        let job = self.stages.iter().fold(job, |job, stage| job.on(*stage));
        // One in three calls of `flaky` fails, so 12 in a row hardly ever do.
        let job = job.attempts(12).backoff("200ms");
        let job = match self.stages {
            [["hung"]] => job.attempts(1).max_wait(HUNG_MAX_WAIT),
            [["hung"], ..] => job.max_wait(HUNG_MAX_WAIT),
            _ => job,
        };
        let job = if self.part == Part::Searches { job.first_conclusive() } else { job };
        let job = if self.comes == Comes::Delayed { job.delay(LATER) } else { job };
        match self.priority {
            // Left unset: a priority that is set brings a `max_wait` of a minute (W1).
            Priority::Background => job,
            named => job.priority(named),
        }
    }
}

/// The number of the job that a request path belongs to.
pub(super) fn number_of(path: &str) -> Option<u32> {
    path.strip_prefix("/job/")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_identifies_its_job() {
        for (number, wanted) in (1..).zip(wanted()) {
            assert_eq!(wanted.number, number);
            assert_eq!(number_of(&wanted.path()), Some(number));
        }
        assert_eq!(number_of("/favicon.ico"), None);
    }

    #[test]
    fn the_work_is_a_few_hundred_calls_and_half_a_minute() {
        let all = wanted();
        assert!((300..400).contains(&all.iter().flat_map(Wanted::lanes).count()));
        // Three full windows and a part of a fourth; searches have their answers from elsewhere.
        let windowed = all.iter().filter(|wanted| wanted.lanes().eq(["windowed"])).count();
        assert!((61..=80).contains(&windowed));
    }
}
