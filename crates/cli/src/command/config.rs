//! The section of commands.

use paceline_apps::command::CommandTask;
use paceline_core::{Span, check_name};

use super::Settings;
use crate::config::document::{Notes, Section, shown, whole};
use crate::config::keys::{Reference, default, example};
use crate::config::program::read_program;
use crate::config::settings::above_zero;

/// Every key, its default and its explanation.
pub(super) const REFERENCE: &[Reference] = &[Reference {
    section: "commands",
    example: Some("example"),
    says: "A program that jobs of the kind `command` run by name. A job passes its input as JSON in the variable PACELINE_INPUT. It cannot add arguments.",
    keys: &[
        example(
            "run",
            r#"["./look-up.sh", "--fast"]"#,
            "The program and its arguments, run like that of a service. The last 64 KiB of its output are the value of the call.",
        ),
        default("timeout", r#""1h""#, "How long one attempt may take before it is ended."),
        example(
            "empty",
            "[4]",
            "Exit codes that mean an empty answer. All others except 0 are failures.",
        ),
    ],
}];

/// The most commands.
const MOST_COMMANDS: usize = 10_000;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandConfig {
    /// Its name.
    pub name: String,
    /// Its program and terms.
    pub task: CommandTask,
}

/// Reads `[commands.NAME]`.
pub(super) fn read(settings: &mut Settings, root: &Section<'_>, notes: &mut Notes<'_>) {
    let Some(commands) = root.section("commands", notes) else { return };
    for (name, at, _) in commands.entries() {
        if notes.full() {
            return;
        }
        if let Err(error) = check_name("command", name) {
            notes.note(at, error.to_string());
        }
        if settings.0.len() == MOST_COMMANDS {
            let what =
                format!("the command `{}` exceeds the limit of {MOST_COMMANDS}", shown(name));
            notes.note(at, what);
            return;
        }
        if let Some(section) = commands.section(name, notes)
            && let Some(task) = read_task(at, &section, notes)
        {
            settings.0.push(CommandConfig { name: name.to_string(), task });
        }
    }
}

fn read_task(at: usize, section: &Section<'_>, notes: &mut Notes<'_>) -> Option<CommandTask> {
    section.check_keys("commands", notes);
    let timeout = above_zero(section, "timeout", "no run could finish in it", notes);
    let empty = read_codes(section, notes);
    if section.value("run").is_none() {
        let path = section.path();
        notes.note(at, format!("`{path}` has nothing to run: add `run = [\"program\"]`"));
    }
    let program = read_program(section, notes)?;
    Some(CommandTask { program, timeout: timeout.unwrap_or(Span::hours(1)).into(), empty })
}

/// The exit codes of an empty answer.
fn read_codes(section: &Section<'_>, notes: &mut Notes<'_>) -> Vec<u8> {
    const CODES: &str = "a list of exit codes from 1 to 255";
    let mut codes = Vec::new();
    for value in section.array("empty", CODES, notes).into_iter().flatten() {
        let code = whole(value.get_ref()).and_then(|code| u8::try_from(code).ok());
        if let Some(code) = code.filter(|&code| code > 0) {
            codes.push(code);
        } else {
            let what = format!("`{}` must be {CODES}", section.path_of("empty"));
            notes.note(value.span().start, what);
        }
    }
    codes.sort_unstable();
    codes.dedup();
    codes
}
