//! The daemon over a real socket, with a real engine and upstreams on loopback.

mod events;
mod hostile;
mod jobs;
mod kit;
mod lanes;
mod permits;
mod relay;
mod secrets;
