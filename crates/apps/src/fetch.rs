//! Polite parallel downloads.

pub mod checksum;
pub mod input;
pub mod item;
pub mod name;
pub mod warc;
