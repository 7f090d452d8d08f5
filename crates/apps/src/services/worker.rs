//! The worker of the kind `service`: from a service's name to what its run came to.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use paceline::{Call, Failed, Failure, Outcome, Span, Work, Worker};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::{Payload, output_note};
use crate::program::{BEYOND, Patience, Program, Run, group_note};
use crate::request::{Ask, HttpWorker};

/// What a service does.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// What a run is.
    pub act: Act,
    /// How long it may take.
    pub timeout: Duration,
}

/// What a run is.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A program.
    Run(Program),
    /// A request.
    Ask(Box<Ask>),
}

/// Services by name, as they are now: a reload changes them under a running engine.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<RwLock<BTreeMap<String, Task>>>);

impl Tasks {
    /// What these services do from now on. Others do what they did, since runs may be under way,
    /// without these variables of ours, which are secret now.
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
    /// A worker for these services; those that are requests are made by `http`.
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
            Act::Ask(first) => {
                // It may have been a program before its configuration was changed.
                run.end_leftover(&call).await?;
                // A redirect brings the question along.
                let ask = ask.unwrap_or(*first);
                let carry = |next: &Ask| {
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
