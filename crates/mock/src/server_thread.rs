//! A server on a thread of its own, so that a test without a runtime starts one in one line.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::serve::MOST_CONNECTIONS;

/// Accepts connections until it is dropped. When the drop returns, the port is free and every
/// connection is closed.
#[derive(Debug)]
pub(crate) struct ServerThread {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Binds `addr` and passes each connection to `serve_connection`.
    ///
    /// Panics if `addr` is not a loopback address: these servers misbehave on purpose.
    pub(crate) fn open<C>(
        addr: SocketAddr,
        serve_connection: impl Fn(TcpStream) -> C + Send + 'static,
    ) -> io::Result<ServerThread>
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
                    () = accept(listener, serve_connection) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(ServerThread { addr, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has printed its panic. A second panic here would abort the test.
            let _ = thread.join();
        }
    }
}

async fn accept<C>(listener: TcpListener, serve_connection: impl Fn(TcpStream) -> C)
where
    C: Future<Output = ()> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let slot = slots.clone().acquire_owned().await.expect("never closed");
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                // Fails only on a socket that is already closed, which the next read reports.
                let _ = stream.set_nodelay(true);
                let connection = serve_connection(stream);
                connections.spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            // Most likely out of file descriptors. Without a pause the loop would spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
