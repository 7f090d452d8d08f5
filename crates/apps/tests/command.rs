//! The kind `command` with real processes: programs, their input, and leftovers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use paceline::report::CallOutcome;
use paceline::{Builder, Failure, Job, Lane, Paceline, Report};
use paceline_apps::command::{COMMAND_KIND, CommandTask, CommandWorker, Commands, LARGEST_INPUT};
use paceline_apps::program::Program;
use serde_json::{Value, json};

/// A test that waits for longer has failed.
const FOREVER: Duration = Duration::from_mins(1);

/// Commands that are scripts for `sh`. The one named `slow` has little time, and the exit code 4
/// means an empty outcome.
fn builder(builder: Builder, directory: &Path, scripts: &[(&str, &str)]) -> Builder {
    let task = |(name, script): &(&str, &str)| {
        let run = ["sh", "-c", script].map(String::from).to_vec();
        let program = Program {
            run,
            directory: directory.to_path_buf(),
            without: vec!["SECRET".to_string()],
        };
        let timeout = if *name == "slow" { Duration::from_millis(200) } else { FOREVER };
        ((*name).to_string(), CommandTask { program, timeout, empty: vec![4] })
    };
    let commands = Commands::default();
    commands.renew(scripts.iter().map(task).collect(), &[]);
    builder.lane(Lane::new("here")).worker(COMMAND_KIND, CommandWorker::new(commands))
}

fn engine(directory: &Path, scripts: &[(&str, &str)]) -> Paceline {
    builder(Paceline::in_memory(), directory, scripts).start().expect("it starts")
}

async fn run(pace: &Paceline, payload: &Value) -> Arc<Report> {
    let job = Job::new(COMMAND_KIND, payload).on(["here"]).attempts(1);
    let job = pace.submit(job).await.expect("accepted");
    tokio::time::timeout(FOREVER, job.report()).await.expect("soon").expect("a report")
}

#[track_caller]
fn found(report: &Report) -> Value {
    match &report.calls.last().expect("a call").outcome {
        CallOutcome::Done { value, .. } => serde_json::from_slice(value).expect("JSON"),
        other => panic!("not done but {other:?}"),
    }
}

#[track_caller]
fn failure(report: &Report) -> Failure {
    match &report.calls.last().expect("a call").outcome {
        CallOutcome::Failed(failure) => failure.clone(),
        other => panic!("not failed but {other:?}"),
    }
}

/// Processes whose command line contains this word.
fn runs(word: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

#[tokio::test]
async fn the_output_of_a_command_is_its_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let scripts = [
        ("hello", r#"printf 'a\n\377 "b"'; echo c >&2"#),
        ("input", r#"printf %s "$PACELINE_INPUT""#),
        ("long", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i + 1)); done"),
    ];
    let pace = engine(directory.path(), &scripts);
    let value = found(&*run(&pace, &json!({ "command": "hello" })).await);
    assert_eq!(value, json!({ "exit": 0, "output": "a\n\u{fffd} \"b\"c\n" }));
    let long = found(&*run(&pace, &json!({ "command": "long" })).await);
    let long = long["output"].as_str().expect("a text");
    assert_eq!(long.len(), 64 << 10);
    assert!(long.ends_with("line 19999\n"));
    let none = found(&*run(&pace, &json!({ "command": "input" })).await);
    assert_eq!(none["output"], "null", "an input is JSON, always");
}

#[tokio::test]
async fn an_input_is_handed_over_as_it_is_and_never_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let pace = engine(directory.path(), &[("input", r#"printf %s "$PACELINE_INPUT""#)]);
    let large = "x".repeat(LARGEST_INPUT - 2);
    for input in [
        json!("$(touch evil); `touch evil`; touch evil\n' \" \\ \0"),
        json!({ "a": [1, 2.5, null, "ä"], "--help": true }),
        json!(large),
    ] {
        let report = run(&pace, &json!({ "command": "input", "input": input })).await;
        assert_eq!(found(&report)["output"].as_str(), Some(input.to_string().as_str()));
    }
    assert!(!directory.path().join("evil").exists());
    let report = run(&pace, &json!({ "command": "input", "input": format!("{large}x") })).await;
    let failure = failure(&report);
    assert_eq!((&*failure.class, failure.retryable), ("payload", false));
    assert_eq!(failure.message.as_deref(), Some("`input` is larger than 64 KiB"));
}

#[tokio::test]
async fn the_end_of_a_command_decides_its_outcome() {
    let directory = tempfile::tempdir().expect("a directory");
    let scripts = [
        ("fails", "echo no luck; exit 3"),
        ("nothing", "echo not reported; exit 4"),
        ("killed", "kill -9 $$"),
        ("slow", "sleep 1000"),
    ];
    let pace = engine(directory.path(), &scripts);
    let mut told = Vec::new();
    for name in ["fails", "killed", "slow", "missing"] {
        let failure = failure(&*run(&pace, &json!({ "command": name })).await);
        told.push(format!("{}: {}", failure.class, failure.message.as_deref().unwrap_or_default()));
    }
    assert_eq!(
        told,
        [
            "exit: exit code 3: no luck",
            "signal: ended by signal 9",
            "timeout: still running after 200ms",
            "command: no command named `missing`: there are `fails`, `killed`, `nothing`, `slow`",
        ]
    );
    let nothing = run(&pace, &json!({ "command": "nothing" })).await;
    assert!(matches!(nothing.calls[0].outcome, CallOutcome::Empty), "{nothing:?}");
}

const CHILD: &str = "PACELINE_TEST_COMMAND_CHILD";
/// Runs for ever the first time, and exits at once the second.
const TWICE: &str = "echo up >> log; [ -e again ] && exit 0; sleep 1000";

fn restarted(directory: &Path) -> Paceline {
    let mark = directory.display().to_string();
    let script = format!("{TWICE}; : {mark}");
    let store = Paceline::open(directory.join("p.db"));
    builder(store, directory, &[("twice", &script)]).start().expect("a store")
}

/// Not a test by itself: the process that the next test kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_child_runs_a_command_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let pace = restarted(Path::new(&directory));
    run(&pace, &json!({ "command": "twice" })).await;
}

#[tokio::test]
async fn a_command_that_a_killed_process_left_is_ended_before_it_runs_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, log) = (directory.path(), directory.path().join("log"));
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_child_runs_a_command_until_it_is_killed", "-q"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    while said().is_empty() {
        assert!(matches!(child.try_wait(), Ok(None)), "it ended by itself");
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("gone");
    let mark = path.display().to_string();
    // Two while the shell forks.
    assert!(runs(&mark) > 0, "the program still runs after its parent was killed");
    fs::write(path.join("again"), "").expect("written");
    let pace = restarted(path);
    tokio::time::timeout(FOREVER, pace.idle()).await.expect("soon").expect("it runs");
    assert_eq!((said().as_str(), runs(&mark)), ("up\nup\n", 0));
}
