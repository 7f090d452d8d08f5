//! Kinds of jobs. A kind is one value: a name, a worker, and the payloads that callers may submit.

use std::fmt;
use std::sync::Arc;

use paceline::{Builder, Worker};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, schema::Schema};

use crate::api::Problem;

/// A kind of jobs. Clones are cheap.
#[derive(Clone)]
pub struct Kind {
    name: &'static str,
    register: Arc<dyn Fn(Builder) -> Builder + Send + Sync>,
    submitted: Option<Submitted>,
}

type Check = Arc<dyn Fn(&[u8], &str) -> Result<(), Problem> + Send + Sync>;

/// The payloads of a kind that callers may submit.
#[derive(Clone)]
pub struct Submitted {
    check: Check,
    schema: (&'static str, RefOr<Schema>),
}

impl Kind {
    /// A kind whose jobs callers cannot submit. `worker` is called once per engine.
    pub fn new<W: Worker>(
        name: &'static str,
        worker: impl Fn() -> W + Send + Sync + 'static,
    ) -> Kind {
        let register = Arc::new(move |builder: Builder| builder.worker(name, worker()));
        Kind { name, register, submitted: None }
    }

    /// Lets callers submit jobs of this kind.
    ///
    /// `check` validates a payload on a lane, without I/O, before a job is accepted. `T` describes
    /// the payload in the OpenAPI document, under the name `schema`.
    #[must_use]
    pub fn for_callers<T: ToSchema>(
        mut self,
        schema: &'static str,
        check: impl Fn(&[u8], &str) -> Result<(), Problem> + Send + Sync + 'static,
    ) -> Kind {
        let schema = (schema, T::schema());
        self.submitted = Some(Submitted { check: Arc::new(check), schema });
        self
    }

    /// The name, as jobs write it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Registers the worker of this kind.
    pub fn register(&self, builder: Builder) -> Builder {
        (self.register)(builder)
    }

    /// The payloads that callers may submit; `None` if they may not.
    pub fn submitted(&self) -> Option<&Submitted> {
        self.submitted.as_ref()
    }
}

impl Submitted {
    /// Validates a payload on a lane.
    pub fn check(&self, payload: &[u8], lane: &str) -> Result<(), Problem> {
        (self.check)(payload, lane)
    }

    /// The schema of the payload, and its name in the OpenAPI document.
    pub fn schema(&self) -> (&'static str, RefOr<Schema>) {
        self.schema.clone()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("name", &self.name).finish_non_exhaustive()
    }
}
