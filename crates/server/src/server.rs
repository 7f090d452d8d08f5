//! The daemon: its router, the middleware, and the state that handlers share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use paceline::Paceline;
use paceline::report::JobState;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::hub::Hub;
use crate::idempotency::InFlight;
use crate::kinds::Kinds;
use crate::meters::Meters;
use crate::{events, health, jobs, lanes, openapi, permits, submit};
use paceline_apps::api::{Handle, Problem, shown};

/// The settings of the daemon.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Hosts, tokens and roles.
    pub access: Access,
    /// The largest request body, in bytes. All bodies together take at most eight times as much,
    /// those below 16 KiB not counted.
    pub max_body: usize,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { access: Access::default(), max_body: 8 << 20 }
    }
}

/// The state that all handlers share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

pub(crate) struct Inner {
    handle: Handle,
    pub(crate) kinds: Kinds,
    access: RwLock<Arc<Access>>,
    /// Notified when `access` changes.
    access_changes: watch::Sender<()>,
    pub(crate) hub: Hub,
    pub(crate) meters: Meters,
    pub(crate) in_flight: InFlight,
    document: Value,
    stopping: AtomicBool,
}

impl std::ops::Deref for Shared {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::ops::Deref for Inner {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Inner {
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Notifies of changes of the access rules.
    pub(crate) fn access_changes(&self) -> watch::Receiver<()> {
        self.access_changes.subscribe()
    }

    fn access(&self) -> Arc<Access> {
        self.access.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The word for a state.
pub(crate) const fn word(state: JobState) -> &'static str {
    match state {
        JobState::Waiting => "waiting",
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Skipped => "skipped",
        JobState::Cancelled => "cancelled",
    }
}

/// The routes of the daemon itself, with their descriptions.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    let api = OpenApiRouter::new()
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::why))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(lanes::list))
        .routes(routes!(lanes::show, lanes::change))
        .routes(routes!(lanes::pause))
        .routes(routes!(lanes::resume))
        .routes(routes!(lanes::reset))
        .routes(routes!(permits::grant))
        .routes(routes!(permits::settle))
        .routes(routes!(health::summary))
        .routes(routes!(events::events))
        // Scripts look for these below `/api/v1` too.
        .route("/metrics", get(health::metrics))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(document));
    OpenApiRouter::with_openapi(openapi::beginning())
        .nest("/api/v1", api)
        .routes(routes!(health::metrics))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
}

async fn document(State(shared): State<Shared>) -> Json<Value> {
    Json(shared.document.clone())
}

/// The daemon over a running engine.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Shared,
    router: Router,
}

impl Server {
    /// A daemon that does not listen yet. `pace` is an engine with the workers of `kinds`
    /// ([`Kinds::register`]).
    pub fn new(pace: Paceline, kinds: Kinds, terms: Terms) -> Server {
        let (router, openapi) = routes().split_for_parts();
        let (tools, document) = openapi::with_tools(openapi, &kinds);
        let handle = Handle::new(pace, terms.max_body);
        let shared = Shared(Arc::new(Inner {
            handle: handle.clone(),
            access: RwLock::new(Arc::new(terms.access)),
            access_changes: watch::Sender::new(()),
            hub: Hub::new(),
            meters: Meters::new(&kinds),
            in_flight: InFlight::default(),
            document,
            stopping: AtomicBool::new(false),
            kinds,
        }));
        let router = router
            .merge(tools.with_state(handle))
            .fallback(no_path)
            .method_not_allowed_fallback(no_method)
            .layer(middleware::from_fn_with_state(shared.clone(), let_in))
            .layer(CatchPanicLayer::custom(|_| bug().into_response()))
            .with_state(shared.clone());
        Server { shared, router }
    }

    /// Handles one request from this process, without a socket.
    pub async fn ask(&self, request: Request<Body>) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Replaces the access rules. If they differ, event streams end, so that their clients
    /// authenticate again; other requests in flight are completed.
    pub fn set_access(&self, access: Access) {
        let mut current = self.shared.access.write().unwrap_or_else(PoisonError::into_inner);
        if **current != access {
            *current = Arc::new(access);
            self.shared.access_changes.send_replace(());
        }
    }

    /// Marks the daemon as stopping: from now on `/readyz` fails.
    pub fn stopping(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

/// Admits or refuses a request, and counts its response.
async fn let_in(State(shared): State<Shared>, mut request: Request<Body>, next: Next) -> Response {
    let admitted = shared.access().admit(request.method(), request.uri(), request.headers());
    let response = match admitted {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => {
            let (method, path) = (request.method().as_str(), request.uri().path());
            let (status, reason) = (problem.status().as_u16(), problem.reason());
            tracing::warn!(status, reason, method, path = shown(path), "request refused");
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let asks = axum::http::HeaderValue::from_static("Bearer");
                response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, asks);
            }
            response
        }
    };
    shared.meters.answered(response.status().as_u16());
    response
}

async fn no_path() -> Problem {
    let detail = "no such path: see /api/v1/openapi.json";
    Problem::new(StatusCode::NOT_FOUND, "unknown_path", detail)
}

async fn no_method() -> Problem {
    let detail = "this path does not support this method: see /api/v1/openapi.json";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail)
}

fn bug() -> Problem {
    let detail = "internal error: see the daemon's log";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", detail)
}
