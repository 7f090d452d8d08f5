//! `/to/{lane}/{path}`: forwards requests of programs that cannot be changed, at the pace of a
//! lane.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hyper::body::Body as _;
use paceline::{Priority, Span};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::ahead::Ahead;
use super::queued::{ForwardedRequest, Relay, RelayedResponse, UpstreamError};
use crate::api::{
    AT_ONCE, ApiResult, Caller, Handle, Problem, TOKEN, bounded, enter, missed, shown,
};
use crate::http::Upload;
use crate::request::PayloadError;

/// The wait for a turn: the default and the maximum.
const BUDGET: Span = Span::secs(30);
const LONGEST_BUDGET: Span = Span::mins(10);

const PRIORITY: HeaderName = HeaderName::from_static("paceline-priority");
const MAX_WAIT: HeaderName = HeaderName::from_static("paceline-max-wait");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Forwards one request.
pub(super) async fn forward(
    State(handle): State<Handle>,
    Extension(relay): Extension<Relay>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> ApiResult<Response> {
    let arrived = Instant::now();
    if matches!(*request.method(), Method::TRACE | Method::CONNECT) {
        let detail = "`TRACE` would echo the secrets of the lane, and `CONNECT` opens a tunnel: neither is relayed";
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail));
    }
    let (lane, path) = destination(&request)?;
    relay.check(&lane, &path).map_err(|error| nowhere(&error, &lane))?;
    let (priority, budget) = terms(request.headers())?;
    let (forwarded, ahead) = to_forward(request, path, &caller);
    let (job, queued_request, mut answer) = relay.enqueue(&lane, forwarded);
    let job = job.priority(priority).max_wait(budget).start_within(budget.max(AT_ONCE)).in_time();
    let (leaving, report) = enter(&handle, &lane, job).await?;
    let mut report = std::pin::pin!(report);
    let answer = tokio::select! {
        biased;
        Ok(answer) = &mut answer => answer,
        () = ahead.left() => return Err(Problem::malformed("the body was cut off")),
        report = &mut report => {
            // A response that came at the same moment counts.
            match answer.try_recv() {
                Ok(answer) => answer,
                Err(_) => return Err(missed(&handle, &lane, &*report?).await),
            }
        }
    };
    drop(queued_request);
    leaving.stay();
    match answer {
        Ok(answer) => Ok(passed_back(answer, arrived.elapsed())),
        Err(broken) => Err(broken_off(&broken, &lane)),
    }
}

/// The lane, and the path below its `url`, as the client wrote it.
fn destination(request: &Request<Body>) -> ApiResult<(String, String)> {
    let whole = request.uri().path_and_query().map_or("/", |it| it.as_str());
    let rest = whole.strip_prefix("/to/").unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let lane = percent_decode_str(&rest[..end]).decode_utf8();
    let lane = lane.map_err(|_| Problem::malformed("the lane name is not UTF-8"))?;
    let path = match &rest[end..] {
        path if path.starts_with('/') => path.to_string(),
        query => format!("/{query}"),
    };
    Ok((lane.into_owned(), path))
}

fn nowhere(error: &PayloadError, lane: &str) -> Problem {
    match error {
        PayloadError::NoUrl(_) => {
            let detail = format!("no lane named `{}` with a `url` to forward to", shown(lane));
            Problem::new(StatusCode::NOT_FOUND, "unknown_lane", detail).about(lane)
        }
        other => Problem::malformed(other.to_string()).about(lane),
    }
}

/// The priority and the longest wait that the request asks for.
fn terms(headers: &HeaderMap) -> ApiResult<(Priority, Span)> {
    let text = |name: HeaderName| headers.get(name).and_then(|it| it.to_str().ok());
    let budget = bounded("Paceline-Max-Wait", text(MAX_WAIT), BUDGET, LONGEST_BUDGET)?;
    let Some(said) = text(PRIORITY) else { return Ok((Priority::default(), budget)) };
    let found = Priority::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(said));
    let priority = found.ok_or_else(|| {
        let names = Priority::ALL.map(Priority::name).join(", ");
        Problem::unprocessable(format!("`Paceline-Priority` must be one of {names}"))
    })?;
    Ok((priority, budget))
}

/// The request to forward, without the headers that are meant for the daemon.
fn to_forward(request: Request<Body>, path: String, caller: &Caller) -> (ForwardedRequest, Ahead) {
    let (head, body) = request.into_parts();
    let mut headers: HeaderMap = head.headers;
    for name in [HOST, PRIORITY, MAX_WAIT, TOKEN] {
        headers.remove(name);
    }
    if let Some(name) = &caller.said_in {
        headers.remove(name);
    }
    let ahead = Ahead::new(body);
    let body = if ahead.is_end_stream() {
        Upload::Nothing
    } else {
        Upload::Coming(Box::pin(ahead.clone()))
    };
    (ForwardedRequest { method: head.method, path, headers, body }, ahead)
}

fn passed_back(answer: RelayedResponse, total: Duration) -> Response {
    let RelayedResponse { status, headers, body, upstream } = answer;
    let pieces = stream::unfold(body, |mut body| async {
        let piece = body.recv().await?;
        Some((piece, body))
    });
    let mut response = (status, Body::from_stream(pieces)).into_response();
    *response.headers_mut() = headers;
    let queued = total.saturating_sub(upstream).as_secs_f64() * 1_000.0;
    let upstream = upstream.as_secs_f64() * 1_000.0;
    let timing = format!("queue;dur={queued:.1}, upstream;dur={upstream:.1}");
    let timing = HeaderValue::from_str(&timing).expect("numbers are plain");
    response.headers_mut().append(SERVER_TIMING, timing);
    response
}

fn broken_off(broken: &UpstreamError, lane: &str) -> Problem {
    let (status, reason) = if broken.timed_out {
        (StatusCode::GATEWAY_TIMEOUT, "timeout")
    } else {
        (StatusCode::BAD_GATEWAY, "failed")
    };
    let detail = format!("`{}` did not respond: {}", shown(lane), broken.message);
    Problem::new(status, reason, detail).about(lane)
}
