//! Callers: clients of the daemon, and the role of their token.

use std::sync::Arc;

use axum::http::header::HeaderName;

/// A token header for clients of the relay, whose `Authorization` is meant for the upstream.
pub const TOKEN: HeaderName = HeaderName::from_static("paceline-token");

/// The role of a token. Each role includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Read,
    /// Submits, cancels and retries jobs, uses permits and the relay, runs services, pauses lanes.
    Operate,
    /// Changes limits, and resets lanes and services.
    Admin,
}

impl Role {
    /// The name in configuration files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// All roles.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];
}

/// The client that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token.
    pub name: Arc<str>,
    /// The role of the token.
    pub role: Role,
    /// The header that held the token. The relay does not forward it.
    pub said_in: Option<HeaderName>,
}
