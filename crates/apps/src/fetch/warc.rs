//! WARC files.
