//! Lists of what to fetch.
