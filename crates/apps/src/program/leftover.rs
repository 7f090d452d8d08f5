//! What a process that died left running: found by its notes, and ended before anything starts.

use super::group::{Group, Patience};
use super::run::LEFT_OVER_GRACE;

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

/// Where the process groups of programs are noted, by the beginning of the name.
const PLACES: [&str; 2] = ["service/", "command/"];

/// Whether a note of this name tells of a process group, and whose it is.
pub fn whose_group(note: &str) -> Option<&str> {
    let whose = note.strip_suffix("/child")?;
    PLACES.iter().any(|place| note.starts_with(place)).then_some(whose)
}

/// Ends the process group that a note tells of.
pub async fn end_leftover(note: &[u8]) -> Leftover {
    let group = serde_json::from_slice::<Group>(note).ok();
    let Some(group) = group.filter(|group| group.is_alive()) else { return Leftover::Nothing };
    let patience = Patience { grace: LEFT_OVER_GRACE, ..Patience::default() };
    match group.end_beside(patience, |_| {}).over().await {
        Ok(()) => Leftover::Ended,
        Err(_) => Leftover::Alive,
    }
}
