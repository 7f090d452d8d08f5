//! The four priorities (P1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The priority of a job. The order of the variants is the order of rank, the highest first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Priority {
    /// A person waits for the answer.
    Interactive,
    /// The job reads a feed.
    Rss,
    /// The job completes what an earlier one found.
    Completion,
    /// Everything else.
    #[default]
    Background,
}

impl Priority {
    /// All four, highest first.
    pub const ALL: [Priority; 4] =
        [Priority::Interactive, Priority::Rss, Priority::Completion, Priority::Background];

    /// Its place in `ALL`.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// This priority after rising by `steps`.
    #[must_use]
    pub fn risen(self, steps: u64) -> Priority {
        Priority::ALL[self.index() - self.index().min(usize::try_from(steps).unwrap_or(3))]
    }

    /// Its name in configuration, JSON and output.
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Interactive => "interactive",
            Priority::Rss => "rss",
            Priority::Completion => "completion",
            Priority::Background => "background",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no priority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no priority named `{0}`: it is interactive, rss, completion or background")]
pub struct PriorityError(String);

impl FromStr for Priority {
    type Err = PriorityError;
    fn from_str(text: &str) -> Result<Priority, PriorityError> {
        let found = Priority::ALL.into_iter().find(|priority| priority.name() == text);
        found.ok_or_else(|| PriorityError(crate::time::shown(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_a_priority_rises_step_by_step_and_not_past_the_top() {
        assert_eq!(Priority::Background.risen(0), Priority::Background);
        assert_eq!(Priority::Background.risen(2), Priority::Rss);
        assert_eq!(Priority::Background.risen(u64::MAX), Priority::Interactive);
        assert_eq!(Priority::Interactive.risen(1), Priority::Interactive);
    }

    #[test]
    fn names_read_back() {
        for priority in Priority::ALL {
            assert_eq!(priority.name().parse(), Ok(priority));
        }
        assert!("urgent".parse::<Priority>().is_err());
    }
}
