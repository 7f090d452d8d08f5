//! Programs: what is run for a call, as a child in a process group of its own.

mod child;
mod group;
mod leftover;
mod run;
mod tail;

use std::path::PathBuf;

pub(crate) use group::Patience;
pub use leftover::{Leftover, end_leftover, whose_group};
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
