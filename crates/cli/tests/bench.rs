//! `paceline bench`: its output for scripts.

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
fn p5_hung_lanes_are_measured_through_the_library_permits_and_the_relay() {
    let output = bench(&["hung", "--quick", "--format", "json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let figures = stdout.lines().map(|line| serde_json::from_str(line).expect(line));
    let figures: Vec<serde_json::Value> = figures.collect();
    for hung in [1, 2, 50] {
        for (who, target) in [("library", "<=5"), ("permit", "<=20"), ("relay", "<=20")] {
            for (share, target) in [("p50", ""), ("p99", target), ("worst", "")] {
                let metric = format!("{who}_{hung}_{share}_ms");
                let figure = figures.iter().find(|figure| figure["metric"] == *metric);
                let figure = figure.unwrap_or_else(|| panic!("no {metric}: {stdout}"));
                assert_eq!((&figure["bench"], &figure["unit"]), (&"hung".into(), &"ms".into()));
                assert_eq!(figure["target"], target, "{figure}");
                assert!(figure["value"].as_f64().is_some_and(|value| value >= 0.0), "{figure}");
            }
        }
    }
}

#[test]
fn an_unknown_name_is_exit_two_and_lists_the_benchmarks() {
    let output = bench(&["nosuch"]);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("[possible values: core, durable, latency, recover, limits, api, hung]")
    );
    assert!(output.stdout.is_empty());
}
