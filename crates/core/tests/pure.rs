//! The rules are pure: what this crate depends on and names has no clock, no files, no threads
//! and no chance in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that may be linked in, and the macros that write some of it.
const ALLOWED: [&str; 32] = [
    "croner",
    "darling",
    "darling_core",
    "darling_macro",
    "derive_builder",
    "derive_builder_core",
    "derive_builder_macro",
    "fnv",
    "foldhash",
    "hashbrown",
    "heck",
    "ident_case",
    "itoa",
    "jiff",
    "jiff-core",
    "memchr",
    "paceline-core",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_json",
    "slab",
    "strsim",
    "strum",
    "strum_macros",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "zmij",
];

#[test]
fn the_rules_depend_on_nothing_that_reaches_outside() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "paceline-core", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs its own tests");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("text");
    let found: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let strange: Vec<_> = found.iter().filter(|name| !ALLOWED.contains(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert!(found.contains("paceline-core") && found.contains("slab"), "{found:?}");
}

/// Ways to the outside, as they would be written.
const OUTSIDE: [&str; 16] = [
    "Instant",
    "SystemTime",
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::sync::mpsc",
    "std::sync::Mutex",
    "RandomState",
    "DefaultHasher",
    "HashMap::new",
    "HashSet::new",
    "println!",
    "async ",
];

#[test]
fn the_rules_name_nothing_that_reaches_outside() {
    let mut files = Vec::new();
    rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 20, "{files:?}");
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        let code =
            text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            if OUTSIDE.iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
