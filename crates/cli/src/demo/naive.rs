//! The client that everybody writes first: all at once, and again at once if it is refused.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio::task::JoinSet;

use super::services::{MANNERS, PATIENCE};
use super::wanted::Wanted;
use crate::upstream::Upstream;

/// How often it tries a call before it gives up on it.
pub(super) const TRIES: usize = 10;
/// When it gives up on everything. Only calls to a service that hangs last so long.
pub(super) const AT_MOST: Duration = Duration::from_secs(5);

/// Does all of it. What came of it is in the services' logs.
pub(super) async fn run(wanted: &[Wanted], addresses: &[SocketAddr]) {
    let services = addresses.iter().map(|&address| Arc::new(Upstream::new(address)));
    let services: BTreeMap<&str, Arc<Upstream>> =
        MANNERS.iter().map(|manners| manners.name).zip(services).collect();
    let mut calls = JoinSet::new();
    for job in wanted {
        for lane in job.lanes() {
            let service = services.get(lane).expect("each lane is a service").clone();
            calls.spawn(insist(service, job.path()));
        }
    }
    let answers = async { while calls.join_next().await.is_some() {} };
    // The calls that are left end with the set.
    let _ = tokio::time::timeout(AT_MOST, answers).await;
    calls.shutdown().await;
}

/// One call, until it is answered or was tried so often.
async fn insist(service: Arc<Upstream>, path: String) {
    for _ in 0..TRIES {
        let asked = service.ask(Method::GET, &path, String::new());
        if let Ok(Ok(answer)) = tokio::time::timeout(PATIENCE.into(), asked).await
            && answer.status == 200
        {
            return;
        }
    }
}
