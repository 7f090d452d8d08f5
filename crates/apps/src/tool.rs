//! A tool as the daemon sees it: its kinds of jobs, its routes, its metrics.

use axum::Router;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use paceline::{Ended, Paceline};
use utoipa_axum::router::OpenApiRouter;

use crate::api::Handle;
use crate::kind::Kind;

/// One tool. Tools do not know each other; what they share is in `api`, `http` and `request`.
pub trait Tool: Send + Sync {
    /// The kinds of its jobs.
    fn kinds(&self) -> Vec<Kind>;

    /// Its routes.
    fn routes(&self) -> Routes {
        Routes::default()
    }

    /// The gauges that [`measure`](Tool::measure) may return, each with its explanation.
    fn gauges(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Measures its gauges now, for a subscriber of metrics.
    fn measure<'a>(&'a self, _pace: &'a Paceline) -> BoxFuture<'a, Result<Vec<Sample>, Ended>> {
        ready(Ok(Vec::new())).boxed()
    }
}

/// The routes of a tool.
#[derive(Default)]
pub struct Routes {
    /// Below `/api/v1`, and in the OpenAPI document.
    pub api: OpenApiRouter<Handle>,
    /// At the root, for protocols that are not ours to describe.
    pub root: Router<Handle>,
}

/// The value of one gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The gauge.
    pub name: &'static str,
    /// Its label and the label's value, if it has one.
    pub label: Option<(&'static str, String)>,
    /// The value.
    pub value: f64,
}
