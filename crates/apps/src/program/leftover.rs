//! Process groups that a dead process left running: found by their notes, and ended before new
//! work.

use std::time::Duration;

use super::group::{Group, Patience};
use super::run::LEFT_OVER_GRACE;

/// The time limit for their end, for which the start has to wait.
const FORCED_WITHIN: Duration = Duration::from_secs(3);

/// The result of ending a process group that a dead process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// No process of the group was running.
    Nothing,
    /// It was ended.
    Ended,
    /// It does not exit, although it was killed.
    Alive,
}

/// The prefix of the notes that hold process groups.
pub const GROUPS: &str = "group/";

/// The note that holds the process group of this run.
pub(crate) fn group_note(whose: &str) -> String {
    format!("{GROUPS}{whose}")
}

/// Ends the process group in a note.
pub async fn end_leftover(note: &[u8]) -> Leftover {
    let group = serde_json::from_slice::<Group>(note).ok();
    let Some(group) = group.filter(|group| group.is_alive()) else { return Leftover::Nothing };
    let patience = Patience { grace: LEFT_OVER_GRACE, force: FORCED_WITHIN };
    match group.end_beside(patience, |_| {}).over().await {
        Ok(()) => Leftover::Ended,
        Err(_) => Leftover::Alive,
    }
}
