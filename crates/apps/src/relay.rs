//! The relay: requests of programs that cannot be changed, forwarded at the pace of their lane.
//!
//! A relayed request is a job like any other, so it keeps all limits and is written before it is
//! sent. Its request and response bodies are streams that live in this process only, so a crash
//! ends it: the job fails, and the client sees that the connection is gone.

mod ahead;
mod queued;
mod routes;
mod worker;

use axum::routing::any;
use axum::{Extension, Router};

use crate::kind::Kind;
use crate::tool::{Routes, Tool};

pub use queued::Relay;
use worker::RelayWorker;

/// The kind of jobs that relay requests.
pub const RELAY_KIND: &str = "relay";

impl Tool for Relay {
    fn kinds(&self) -> Vec<Kind> {
        let relay = self.clone();
        vec![Kind::new(RELAY_KIND, move || RelayWorker::new(relay.clone()))]
    }

    fn routes(&self) -> Routes {
        let forward = Router::new().route("/to/{*rest}", any(routes::forward));
        Routes { root: forward.layer(Extension(self.clone())), ..Routes::default() }
    }
}
