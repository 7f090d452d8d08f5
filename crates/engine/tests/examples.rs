//! The examples, run as a reader would run them.

use std::process::Command;

/// Runs an example, which `cargo test` builds beside its tests, and looks at all it says.
#[track_caller]
fn check(name: &str, expected: &str) {
    let test = std::env::current_exe().expect("this test");
    let built = test.parent().and_then(|tests| tests.parent()).expect("tests have a directory");
    let example = built.join("examples").join(name);
    let output = Command::new(&example).output().expect("`cargo test -p paceline` builds examples");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert!(output.status.success());
}

#[test]
fn hello() {
    check(
        "hello",
        "job 1: crossref: done \"OPTICKS\"\n\
         job 2: crossref: done \"MICROGRAPHIA\"\n\
         job 3: crossref: done \"ALMAGEST\"\n",
    );
}

#[test]
fn fan_out() {
    check(
        "fan_out",
        concat!(
            "first: Conclusive\n",
            "  shelf: empty\n",
            "  crossref: done \"10.1000/182\"\n",
            "  openalex: skipped (early_exit)\n",
            "  websearch: skipped (early_exit)\n",
            "again: Conclusive\n",
            "  shelf: empty, from the cache\n",
            "  crossref: done \"10.1000/182\", from the cache\n",
            "  openalex: skipped (early_exit)\n",
            "  websearch: skipped (early_exit)\n",
        ),
    );
}

#[test]
fn crash_and_resume() {
    check(
        "crash_and_resume",
        "killed after 3 reports\n\
         resumed: 8 jobs reported in all\n\
         asked again after their report: 0\n\
         calls past the limit: 0\n",
    );
}

#[test]
fn state() {
    check(
        "state",
        "request 1: /opticks\n\
         request 2: /micrographia\n\
         digest: e94b4fc1\n",
    );
}

#[test]
fn stream() {
    check(
        "stream",
        "found 1704\n\
         there is no value: catalogue: failed (error): \
         `soon` is no year: invalid digit found in string\n\
         there is no value: catalogue: failed (too_old): no catalogue goes back so far\n",
    );
}
