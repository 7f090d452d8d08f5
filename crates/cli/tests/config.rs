//! `paceline config`, and the manual, as commands.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn paceline(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.current_dir(directory).args(arguments).env_clear().env("HOME", directory);
    command.output().expect("it runs")
}

/// Exit code, stdout and stderr of one run.
#[track_caller]
fn check(directory: &Path, arguments: &[&str], expected: (i32, &str, &str)) {
    let output = paceline(directory, arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let got = (output.status.code(), text(&output.stdout), text(&output.stderr));
    assert_eq!(got, (Some(expected.0), expected.1.to_string(), expected.2.to_string()));
}

fn directory_with(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("paceline.toml"), text).expect("written");
    directory
}

#[test]
fn the_printed_configuration_is_valid() {
    let directory = tempfile::tempdir().expect("a directory");
    let printed = paceline(directory.path(), &["config", "print"]);
    assert_eq!((printed.status.code(), printed.stderr.len()), (Some(0), 0));
    std::fs::write(directory.path().join("paceline.toml"), &printed.stdout).expect("written");
    let ok = "ok: paceline.toml: 0 lanes, 0 templates, 0 groups\n";
    check(directory.path(), &["config", "check"], (0, ok, ""));
}

#[test]
fn the_entries_of_a_valid_file_are_counted() {
    let text = "[lanes.a]\ngroup = 'g'\n[lanes.b]\n[lanes.'host:*']\n[groups.g]\nlimits = ['3/s']\n\
         [commands.c]\nrun = ['c']\n";
    let directory = directory_with(text);
    let ok = "ok: paceline.toml: 2 lanes, 1 template, 1 group, 1 command\n";
    check(directory.path(), &["config", "check"], (0, ok, ""));
    check(directory.path(), &["config", "check", "paceline.toml"], (0, ok, ""));
    check(directory.path(), &["--config", "paceline.toml", "config", "check"], (0, ok, ""));
}

#[test]
fn a_configuration_that_serve_would_refuse_gets_warnings() {
    let text = "[server]\nlisten = '0.0.0.0:7400'\n\
         [lanes.a]\nheaders = { x-key = { env = 'AN_UNSET_VARIABLE' } }\n";
    let directory = directory_with(text);
    let ok = "ok: paceline.toml: 1 lane, 0 templates, 0 groups\n";
    let warnings = "warning: the lane `a`: the header `x-key` needs the environment variable \
         `AN_UNSET_VARIABLE`: environment variable not found: commands that make calls will refuse to start\n\
         warning: `serve` refuses `0.0.0.0:7400` without tokens: make one with `paceline config token NAME`\n";
    check(directory.path(), &["config", "check"], (0, ok, warnings));
}

#[test]
fn every_mistake_is_one_line_with_its_place() {
    let directory = directory_with("[lanes.a]\nevry = '1s'\nin_flight = 0\n");
    let mistakes = "\
error: paceline.toml:2:1: unknown key `lanes.a.evry`: did you mean `every`?
error: paceline.toml:3:13: `lanes.a.in_flight` must be a whole number from 1 to 100000, but is 0
";
    check(directory.path(), &["config", "check"], (2, "", mistakes));
}

#[test]
fn without_a_file_the_defaults_apply() {
    let directory = tempfile::tempdir().expect("a directory");
    let ok = "ok: no file, defaults only: 0 lanes, 0 templates, 0 groups\n";
    check(directory.path(), &["config", "check"], (0, ok, ""));
}

#[test]
fn the_environment_may_name_the_file() {
    let directory = directory_with("[lanes.a]");
    std::fs::write(directory.path().join("other.toml"), "\u{feff}[lanes.b]\r\nevry = 1\r\n")
        .expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.current_dir(&directory).args(["config", "check"]).env("PACELINE_CONFIG", "other.toml");
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let expected = "error: other.toml:2:1: unknown key `lanes.b.evry`: did you mean `every`?\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn a_named_file_must_exist() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing =
        "error: no file `x.toml`: create it with `paceline config print > FILE`, or name another\n";
    check(directory.path(), &["config", "check", "x.toml"], (2, "", missing));
    let folder = "error: cannot read the configuration `.`: Is a directory (os error 21)\n";
    check(directory.path(), &["config", "check", "."], (2, "", folder));
}

#[test]
fn wrong_usage_is_exit_two_and_prints_nothing_on_stdout() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [&["config"][..], &["confg"], &["config", "check", "a", "b"], &["--nope"], &[]]
    {
        let output = paceline(directory.path(), arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    let mut child = command
        .args(["config", "print"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn completions_and_the_manual_go_to_stdout() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [&["completions", "bash"][..], &["man"], &["man", "mock"]] {
        let output = paceline(directory.path(), arguments);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
        assert!(String::from_utf8_lossy(&output.stdout).contains("paceline"));
    }
}

#[test]
fn every_page_that_the_manual_refers_to_can_be_printed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut pages = vec![Vec::new()];
    let mut at = 0;
    while at < pages.len() {
        let command: Vec<String> = pages[at].clone();
        let arguments = ["man".to_string()].into_iter().chain(command.iter().cloned());
        let arguments: Vec<String> = arguments.collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = paceline(directory.path(), &arguments);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{arguments:?}");
        let page = String::from_utf8(output.stdout).expect("text");
        let name = ["paceline"].into_iter().chain(command.iter().map(String::as_str));
        let name = name.collect::<Vec<_>>().join("\\-");
        assert!(page.contains(&format!(".SH NAME\n{name}")), "{page}");
        for reference in page.lines().filter_map(|line| line.strip_suffix("(1)")) {
            let words = reference.split("\\-").skip(1).map(String::from).collect();
            if !pages.contains(&words) {
                pages.push(words);
            }
        }
        at += 1;
    }
    assert!(pages.contains(&["job", "add"].map(String::from).to_vec()), "{pages:?}");
    let unknown = "error: no command named `job ad`: `paceline help` lists them\n";
    check(directory.path(), &["man", "job", "ad"], (1, "", unknown));
}
