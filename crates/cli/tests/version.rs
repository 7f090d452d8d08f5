//! `--version` names the commit that the binary is built from.

use std::process::Command;

#[path = "../build.rs"]
#[expect(dead_code, reason = "a build script also has what only cargo runs")]
mod build;

fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).expect("text").trim_end().to_string())
}

#[test]
fn the_version_names_the_commit_that_is_checked_out() {
    let version = printed(env!("CARGO_BIN_EXE_paceline"), &["--version"]).expect("a version");
    let package = concat!("paceline ", env!("CARGO_PKG_VERSION"));
    if printed("git", &["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        // The environment may name a commit.
        assert!(version.starts_with(package), "{version}");
        return;
    }
    let seconds = printed("git", &["show", "--no-patch", "--format=%ct"]).expect("a commit");
    let commit = printed("git", &["rev-parse", "HEAD"]).expect("a commit");
    let day = printed("date", &["--utc", &format!("--date=@{seconds}"), "+%F"]).expect("a day");
    assert_eq!(version, format!("{package} ({} {day})", &commit[..7]));
}

#[track_caller]
fn check(commit: Option<(&str, Option<&str>)>, expected: &str) {
    assert_eq!(build::version("0.1.0", commit), expected);
}

#[test]
fn a_version_has_the_parts_that_are_known() {
    check(None, "0.1.0");
    check(Some(("cb87bf8", None)), "0.1.0 (cb87bf8)");
    check(Some(("cb87bf8d21", Some("1795124482"))), "0.1.0 (cb87bf8 2026-11-19)");
    check(Some(("cb87bf8", Some("\n"))), "0.1.0 (cb87bf8)");
    check(Some(("cb87bf8", Some("tomorrow"))), "0.1.0 (cb87bf8)");
    check(Some(("", Some("0"))), "0.1.0");
    check(Some(("unknown", None)), "0.1.0");
}

#[test]
fn dates_follow_the_calendar() {
    let day = |seconds: &str, expected: &str| {
        check(Some(("0000000", Some(seconds))), &format!("0.1.0 (0000000 {expected})"));
    };
    day("0", "1970-01-01");
    day("68169599", "1972-02-28");
    day("68169600", "1972-02-29");
    day("951782400", "2000-02-29");
    day("951868800", "2000-03-01");
    day("1735689599", "2024-12-31");
    day("1735689600", "2025-01-01");
    day("4107542400", "2100-03-01");
}
