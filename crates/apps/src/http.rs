//! The one HTTP client: it never sends a request that nobody asked for.

pub mod announced;
pub mod cookies;
pub mod decode;
pub mod netrc;
pub mod proxy;
pub mod robots;
