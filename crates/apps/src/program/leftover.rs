//! What a process that died left running: found by its notes, and ended before anything starts.

use std::time::Duration;

use super::group::{Group, Patience};
use super::run::LEFT_OVER_GRACE;

/// How long one that is made to end may take: whoever starts waits for it.
const FORCED_WITHIN: Duration = Duration::from_secs(3);

/// What became of a process group that a dead process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// None of it ran any more.
    Nothing,
    /// It was ended.
    Ended,
    /// It does not end, whatever it is told.
    Alive,
}

/// Where the process groups of programs are noted.
pub const GROUPS: &str = "group/";

/// The note that holds the process group of whoever this is.
pub(crate) fn group_note(whose: &str) -> String {
    format!("{GROUPS}{whose}")
}

/// Ends the process group that a note tells of.
pub async fn end_leftover(note: &[u8]) -> Leftover {
    let group = serde_json::from_slice::<Group>(note).ok();
    let Some(group) = group.filter(|group| group.is_alive()) else { return Leftover::Nothing };
    let patience = Patience { grace: LEFT_OVER_GRACE, force: FORCED_WITHIN };
    match group.end_beside(patience, |_| {}).over().await {
        Ok(()) => Leftover::Ended,
        Err(_) => Leftover::Alive,
    }
}
