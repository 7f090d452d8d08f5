//! The state that the routes of all tools share: the engine, and room for request bodies.

use axum::body::Body;
use axum::http::Request;
use paceline::Paceline;

use super::body::{Bodies, Sent};
use super::problem::ApiResult;

/// The state of every route. Clones share it.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The engine.
    pub pace: Paceline,
    bodies: Bodies,
}

impl Handle {
    /// A handle to this engine, for bodies of at most `max_body` bytes each.
    pub fn new(pace: Paceline, max_body: usize) -> Handle {
        Handle { pace, bodies: Bodies::new(max_body) }
    }

    /// Reads the JSON body of a request, within the bounds.
    pub async fn json(&self, request: Request<Body>) -> ApiResult<Sent> {
        self.bodies.json(request, self.pace.now()).await
    }
}
