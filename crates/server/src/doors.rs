//! The workers behind the API: what is asked for here is done there.

use std::sync::Arc;

use axum::http::StatusCode;
use paceline::Builder;
use paceline_apps::command::{COMMAND_KIND, CommandError, CommandWorker, Commands};
use paceline_apps::relay::{RELAY_KIND, Relay, RelayWorker};
use paceline_apps::request::{HTTP_KIND, HttpWorker};

use crate::permits::{PERMIT_KIND, PermitWorker, Permits};
use crate::problem::{Problem, shown};

/// The workers that callers may name, the permits and the relay. Made before the engine, which
/// needs workers.
#[derive(Clone)]
pub struct Doors {
    http: Arc<HttpWorker>,
    commands: Commands,
    pub(crate) permits: Permits,
    pub(crate) relay: Relay,
}

impl Doors {
    /// Doors to the endpoints that `http` knows, and to these commands.
    pub fn new(http: Arc<HttpWorker>, commands: Commands) -> Doors {
        Doors { permits: Permits::default(), relay: Relay::new(http.clone()), http, commands }
    }

    /// The same engine, with workers for the kinds `http`, `command`, `permit` and `relay`.
    #[must_use]
    pub fn register(&self, builder: Builder) -> Builder {
        builder
            .worker(HTTP_KIND, (*self.http).clone())
            .worker(COMMAND_KIND, CommandWorker::new(self.commands.clone()))
            .worker(PERMIT_KIND, PermitWorker::new(self.permits.clone()))
            .worker(RELAY_KIND, RelayWorker::new(self.relay.clone()))
    }

    /// What is wrong with a job, as far as that can be said without asking anybody.
    pub(crate) fn check<'a>(
        &self,
        kind: &str,
        payload: &[u8],
        lanes: impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        match kind {
            HTTP_KIND => {
                for lane in lanes {
                    let wrong = |error: paceline_apps::request::AskError| {
                        Problem::unprocessable(error.to_string()).about(lane)
                    };
                    self.http.check(payload, lane).map_err(wrong)?;
                }
                Ok(())
            }
            COMMAND_KIND => {
                let wrong = |error: CommandError| Problem::unprocessable(error.to_string());
                self.commands.check(payload).map_err(wrong)
            }
            other => {
                let kind = shown(other);
                let detail = format!(
                    "no kind `{kind}` for callers: there are `{HTTP_KIND}` and `{COMMAND_KIND}`"
                );
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_kind", detail))
            }
        }
    }
}
