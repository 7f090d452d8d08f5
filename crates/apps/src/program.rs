//! Programs: what is run for a call, as a child in a process group of its own.

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

/// What is run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub run: Vec<String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// Variables of our environment that are not for it: secrets of lanes.
    pub without: Vec<String>,
}

impl Program {
    /// These variables are not for it either.
    pub(crate) fn hide(&mut self, variables: &[String]) {
        for variable in variables {
            if !self.without.contains(variable) {
                self.without.push(variable.clone());
            }
        }
    }
}
