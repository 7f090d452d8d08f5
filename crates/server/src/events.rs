//! The event stream: server-sent events, with numbers that survive restarts.

use std::convert::Infallible;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::Method;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use paceline::events::Numbered;
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use crate::hub::{Frame, words};
use crate::listen::Handover;
use crate::server::Shared;
use paceline_apps::api::{ApiResult, Problem};

/// Events that are read from the store at once.
const PAGE: usize = 500;

/// The start of a stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct From {
    /// Start after this event; for clients that cannot send `Last-Event-ID`.
    after: Option<u64>,
}

/// Streams events.
///
/// Server-sent events: `accepted`, `started`, `settled`, `finished` and `closed`, each with a
/// number in `id`, sent after it is durable. `lane` is the state of a lane, sent at most twice a
/// second and without a number. A stream begins with `ready`. With `Last-Event-ID` it continues
/// after that event. `resync` means that some events in between are no longer kept: read the
/// current state from the API, then continue.
#[utoipa::path(
    get, path = "/events", tag = "events",
    params(From, ("Last-Event-ID" = Option<u64>, Header, description = "The number of the last event that the client received")),
    responses((status = 200, description = "An endless stream of events", body = String, content_type = "text/event-stream")),
)]
pub(crate) async fn events(
    State(shared): State<Shared>,
    from: Result<Query<From>, axum::extract::rejection::QueryRejection>,
    method: Method,
    handover: Option<Extension<Handover>>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let Query(from) = from.map_err(|error| Problem::malformed(error.body_text()))?;
    let heard = match headers.get("last-event-id") {
        Some(id) => {
            let id = id.to_str().ok().and_then(|id| id.trim().parse::<u64>().ok());
            Some(id.ok_or_else(|| Problem::malformed("`Last-Event-ID` must be a whole number"))?)
        }
        None => from.after,
    };
    // Subscribe before reading the store, so that no event falls in between.
    let live = shared.hub.listen();
    let (_, next) = shared.pace.kept_events(u64::MAX >> 1, 1).await?;
    let last = next.saturating_sub(1);
    let mut listener = Listener { shared, live, heard: last, caught_up: true, hello: None };
    match heard {
        // A number from another store, or from before a restore.
        Some(heard) if heard > last => listener.hello = Some(resync(last)),
        Some(heard) => (listener.heard, listener.caught_up) = (heard, false),
        None => listener.hello = Some(format!("id: {last}\nevent: ready\ndata: {{}}\n\n").into()),
    }
    if let Some(Extension(handover)) = handover.filter(|_| method == Method::GET) {
        listener.shared.meters.answered(200);
        match handover.give(listener).await {}
    }
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(listener.stream())).into_response())
}

fn resync(last: u64) -> Bytes {
    format!("id: {last}\nevent: resync\ndata: {{\"last\":{last}}}\n\n").into()
}

/// One subscriber.
pub(crate) struct Listener {
    shared: Shared,
    live: broadcast::Receiver<Frame>,
    /// The last event that was sent.
    heard: u64,
    /// Whether all stored events were sent.
    caught_up: bool,
    hello: Option<Bytes>,
}

impl Listener {
    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut listener| async move {
            let told = listener.next().await?;
            Some((Ok(told), listener))
        })
    }

    /// The next bytes to send; `None` when the engine has ended.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        if let Some(hello) = self.hello.take() {
            return Some(hello);
        }
        loop {
            if !self.caught_up {
                match self.catch_up().await? {
                    Some(told) => return Some(told),
                    None => continue,
                }
            }
            match self.live.recv().await {
                Ok(Frame { events: None, bytes }) => return Some(bytes),
                Ok(Frame { events: Some(events), bytes }) => {
                    let (first, last) = (events.first()?.id, events.last()?.id);
                    if last <= self.heard {
                        continue;
                    }
                    let heard = std::mem::replace(&mut self.heard, last);
                    if first > heard {
                        return Some(bytes);
                    }
                    return Some(words(events.iter().filter(|event| event.id > heard)).into());
                }
                // It fell behind: the rest comes from the store.
                Err(RecvError::Lagged(_)) => self.caught_up = false,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// A page of missed events, or a `resync` if they are no longer kept.
    async fn catch_up(&mut self) -> Option<Option<Bytes>> {
        let (events, next) = self.shared.pace.kept_events(self.heard, PAGE).await.ok()?;
        let last = next.saturating_sub(1);
        let first = events.first().map_or(next, |event: &Numbered| event.id);
        if first > self.heard + 1 {
            (self.heard, self.caught_up) = (last, true);
            return Some(Some(resync(last)));
        }
        let Some(end) = events.last() else {
            self.caught_up = true;
            return Some(None);
        };
        self.heard = end.id;
        Some(Some(words(&events).into()))
    }
}
