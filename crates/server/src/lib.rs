//! The daemon of Paceline: its HTTP API, event stream, metrics, permits and relay over a handle to
//! a running engine. It keeps nothing that has to survive: that is the engine's.
//!
//! [`Kinds`] are made of the tools, before the engine, which needs their workers; [`Server`] is made
//! of both, and is asked over a socket ([`Server::serve`]) or without one
//! ([`Server::ask`]).

// What it is made of.
mod access;
mod kinds;
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
mod submit;
mod view;
mod wait;

// What runs beside.
mod hub;
mod listen;
mod meters;

pub use access::{Access, Token, digest};
pub use kinds::Kinds;
pub use listen::Bounds;
pub use openapi::document;
pub use server::{Server, Terms};
