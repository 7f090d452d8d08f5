//! Lanes: how they are doing, stopped, let go on, forgiven, and given other limits.

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

/// Limits of one lane.
const MOST_WINDOWS: usize = 8;

/// All lanes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Lanes {
    lanes: Vec<LaneShown>,
}

/// How all lanes are doing, by name.
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

/// How one lane is doing.
#[utoipa::path(
    get, path = "/lanes/{name}", tag = "lanes",
    params(("name" = String, Path, description = "Its name")),
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

/// The rules of a lane; what is left out is as without configuration.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LaneRules)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneForm {
    /// The gap between calls.
    #[schema(example = "1s")]
    every: Option<String>,
    /// By priority, the part of the gap that its calls need. Left out: all of it.
    #[schema(example = json!({"interactive": 0.1, "rss": 0.5}))]
    gap_share: Option<BTreeMap<String, f64>>,
    /// Calls per window.
    #[schema(max_items = 8, example = json!(["50/s", "1000/h"]))]
    limits: Option<Vec<LimitForm>>,
    /// Calls at once.
    #[schema(minimum = 1)]
    in_flight: Option<u32>,
    /// Where the gap is measured from.
    gap_from: Option<GapForm>,
    /// How much longer one call may be on its way to the service than another. Left out: as a short
    /// way needs.
    #[schema(example = "10ms")]
    slack: Option<String>,
    /// How long one attempt may take.
    timeout: Option<String>,
    /// The group whose limits hold too.
    group: Option<String>,
    /// Failures in a row after which it rests.
    #[schema(minimum = 1)]
    fail_after: Option<u32>,
    /// Calls that may wait on it. Without it: as the configuration says of all lanes.
    #[schema(minimum = 1)]
    max_waiting: Option<u32>,
}

/// Where a gap is measured from.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[schema(as = GapFrom)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GapForm {
    Start,
    Finish,
}

/// A window: a rate, or a rate with more to it.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Limit)]
#[serde(untagged)]
pub(crate) enum LimitForm {
    Rate(String),
    More {
        /// Such as `1000/d`.
        limit: String,
        /// Whether calls are spread evenly.
        spread: Option<bool>,
        /// By priority, the part that only it and higher ones may spend.
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
            Ok(Some(Span::ZERO)) => Err(format!("`{what}` is zero: leave it out")),
            span => span,
        };
        let count = |what: &str, number: Option<u32>, normal: NonZeroU32| match number {
            None => Ok(normal),
            Some(number) => NonZeroU32::new(number).ok_or(format!("`{what}` is zero")),
        };
        let limits = self.limits.unwrap_or_default();
        if limits.len() > MOST_WINDOWS {
            return Err(format!("more than {MOST_WINDOWS} limits"));
        }
        let normal = Limits::default();
        let mut gap_share = normal.gap_share;
        for (name, part) in self.gap_share.unwrap_or_default() {
            let (priority, part) = part_of(&name, part)
                .ok_or("`gap_share` goes from a priority to 0..1".to_string())?;
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
                .ok_or("`keep` goes from a priority above background to 0..1".to_string())?;
            window.keep[priority.index()] = part;
        }
        Ok(window)
    }
}

/// A priority by its name, and the part of something that is for it.
fn part_of(name: &str, part: f64) -> Option<(Priority, Portion)> {
    let priority = Priority::ALL.into_iter().find(|priority| priority.name() == name)?;
    Some((priority, Portion::from_f64(part)?))
}

/// Gives a lane other limits.
///
/// From now on, until the daemon starts again or reads its configuration again. A new window binds
/// attempts from its introduction on.
#[utoipa::path(
    put, path = "/lanes/{name}", tag = "lanes",
    params(("name" = String, Path, description = "Its name, or that of a template")),
    request_body(content = LaneForm, content_type = "application/json"),
    responses(
        (status = 200, description = "The lane as it is now", body = LaneShown),
        (status = 404, description = "No such lane", body = Problem),
        (status = 422, description = "Limits that cannot be meant", body = Problem),
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
        return Err(Problem::unprocessable("the rules of a lane are an object"));
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

/// Stops a lane: what runs goes on, nothing new starts.
#[utoipa::path(
    post, path = "/lanes/{name}/pause", tag = "lanes",
    params(("name" = String, Path, description = "Its name")),
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

/// Lets a paused lane go on.
#[utoipa::path(
    post, path = "/lanes/{name}/resume", tag = "lanes",
    params(("name" = String, Path, description = "Its name")),
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

/// Lifts a lane's cooldown, ladder and slow-downs; its limits hold on.
#[utoipa::path(
    post, path = "/lanes/{name}/reset", tag = "lanes",
    params(("name" = String, Path, description = "Its name")),
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
