//! The engine through its public door: real tasks, real time, no sleeping to wait.

mod answered;
mod bad_input;
mod broken_store;
mod desk;
mod events;
mod jobs;
mod lanes;
mod same_work;
mod stopping;
mod waiting;
mod workers;
