//! The kinds of jobs that the daemon runs: those of the tools, and permits.

use std::sync::Arc;

use axum::http::StatusCode;
use paceline::Builder;
use paceline_apps::api::{Problem, shown};
use paceline_apps::{Kind, Submitted, Tool};

use crate::permits::{PERMIT_KIND, PermitWorker, Permits};

/// The tools of a daemon and the kinds of their jobs. Made before the engine, which needs their
/// workers.
#[derive(Clone)]
pub struct Kinds {
    pub(crate) tools: Arc<[Box<dyn Tool>]>,
    all: Arc<[Kind]>,
    pub(crate) permits: Permits,
}

impl Kinds {
    /// The kinds of these tools, and permits.
    pub fn new(tools: Vec<Box<dyn Tool>>) -> Kinds {
        let permits = Permits::default();
        let waiting = permits.clone();
        let permit = Kind::new(PERMIT_KIND, move || PermitWorker::new(waiting.clone()));
        let all = tools.iter().flat_map(|tool| tool.kinds()).chain([permit]).collect();
        Kinds { tools: tools.into(), all, permits }
    }

    /// Registers a worker for each kind.
    #[must_use]
    pub fn register(&self, builder: Builder) -> Builder {
        self.all.iter().fold(builder, |builder, kind| kind.register(builder))
    }

    /// The kinds that callers may submit, each with its payload.
    pub(crate) fn submitted(&self) -> impl Iterator<Item = (&'static str, &Submitted)> {
        self.all.iter().filter_map(|kind| Some((kind.name(), kind.submitted()?)))
    }

    /// Checks a job, as far as that is possible without I/O.
    pub(crate) fn check<'a>(
        &self,
        kind: &str,
        payload: &[u8],
        mut lanes: impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        let found = self.submitted().find(|(name, _)| *name == kind);
        let (_, submitted) = found.ok_or_else(|| self.unknown(kind))?;
        lanes.try_for_each(|lane| submitted.check(payload, lane))
    }

    /// The kinds that callers may submit, as a sentence lists them.
    pub(crate) fn names(&self, last: &str) -> String {
        let names: Vec<String> = self.submitted().map(|(name, _)| format!("`{name}`")).collect();
        match names.split_last() {
            Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    fn unknown(&self, kind: &str) -> Problem {
        let (kind, names) = (shown(kind), self.names("or"));
        let detail = format!("no kind `{kind}` that callers may submit: use {names}");
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_kind", detail)
    }
}
