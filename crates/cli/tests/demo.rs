//! `paceline demo` as a newcomer runs it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("demo").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn it_ends_without_violations_and_says_so() {
    let output = demo().output().expect("it runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let lines = stdout.lines().skip_while(|line| !line.starts_with("service"));
    let rows: Vec<&str> = lines.skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 5, "{stdout}");
    for row in rows {
        let numbers: Vec<&str> = row.split_whitespace().rev().take(5).collect();
        let [violations, _at_once, refused, _failed, calls] = numbers[..] else {
            panic!("five numbers: {row}")
        };
        assert_eq!((violations, refused), ("0", "0"), "{stdout}");
        assert_ne!(calls, "0", "{stdout}");
    }
    assert!(stdout.contains("37 searches in "), "{stdout}");
    assert!(stdout.contains("34 found, 3 that no service knew."), "{stdout}");
    assert!(stdout.contains("\n8 searches asked again cost no call:"), "{stdout}");
    assert!(stderr.contains("an urgent search comes while "), "{stderr}");
    assert!(!stderr.contains('\x1b') && !stdout.contains('\x1b'), "no terminal, no escapes");
}

#[test]
fn ctrl_c_stops_it_at_once() {
    let mut child = demo().spawn().expect("it runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("a first line");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.ends_with("so nothing is left behind\n"), "{said}");
}
