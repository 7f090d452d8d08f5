//! Lanes: show, change, pause, resume and reset.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use paceline::lanes::{ControlError, Limits, Portion, Rate, Window};
use paceline::{Lane, Priority, Span};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::server::Shared;
use crate::view::LaneShown;
use paceline_apps::api::read;
use paceline_apps::api::{ApiResult, Problem, not_changed};

/// Windows of one lane at most.
const MOST_WINDOWS: usize = 8;

/// All lanes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Lanes {
    lanes: Vec<LaneShown>,
}

/// Lists all lanes, by name.
#[utoipa::path(
    get, path = "/lanes", tag = "lanes",
    responses((status = 200, description = "All lanes", body = Lanes)),
)]
pub(crate) async fn list(State(shared): State<Shared>) -> ApiResult<Json<Lanes>> {
    let lanes = shared.pace.lanes().await?;
    let lanes = lanes.iter().map(|lane| LaneShown::of(&shared.pace, lane)).collect();
    Ok(Json(Lanes { lanes }))
}

async fn one(shared: &Shared, name: &str) -> ApiResult<Json<LaneShown>> {
    let lanes = shared.pace.lanes().await?;
    let lane = lanes.iter().find(|lane| *lane.name == *name);
    let lane = lane.ok_or_else(|| Problem::no_lane(name))?;
    Ok(Json(LaneShown::of(&shared.pace, lane)))
}

/// Shows one lane.
#[utoipa::path(
    get, path = "/lanes/{name}", tag = "lanes",
    params(("name" = String, Path, description = "The lane's name")),
    responses(
        (status = 200, description = "The lane", body = LaneShown),
        (status = 404, description = "No such lane", body = Problem),
    ),
)]
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> ApiResult<Json<LaneShown>> {
    one(&shared, &name).await
}

/// The limits of a lane. A field that is left out has its default.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LaneRules)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneForm {
    /// The gap between two calls. Default: none.
    #[schema(example = "1s")]
    every: Option<String>,
    /// By priority, the part of the gap that its calls keep, from 0 to 1. Default: 1, all of it.
    #[schema(example = json!({"interactive": 0.1, "rss": 0.5}))]
    gap_share: Option<BTreeMap<String, f64>>,
    /// Calls per window.
    #[schema(max_items = 8, example = json!(["50/s", "1000/h"]))]
    limits: Option<Vec<LimitForm>>,
    /// Calls in flight at most. Default: 1.
    #[schema(minimum = 1)]
    in_flight: Option<u32>,
    /// Whether the gap runs from the start or from the finish of a call. Default: `start`.
    gap_from: Option<GapForm>,
    /// Network jitter to allow for. It is added to every gap and window, so that limits hold where
    /// requests arrive. Default: 2 ms, and at most a 500th of the shortest gap or window.
    #[schema(example = "10ms")]
    slack: Option<String>,
    /// The time limit of one attempt.
    timeout: Option<String>,
    /// The group whose limits hold as well.
    group: Option<String>,
    /// Failures in a row that start a cooldown.
    #[schema(minimum = 1)]
    fail_after: Option<u32>,
    /// Calls that may wait on the lane. Default: the daemon's `queue.lane_waiting`.
    #[schema(minimum = 1)]
    max_waiting: Option<u32>,
}

/// The start or the finish of a call, from which a gap runs.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[schema(as = GapFrom)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GapForm {
    Start,
    Finish,
}

/// A window: a rate, or an object with a rate and further rules.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Limit)]
#[serde(untagged)]
pub(crate) enum LimitForm {
    Rate(String),
    More {
        /// The rate, such as `1000/d`.
        limit: String,
        /// `true` spreads calls evenly over the window.
        spread: Option<bool>,
        /// By priority, the part of the window that is kept for it and higher priorities.
        keep: Option<BTreeMap<String, f64>>,
    },
}

impl LaneForm {
    fn limits(self) -> Result<Limits, String> {
        let span = |what: &str, text: Option<String>| {
            let span = text.map(|text| text.parse::<Span>()).transpose();
            span.map_err(|error| format!("`{what}`: {error}"))
        };
        let above_zero = |what: &str, text: Option<String>| match span(what, text) {
            Ok(Some(Span::ZERO)) => Err(format!("`{what}` must not be zero: omit it")),
            span => span,
        };
        let count = |what: &str, number: Option<u32>, normal: NonZeroU32| match number {
            None => Ok(normal),
            Some(number) => NonZeroU32::new(number).ok_or(format!("`{what}` must not be zero")),
        };
        let limits = self.limits.unwrap_or_default();
        if limits.len() > MOST_WINDOWS {
            return Err(format!("at most {MOST_WINDOWS} limits per lane"));
        }
        let normal = Limits::default();
        let mut gap_share = normal.gap_share;
        for (name, part) in self.gap_share.unwrap_or_default() {
            let (priority, part) = part_of(&name, part)
                .ok_or("`gap_share` maps priorities to numbers from 0 to 1".to_string())?;
            gap_share[priority.index()] = part;
        }
        Ok(Limits {
            gap_share,
            every: above_zero("every", self.every)?,
            gap_from: match self.gap_from {
                Some(GapForm::Finish) => paceline::lanes::GapFrom::Finish,
                Some(GapForm::Start) | None => paceline::lanes::GapFrom::Start,
            },
            windows: limits.into_iter().map(LimitForm::window).collect::<Result<_, _>>()?,
            in_flight: count("in_flight", self.in_flight, normal.in_flight)?,
            slack: span("slack", self.slack)?,
            timeout: above_zero("timeout", self.timeout)?,
            group: self.group,
            fail_after: count("fail_after", self.fail_after, normal.fail_after)?,
            max_waiting: match self.max_waiting {
                None => None,
                Some(most) => Some(count("max_waiting", Some(most), NonZeroU32::MIN)?),
            },
        })
    }
}

impl LimitForm {
    fn window(self) -> Result<Window, String> {
        let rate = |text: String| text.parse::<Rate>().map_err(|error| error.to_string());
        let (limit, spread, keep) = match self {
            LimitForm::Rate(limit) => (limit, None, None),
            LimitForm::More { limit, spread, keep } => (limit, spread, keep),
        };
        let mut window = Window { spread: spread.unwrap_or(false), ..Window::new(rate(limit)?) };
        for (name, part) in keep.unwrap_or_default() {
            let (priority, part) = part_of(&name, part)
                .filter(|(priority, _)| *priority != Priority::Background)
                .ok_or(
                    "`keep` maps priorities above `background` to numbers from 0 to 1".to_string(),
                )?;
            window.keep[priority.index()] = part;
        }
        Ok(window)
    }
}

/// A priority by its name, and its portion.
fn part_of(name: &str, part: f64) -> Option<(Priority, Portion)> {
    let priority = Priority::ALL.into_iter().find(|priority| priority.name() == name)?;
    Some((priority, Portion::from_f64(part)?))
}

/// Changes the limits of a lane.
///
/// The change lasts until the daemon restarts or reloads its configuration. A new window counts
/// attempts from now on.
#[utoipa::path(
    put, path = "/lanes/{name}", tag = "lanes",
    params(("name" = String, Path, description = "The name of a lane or a template")),
    request_body(content = LaneForm, content_type = "application/json"),
    responses(
        (status = 200, description = "The lane as it is now", body = LaneShown),
        (status = 404, description = "No such lane", body = Problem),
        (status = 422, description = "The limits are invalid", body = Problem),
    ),
)]
pub(crate) async fn change(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> ApiResult<Json<LaneShown>> {
    let body = shared.json(request).await?;
    let form: LaneForm = read(&body)?;
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::unprocessable("the rules of a lane must be an object"));
    }
    let limits = form.limits().map_err(|error| Problem::unprocessable(error).about(&name))?;
    let changed = shared.pace.change(Lane::with_limits(&name, limits)).await;
    changed.map_err(|error| not_changed(&error, &name))?;
    one(&shared, &name).await
}

fn done(told: Result<(), ControlError>, name: &str) -> ApiResult<()> {
    told.map_err(|error| match error {
        ControlError::Unknown(_) => Problem::no_lane(name),
        ControlError::Ended(ended) => ended.into(),
    })
}

/// Pauses a lane: running calls continue, no new call starts.
#[utoipa::path(
    post, path = "/lanes/{name}/pause", tag = "lanes",
    params(("name" = String, Path, description = "The lane's name")),
    responses(
        (status = 200, description = "The lane as it is now", body = LaneShown),
        (status = 404, description = "No such lane", body = Problem),
    ),
)]
pub(crate) async fn pause(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> ApiResult<Json<LaneShown>> {
    done(shared.pace.pause(&name).await, &name)?;
    one(&shared, &name).await
}

/// Resumes a paused lane.
#[utoipa::path(
    post, path = "/lanes/{name}/resume", tag = "lanes",
    params(("name" = String, Path, description = "The lane's name")),
    responses(
        (status = 200, description = "The lane as it is now", body = LaneShown),
        (status = 404, description = "No such lane", body = Problem),
    ),
)]
pub(crate) async fn resume(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> ApiResult<Json<LaneShown>> {
    done(shared.pace.resume(&name).await, &name)?;
    one(&shared, &name).await
}

/// Resets a lane: ends its cooldown and clears its failures and learned gaps. Its limits still
/// hold.
#[utoipa::path(
    post, path = "/lanes/{name}/reset", tag = "lanes",
    params(("name" = String, Path, description = "The lane's name")),
    responses(
        (status = 200, description = "The lane as it is now", body = LaneShown),
        (status = 404, description = "No such lane", body = Problem),
    ),
)]
pub(crate) async fn reset(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> ApiResult<Json<LaneShown>> {
    done(shared.pace.reset(&name).await, &name)?;
    one(&shared, &name).await
}
