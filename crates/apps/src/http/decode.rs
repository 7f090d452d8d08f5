//! Content codings undone, within a bound.
