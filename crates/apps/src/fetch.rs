//! Polite parallel downloads: each host at its own pace, every file whole or not at all.

// The list of files.
pub mod checksum;
pub mod input;
pub mod item;
pub mod name;

// One run.
mod options;
mod plan;
mod progress;
mod run;
mod settled;
mod setup;
mod summary;
mod task;

// One attempt.
mod attempt_end;
mod body;
mod rate;
mod request;
mod response;
mod robots;
mod segments;
mod worker;

// Files.
mod directory;
mod part;
mod record;
mod save;
pub mod warc;

pub use options::{Existing, Fetched, Naming, Options, Robots};
pub use progress::{Active, Event, Failed, Progress, Watch};
pub use request::{Coding, Manners};
pub use run::{FetchError, Items, Run};
pub use summary::{End, Summary};
pub use task::{How, Saved};
