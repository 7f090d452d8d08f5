//! `--serve`: a daemon on the demo's store, with a lane for each of the demo's upstreams.

use std::net::SocketAddr;
use std::path::Path;

use paceline::Span;

use super::upstreams::Side;
use crate::config::{Config, Environment, ServerConfig};
use crate::exit::Exit;
use crate::output::data;
use crate::serve::{DaemonSignals, Listening, RunningDaemon, log_warnings};

/// The grace at shutdown: longer than the timeout of a call to `hung`.
const GRACE: Span = Span::secs(2);

/// Runs until a signal ends it.
pub(super) async fn run(
    store: &Path,
    upstreams: &Side,
    signals: DaemonSignals,
) -> anyhow::Result<Exit> {
    log_warnings();
    let mut config = config(store, upstreams);
    let mut listening = Listening::on(&config.server).await;
    if listening.is_err() {
        // The default port is taken, most likely by a daemon: use any free port.
        config.server.listen.set_port(0);
        listening = Listening::on(&config.server).await;
    }
    let daemon = RunningDaemon::start(config, listening?).await?;
    data(&commands(daemon.address()))?;
    daemon.attend(signals).await
}

/// The configuration that describes the upstreams.
fn config(store: &Path, upstreams: &Side) -> Config {
    Config {
        lanes: upstreams.lanes(),
        store_path: store.to_path_buf(),
        server: ServerConfig { grace: GRACE, ..ServerConfig::default() },
        ..Config::defaults(&Environment::default())
    }
}

/// Commands to try, each complete on its line.
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
