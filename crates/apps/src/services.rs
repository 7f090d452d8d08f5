//! Services: programs and requests that come again, run by rosters.
//!
//! The rules in `core` decide when they run and in which order. This module performs the runs.

mod routes;
mod worker;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use paceline::services::SERVICE_KIND;
use paceline::{Ended, Paceline};
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::request::{HttpWorker, RequestPayload};
use crate::tool::{Routes, Sample, Tool};

use worker::ServiceWorker;
pub use worker::{Act, Task, Tasks};

/// The tool: runs services, and shows services and rosters.
#[derive(Clone)]
pub struct Services {
    tasks: Tasks,
    http: Arc<HttpWorker>,
}

impl Services {
    /// The tool for these services. `http` makes the requests of those that are requests.
    pub fn new(tasks: Tasks, http: Arc<HttpWorker>) -> Services {
        Services { tasks, http }
    }
}

const LAST_SUCCESS: &str = "paceline_service_last_success_timestamp_seconds";

impl Tool for Services {
    fn kinds(&self) -> Vec<Kind> {
        let Services { tasks, http } = self.clone();
        vec![Kind::new(SERVICE_KIND, move || ServiceWorker::new(tasks.clone(), http.clone()))]
    }

    fn routes(&self) -> Routes {
        Routes { api: routes::routes(), ..Routes::default() }
    }

    fn gauges(&self) -> &'static [(&'static str, &'static str)] {
        &[(LAST_SUCCESS, "Time of the last success of a service")]
    }

    fn measure<'a>(&'a self, pace: &'a Paceline) -> BoxFuture<'a, Result<Vec<Sample>, Ended>> {
        async {
            let services = pace.services().await?.into_iter().filter_map(|service| {
                let value = service.record.succeeded_at?.wall.0 as f64 / 1e6;
                let label = Some(("service", service.record.name.to_string()));
                Some(Sample { name: LAST_SUCCESS, label, value })
            });
            Ok(services.collect())
        }
        .boxed()
    }
}

/// The payload of a run's job.
#[derive(Debug, Deserialize, Serialize)]
pub struct Payload {
    /// The name of the service.
    pub service: String,
    /// The request to make after a redirect, in place of the service's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<RequestPayload>,
}

/// The note that holds the last output of a service.
pub fn output_note(service: &str) -> String {
    format!("service/{service}/output")
}
