//! The API of the daemon as tools see it: the input and output of their routes.
//!
//! A tool's [`routes`](crate::Tool::routes) take a [`Handle`] as their state and return an
//! [`ApiResult`]. The server nests them behind access control, bounds and the OpenAPI document.

mod admission;
mod body;
mod caller;
mod handle;
mod job;
mod moment;
mod problem;
mod turn;

pub use admission::{AdmissionWord, Admitted};
pub use body::{Bodies, Sent, read};
pub use caller::{Caller, Role, TOKEN};
pub use handle::Handle;
pub use job::{
    AnswerWord, Anything, CallDoc, JobDoc, OutcomeWord, PriorityWord, Reason, StateWord, WhyView,
    whys,
};
pub use moment::{stamp, wall};
pub use problem::{ApiResult, Problem, not_changed, not_retried, not_submitted, shown};
pub use turn::{AT_ONCE, Leaving, bounded, enter, missed};
