//! Timetables: lanes or groups by the moment at which they next open or change rank.
//!
//! A heap whose members know their places, because nearly every event moves one of them. Moments
//! mostly move later and come at the far end, so that a move costs a few steps in one flat array.

use crate::time::Time;

/// Children per place. With four there are fewer levels, and siblings are neighbours in memory.
const ARITY: usize = 4;
/// The place of numbers that are not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Numbers by their moments, the earliest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timetable {
    heap: Vec<(Time, u32)>,
    /// By number, its place in the heap.
    places: Vec<u32>,
}

impl Timetable {
    /// The earliest moment, and its number.
    pub(crate) fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Sets the moment of a number, whether it had one or not.
    pub(crate) fn set(&mut self, number: u32, at: Time) {
        if self.places.len() <= number as usize {
            self.places.resize(number as usize + 1, NOWHERE);
        }
        let entry = (at, number);
        let place = self.places[number as usize] as usize;
        if place == NOWHERE as usize {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1, entry);
        } else if at < self.heap[place].0 {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    /// Takes a number out, if it is in.
    pub(crate) fn remove(&mut self, number: u32) {
        let place = self.places.get_mut(number as usize);
        let place = place.map_or(NOWHERE, |place| std::mem::replace(place, NOWHERE)) as usize;
        if place == NOWHERE as usize {
            return;
        }
        let last = self.heap.pop().expect("a number with a place is in the heap");
        match self.heap.get(place) {
            None => {}
            Some(gone) if last.0 < gone.0 => self.rise(place, last),
            Some(_) => self.sink(place, last),
        }
    }

    /// Adds to `out` all numbers whose moment has come. They stay until they are given another
    /// moment.
    pub(crate) fn due(&self, now: Time, out: &mut Vec<u32>) {
        let due = |place: usize| self.heap.get(place).filter(|(at, _)| *at <= now);
        out.extend(due(0).map(|(_, number)| *number));
        // A number whose moment has not come has no child whose moment has: only those found lead
        // on.
        let mut next = 0;
        while let Some(&number) = out.get(next) {
            let first = self.places[number as usize] as usize * ARITY + 1;
            out.extend((first..first + ARITY).filter_map(due).map(|(_, number)| *number));
            next += 1;
        }
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }

    fn rise(&mut self, mut place: usize, entry: (Time, u32)) {
        while place > 0 && entry.0 < self.heap[(place - 1) / ARITY].0 {
            let parent = (place - 1) / ARITY;
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: (Time, u32)) {
        loop {
            let first = place * ARITY + 1;
            let children = &self.heap[first.min(self.heap.len())..];
            let children = children.iter().take(ARITY).enumerate();
            let Some((nth, &least)) = children.min_by_key(|(_, (at, _))| *at) else { break };
            if entry.0 <= least.0 {
                break;
            }
            self.put(place, least);
            place = first + nth;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Whatever moves, the first is the earliest, and those who are due are found.
        #[test]
        fn the_earliest_is_first_and_the_due_are_found(
            steps in prop::collection::vec((0..40u32, 0..60u64), 1..300),
        ) {
            let mut table = Timetable::default();
            let mut model = BTreeMap::new();
            for (number, at) in steps {
                if at < 15 {
                    table.remove(number);
                    model.remove(&number);
                } else {
                    table.set(number, Time(at));
                    model.insert(number, Time(at));
                }
                let (first, earliest) = (table.first(), model.values().min().copied());
                prop_assert_eq!(first.map(|(at, _)| at), earliest);
                prop_assert!(first.is_none_or(|(at, number)| model[&number] == at));
                let mut due = Vec::new();
                table.due(Time(30), &mut due);
                due.sort_unstable();
                let expected: Vec<u32> =
                    model.iter().filter(|(_, at)| at.0 <= 30).map(|(number, _)| *number).collect();
                prop_assert_eq!(due, expected);
            }
        }
    }
}
