//! What robots.txt allows.
