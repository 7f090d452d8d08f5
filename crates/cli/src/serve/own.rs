//! A port for the owner of the store, while `services run` has the store.

use std::net::Ipv4Addr;

use paceline_server::{Access, Bounds, Server, Terms};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::OwnerToken;
use crate::config::Config;
use crate::daemon::DaemonFile;
use crate::engine::Engine;

/// The most connections: more than a user opens at once, and few of the files that programs need.
const MOST_CONNECTIONS: usize = 32;

/// The daemon's API on a port of its own, found in the same way as a daemon.
pub(crate) struct OwnPort {
    server: Server,
    /// Removed at shutdown.
    daemon_file: Option<DaemonFile>,
    /// The task that answers, and the sender that ends it.
    answers: JoinSet<()>,
    over: oneshot::Sender<()>,
}

impl OwnPort {
    /// Answers the owner on a free port.
    pub(crate) async fn open(config: &Config, engine: &Engine) -> anyhow::Result<OwnPort> {
        let owner = OwnerToken::new()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let access = Access { tokens: vec![owner.admits()?], hosts: Vec::new() };
        let terms = Terms { access, max_body: config.server.max_body() };
        let server = Server::new(engine.pace.clone(), engine.kinds.clone(), terms);
        let bounds = Bounds { connections: MOST_CONNECTIONS, ..Bounds::default() };
        let (over, ends) = oneshot::channel();
        let mut answers = JoinSet::new();
        let ends = async { drop(ends.await) };
        answers.spawn(server.clone().serve(listener, bounds, ends));
        let daemon_file = Some(owner.post(config, address)?);
        Ok(OwnPort { server, daemon_file, answers, over })
    }

    /// Removes its file, so that no new command finds it. Open connections are still answered.
    pub(crate) fn withdraw(&mut self) {
        self.server.stopping();
        drop(self.daemon_file.take());
    }

    /// Closes all connections.
    pub(crate) async fn close(mut self) {
        drop(self.over);
        while self.answers.join_next().await.is_some() {}
    }
}
