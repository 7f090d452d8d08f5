//! Callers: who asks, and what its token allows.

use std::sync::Arc;

use axum::http::header::HeaderName;

/// For callers whose `Authorization` is meant for the service behind the relay.
pub const TOKEN: HeaderName = HeaderName::from_static("paceline-token");

/// What a token allows; each includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// To look.
    Read,
    /// To submit, cancel and retry, to use permits and the relay, to run services, to pause lanes.
    Operate,
    /// To change limits, and to make the engine forget what it learned.
    Admin,
}

impl Role {
    /// Its name everywhere.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// All of them.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token.
    pub name: Arc<str>,
    /// What its token allows.
    pub role: Role,
    /// The header in which the token came, which is for nobody else.
    pub said_in: Option<HeaderName>,
}
