//! The daemon through its own door: a real socket, a real engine, services on loopback.

mod events;
mod hostile;
mod jobs;
mod kit;
mod lanes;
mod permits;
mod relay;
mod secrets;
