//! `--serve`: a daemon on the demo's store, with the demo's services behind its lanes.

use std::net::SocketAddr;
use std::path::Path;

use paceline::Span;

use super::services::Side;
use crate::config::{Config, ServerConfig, Surroundings};
use crate::exit::Exit;
use crate::output::data;
use crate::serve::{Heard, Listening, Up, log_warnings};

/// How long calls may take when it stops: longer than anybody waits for `hung`.
const GRACE: Span = Span::secs(2);

/// Runs until a signal ends it.
pub(super) async fn run(store: &Path, services: &Side, signals: Heard) -> anyhow::Result<Exit> {
    log_warnings();
    let mut config = config(store, services);
    let mut listening = Listening::on(&config.server).await;
    if listening.is_err() {
        // Somebody has the usual port, most likely a daemon: any other will do.
        config.server.listen.set_port(0);
        listening = Listening::on(&config.server).await;
    }
    let up = Up::start(config, listening?).await?;
    data(&commands(up.address()))?;
    up.attend(signals).await
}

/// What a file would say that describes the services.
fn config(store: &Path, services: &Side) -> Config {
    Config {
        lanes: services.lanes(),
        store_path: store.to_path_buf(),
        server: ServerConfig { grace: GRACE, ..ServerConfig::default() },
        ..Config::defaults(&Surroundings::default())
    }
}

/// What to try, each a line that works as it is.
fn commands(address: SocketAddr) -> String {
    let api = format!("http://{address}/api/v1");
    let job = r#"{"kind":"http","lanes":["steady"],"payload":{"path":"/hello"}}"#;
    let json = "Content-Type: application/json";
    format!(
        "\ncurl -s {api}/jobs -H 'Prefer: wait=10' -H '{json}' -d '{job}'\n\
         curl -s {api}/lanes\n\
         curl -sN {api}/events\n"
    )
}
