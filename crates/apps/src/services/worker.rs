//! The worker of the kind `service`: from a service's name to what its run came to.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use paceline::{Call, Failed, Failure, Outcome, Work, Worker};
use serde_json::value::to_raw_value;

use super::program::{Program, Running, verdict};
use super::tail::Tail;
use super::{Payload, child_note, output_note};
use crate::call::{Ask, HttpWorker};

/// Output is stored at most this often while the program runs.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// How long what a dead process left behind may take to end by itself.
const LEFT_OVER_GRACE: Duration = Duration::from_secs(1);
/// Beyond a service's own time: to end it, to store what it said.
const BEYOND: Duration = Duration::from_secs(90);

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
    /// What each service does from now on.
    pub fn set(&self, tasks: BTreeMap<String, Task>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tasks;
    }

    fn get(&self, service: &str) -> Option<Task> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(service).cloned()
    }
}

/// Runs services.
pub struct ServiceWorker {
    tasks: Tasks,
    http: Arc<HttpWorker>,
}

impl ServiceWorker {
    /// A worker for these services; those that are requests are made by `http`.
    pub fn new(tasks: Tasks, http: Arc<HttpWorker>) -> ServiceWorker {
        ServiceWorker { tasks, http }
    }
}

impl Worker for ServiceWorker {
    async fn run(&self, call: Call) -> Work {
        let Payload { service, ask } = call.payload()?;
        let Some(task) = self.tasks.get(&service) else {
            let message = format!("no service named `{service}` is configured here");
            return Outcome::failed(Failure::permanent("service").because(&message));
        };
        match task.act {
            Act::Run(program) => {
                end_leftover(&call, &service).await?;
                run_program(&call, &service, &program, task.timeout).await
            }
            Act::Ask(first) => {
                // A redirect brings the question along.
                let ask = ask.unwrap_or(*first);
                let carry = |next: &Ask| {
                    to_raw_value(&Payload { service: service.clone(), ask: Some(next.clone()) })
                };
                self.http.ask(&call, &ask, &carry).await
            }
        }
    }

    fn sends_itself(&self) -> bool {
        true
    }

    fn timeout(&self, payload: &[u8], _lane: &str) -> Option<Duration> {
        let Payload { service, .. } = serde_json::from_slice(payload).ok()?;
        let task = self.tasks.get(&service)?;
        Some(match task.act {
            Act::Run(_) => task.timeout + BEYOND,
            Act::Ask(_) => task.timeout,
        })
    }
}

/// What an earlier run left behind, be it one of a process that has died, is ended first (S3).
async fn end_leftover(call: &Call, service: &str) -> Result<(), Failed> {
    let Some(note) = call.note(&child_note(service)).await? else { return Ok(()) };
    let Ok(group) = serde_json::from_slice::<super::group::Group>(&note) else { return Ok(()) };
    if group.is_alive() {
        // The slot goes on being held by this very call.
        group.end_beside(LEFT_OVER_GRACE, call.hold()).gone().await;
    }
    Ok(())
}

async fn run_program(call: &Call, service: &str, program: &Program, timeout: Duration) -> Work {
    let mut running = program.start(service, call.hold()).map_err(Failed::of)?;
    // Here, and not after the commit below: a slow disk must not make a run late for ever (L4).
    call.sending()?;
    let group = serde_json::to_vec(&running.group).expect("numbers are JSON");
    // The promise before the call: whoever comes after a crash knows what to end.
    call.keep(&child_note(service), Some(&group)).await?;
    let mut heard = Tail::default();
    running.go().await?;
    let attended = attend(call, service, &mut running, &mut heard);
    let attended = tokio::time::timeout(timeout, attended).await;
    running.end().await;
    call.keep(&output_note(service), Some(heard.bytes())).await?;
    call.keep(&child_note(service), None).await?;
    let Ok(status) = attended else {
        let message = format!("not over in {}", paceline::Span::from(timeout));
        return Outcome::failed(Failure::transient("timeout").because(&message));
    };
    match verdict(status?, &heard) {
        Ok(()) => Outcome::done(serde_json::json!({ "exit": 0 })),
        Err(failure) => Outcome::failed(failure),
    }
}

/// Waits for the end of a program; what it says is stored now and then.
async fn attend(
    call: &Call,
    service: &str,
    running: &mut Running,
    heard: &mut Tail,
) -> Result<ExitStatus, Failed> {
    let mut saved_at = call.wall();
    loop {
        if let Some(status) = running.next(heard).await? {
            return Ok(status);
        }
        let now = call.wall();
        // A clock that was stepped back saves at once.
        if now.duration_since(saved_at).is_ok_and(|since| since < SAVE_EVERY) {
            continue;
        }
        saved_at = now;
        call.keep(&output_note(service), Some(heard.bytes())).await?;
    }
}
