//! The codes of the rules, their text in `docs/rules.md`, and the tests that name them: none of the
//! three goes without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The letters that a code begins with.
const LETTERS: &[u8] = b"LPWJDQRSCB";

/// Crates whose public items are read for codes.
const PUBLIC: [&str; 6] = [
    "crates/core/src",
    "crates/store/src",
    "crates/engine/src",
    "crates/apps/src",
    "crates/mock/src",
    "crates/server/src",
];

#[test]
fn every_code_in_the_sources_has_a_rule() {
    let rules = anchors();
    let mut strange = Vec::new();
    for (file, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let unknown = codes(line).into_iter().filter(|code| !rules.contains(code));
            strange
                .extend(unknown.map(|code| format!("{}:{}: {code}", file.display(), number + 1)));
        }
    }
    assert!(strange.is_empty(), "not in docs/rules.md:\n{}", strange.join("\n"));
}

#[test]
fn every_rule_has_a_test_that_names_it() {
    let mut tests: BTreeMap<String, usize> = BTreeMap::new();
    for (_, text) in sources() {
        let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
        for code in names.flat_map(named_by) {
            *tests.entry(code).or_default() += 1;
        }
    }
    let untested: Vec<String> =
        anchors().into_iter().filter(|code| !tests.contains_key(code)).collect();
    assert!(untested.is_empty(), "no test is named after {untested:?}");
}

#[test]
fn every_link_to_a_rule_leads_to_one() {
    let rules = anchors();
    let (mut links, mut broken) = (0, Vec::new());
    let docs = [root().join("docs"), root().join("README.md"), root().join("ARCHITECTURE.md")];
    let mut files = sources();
    for path in docs {
        read(&path, "md", &mut files);
    }
    for (file, text) in files {
        let own = file.ends_with("docs/rules.md");
        let link = if own { "(#".to_string() } else { ["rules.md", "#"].concat() };
        for part in text.split(&link).skip(1) {
            let id = part.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            links += 1;
            if !rules.contains(&id.to_uppercase()) {
                broken.push(format!("{}: #{id}", file.display()));
            }
        }
    }
    assert!(links >= LETTERS.len() && broken.is_empty(), "{links} links, broken: {broken:?}");
}

/// Codes are for those who read the source: the documentation of a public item says the rule.
#[test]
fn public_items_are_documented_without_codes() {
    let mut found = Vec::new();
    let public = |(file, _): &(PathBuf, String)| {
        // Mutants are rules by their codes.
        let rules = file.ends_with("core/src/mutant.rs");
        !rules && PUBLIC.iter().any(|sources| file.starts_with(root().join(sources)))
    };
    for (file, text) in sources().into_iter().filter(public) {
        let mut docs = Vec::new();
        for line in text.lines().map(str::trim_start) {
            if let Some(doc) = line.strip_prefix("///") {
                docs.extend(codes(doc));
            } else if !line.starts_with("#[") {
                let item = line.trim_end_matches([' ', '{']);
                let named = docs.drain(..).filter(|_| item.starts_with("pub "));
                found.extend(named.map(|code| format!("{}: {item}: {code}", file.display())));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The rules that the document has, each with an anchor of its own name.
fn anchors() -> BTreeSet<String> {
    let path = root().join("docs/rules.md");
    let text = fs::read_to_string(&path).expect("the rules");
    let mut rules = BTreeSet::new();
    for part in text.split("<a id=\"").skip(1) {
        let (id, rest) = part.split_once("\"></a>**").expect("an anchor stands before its rule");
        let (code, _) = rest.split_once('.').expect("a rule begins with its code");
        assert_eq!(id.to_uppercase(), code);
        assert_eq!(codes(code), [code]);
        assert!(rules.insert(code.to_string()), "{code} stands there twice");
    }
    assert!(rules.len() > 40, "{rules:?}");
    rules
}

/// The codes in a line of source: a letter and one or two digits that stand alone. Not those of an
/// escaped character, such as `%C3`, or of a longer word.
fn codes(line: &str) -> Vec<String> {
    let bytes = line.as_bytes();
    let joins = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'%' | b'\\');
    let mut found = Vec::new();
    for at in 0..bytes.len() {
        let starts = LETTERS.contains(&bytes[at]) && (at == 0 || !joins(&bytes[at - 1]));
        let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = at + 1 + digits;
        if starts && (1..=2).contains(&digits) && bytes.get(end).is_none_or(|byte| !joins(byte)) {
            found.push(line[at..end].to_string());
        }
    }
    found
}

/// The rules that a test names: `s2_s3_a_killed_program_goes_on` names two.
fn named_by(name: &str) -> impl Iterator<Item = String> {
    let parts = name.split('_').map(str::to_uppercase);
    parts.take_while(|part| codes(part) == [part.clone()])
}

/// The Rust files of all crates.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    read(&root().join("crates"), "rs", &mut files);
    assert!(files.len() > 100, "{} files", files.len());
    files
}

fn read(path: &Path, extension: &str, files: &mut Vec<(PathBuf, String)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            read(&entry.expect("an entry").path(), extension, files);
        }
    } else if path.extension().is_some_and(|found| found == extension) {
        files.push((path.into(), fs::read_to_string(path).expect("a file of text")));
    }
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("this crate is two levels below it").into()
}

#[test]
fn a_code_is_told_from_what_looks_like_one() {
    assert_eq!(codes("/// The gap (L2), and P5."), ["L2", "P5"]);
    assert_eq!(codes("L11: windows"), ["L11"]);
    for other in ["%C3%A9", "SHA-256", "L123", "xB1", "B1x", "Q_1", "RFC 9110", "0xD1"] {
        assert_eq!(codes(other), [""; 0], "{other}");
    }
    assert_eq!(named_by("s2_s3_it_goes_on()").collect::<Vec<_>>(), ["S2", "S3"]);
}
