//! What a process that died left running, where no later run will end it.

use paceline::{Ended, Paceline};

use super::group::{Group, Patience};
use super::run::LEFT_OVER_GRACE;

/// Ends the process group that a note tells of, and forgets the note; says whether any of it still
/// ran. One that does not end keeps its note.
pub(crate) async fn end_left(pace: &Paceline, note: &str) -> Result<bool, Ended> {
    let Some(kept) = pace.note(note).await? else { return Ok(false) };
    let group = serde_json::from_slice::<Group>(&kept).ok().filter(|group| group.is_alive());
    if let Some(group) = group {
        let patience = Patience { grace: LEFT_OVER_GRACE, ..Patience::default() };
        if group.end_beside(patience, |_| {}).over().await.is_err() {
            return Ok(true);
        }
    }
    pace.keep(note, None).await?;
    Ok(group.is_some())
}
