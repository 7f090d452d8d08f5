//! The tools of Paceline, their kinds of jobs, and the code that they share.
//!
//! A [`Tool`] is one folder here: its kinds, its routes under the daemon, its metrics. Its
//! configuration section and its subcommand are one folder in `cli`. A [`Kind`] is one value: a
//! name, a worker and, if callers may submit it, the check and the schema of its payload.

// Tools.
pub mod fetch;
pub mod relay;
pub mod services;

// Kinds that callers may submit.
pub mod command;
pub mod request;

// The interface between tools and the daemon.
pub mod api;
mod kind;
mod tool;

// Shared code.
pub mod http;
pub mod program;

use std::sync::Arc;

pub use kind::{Kind, Submitted};
pub use tool::{Routes, Sample, Tool};

/// The tools that have no settings of their own, one line each. `http` makes their requests.
pub fn plain_tools(http: &Arc<request::HttpWorker>) -> Vec<Box<dyn Tool>> {
    vec![Box::new(http.clone()), Box::new(relay::Relay::new(http.clone()))]
}
