//! Due moments: a date belongs to the wall clock, a delay to engine time (W5).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::mutant::Mutant;
use crate::time::{Now, Span, Time};

/// When a submitted job is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// This long after its submission. Steps of the wall clock do not matter.
    In(Span),
    /// At this moment of the wall clock.
    At(Time),
}

/// The moment at which a job is due, by the clock that its caller named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DueAt {
    /// A date.
    Wall(Time),
    /// The end of a delay, in engine time: it goes on across restarts, and no step of the wall
    /// clock moves it.
    Engine(Time),
}

impl Due {
    /// The moment, if it is later than now.
    pub fn later(self, now: Now) -> Option<DueAt> {
        match self {
            Due::Now => None,
            Due::In(span) => (span > Span::ZERO).then(|| DueAt::Engine(now.time + span)),
            Due::At(wall) if Mutant::DueEarly.on() => {
                (wall > now.wall).then(|| DueAt::Wall(wall - Span::millis(900)))
            }
            Due::At(wall) => (wall > now.wall).then_some(DueAt::Wall(wall)),
        }
    }
}

impl DueAt {
    /// In engine time, as the clocks stand now.
    pub fn engine(self, now: Now) -> Time {
        match self {
            DueAt::Wall(wall) if Mutant::DueOnEngineTime.on() => wall,
            DueAt::Wall(wall) => now.engine_time(wall),
            DueAt::Engine(time) => time,
        }
    }

    /// As a date, as the clocks stand now.
    pub fn wall(self, now: Now) -> Time {
        match self {
            DueAt::Wall(wall) => wall,
            DueAt::Engine(time) => now.wall_time(time),
        }
    }

    /// Returns `true` if the moment has come or comes within `lead`.
    pub fn within(self, lead: Span, now: Now) -> bool {
        match self {
            DueAt::Wall(wall) if Mutant::DueOnEngineTime.on() => wall <= now.time + lead,
            DueAt::Wall(wall) => wall <= now.wall + lead,
            DueAt::Engine(time) => time <= now.time + lead,
        }
    }
}

/// Jobs that are due later, by their clocks.
#[derive(Debug, Default)]
pub(crate) struct DueJobs {
    by_wall: BTreeSet<(Time, u32)>,
    by_engine: BTreeSet<(Time, u32)>,
}

impl DueJobs {
    fn of(&mut self, due: DueAt) -> (&mut BTreeSet<(Time, u32)>, Time) {
        match due {
            DueAt::Wall(wall) => (&mut self.by_wall, wall),
            DueAt::Engine(time) => (&mut self.by_engine, time),
        }
    }

    pub(crate) fn insert(&mut self, due: DueAt, job: u32) {
        let (jobs, at) = self.of(due);
        jobs.insert((at, job));
    }

    /// Returns `true` if it was there.
    pub(crate) fn remove(&mut self, due: DueAt, job: u32) -> bool {
        let (jobs, at) = self.of(due);
        jobs.remove(&(at, job))
    }

    pub(crate) fn contains(&self, due: DueAt, job: u32) -> bool {
        match due {
            DueAt::Wall(wall) => self.by_wall.contains(&(wall, job)),
            DueAt::Engine(time) => self.by_engine.contains(&(time, job)),
        }
    }

    fn firsts(&self) -> impl Iterator<Item = (DueAt, u32)> {
        let by_wall = self.by_wall.first().map(|&(wall, job)| (DueAt::Wall(wall), job));
        let by_engine = self.by_engine.first().map(|&(time, job)| (DueAt::Engine(time), job));
        by_wall.into_iter().chain(by_engine)
    }

    /// The first job whose moment has come, or comes within `lead`.
    pub(crate) fn first_within(&self, lead: Span, now: Now) -> Option<u32> {
        let come = self.firsts().filter(|(due, _)| due.within(lead, now));
        come.min_by_key(|(due, job)| (due.engine(now), *job)).map(|(_, job)| job)
    }

    /// The next moment, in engine time as the clocks stand now.
    pub(crate) fn next_at(&self, now: Now) -> Option<Time> {
        self.firsts().map(|(due, _)| due.engine(now)).min()
    }

    /// Returns `true` if any job waits for a date.
    pub(crate) fn by_wall(&self) -> bool {
        !self.by_wall.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_wall.len() + self.by_engine.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Core, KindTerms, OnCrash, Setup};
    use crate::job::{Blob, JobSpec, Submission};
    use crate::limits::Limits;
    use crate::plan::Plan;

    #[test]
    fn w5_a_date_follows_the_wall_clock_and_a_delay_does_not() {
        let now = Now { time: Time(100), wall: Time(1_000) };
        let (date, delay) = (Due::At(Time(1_050)), Due::In(Span(50)));
        let (date, delay) = (date.later(now).expect("later"), delay.later(now).expect("later"));
        assert_eq!((date, delay), (DueAt::Wall(Time(1_050)), DueAt::Engine(Time(150))));
        let stepped_back = Now { time: Time(150), wall: Time(500) };
        assert!(!date.within(Span::ZERO, stepped_back));
        assert!(delay.within(Span::ZERO, stepped_back));
        assert_eq!((date.wall(now), delay.wall(now)), (Time(1_050), Time(1_050)));
        assert_eq!((Due::At(Time(1_000)).later(now), Due::In(Span::ZERO).later(now)), (None, None));
    }

    #[test]
    fn w5_the_wall_clock_is_looked_at_while_dates_are_waited_for_and_not_for_delays() {
        let kinds = vec![KindTerms::new("k", OnCrash::Repeat)];
        let lanes = vec![("a".into(), Limits::default())];
        let mut core = Core::new(Setup { lanes, kinds, ..Setup::default() });
        let now = Now { time: Time(100), wall: Time(1_000) };
        let mut submit = |due: Due| {
            let mut job = Submission::new(JobSpec::new("k", &["a"]), Blob::default());
            job.due = due;
            core.submit(job, now, &mut Plan::default()).expect("there is room");
            core.waits_for_wall_clock()
        };
        assert!(!submit(Due::In(Span(50))));
        assert!(submit(Due::At(Time(1_050))));
    }
}
