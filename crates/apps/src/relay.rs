//! The relay: requests of programs that cannot be changed, forwarded at the pace of their lane.
//!
//! A visit is a job like any other, so it keeps all limits and is written before it is sent; its
//! request and its answer are streams that live in this process only. So a crash ends a visit: it
//! has failed, and its caller knows, because the connection is gone.

mod ahead;
mod routes;
mod visit;
mod worker;

use axum::routing::any;
use axum::{Extension, Router};

use crate::kind::Kind;
use crate::tool::{Routes, Tool};

pub use visit::Relay;
use worker::RelayWorker;

/// The kind of these jobs.
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
