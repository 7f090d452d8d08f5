//! `paceline mock`, over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

struct Mock {
    child: Child,
    addr: String,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Mock {
    fn start(arguments: &[&str]) -> Mock {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.arg("mock").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("an address");
        let addr = line.trim().strip_prefix("http://").expect("an address").to_string();
        Mock { child, addr, stdout, stderr }
    }

    fn said(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("a line");
        line
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.addr).expect("listening");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Ends it as Ctrl-C does. Returns its exit code and the rest of its output.
    fn interrupt(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
        assert!(sent.success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

#[test]
fn it_refuses_what_is_beyond_its_limits_and_sums_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("calls.jsonl");
    let file = log.to_str().expect("text");
    let arguments = ["grumpy", "--limit", "2/h", "--retry-after", "1h", "-v", "--log", file];
    let mut mock = Mock::start(&arguments);
    assert_eq!(mock.said(), "allows at most 2/h; beyond that 429 with Retry-After for 1h\n");
    assert!(mock.get("/a").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(mock.get("/b").starts_with("HTTP/1.1 200 OK\r\n"));
    let refused = mock.get("/c");
    assert!(refused.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{refused}");
    assert!(refused.contains("retry-after: 3600\r\n"), "{refused}");
    let said = mock.said();
    assert!(said.starts_with("refused call 3 to `/c` at ") && said.ends_with(", 1 in flight\n"));
    assert!(mock.get("/-/summary").contains(r#""violations":1"#));

    let (code, rest) = mock.interrupt();
    assert_eq!(code, Some(0));
    assert!(
        rest.starts_with("calls           3\n  200           2\n  429           1\n"),
        "{rest}"
    );
    assert!(rest.ends_with("2/h             violations: 1\n"), "{rest}");
    let lines = std::fs::read_to_string(&log).expect("a log");
    let paths = lines.lines().map(|line| line.contains(r#""in_flight":1}"#));
    assert_eq!(paths.collect::<Vec<_>>(), [true, true, true]);
}

#[test]
fn wrong_options_are_exit_two() {
    for (arguments, sentence) in [
        (&["--limit", "fast"][..], "`fast` is not a rate"),
        (&["--every", "0s"], "it is zero: leave it out for no gap"),
        (&["--every", "5"], "`5` has no unit: write `5s`"),
        (&["--fail", "2"], "not a ratio: write it like `1/3`"),
        (&["--in-flight", "0"], "invalid value '0'"),
        (&["grumpi"], "tip: a similar value exists: 'grumpy'"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        let output = command.arg("mock").args(arguments).output().expect("it runs");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(sentence), "{stderr}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let mock = Mock::start(&[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    let output = command.args(["mock", "--listen", &mock.addr]).output().expect("it runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.starts_with(&format!(
            "error: cannot listen on `{}`, choose another with `--listen`: ",
            mock.addr
        )),
        "{stderr}"
    );
    assert_eq!(mock.interrupt().0, Some(0));
}
