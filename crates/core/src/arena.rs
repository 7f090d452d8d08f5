//! Dense storage: jobs, calls and lanes by small numbers that are used again.

use std::ops::{Index, IndexMut};

/// Values by number.
#[derive(Clone, Debug)]
pub(crate) struct Arena<T>(slab::Slab<T>);

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena(slab::Slab::new())
    }
}

impl<T> Arena<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        u32::try_from(self.0.insert(value)).expect("admission bounds how many there are")
    }

    pub(crate) fn remove(&mut self, number: u32) -> T {
        self.0.remove(number as usize)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.0.get(number as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.0.iter().map(|(number, value)| (number as u32, value))
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.0[number as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.0[number as usize]
    }
}
