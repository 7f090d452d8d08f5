//! Cookies from a file.
