//! Commands: the kind `command`, programs of the configuration that a payload may name.
//!
//! A payload names a command and gives it an input. The configuration alone says which program
//! runs: no part of a payload reaches an argument or a shell.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use paceline::{Call, Failed, Failure, Outcome, Work, Worker};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::{Anything, Problem};
use crate::kind::Kind;
use crate::program::{BEYOND, Patience, Program, Run, group_note};
use crate::tool::Tool;

/// The kind of jobs that run commands.
pub const COMMAND_KIND: &str = "command";
/// The largest input. The system takes no variable above 128 KiB.
pub const LARGEST_INPUT: usize = 64 << 10;
/// Commands that the error for an unknown name lists.
const MOST_TOLD: usize = 20;

/// One configured command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTask {
    /// The program.
    pub program: Program,
    /// The time limit of a run.
    pub timeout: Duration,
    /// Exit codes that mean an empty outcome.
    pub empty: Vec<u8>,
}

/// The configured commands, by name. A reload replaces them while the engine runs.
#[derive(Clone, Debug, Default)]
pub struct Commands(Arc<RwLock<BTreeMap<String, (CommandTask, bool)>>>);

/// An invalid payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The payload has the wrong form.
    #[error("the payload is not a valid command: {0}")]
    Form(String),
    /// No command has this name.
    #[error("no command named `{name}`: {known}")]
    Unknown {
        /// The name in the payload.
        name: String,
        /// The configured commands, in words.
        known: String,
    },
    /// The input is larger than a variable may be.
    #[error("`input` is larger than 64 KiB")]
    Input,
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        let class = match error {
            CommandError::Unknown { .. } => "command",
            CommandError::Form(_) | CommandError::Input => "payload",
        };
        Failure::permanent(class).because(&error.to_string())
    }
}

/// The payload of a job of the kind `command`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = CommandPayload)]
#[serde(deny_unknown_fields)]
struct CommandPayload {
    /// The name of a command of the configuration.
    command: String,
    /// Any JSON of at most 64 KiB. The program finds it in the variable `PACELINE_INPUT`.
    // Kept as text, so that numbers keep all their digits.
    #[serde(default)]
    #[schema(value_type = Option<Anything>)]
    input: Option<Box<RawValue>>,
}

impl CommandPayload {
    fn read(payload: &[u8]) -> Result<CommandPayload, CommandError> {
        // serde also reads a list of all fields in order, which is never meant.
        if payload.trim_ascii_start().first() != Some(&b'{') {
            return Err(CommandError::Form("it is not an object".to_string()));
        }
        let parsed: CommandPayload = serde_json::from_slice(payload)
            .map_err(|error| CommandError::Form(error.to_string()))?;
        if parsed.input().len() > LARGEST_INPUT {
            return Err(CommandError::Input);
        }
        Ok(parsed)
    }

    fn input(&self) -> &str {
        self.input.as_deref().map_or("null", RawValue::get)
    }
}

impl Commands {
    /// Replaces the commands. A command that is no longer configured takes no new jobs, but still
    /// runs for jobs that wait. No program sees the variables in `hidden`: they hold secrets.
    pub fn renew(&self, commands: BTreeMap<String, CommandTask>, hidden: &[String]) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (task, offered) in known.values_mut() {
            task.program.hide(hidden);
            *offered = false;
        }
        known.extend(commands.into_iter().map(|(name, task)| (name, (task, true))));
    }

    /// Checks a payload without I/O, before a job is accepted.
    pub fn check(&self, payload: &[u8]) -> Result<(), CommandError> {
        self.read(payload, |offered| offered).map(drop)
    }

    /// The command that a payload names. `fits` decides by whether the command takes new jobs.
    fn read(
        &self,
        payload: &[u8],
        fits: impl Fn(bool) -> bool,
    ) -> Result<(CommandPayload, CommandTask), CommandError> {
        let parsed = CommandPayload::read(payload)?;
        let commands = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match commands.get(&parsed.command).filter(|(_, offered)| fits(*offered)) {
            Some((task, _)) => Ok((parsed, task.clone())),
            None => Err(CommandError::Unknown {
                name: parsed.command.chars().take(60).flat_map(char::escape_debug).collect(),
                known: listed(commands.iter().filter(|(_, (_, offered))| *offered)),
            }),
        }
    }
}

fn listed<'a, T: 'a>(commands: impl Iterator<Item = (&'a String, T)>) -> String {
    let names: Vec<String> = commands.map(|(name, _)| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(MOST_TOLD);
    let told = &names[..names.len() - more];
    match (told.len(), more) {
        (0, _) => "none is configured".to_string(),
        (_, 0) => format!("there are {}", told.join(", ")),
        _ => format!("there are {} and {more} more", told.join(", ")),
    }
}

impl Tool for Commands {
    fn kinds(&self) -> Vec<Kind> {
        let (commands, checking) = (self.clone(), self.clone());
        let kind = Kind::new(COMMAND_KIND, move || CommandWorker::new(commands.clone()));
        vec![kind.for_callers::<CommandPayload>("CommandPayload", move |payload, _| {
            let wrong = |error: CommandError| Problem::unprocessable(error.to_string());
            checking.check(payload).map_err(wrong)
        })]
    }
}

/// Runs commands.
pub struct CommandWorker {
    commands: Commands,
}

impl CommandWorker {
    /// A worker that runs these commands.
    pub fn new(commands: Commands) -> CommandWorker {
        CommandWorker { commands }
    }
}

impl Worker for CommandWorker {
    async fn run(&self, call: Call) -> Work {
        let read = self.commands.read(call.payload_bytes(), |_| true);
        let (parsed, task) = read.map_err(|error| Failed::of(error.into()))?;
        let run = Run {
            // One note for all attempts of a call, so that each ends what the one before left
            // running.
            group_note: group_note(&format!("command/{}.{}", call.id().job, call.id().index)),
            own_note: true,
            output_note: None,
            environment: vec![("PACELINE_INPUT", parsed.input().to_string())],
            timeout: task.timeout,
            patience: Patience::default(),
        };
        let mut over = run.of(&task.program, &call).await?;
        match over.verdict() {
            Ok(()) => Outcome::done(json!({ "exit": 0, "output": over.output() })),
            Err(_) if over.code().is_some_and(|code| task.empty.contains(&code)) => {
                Outcome::empty()
            }
            Err(failure) => Outcome::failed(failure),
        }
    }

    fn sends_itself(&self) -> bool {
        true
    }

    fn timeout(&self, payload: &[u8], _lane: &str) -> Option<Duration> {
        let (_, task) = self.commands.read(payload, |_| true).ok()?;
        Some(task.timeout + BEYOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(names: &[&str]) -> Commands {
        let program =
            Program { run: vec!["true".to_string()], directory: ".".into(), without: Vec::new() };
        let task = CommandTask { program, timeout: Duration::from_secs(1), empty: Vec::new() };
        let commands = Commands::default();
        commands.renew(names.iter().map(|name| ((*name).to_string(), task.clone())).collect(), &[]);
        commands
    }

    #[track_caller]
    fn check(payload: &str, expected: &str) {
        let told = commands(&["crawl", "report"]).check(payload.as_bytes());
        let told = told.map_or_else(|error| error.to_string(), |()| "fine".to_string());
        assert!(told.starts_with(expected), "{payload}: {told}");
    }

    #[test]
    fn invalid_payloads_are_refused_before_a_job_is_accepted() {
        check(r#"{"command": "crawl"}"#, "fine");
        check(r#" {"command": "crawl", "input": {"a": [1, null, "ä"]}}"#, "fine");
        check(r#"{"command": "crawl", "input": null}"#, "fine");
        check(
            r#"{"command": "crawl; rm -rf /"}"#,
            "no command named `crawl; rm -rf /`: there are `crawl`, `report`",
        );
        check(r#"{"command": "\u001b[2J"}"#, r"no command named `\u{1b}[2J`: there are");
        check(r#"["crawl"]"#, "the payload is not a valid command: it is not an object");
        check(
            r#"{"command": "crawl", "args": []}"#,
            "the payload is not a valid command: unknown field `args`",
        );
        check("{}", "the payload is not a valid command: missing field `command`");
        check(r#"{"command": ["crawl"]}"#, "the payload is not a valid command: invalid type");
    }

    #[test]
    fn a_command_that_is_gone_takes_no_new_jobs_and_does_those_that_wait() {
        let commands = commands(&["crawl", "report"]);
        let report = commands.0.read().expect("unbroken")["report"].0.clone();
        let secret = "SHOP_KEY".to_string();
        commands.renew([("report".to_string(), report)].into(), std::slice::from_ref(&secret));
        let payload = br#"{"command": "crawl"}"#;
        let told = commands.check(payload).expect_err("it is gone").to_string();
        assert_eq!(told, "no command named `crawl`: there are `report`");
        let (_, task) = commands.read(payload, |_| true).expect("a job of it may wait");
        assert_eq!(task.program.without, [secret]);
    }

    #[test]
    fn an_input_may_have_64_kib_at_most() {
        let payload =
            |size: usize| format!(r#"{{"command": "crawl", "input": "{}"}}"#, "x".repeat(size - 2));
        check(&payload(LARGEST_INPUT), "fine");
        check(&payload(LARGEST_INPUT + 1), "`input` is larger than 64 KiB");
    }

    #[test]
    fn of_very_many_commands_some_are_listed() {
        let told = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("c{number:02}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            commands(&names).check(br#"{"command": "x"}"#).expect_err("unknown").to_string()
        };
        assert_eq!(told(0), "no command named `x`: none is configured");
        assert!(told(20).ends_with("`c18`, `c19`"), "{}", told(20));
        assert!(told(22).ends_with("`c18`, `c19` and 2 more"), "{}", told(22));
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            text in r#"\{"command": "(crawl|.{0,90})"(, "input": .{0,20})?\}"#,
        ) {
            for payload in [&bytes[..], text.as_bytes()] {
                match commands(&["crawl"]).read(payload, |_| true) {
                    // A variable cannot hold a zero byte.
                    Ok((parsed, _)) => prop_assert!(!parsed.input().contains('\0')),
                    Err(error) => prop_assert!(error.to_string().len() < 1_000),
                }
            }
        }
    }
}
