//! The rooms of the binary `paceline`: configuration, commands, exit codes.

pub mod bench;
pub mod config;
pub mod demo;
pub mod exit;
pub mod fetch;
mod loopback;
pub mod mock;
pub mod output;
