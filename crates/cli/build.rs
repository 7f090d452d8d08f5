//! The version that `paceline --version` prints: of the package, and of the commit it is built from.
//!
//! In a checkout they come from git. Elsewhere they come from `PACELINE_COMMIT` and
//! `SOURCE_DATE_EPOCH`, for example in a container's build, which has no `.git`. A published package
//! has the version alone. Uncommitted changes are not shown: every build would have to run this.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PACELINE_COMMIT");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let commit = checked_out()
        .or_else(|| Some((env::var("PACELINE_COMMIT").ok()?, env::var("SOURCE_DATE_EPOCH").ok())));
    let commit = commit.as_ref().map(|(commit, seconds)| (commit.as_str(), seconds.as_deref()));
    let version = version(env!("CARGO_PKG_VERSION"), commit);
    println!("cargo::rustc-env=PACELINE_VERSION={version}");
}

/// `0.1.0 (cb87bf8 2026-11-19)`, from a commit and the seconds since 1970 of its date.
pub(crate) fn version(package: &str, commit: Option<(&str, Option<&str>)>) -> String {
    let known = |commit: &&str| commit.len() >= 7 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((commit, seconds)) = commit.filter(|(commit, _)| known(commit)) else {
        return package.to_string();
    };
    let commit = &commit[..7];
    match seconds.and_then(|seconds| seconds.trim().parse().ok()).map(date) {
        Some(date) => format!("{package} ({commit} {date})"),
        None => format!("{package} ({commit})"),
    }
}

/// The day in UTC, by the calendar's cycles of 400 years that begin with March.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, turn) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", cycle * 400 + year + turn)
}

/// The commit that is checked out, and its date. Makes cargo run this again when that changes.
fn checked_out() -> Option<(String, Option<String>)> {
    // The commit of a repository that a package was unpacked into is not the package's.
    if Path::new(".cargo_vcs_info.json").exists() {
        return None;
    }
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let head = git(&["rev-parse", "--git-path", "HEAD"])?;
    println!("cargo::rerun-if-changed={head}");
    if let Some(branch) = git(&["symbolic-ref", "--quiet", "HEAD"]) {
        watch(&git(&["rev-parse", "--git-path", &branch])?);
    }
    let shown = git(&["show", "--no-patch", "--format=%H %ct", "HEAD"])?;
    let (commit, seconds) = shown.split_once(' ')?;
    Some((commit.to_string(), Some(seconds.to_string())))
}

/// Makes cargo watch a branch. A packed branch has no file until its next commit, and cargo takes a
/// missing file for a change at every build, so the directory is watched until then.
fn watch(branch: &str) {
    if let Some(path) = Path::new(branch).ancestors().find(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
