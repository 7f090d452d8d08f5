//! The modules of the binary `paceline`: configuration, commands, exit codes.

pub mod bench;
mod client;
pub mod command;
pub mod config;
mod daemon;
pub mod demo;
mod engine;
pub mod exit;
pub mod fetch;
mod follow;
mod form;
mod interrupt;
pub mod job;
pub mod lane;
mod local;
pub mod mock;
pub mod output;
pub mod serve;
pub mod services;
pub mod store;
mod table;
pub mod token;
pub mod tools;
