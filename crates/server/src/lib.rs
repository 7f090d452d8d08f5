//! The daemon of Paceline: its HTTP API, event stream, metrics, permits and relay over a handle to
//! a running engine. It keeps nothing that has to survive: that is the engine's.
//!
//! [`Doors`] are made before the engine, since permits and the relay have workers of their own;
//! [`Server`] is made of both, and is asked over a socket ([`Server::serve`]) or without one
//! ([`Server::ask`]).

// What it is made of.
mod access;
mod body;
mod doors;
mod problem;
mod server;

// What is asked, resource by resource.
mod events;
mod form;
mod health;
mod idempotency;
mod jobs;
mod lanes;
mod openapi;
mod permits;
mod relay;
mod services;
mod submit;
mod turns;
mod view;
mod wait;

// What runs beside.
mod hub;
mod listen;
mod meters;

pub use access::{Access, Role, Token, digest};
pub use doors::Doors;
pub use listen::Bounds;
pub use openapi::document;
pub use server::{Server, Terms};
