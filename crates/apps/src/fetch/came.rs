//! What one attempt came to, and what the engine is told of it.

use std::io;

use paceline::workers::Late;
use paceline::{Failed, Failure, Outcome, Work};
use rustix::io::Errno;
use url::Url;

use super::save::SaveError;
use super::segments;
use super::task::{Saved, Task};
use crate::http::{HttpError, NotSent, Origin, Refusal};

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

impl From<NotSent> for Came {
    fn from(not_sent: NotSent) -> Came {
        match not_sent {
            NotSent::Late(_) => Came::Late,
            NotSent::Failed(error) => error.into(),
        }
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
            Came::Refused(refusal) => refusal.into_work(),
            Came::Failed(failure) => Err(Failed::of(failure)),
            Came::Late => Err(Late.into()),
        }
    }
}
