//! The end of one attempt, and its verdict for the engine.

use std::io;

use paceline::workers::Late;
use paceline::{Failed, Failure, Outcome, Work};
use rustix::io::Errno;
use url::Url;

use super::save::SaveError;
use super::segments;
use super::task::{Saved, Task};
use crate::http::{HttpError, NotSent, Origin, Refusal};

/// The end of one attempt.
pub(super) enum AttemptEnd {
    Saved(Box<Saved>),
    Moved(Box<Task>, Url),
    /// The file is large: jobs of their own fetch its other pieces.
    Split(Box<Task>),
    Refused(Refusal),
    Failed(Failure),
    /// Nothing was sent.
    Late,
}

impl From<HttpError> for AttemptEnd {
    fn from(error: HttpError) -> AttemptEnd {
        AttemptEnd::Failed(error.failure())
    }
}

impl From<NotSent> for AttemptEnd {
    fn from(not_sent: NotSent) -> AttemptEnd {
        match not_sent {
            NotSent::Late(_) => AttemptEnd::Late,
            NotSent::Failed(error) => error.into(),
        }
    }
}

impl From<SaveError> for AttemptEnd {
    fn from(error: SaveError) -> AttemptEnd {
        match error {
            SaveError::Disk(error) => error.into(),
            SaveError::Exists(_) => permanent("exists", &error.to_string()),
            SaveError::Archive(_) => permanent("disk", &error.to_string()),
            SaveError::Ending => AttemptEnd::Failed(Failure::transient("ending")),
        }
    }
}

impl From<io::Error> for AttemptEnd {
    fn from(error: io::Error) -> AttemptEnd {
        if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&error) {
            let message = "too many open files: raise `ulimit -n`, or lower `--jobs`";
            return transient("open_files", message);
        }
        let class = if error.kind() == io::ErrorKind::StorageFull { "disk_full" } else { "disk" };
        permanent(class, &format!("cannot write: {error}"))
    }
}

pub(super) fn permanent(class: &str, message: &str) -> AttemptEnd {
    AttemptEnd::Failed(Failure::permanent(class).because(message))
}

pub(super) fn transient(class: &str, message: &str) -> AttemptEnd {
    AttemptEnd::Failed(Failure::transient(class).because(message))
}

impl AttemptEnd {
    pub(super) fn into_work(self) -> Work {
        match self {
            AttemptEnd::Saved(saved) => Outcome::done(saved),
            AttemptEnd::Moved(task, url) => {
                let lane = Origin::of(&url).expect("a redirect leads to http or https").lane();
                Outcome::moved(&lane, Some(&serde_json::value::to_raw_value(&task)?))
            }
            AttemptEnd::Split(task) => {
                let payload = serde_json::value::to_raw_value(&task)?;
                Outcome::moved(segments::LANE, Some(&payload))
            }
            AttemptEnd::Refused(refusal) => refusal.into_work(),
            AttemptEnd::Failed(failure) => Err(Failed::of(failure)),
            AttemptEnd::Late => Err(Late.into()),
        }
    }
}
