//! A way in for this machine's owner alone, while another command than the daemon has the store.

use std::net::Ipv4Addr;

use paceline_server::{Access, Bounds, Server, Terms};
use tokio::net::TcpListener;

use super::Owner;
use crate::config::Config;
use crate::daemon::Posted;
use crate::engine::Engine;

/// Commands at once that ask: more than anybody types.
const MOST_CONNECTIONS: usize = 256;

/// The daemon's API, found like the daemon's.
pub(crate) struct OwnDoor {
    server: Server,
    listener: TcpListener,
    posted: Posted,
}

impl OwnDoor {
    /// Takes a port of this machine, which only its owner can use.
    pub(crate) async fn open(config: &Config, engine: &Engine) -> anyhow::Result<OwnDoor> {
        let owner = Owner::new()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let access = Access { tokens: vec![owner.admits()?], hosts: Vec::new() };
        let terms = Terms { access, max_body: config.server.max_body() };
        let server = Server::new(engine.pace.clone(), engine.doors.clone(), terms);
        let posted = owner.post(config, listener.local_addr()?)?;
        Ok(OwnDoor { server, listener, posted })
    }

    /// Answers whoever asks, for as long as this is polled.
    pub(crate) async fn attend(self) {
        let _posted = self.posted;
        let bounds = Bounds { connections: MOST_CONNECTIONS, ..Bounds::default() };
        self.server.serve(self.listener, bounds, std::future::pending()).await;
    }
}
