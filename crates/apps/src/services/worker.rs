//! The worker of the kind `service`: performs one run of a service.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use paceline::{Call, Failed, Failure, Outcome, Span, Work, Worker};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::{Payload, output_note};
use crate::program::{BEYOND, Patience, Program, Run, group_note};
use crate::request::{HttpWorker, RequestPayload};

/// The task of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The program or the request.
    pub act: Act,
    /// The time limit of a run.
    pub timeout: Duration,
}

/// The action of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Runs a program.
    Run(Program),
    /// Makes a request.
    Request(Box<RequestPayload>),
}

/// The tasks of services, by name. A reload replaces them while the engine runs.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<RwLock<BTreeMap<String, Task>>>);

impl Tasks {
    /// Replaces the tasks of these services. Other services keep theirs, since runs may be in
    /// progress. No program sees the variables in `hidden`: they hold secrets.
    pub fn renew(&self, tasks: BTreeMap<String, Task>, hidden: &[String]) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for task in known.values_mut() {
            if let Act::Run(program) = &mut task.act {
                program.hide(hidden);
            }
        }
        known.extend(tasks);
    }

    fn get(&self, service: &str) -> Option<Task> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(service).cloned()
    }
}

/// Runs services.
pub(super) struct ServiceWorker {
    tasks: Tasks,
    http: Arc<HttpWorker>,
}

impl ServiceWorker {
    /// A worker for these services. `http` makes the requests of those that are requests.
    pub(super) fn new(tasks: Tasks, http: Arc<HttpWorker>) -> ServiceWorker {
        ServiceWorker { tasks, http }
    }
}

impl Worker for ServiceWorker {
    async fn run(&self, call: Call) -> Work {
        let Payload { service, ask } = call.payload()?;
        let Some(task) = self.tasks.get(&service) else {
            let message = format!("no service named `{service}` is configured");
            return Outcome::failed(Failure::permanent("service").because(&message));
        };
        let run = run(&service, task.timeout);
        match task.act {
            Act::Run(program) => {
                let over = run.of(&program, &call).await?;
                over.verdict().map_err(Failed::of)?;
                Outcome::done(json!({ "exit": 0 }))
            }
            Act::Request(first) => {
                // An earlier configuration may have made it a program: end what that left running.
                run.end_leftover(&call).await?;
                // After a redirect, the payload holds the request.
                let ask = ask.unwrap_or(*first);
                let carry = |next: &RequestPayload| {
                    to_raw_value(&Payload { service: service.clone(), ask: Some(next.clone()) })
                };
                let asked = self.http.ask(&call, &ask, &carry);
                let asked = tokio::time::timeout(task.timeout, asked).await;
                asked.unwrap_or_else(|_| Outcome::failed(no_answer(task.timeout)))
            }
        }
    }

    fn sends_itself(&self) -> bool {
        true
    }

    fn timeout(&self, payload: &[u8], _lane: &str) -> Option<Duration> {
        let Payload { service, .. } = serde_json::from_slice(payload).ok()?;
        Some(self.tasks.get(&service)?.timeout + BEYOND)
    }
}

fn run(service: &str, timeout: Duration) -> Run {
    Run {
        group_note: group_note(&format!("service/{service}")),
        own_note: false,
        output_note: Some(output_note(service)),
        environment: vec![("PACELINE_SERVICE", service.to_string())],
        timeout,
        patience: Patience::default(),
    }
}

fn no_answer(timeout: Duration) -> Failure {
    let message = format!("no response within {}", Span::from(timeout));
    Failure::transient("timeout").because(&message)
}
