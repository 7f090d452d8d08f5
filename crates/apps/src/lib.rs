//! The tools of Paceline, one folder each, and the one HTTP client that they share.

pub mod command;
pub mod fetch;
pub mod http;
pub mod program;
pub mod relay;
pub mod request;
pub mod services;
