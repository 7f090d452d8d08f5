//! Attempts whose real start is not known yet, by the latest moment at which they could arrive
//! (L4).

use std::collections::VecDeque;

use crate::job::AttemptId;
use crate::priority::Priority;
use crate::time::Time;

/// The latest moment of arrival, the attempt and its priority.
type PendingStart = (Time, AttemptId, Priority);

/// They are few at a time, and nearly always join at the back and leave at the front.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingStarts(VecDeque<PendingStart>);

impl PendingStarts {
    pub(crate) fn insert(&mut self, start: PendingStart) {
        let place = self.0.partition_point(|other| *other < start);
        self.0.insert(place, start);
    }

    pub(crate) fn remove(&mut self, start: &PendingStart) {
        if let Ok(place) = self.0.binary_search(start) {
            self.0.remove(place);
        }
    }

    /// The latest moment at which one of them could arrive, of one priority or of any.
    pub(crate) fn latest(&self, only: Option<Priority>) -> Time {
        let mut newest = self.0.iter().rev();
        let found = newest.find(|(_, _, priority)| only.is_none_or(|only| *priority == only));
        found.map_or(Time::ZERO, |(at, _, _)| *at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PendingStart> {
        self.0.iter().copied()
    }
}
