//! Names of files.
