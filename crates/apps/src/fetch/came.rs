//! What one attempt came to, and what the engine is told of it.

use std::io;

use paceline::{Announced, Failed, Failure, Late, Outcome, Work};
use rustix::io::Errno;
use url::Url;

use super::save::SaveError;
use super::segments;
use super::task::{Saved, Task};
use crate::http::{HttpError, Origin, Refusal};

/// What one attempt came to.
pub(super) enum Came {
    Saved(Box<Saved>),
    Moved(Box<Task>, Url),
    /// The file is large: its other pieces come by jobs of their own.
    Split(Box<Task>),
    Refused(Refusal),
    Failed(Failure),
    /// Nothing was sent.
    Late,
}

impl From<HttpError> for Came {
    fn from(error: HttpError) -> Came {
        Came::Failed(error.failure())
    }
}

impl From<SaveError> for Came {
    fn from(error: SaveError) -> Came {
        match error {
            SaveError::Disk(error) => error.into(),
            SaveError::Exists(_) => permanent("exists", &error.to_string()),
            SaveError::Archive(_) => permanent("disk", &error.to_string()),
            SaveError::Ending => Came::Failed(Failure::transient("ending")),
        }
    }
}

impl From<io::Error> for Came {
    fn from(error: io::Error) -> Came {
        if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&error) {
            let message = "too many open files: raise `ulimit -n`, or lower `--jobs`";
            return transient("open_files", message);
        }
        let class = if error.kind() == io::ErrorKind::StorageFull { "disk_full" } else { "disk" };
        permanent(class, &format!("cannot write: {error}"))
    }
}

pub(super) fn permanent(class: &str, message: &str) -> Came {
    Came::Failed(Failure::permanent(class).because(message))
}

pub(super) fn transient(class: &str, message: &str) -> Came {
    Came::Failed(Failure::transient(class).because(message))
}

/// The same, with what the server said about its limits.
pub(super) fn announcing(work: Work, announced: Option<Announced>) -> Work {
    let Some(announced) = announced else { return work };
    match work {
        Ok(outcome) => Ok(outcome.announcing(announced)),
        Err(failed) => Err(failed.announcing(announced)),
    }
}

impl Came {
    pub(super) fn into_work(self) -> Work {
        match self {
            Came::Saved(saved) => Outcome::done(saved),
            Came::Moved(task, url) => {
                let lane = Origin::of(&url).expect("a redirect leads to http or https").lane();
                Outcome::moved(&lane, Some(&serde_json::value::to_raw_value(&task)?))
            }
            Came::Split(task) => {
                let payload = serde_json::value::to_raw_value(&task)?;
                Outcome::moved(segments::LANE, Some(&payload))
            }
            Came::Refused(Refusal::Throttled(span)) => Outcome::throttled(span),
            Came::Refused(Refusal::Failed(failure, span)) => {
                let failed = Failed::of(failure);
                Err(match span {
                    Some(span) => failed.retry_after(span),
                    None => failed,
                })
            }
            Came::Failed(failure) => Err(Failed::of(failure)),
            Came::Late => Err(Late.into()),
        }
    }
}
