//! `paceline bench` as scripts read it.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("bench").args(arguments).output().expect("it runs")
}

#[test]
fn figures_are_json_lines() {
    let output = bench(&["core", "--quick", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(stdout.lines().count() >= 2, "{stdout}");
    for line in stdout.lines() {
        let figure: serde_json::Value = serde_json::from_str(line).expect(line);
        assert_eq!(figure["bench"], "core", "{line}");
        assert!(figure["metric"].is_string() && figure["unit"].is_string(), "{line}");
        assert!(figure["value"].is_f64() && figure["target"].is_string(), "{line}");
        assert!(figure["ok"].is_boolean(), "{line}");
    }
}

#[test]
fn an_unknown_name_is_exit_two_and_lists_the_known_ones() {
    let output = bench(&["nosuch"]);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("[possible values: core, durable, latency, recover, limits, api]"));
    assert!(output.stdout.is_empty());
}
