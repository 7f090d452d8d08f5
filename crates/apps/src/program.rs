//! Programs: a call runs one as a child in a process group of its own.

mod child;
mod group;
mod leftover;
mod run;
mod tail;

use std::path::PathBuf;

pub(crate) use group::Patience;
pub(crate) use leftover::group_note;
pub use leftover::{GROUPS, Leftover, end_leftover};
pub(crate) use run::{BEYOND, Run};
pub use tail::LONGEST_TAIL;

/// A program to run, and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// The working directory.
    pub directory: PathBuf,
    /// Variables of this process that the program does not see: they hold secrets of lanes.
    pub without: Vec<String>,
}

impl Program {
    /// Hides these variables as well.
    pub(crate) fn hide(&mut self, variables: &[String]) {
        for variable in variables {
            if !self.without.contains(variable) {
                self.without.push(variable.clone());
            }
        }
    }
}
