//! The words and the rules of Paceline. No I/O, no clock, no async, no randomness.

mod job;
mod limits;
mod name;
mod outcome;
mod priority;
mod rate;
mod record;
mod report;
mod settings;
mod time;

pub use job::*;
pub use limits::*;
pub use name::*;
pub use outcome::{
    Announced, Answer, CallReport, Failure, JobState, Outcome, Report, Skip, Verdict,
};
pub use priority::*;
pub use rate::*;
pub use record::*;
pub use settings::*;
pub use time::{LONGEST_SPAN, Now, Span, SpanError, Time};
