//! The callers that wait for a job's report, each until a deadline of its own (D1, W2).

use serde::{Deserialize, Serialize};

use crate::mutant::Mutant;
use crate::time::Time;

/// The most different deadlines that one job keeps. A caller beyond them counts with the latest
/// one.
pub const MOST_DEADLINES: usize = 1_000;

/// Callers with the same deadline; [`Time::NEVER`] for those without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Deadline {
    #[serde(with = "never_as_none")]
    at: Time,
    callers: u32,
}

/// Most callers have no deadline: that is stored in one byte.
mod never_as_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::time::Time;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(at: &Time, to: S) -> Result<S::Ok, S::Error> {
        Some(*at).filter(|at| *at != Time::NEVER).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        Option::<Time>::deserialize(from).map(|at| at.unwrap_or(Time::NEVER))
    }
}

/// The callers of one job by their deadlines; at least one, until the last one leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Callers {
    latest: Deadline,
    /// `None` for most jobs, which have one caller. A million of them may wait, so this is a
    /// pointer.
    earlier: Option<Box<Earlier>>,
}

/// In order, and never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Earlier(Vec<Deadline>);

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Stored {
    latest: Deadline,
    earlier: Vec<Deadline>,
}

impl From<Stored> for Callers {
    fn from(Stored { latest, earlier }: Stored) -> Callers {
        let earlier = (!earlier.is_empty()).then(|| Box::new(Earlier(earlier)));
        Callers { latest, earlier }
    }
}

impl From<Callers> for Stored {
    fn from(callers: Callers) -> Stored {
        Stored { latest: callers.latest, earlier: callers.earlier().to_vec() }
    }
}

impl Callers {
    /// One caller with this deadline; [`Time::NEVER`] for none.
    pub fn one(deadline: Time) -> Callers {
        Callers::alike(deadline, 1)
    }

    /// Several callers with the same deadline.
    pub fn alike(deadline: Time, callers: u32) -> Callers {
        Callers { latest: Deadline { at: deadline, callers }, earlier: None }
    }

    /// The number of callers.
    pub fn count(&self) -> u32 {
        let earlier = self.earlier().iter().map(|due| due.callers);
        earlier.fold(self.latest.callers, u32::saturating_add)
    }

    /// The deadline that passes first; [`Time::NEVER`] if none does.
    pub fn first(&self) -> Time {
        self.earlier().first().unwrap_or(&self.latest).at
    }

    /// The deadline that ends the job, if nothing else does; [`Time::NEVER`] for none.
    pub fn last(&self) -> Time {
        self.latest.at
    }

    /// Deadlines and how many callers have each, in order; [`Time::NEVER`] for none.
    pub fn deadlines(&self) -> impl Iterator<Item = (Time, u32)> {
        self.earlier().iter().chain([&self.latest]).map(|deadline| (deadline.at, deadline.callers))
    }

    /// Adds a caller.
    pub fn join(&mut self, deadline: Time) {
        let deadline =
            if Mutant::JoinedDeadlineIgnored.on() { deadline.min(self.last()) } else { deadline };
        let mut all = self.all();
        match all.binary_search_by_key(&deadline, |due| due.at) {
            Ok(place) => all[place].callers = all[place].callers.saturating_add(1),
            Err(_) if all.len() == MOST_DEADLINES => {
                let latest = all.last_mut().expect("a job has a caller");
                latest.at = latest.at.max(deadline);
                latest.callers = latest.callers.saturating_add(1);
            }
            Err(place) => all.insert(place, Deadline { at: deadline, callers: 1 }),
        }
        self.set(all);
    }

    /// Adds a caller that replaces the work. One with the same deadline as another takes its place.
    pub fn take_over(&mut self, deadline: Time) {
        if self.deadlines().all(|(at, _)| at != deadline) {
            self.join(deadline);
        }
    }

    /// Removes the callers whose deadlines are at or before `now`. Returns `true` if any caller is
    /// left.
    pub fn pass(&mut self, now: Time) -> bool {
        let left: Vec<Deadline> = self.all().into_iter().filter(|due| due.at > now).collect();
        self.set(left)
    }

    /// Removes the caller that would wait longest. Returns `true` if another is left.
    pub fn leave(&mut self) -> bool {
        let mut all = self.all();
        let latest = all.last_mut().expect("a job has a caller");
        latest.callers = latest.callers.saturating_sub(1);
        all.retain(|due| due.callers > 0);
        self.set(all)
    }

    fn earlier(&self) -> &[Deadline] {
        self.earlier.as_ref().map_or(&[], |earlier| &earlier.0)
    }

    fn all(&self) -> Vec<Deadline> {
        self.earlier().iter().copied().chain([self.latest]).collect()
    }

    /// Without any caller left the last one is kept, for the report.
    fn set(&mut self, mut all: Vec<Deadline>) -> bool {
        let Some(latest) = all.pop() else { return false };
        *self = Stored { latest, earlier: all }.into();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(deadlines: &[u64]) -> Callers {
        let mut callers = Callers::one(Time(deadlines[0]));
        deadlines[1..].iter().for_each(|at| callers.join(Time(*at)));
        callers
    }

    #[test]
    fn d1_deadlines_pass_one_after_the_other() {
        let mut callers = callers(&[30, 10, 30, 20]);
        callers.join(Time::NEVER);
        assert_eq!((callers.count(), callers.first()), (5, Time(10)));
        assert!(callers.pass(Time(10)));
        assert_eq!((callers.count(), callers.first()), (4, Time(20)));
        assert!(callers.pass(Time(30)));
        assert_eq!((callers.count(), callers.first()), (1, Time::NEVER));
        assert!(!callers.leave());
    }

    #[test]
    fn d1_the_one_that_would_wait_longest_leaves_first() {
        let mut callers = callers(&[10, 30, 20, 30]);
        for (left, last) in [(3, 30), (2, 20), (1, 10)] {
            assert!(callers.leave());
            assert_eq!((callers.count(), callers.last()), (left, Time(last)));
        }
        assert!(!callers.leave());
    }

    #[test]
    fn d1_the_last_deadline_to_pass_leaves_no_caller() {
        let mut callers = callers(&[10, 20]);
        assert!(!callers.pass(Time(20)));
    }

    #[test]
    fn d1_beyond_the_bound_a_caller_counts_with_the_latest() {
        let mut callers = Callers::one(Time(1));
        (2..=1_002).for_each(|at| callers.join(Time(at)));
        assert_eq!((callers.count(), callers.last()), (1_002, Time(1_002)));
        callers.join(Time(500));
        callers.join(Time(0));
        assert!(callers.pass(Time(999)));
        assert_eq!((callers.count(), callers.first()), (4, Time(1_002)));
    }
}
