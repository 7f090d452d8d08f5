//! Paceline: runs work against services you do not own, at their pace, without losing any of it.
mod payloads;
pub mod turn;
