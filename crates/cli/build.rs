//! The version that `paceline --version` prints: of the package, and of the commit it is built from.
//!
//! In a checkout git is asked. Without one, `PACELINE_COMMIT` and `SOURCE_DATE_EPOCH` say it, as a
//! container's build has no `.git`. A published package, built without them, has the version alone.
//! Changes that are not committed do not show: to notice them, every build would have to run this.

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

/// The commit that is checked out, and its date. Sees to it that this runs again when that moves.
fn checked_out() -> Option<(String, Option<String>)> {
    // A package that was unpacked inside of another repository is not of that repository's commit.
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

/// A branch that git has packed gets a file again at its next commit. Cargo takes a missing file for a
/// change at every build, so until then the directory is watched in which it will appear.
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
