//! Signals: the first Ctrl-C stops cleanly, the second at once.

use std::task::Poll;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::output::say;

/// Resolves at the first of these signals. The second one ends the program at once.
pub(crate) fn interrupted(
    kinds: &[SignalKind],
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    // With a runtime of its own, which no other task can delay.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (listens, ready) = std::sync::mpsc::channel();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let kinds = kinds.to_vec();
    let listen = async move {
        let Ok(mut signals) = Signals::new(&kinds) else { return };
        let _ = listens.send(());
        signals.next().await;
        let _ = sender.send(());
        say("stopping: running work may finish; a second signal ends it at once");
        signals.next().await;
        std::process::exit(Exit::Interrupted as i32);
    };
    let thread = std::thread::Builder::new().name("paceline-signals".to_string());
    thread.spawn(move || runtime.block_on(listen))?;
    ready.recv().context("cannot listen for signals")?;
    Ok(async {
        if receiver.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// Signals sent to this process.
pub(crate) struct Signals(Vec<Signal>);

impl Signals {
    /// Starts to listen.
    pub(crate) fn new(kinds: &[SignalKind]) -> std::io::Result<Signals> {
        kinds.iter().map(|kind| signal(*kind)).collect::<Result<_, _>>().map(Signals)
    }

    /// Resolves at the next one.
    pub(crate) async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
