//! The engine through its public API: real tasks, real time, no sleeping to wait.

mod answered;
mod bad_input;
mod blocking;
mod broken_store;
mod desk;
mod errors;
mod events;
mod jobs;
mod lanes;
mod pruning;
mod same_work;
mod stopping;
mod taken_away;
mod waiting;
mod workers;
