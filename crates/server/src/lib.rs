//! The daemon of Paceline: its HTTP API, event stream, metrics, permits and relay over a handle to
//! a running engine. All durable state is the engine's.
//!
//! Make [`Kinds`] from the tools first: the engine needs their workers. Make a [`Server`] from the
//! kinds and the engine. It takes requests from a socket ([`Server::serve`]) or from this process
//! ([`Server::ask`]).

// Parts.
mod access;
mod kinds;
mod server;

// Routes, resource by resource.
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

// Tasks that run beside requests.
mod hub;
mod listen;
mod meters;

pub use access::{Access, Token, digest};
pub use kinds::Kinds;
pub use listen::Bounds;
pub use openapi::document;
pub use server::{Server, Terms};
