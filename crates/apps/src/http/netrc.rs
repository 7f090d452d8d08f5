//! Logins from a netrc file.
