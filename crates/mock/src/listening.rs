//! A socket with a thread of its own, so that plain tests can start a server in one line.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::serve::MOST_CONNECTIONS;

/// Accepts until it is dropped. When the drop returns, the port is free and every connection closed.
#[derive(Debug)]
pub(crate) struct Listening {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Binds `addr` and gives each connection to `converse`.
    ///
    /// Only loopback: what listens here misbehaves on purpose.
    pub(crate) fn open<C>(
        addr: SocketAddr,
        converse: impl Fn(TcpStream) -> C + Send + 'static,
    ) -> io::Result<Listening>
    where
        C: Future<Output = ()> + Send + 'static,
    {
        assert!(addr.ip().is_loopback(), "`{addr}` is not a loopback address");
        let socket = std::net::TcpListener::bind(addr)?;
        socket.set_nonblocking(true)?;
        let addr = socket.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(format!("mock {addr}")).spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(socket).expect("a socket that does not block");
                tokio::select! {
                    () = accept(listener, converse) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Listening { addr, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server was printed by its thread; a second one would abort the test.
            let _ = thread.join();
        }
    }
}

async fn accept<C>(listener: TcpListener, converse: impl Fn(TcpStream) -> C)
where
    C: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let slot = room.clone().acquire_owned().await.expect("never closed");
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                // Refused only by a socket that is already gone, which the next read reports.
                let _ = stream.set_nodelay(true);
                let conversation = converse(stream);
                connections.spawn(async move {
                    conversation.await;
                    drop(slot);
                });
            }
            // Out of file handles, most likely; without a pause this would spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
