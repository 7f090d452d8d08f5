//! A port for this machine's owner alone, while another command than the daemon has the store.

use std::net::Ipv4Addr;

use paceline_server::{Access, Bounds, Server, Terms};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::OwnerToken;
use crate::config::Config;
use crate::daemon::DaemonFile;
use crate::engine::Engine;

/// Commands at once that ask: more than anybody types, and few of the files that programs need.
const MOST_CONNECTIONS: usize = 32;

/// The daemon's API, found as the daemon's is.
pub(crate) struct OwnPort {
    server: Server,
    /// Until the process is on its way out.
    daemon_file: Option<DaemonFile>,
    /// What answers, and what ends it.
    answers: JoinSet<()>,
    over: oneshot::Sender<()>,
}

impl OwnPort {
    /// Answers the owner on any free port.
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

    /// From now on nobody finds it; whoever is there is answered.
    pub(crate) fn withdraw(&mut self) {
        self.server.stopping();
        drop(self.daemon_file.take());
    }

    /// Lets go of whoever is there.
    pub(crate) async fn close(mut self) {
        drop(self.over);
        while self.answers.join_next().await.is_some() {}
    }
}
