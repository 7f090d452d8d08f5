//! One thing to fetch.
