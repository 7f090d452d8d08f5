//! The interface between a tool and the daemon: kinds of jobs, routes, metrics.

use axum::Router;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use paceline::{Ended, Paceline};
use utoipa_axum::router::OpenApiRouter;

use crate::api::Handle;
use crate::kind::Kind;

/// One tool. Tools do not know each other; shared code is in `api`, `http` and `request`.
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

    /// Measures the gauges now, for one scrape.
    fn measure<'a>(&'a self, _pace: &'a Paceline) -> BoxFuture<'a, Result<Vec<Sample>, Ended>> {
        ready(Ok(Vec::new())).boxed()
    }
}

/// The routes of a tool.
#[derive(Default)]
pub struct Routes {
    /// Routes below `/api/v1`, described in the OpenAPI document.
    pub api: OpenApiRouter<Handle>,
    /// Routes at the root, for protocols that the OpenAPI document does not describe.
    pub root: Router<Handle>,
}

/// The value of one gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the gauge.
    pub name: &'static str,
    /// A label and its value, if the gauge has one.
    pub label: Option<(&'static str, String)>,
    /// The value.
    pub value: f64,
}
