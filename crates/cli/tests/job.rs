//! `paceline job` and `paceline lane`, with a daemon and without one.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use paceline_mock::{Behaviour, Mock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A mock upstream, and a directory with a configuration for it.
struct Home {
    directory: tempfile::TempDir,
    mock: Mock,
    _runtime: tokio::runtime::Runtime,
}

impl Home {
    fn new() -> Home {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mock = runtime.block_on(Mock::start(Behaviour::default())).expect("a port");
        let directory = tempfile::tempdir().expect("a directory");
        let url = mock.url("");
        let config = format!(
            "[store]\npath = 'p.db'\n\
             [lanes.shop]\nurl = '{url}'\n\
             [lanes.'slow/odd lane']\nurl = '{url}'\nevery = '1h'\nlimits = ['5/d']\n\
             [lanes.gone]\nurl = 'http://127.0.0.1:9'\n\
             [lanes.local]\n\
             [commands.echo]\nrun = ['sh', '-c', 'printf %s \"$PACELINE_INPUT\"']\n"
        );
        fs::write(directory.path().join("paceline.toml"), config).expect("written");
        Home { directory, mock, _runtime: runtime }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.current_dir(self.directory.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Exited {
        Exited::of(&self.command(arguments).output().expect("it runs"))
    }

    /// The output of a command that succeeds.
    #[track_caller]
    fn good(&self, arguments: &[&str]) -> String {
        let told = self.run(arguments);
        assert_eq!(told.code, 0, "{arguments:?}: {told:?}");
        told.stdout
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--format", "json"]].concat();
        serde_json::from_str(&self.good(&arguments)).expect("JSON")
    }

    fn serve(&self) -> Running {
        let daemon = self.start(&["serve", "--listen", "127.0.0.1:0", "--log", "quiet"]);
        daemon.until("listening on")
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut child = self.command(arguments).spawn().expect("it runs");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Running { child, stderr }
    }
}

/// The result of a command.
#[derive(Debug)]
struct Exited {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Exited {
    fn of(output: &Output) -> Exited {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("it was not killed");
        Exited { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// A running command. It is stopped when this is dropped.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    /// Waits until it prints this.
    #[track_caller]
    fn until(mut self, words: &str) -> Running {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(
                self.stderr.read_line(&mut line).expect("text") > 0,
                "it never printed `{words}`"
            );
        }
        self
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Its exit code and the rest of its output.
    fn ended(mut self) -> Exited {
        let mut told = Exited { code: 0, stdout: String::new(), stderr: String::new() };
        let mut stdout = self.child.stdout.take().expect("piped");
        std::io::Read::read_to_string(&mut stdout, &mut told.stdout).expect("text");
        std::io::Read::read_to_string(&mut self.stderr, &mut told.stderr).expect("text");
        told.code = self.child.wait().expect("it ends").code().expect("it was not killed");
        told
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

#[test]
fn without_a_daemon_a_job_is_kept_for_the_next_one() {
    let home = Home::new();
    let added = home.run(&["job", "add", "--lane", "shop", "--path", "/item/1", "--key", "k"]);
    assert_eq!((added.code, added.stdout.as_str()), (0, "1\n"));
    assert!(
        added.stderr.contains("no daemon is running: it waits until you start `paceline serve`")
    );
    let waited = home.run(&["job", "add", "--lane", "shop", "--path", "/item/2", "--wait"]);
    assert_eq!((waited.code, waited.stdout.as_str()), (75, ""));
    assert!(waited.stderr.contains("nothing was added"), "{}", waited.stderr);
    let waited = home.run(&["job", "wait", "1"]);
    assert_eq!(waited.code, 75, "{waited:?}");
    assert!(waited.stderr.contains("start `paceline serve`"), "{}", waited.stderr);
    let jobs = home.json(&["job", "ls"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    assert_eq!(home.mock.summary().calls, 0);

    let daemon = home.serve();
    let report = home.good(&["job", "wait", "1"]);
    assert!(report.contains("200 call 1"), "{report}");
    assert_eq!(home.mock.summary().calls, 1);
    drop(daemon);
    assert_eq!(home.json(&["job", "show", "1"])["state"], "done");
    assert_eq!(home.good(&["job", "wait", "1"]), report, "a finished job needs no daemon");
}

#[test]
fn a_job_is_added_waited_for_and_shown_in_all_forms() {
    let home = Home::new();
    let _daemon = home.serve();
    let add = ["job", "add", "--lane", "shop", "--path", "/a", "--body", "x", "--wait"];
    let table = home.good(&add);
    assert!(table.starts_with("job        1\nstate      done\nanswer     all\n"), "{table}");
    assert!(table.contains("\n\nLANE  OUTCOME"), "{table}");
    let one = home.json(&add);
    assert_eq!(one["jobs"][0]["calls"][0]["value"]["status"], 200, "{one}");
    let line = home.good(&[&add[..], &["--format", "jsonl"]].concat());
    let line: Value = serde_json::from_str(&line).expect("one line");
    assert_eq!(line["job"], 3);
    let input = r#"{"a": 1}"#;
    let command = ["job", "add", "--lane", "local", "--command", "echo", "--input", input];
    let said = home.good(&[&command[..], &["--wait=20s"]].concat());
    assert!(said.contains(input), "{said}");

    let shown = home.json(&["job", "show", "4"]);
    assert_eq!((&shown["kind"], &shown["state"]), (&"command".into(), &"done".into()));
    let list = home.good(&["job", "ls"]);
    let mut lines = list.lines();
    let head: Vec<&str> = lines.next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["JOB", "STATE", "KIND", "LANES", "ANSWER", "SUBMITTED", "WHY"]);
    assert_eq!(lines.count(), 4, "{list}");
    let why = home.run(&["job", "why", "1"]);
    assert_eq!((why.code, why.stdout.as_str()), (0, ""));
    assert_eq!(why.stderr, "job 1 is done: none of its calls is waiting\n");
}

#[test]
fn a_list_of_jobs_is_sent_as_it_is_and_each_job_is_refused_on_its_own() {
    let home = Home::new();
    let job =
        |lane: &str| format!(r#"{{"kind":"http","lanes":["{lane}"],"payload":{{"path":"/"}}}}"#);
    let jobs = format!("[{}, {}, {}]", job("shop"), job("nope"), job("shop"));
    fs::write(home.directory.path().join("jobs.json"), jobs).expect("written");
    let _daemon = home.serve();
    let added = home.run(&["job", "add", "--json", "jobs.json"]);
    assert_eq!((added.code, added.stdout.as_str()), (2, "1\n2\n"), "{added:?}");
    assert!(added.stderr.starts_with("refused: no lane named `nope`"), "{}", added.stderr);
    let added = home.run(&["job", "add", "--json", "jobs.json", "--wait", "--format", "jsonl"]);
    let lines: Vec<Value> =
        added.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 3, "{added:?}");
    assert_eq!([&lines[0]["state"], &lines[2]["state"]], ["done", "done"]);
    assert_eq!(lines[1]["admission"], "refused");

    let first = home.run(&["job", "ls", "--limit", "3", "--format", "jsonl"]);
    assert_eq!(first.stdout.lines().count(), 3);
    assert!(first.stderr.contains("there may be more"), "{}", first.stderr);
    let none = home.json(&["job", "ls", "--lane", "local"]);
    assert_eq!(none["jobs"], Value::Array(Vec::new()));
}

#[test]
fn the_state_of_a_job_is_the_exit_code() {
    let home = Home::new();
    let _daemon = home.serve();
    let add = |lane: &str, more: &[&str]| {
        let add = ["job", "add", "--lane", lane, "--path", "/", "--attempts", "1"];
        home.run(&[&add[..], more].concat())
    };
    assert_eq!(add("shop", &["--wait"]).code, 0);
    let failed = add("gone", &["--wait"]);
    assert_eq!(failed.code, 1);
    assert!(failed.stdout.contains("cannot connect"), "{failed:?}");
    assert_eq!(add("slow/odd lane", &["--wait"]).code, 0);
    let skipped = add("slow/odd lane", &["--wait", "--max-wait", "1s"]);
    assert_eq!(skipped.code, 75);
    assert!(skipped.stdout.contains("needed, 1s at most"), "{skipped:?}");
    let late = add("slow/odd lane", &["--wait=1s", "--key", "k"]);
    assert_eq!((late.code, late.stdout.as_str()), (75, ""));
    assert!(late.stderr.contains("is waiting for the lane `slow/odd lane`: gap until"), "{late:?}");
    assert!(late.stderr.contains("`paceline job wait 5` continues to wait"), "{late:?}");
    assert_eq!(home.run(&["job", "wait", "5", "--timeout", "10ms"]).code, 75);
    assert_eq!(add("slow/odd lane", &["--key", "k", "--on-duplicate", "refuse"]).code, 1);
    let joined = add("slow/odd lane", &["--key", "k"]);
    assert_eq!((joined.code, joined.stdout.as_str()), (0, "5\n"));
    assert!(joined.stderr.starts_with("joined job 5"), "{joined:?}");
    let listed = home.good(&["job", "ls", "--state", "waiting"]);
    assert!(listed.contains("gap until "), "{listed}");

    let detached = home.run(&["job", "cancel", "5"]);
    assert_eq!(
        detached.stderr,
        "job 5 goes on: other callers joined it, and each of them has to cancel it\n"
    );
    assert_eq!(home.run(&["job", "cancel", "5", "99"]).code, 1);
    assert_eq!(home.json(&["job", "show", "5"])["state"], "cancelled");
    assert_eq!(home.run(&["job", "wait", "5"]).code, 1);
    let again = home.run(&["job", "retry", "2"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, "6\n"), "{again:?}");
    assert_eq!(home.run(&["job", "retry", "1"]).code, 1, "there is nothing to retry");
    assert_eq!(home.run(&["job", "show", "99"]).code, 1);
}

#[test]
fn a_wait_ends_with_the_job_or_with_a_signal() {
    let home = Home::new();
    let daemon = home.serve();
    let add = ["job", "add", "--lane", "slow/odd lane", "--path", "/"];
    home.good(&[&add[..], &["--wait"]].concat());
    home.good(&add);
    home.good(&add);
    let first = home.start(&["job", "wait", "2"]).until("job 2 is waiting for the lane");
    home.good(&["job", "cancel", "2"]);
    let first = first.ended();
    assert_eq!(first.code, 1, "{first:?}");
    assert!(first.stdout.contains("cancelled"), "{first:?}");

    let second = home.start(&["job", "wait", "3"]).until("job 3 is waiting for the lane");
    second.signal(Signal::INT);
    let second = second.ended();
    assert_eq!(second.code, 130);
    assert!(second.stderr.contains("`paceline job wait 3` continues to wait"), "{second:?}");
    let third =
        home.start(&[&add[..], &["--wait"]].concat()).until("job 4 is waiting for the lane");
    third.signal(Signal::INT);
    assert_eq!(third.ended().code, 130);

    let last = home.start(&["job", "wait", "3"]).until("job 3 is waiting for the lane");
    drop(daemon);
    let last = last.ended();
    assert_eq!(last.code, 75, "{last:?}");
    assert_eq!(home.json(&["job", "show", "3"])["state"], "waiting", "nothing was lost");
}

#[test]
fn mistakes_get_a_message_and_exit_two() {
    let home = Home::new();
    let check = |arguments: &[&str], words: &str| {
        let told = home.run(&[&["job"], arguments].concat());
        assert_eq!((told.code, told.stdout.as_str()), (2, ""), "{arguments:?}: {told:?}");
        assert!(told.stderr.contains(words), "{arguments:?}: {}", told.stderr);
    };
    check(&["add", "--lane", "shop"], "--path <PATH>|--url <URL>|--command <NAME>|--json <FILE>");
    check(&["add", "--path", "/"], "--lane <NAME>");
    check(&["add", "--lane", "shop", "--json", "-"], "cannot be used with");
    check(&["add", "--json", "-", "--key", "k"], "cannot be used with");
    check(&["add", "--json", "missing"], "cannot read `missing`");
    check(&["add", "--json", "-"], "invalid body");
    check(&["add", "--lane", "shop", "--path", "a"], "`path` must start with `/`");
    check(&["add", "--lane", "nope", "--path", "/"], "no lane named `nope`");
    check(&["add", "--lane", "shop", "--path", "/", "--delay", "3"], "write `3s`");
    check(&["add", "--lane", "shop", "--path", "/", "--wait=soon"], "invalid value 'soon'");
    check(&["add", "--lane", "local", "--command", "no"], "no command named `no`");
    check(&["add", "--lane", "local", "--command", "echo", "--input", "{"], "is not JSON");
    check(&["ls", "--state", "lost"], "possible values: waiting, running");
    check(&["show", "first"], "invalid value 'first'");
    check(&["wait"], "<ID>");
    let secret = ["add", "--lane", "shop", "--path", "/", "--header", "Authorization hush"];
    check(&secret, "a header is written `NAME: VALUE`");
    assert!(!home.run(&[&["job"], &secret[..]].concat()).stderr.contains("hush"));
}

#[test]
fn lanes_are_steered_alike_with_a_daemon_and_without_one() {
    let home = Home::new();
    let name = "slow/odd lane";
    let check = || {
        let table = home.good(&["lane", "ls"]);
        let head: Vec<&str> = table.lines().next().expect("a head").split_whitespace().collect();
        assert_eq!(head, ["LANE", "OPEN", "WHY", "IN-FLIGHT", "WAITING", "LIMITS", "COOLDOWN"]);
        assert!(
            table.contains("slow/odd lane  now   -    0/1        0        every 1h, 5/d (0 used)")
        );
        let paused = home.run(&["lane", "pause", name]);
        assert_eq!((paused.code, paused.stdout.as_str()), (0, ""));
        assert!(paused.stderr.starts_with("`slow/odd lane` is paused"), "{paused:?}");
        assert_eq!(home.json(&["lane", "show", name])["paused"], true);
        assert_eq!(home.json(&["lane", "resume", name])["paused"], false);
        assert_eq!(home.json(&["lane", "reset", name])["name"], name);
        let lanes = home.good(&["lane", "ls", "--format", "jsonl"]);
        assert_eq!(lanes.lines().count(), 4, "{lanes}");
        for verb in ["show", "pause", "resume", "reset"] {
            let unknown = home.run(&["lane", verb, "../jobs"]);
            assert_eq!(unknown.code, 1);
            assert!(unknown.stderr.starts_with("error: no lane named `../jobs`: "), "{unknown:?}");
        }
    };
    check();
    let _daemon = home.serve();
    check();
}

#[test]
fn w1_a_job_that_a_pause_has_skipped_is_shown_with_the_remedy() {
    let home = Home::new();
    let _daemon = home.serve();
    home.good(&["lane", "pause", "shop"]);
    let arguments = ["job", "add", "--lane", "shop", "--path", "/", "--max-wait", "2s", "--wait"];
    let added = home.run(&arguments);
    let remedy = "max_wait: paused, 2s at most; `paceline lane resume shop` resumes it";
    assert_eq!(added.code, 75, "{added:?}");
    assert!(added.stdout.contains(remedy), "{added:?}");
    let shown = home.good(&["job", "show", "1"]);
    assert!(shown.contains("skipped") && shown.contains(remedy), "{shown}");
    let listed = home.good(&["job", "ls"]);
    assert!(listed.contains("max_wait: paused, 2s at most"), "{listed}");
    let why = home.run(&["job", "why", "1"]);
    assert_eq!((why.code, &*why.stdout), (0, ""), "{why:?}");
    assert_eq!(why.stderr, "job 1 is skipped: none of its calls is waiting\n");
}

#[test]
fn a_pause_is_kept_until_the_next_daemon() {
    let home = Home::new();
    home.good(&["lane", "pause", "shop"]);
    home.good(&["job", "add", "--lane", "shop", "--path", "/"]);
    let _daemon = home.serve();
    let why = home.json(&["job", "why", "1"]);
    assert_eq!(why["why"][0]["reason"], "paused", "{why}");
    home.good(&["lane", "resume", "shop"]);
    home.good(&["job", "wait", "1"]);
}

#[test]
fn reports_that_are_there_are_printed_though_others_are_not() {
    let home = Home::new();
    let _daemon = home.serve();
    let (slow, quick) = (
        r#"{"kind": "http", "lanes": ["slow/odd lane"], "payload": {"path": "/"}}"#,
        r#"{"kind": "http", "lanes": ["shop"], "payload": {"path": "/"}, "delay": "1200ms"}"#,
    );
    home.good(&["job", "add", "--lane", "slow/odd lane", "--path", "/first", "--wait"]);
    fs::write(home.directory.path().join("jobs.json"), format!("[{slow},{quick}]"))
        .expect("written");
    let told = home.run(&["job", "add", "--json", "jobs.json", "--wait=3s", "--format", "jsonl"]);
    assert_eq!(told.code, 75, "{told:?}");
    assert!(
        told.stderr.contains("not finished yet: `paceline job wait 2` continues to wait"),
        "{told:?}"
    );
    let lines: Vec<Value> =
        told.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[1]["job"], &lines[1]["state"]), (&3.into(), &"done".into()), "{told:?}");
}

#[test]
fn a_daemon_that_hangs_or_dies_delays_no_command() {
    let home = Home::new();
    let daemon = home.serve();
    home.good(&["job", "add", "--lane", "slow/odd lane", "--path", "/1", "--wait"]);
    let waits = home.start(&["job", "add", "--lane", "slow/odd lane", "--path", "/2", "--wait"]);
    let waits = waits.until("is waiting for the lane");
    daemon.signal(Signal::STOP);
    let told = home.run(&["job", "wait", "2", "--timeout", "500ms"]);
    assert_eq!(told.code, 75, "{told:?}");
    let mut asks = home.start(&["job", "wait", "2"]);
    // A signal ends it, also before it listens.
    let ended = (0..1_000).any(|_| {
        asks.signal(Signal::INT);
        #[expect(clippy::disallowed_methods, reason = "no event tells that a process is gone")]
        std::thread::sleep(std::time::Duration::from_millis(10));
        asks.child.try_wait().expect("a child").is_some()
    });
    assert!(ended, "Ctrl-C ends it");
    daemon.signal(Signal::CONT);
    daemon.signal(Signal::KILL);
    let told = waits.ended();
    assert_eq!(told.code, 75, "{told:?}");
    assert!(told.stderr.contains("`paceline job wait 2` continues to wait"), "{told:?}");
}

#[test]
fn an_input_is_handed_over_as_it_was_written() {
    let home = Home::new();
    let _daemon = home.serve();
    let input = r#"{"id": 12345678901234567890123, "b": 1.10, "a": 2}"#;
    let add = ["job", "add", "--lane", "local", "--command", "echo", "--input", input, "--wait"];
    let told = home.json(&add);
    assert_eq!(told["jobs"][0]["calls"][0]["value"]["output"], input, "{told}");
}

#[test]
fn a_command_that_only_reads_needs_no_secret() {
    let home = Home::new();
    let file = home.directory.path().join("paceline.toml");
    let config = fs::read_to_string(&file).expect("there");
    let secret = "[lanes.shop]\nheaders = { x-key = { env = 'AN_UNSET_VARIABLE' } }\n";
    fs::write(&file, config.replace("[lanes.shop]\n", secret)).expect("written");
    home.good(&["lane", "pause", "shop"]);
    home.good(&["job", "ls"]);
    let serve = home.run(&["serve", "--listen", "127.0.0.1:0", "--log", "quiet"]);
    assert_eq!(serve.code, 2, "{serve:?}");
    assert!(
        serve.stderr.contains("needs the environment variable `AN_UNSET_VARIABLE`"),
        "{serve:?}"
    );
}

#[test]
fn a_daemon_with_another_configuration_is_named() {
    let home = Home::new();
    let _daemon = home.serve();
    let other = tempfile::tempdir().expect("a directory");
    let store = home.directory.path().join("p.db");
    let config = format!("[store]\npath = '{}'\n[lanes.other]\n", store.display());
    fs::write(other.path().join("paceline.toml"), config).expect("written");
    let mut command = home.command(&["lane", "ls"]);
    let told = Exited::of(&command.current_dir(other.path()).output().expect("it runs"));
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stderr.starts_with("asking process "), "{told:?}");
    assert!(home.run(&["lane", "ls"]).stderr.is_empty());
}

#[test]
fn a_report_is_printed_though_the_daemon_ends_before_another_job_does() {
    let home = Home::new();
    let daemon = home.serve();
    home.good(&["job", "add", "--lane", "slow/odd lane", "--path", "/1", "--wait"]);
    home.good(&["job", "add", "--lane", "slow/odd lane", "--path", "/2"]);
    home.good(&["lane", "pause", "shop"]);
    home.good(&["job", "add", "--lane", "shop", "--path", "/3"]);
    let waits = home.start(&["job", "wait", "2", "3", "--format", "jsonl"]);
    let waits = waits.until("job 2 is waiting for the lane");
    home.good(&["lane", "resume", "shop"]);
    home.good(&["job", "wait", "3"]);
    drop(daemon);
    let exited = waits.ended();
    assert_eq!(exited.code, 75, "{exited:?}");
    let report: serde_json::Value = serde_json::from_str(exited.stdout.trim()).expect("a report");
    assert_eq!((&report["job"], &report["state"]), (&3.into(), &"done".into()));
    assert!(exited.stderr.contains("`paceline job wait 2` continues to wait"), "{exited:?}");
}
