//! The naive client: it sends all calls at once, and repeats a refused call at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio::task::JoinSet;

use super::upstreams::{PATIENCE, PROFILES};
use super::wanted::Wanted;
use crate::local::LocalServer;

/// The attempts at one call.
pub(super) const TRIES: usize = 10;
/// When it gives up altogether. Only calls to an upstream that hangs take this long.
pub(super) const AT_MOST: Duration = Duration::from_secs(5);

/// Does all of the work. The result is in the logs of the upstreams.
pub(super) async fn run(wanted: &[Wanted], addresses: &[SocketAddr]) {
    let upstreams = addresses.iter().map(|&address| Arc::new(LocalServer::new(address)));
    let upstreams: BTreeMap<&str, Arc<LocalServer>> =
        PROFILES.iter().map(|profile| profile.name).zip(upstreams).collect();
    let mut calls = JoinSet::new();
    for job in wanted {
        for lane in job.lanes() {
            let upstream = upstreams.get(lane).expect("each lane is an upstream").clone();
            calls.spawn(insist(upstream, job.path()));
        }
    }
    let answers = async { while calls.join_next().await.is_some() {} };
    // The calls that are left are aborted.
    let _ = tokio::time::timeout(AT_MOST, answers).await;
    calls.shutdown().await;
}

/// Repeats one call until it is answered or has no attempts left.
async fn insist(upstream: Arc<LocalServer>, path: String) {
    for _ in 0..TRIES {
        let asked = upstream.ask(Method::GET, &path, String::new());
        if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE.into(), asked).await
            && answer.status == 200
        {
            return;
        }
    }
}
