//! The relay: requests of programs that cannot be changed. Its lanes are those of the configuration.

use std::sync::Arc;

use paceline_apps::relay::Relay;
use paceline_apps::request::HttpWorker;

use crate::tools::{Built, ToolSettings};

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings;

impl ToolSettings for Settings {
    fn build(&self, http: &Arc<HttpWorker>) -> Built {
        Built::fixed(Relay::new(http.clone()))
    }
}
