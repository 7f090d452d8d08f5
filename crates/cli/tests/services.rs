//! `paceline services`, with real programs, real signals and a real store.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use paceline_core::{Now, Record, Span, Stamp, Write};
use paceline_store::{Sqlite, Store as _};
use serde_json::Value;

/// No step takes this long; a test that waits for it has failed.
const FOREVER: Duration = Duration::from_mins(1);

/// A directory with a configuration, and a log to which its services write.
struct Home(tempfile::TempDir);

impl Home {
    /// `say NAME` in a service's `run` appends its name to the log.
    fn new(config: &str) -> Home {
        let home = Home(tempfile::tempdir().expect("a directory"));
        let config = format!("[store]\npath = 'p.db'\n{config}");
        home.write("paceline.toml", &config);
        home.write("say", "#!/bin/sh\necho \"$1\" >> log\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(home.path().join("say"), mode).expect("a mode");
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.current_dir(self.path()).arg("services").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    #[track_caller]
    fn status(&self) -> Value {
        let output = self.run(&["status", "--format", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The lines that services wrote, in order.
    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_string).collect()
    }

    /// Waits until services have written this many lines.
    #[track_caller]
    fn until_said(&self, lines: usize) {
        until(|| self.log().len() >= lines);
    }

    fn start(&self) -> Rosters {
        let mut child = self.command(&["run", "--format", "json"]).spawn().expect("it runs");
        let stdout = child.stdout.take().expect("piped");
        let (tell, told) = channel();
        std::thread::spawn(move || {
            use std::io::BufRead as _;
            for line in std::io::BufReader::new(stdout).lines().map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).expect("JSON");
                let word = |key: &str| line[key].as_str().unwrap_or_default().to_string();
                if tell.send((word("service"), word("state"))).is_err() {
                    return;
                }
            }
        });
        Rosters { child, told }
    }
}

/// A running `services run`. It is stopped when this is dropped, with its programs.
struct Rosters {
    child: Child,
    told: Receiver<(String, String)>,
}

impl Rosters {
    /// Waits until a service is in this state.
    #[track_caller]
    fn until(&self, service: &str, state: &str) {
        let mut seen = Vec::new();
        loop {
            match self.told.recv_timeout(FOREVER) {
                Ok(told) if told == (service.to_string(), state.to_string()) => return,
                Ok(told) => seen.push(told),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("`{service}` never was {state}: {seen:?}")
                }
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        assert_eq!(self.child.wait().expect("gone").signal(), Some(9));
    }
}

impl Drop for Rosters {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = rustix::process::Pid::from_child(&self.child);
            // Two signals of one kind could arrive as one.
            for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        let _ = self.child.wait();
    }
}

/// Polls until a deadline.
#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "no event tells what other processes did")]
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never came to that");
}

/// Returns `true` if a process runs whose command line contains this word.
fn runs(word: &str) -> bool {
    let entries = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(word))
}

#[test]
fn s1_services_of_one_roster_each_keep_their_own_interval() {
    let home = Home::new(
        "[services.often]\nrun = ['./say', 'often']\nevery = '500ms'\n\
         [services.daily]\nrun = ['./say', 'daily']\nevery = '24h'\n\
         [rosters.all]\ncheck = '100ms'\nservices = ['often', 'daily']\n",
    );
    let rosters = home.start();
    for _ in 0..4 {
        rosters.until("often", "done");
    }
    drop(rosters);
    let count = |name: &str| home.log().iter().filter(|line| *line == name).count();
    assert!(count("often") >= 4 && count("daily") == 1, "{:?}", home.log());
}

#[test]
fn s2_a_roster_of_three_runs_all_three_in_order() {
    let home = Home::new(
        "[services.a]\nrun = ['./say', 'a']\nevery = '1h'\n\
         [services.b]\nrun = ['./say', 'b']\nevery = '1h'\n\
         [services.c]\nrun = ['./say', 'c']\nevery = '1h'\n\
         [rosters.all]\ncheck = '1h'\nservices = ['c', 'a', 'b']\n",
    );
    let rosters = home.start();
    rosters.until("b", "done");
    drop(rosters);
    assert_eq!(home.log(), ["c", "a", "b"]);
    let status = home.status();
    let roster = &status["rosters"][0];
    assert_eq!((&roster["completed"], &roster["current"]), (&3.into(), &Value::Null), "{status}");
    assert_eq!(roster["results"][0]["service"], "c");
    assert!(roster["remaining"].as_array().is_some_and(Vec::is_empty));
    for service in status["services"].as_array().expect("services") {
        assert_eq!(service["result"], "done");
        assert!(service["left_ms"].as_u64().is_some_and(|left| left > 3_500_000), "{service}");
    }
}

#[test]
fn s2_s3_after_a_kill_the_roster_continues_at_the_third_service_and_ends_its_leftover() {
    let mark = format!("paceline-test-third-{}", std::process::id());
    let third = format!("./say three; if [ -e again ]; then exit 0; fi; : {mark}; sleep 1000");
    let home = Home::new(&format!(
        "[services.one]\nrun = ['./say', 'one']\nevery = '1h'\n\
         [services.two]\nrun = ['./say', 'two']\nevery = '1h'\n\
         [services.three]\nrun = ['sh', '-c', '{third}']\nevery = '1h'\n\
         [rosters.all]\ncheck = '1h'\nservices = ['one', 'two', 'three']\n",
    ));
    let rosters = home.start();
    rosters.until("three", "running");
    home.until_said(3);
    rosters.kill();
    assert!(runs(&mark), "the program outlives its parent");
    let before = home.status();
    assert_eq!(before["rosters"][0]["current"], "three", "{before}");
    assert_eq!(before["rosters"][0]["completed"], 2, "{before}");
    home.write("again", "");
    let rosters = home.start();
    rosters.until("three", "done");
    assert!(!runs(&mark), "what was left of the first run was ended");
    drop(rosters);
    assert_eq!(home.log(), ["one", "two", "three", "three"]);
    assert_eq!(home.status()["rosters"][0]["completed"], 3);
}

#[test]
fn s3_a_leftover_program_is_ended_even_if_its_service_has_become_a_request() {
    let mock = tokio::runtime::Runtime::new().expect("a runtime");
    let server = mock.block_on(paceline_mock::Mock::start(paceline_mock::Behaviour::default()));
    let server = server.expect("a port");
    let mark = format!("paceline-test-became-{}", std::process::id());
    let config =
        |act: &str| format!("[services.a]\n{act}\n[rosters.all]\ncheck = '1h'\nservices = ['a']\n");
    let script = format!("./say up; : {mark}; sleep 1000");
    let home = Home::new(&config(&format!("run = ['sh', '-c', '{script}']")));
    let rosters = home.start();
    home.until_said(1);
    rosters.kill();
    assert!(runs(&mark), "the program outlives its parent");
    let get = config(&format!("get = 'http://{}/'", server.addr()));
    home.write("paceline.toml", &format!("[store]\npath = 'p.db'\n{get}"));
    let rosters = home.start();
    rosters.until("a", "done");
    assert!(!runs(&mark), "what was left of the program was ended");
    drop(rosters);
    assert_eq!((home.log(), server.summary().calls), (vec!["up".to_string()], 1));
}

#[test]
fn s3_a_leftover_program_is_ended_even_if_its_service_is_no_longer_configured() {
    let mark = format!("paceline-test-forgotten-{}", std::process::id());
    let script = format!("./say up; : {mark}; sleep 1000");
    let home = Home::new(&format!(
        "[services.a]\nrun = ['sh', '-c', '{script}']\n[rosters.all]\ncheck = '1h'\nservices = ['a']\n"
    ));
    let rosters = home.start();
    home.until_said(1);
    rosters.kill();
    home.write("paceline.toml", "[store]\npath = 'p.db'\n[services.b]\nrun = ['true']\n");
    home.status();
    assert!(runs(&mark), "a command that only reads ends nothing");
    let output = home.run(&["run", "b"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("ended processes that an earlier run of `service/a` left behind"),
        "{said}"
    );
    assert!(!runs(&mark));
}

#[test]
fn a_run_by_hand_also_finishes_jobs_of_an_earlier_process_and_says_so() {
    let wait = "./say long; until [ -e go ]; do sleep 0.01; done; ./say over";
    let home = Home::new(&format!(
        "[services.long]\nrun = ['sh', '-c', '{wait}']\n[services.short]\nrun = ['true']\n\
         [rosters.all]\ncheck = '1h'\nservices = ['long']\n"
    ));
    let rosters = home.start();
    home.until_said(1);
    rosters.kill();
    let mut child = home.command(&["run", "short"]).spawn().expect("it runs");
    let mut lines = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("calls of earlier jobs still run: 1; Ctrl-C stops the wait for them") {
        let read = std::io::BufRead::read_line(&mut lines, &mut said).expect("text");
        assert!(read > 0, "it ended: {said}");
    }
    home.write("go", "");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{said}");
    assert_eq!(home.log(), ["long", "long", "over"]);
}

#[test]
fn a_closed_stdout_leaves_no_program_behind() {
    let mark = format!("paceline-test-reader-{}", std::process::id());
    let deaf = format!("trap \"\" TERM; : {mark}; while :; do sleep 1; done");
    let home = Home::new(&format!(
        "[services.quick]\nrun = ['./say', 'quick']\nevery = '100ms'\n\
         [services.deaf]\nrun = ['sh', '-c', '{deaf}']\n\
         [rosters.one]\ncheck = '100ms'\nservices = ['quick']\n\
         [rosters.two]\ncheck = '1h'\nservices = ['deaf']\n",
    ));
    let mut child = home.command(&["run"]).spawn().expect("it runs");
    until(|| runs(&mark));
    // The reader is gone: the next line fails.
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "as with `| head`");
    assert!(!runs(&mark));
}

#[test]
fn a_request_has_the_time_of_its_service_and_no_more() {
    // It accepts connections, and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    let home = Home::new(&format!("[services.a]\nget = 'http://{address}/'\ntimeout = '300ms'\n"));
    assert_eq!(home.run(&["run", "a"]).status.code(), Some(1));
    assert_eq!(home.status()["services"][0]["why"], "no response within 300ms");
}

#[test]
fn the_output_of_a_program_survives_a_kill() {
    let home = Home::new(
        "[services.a]\nrun = ['sh', '-c', 'echo hello; ./say up; sleep 1000']\n\
         [services.b]\nrun = ['sh', '-c', 'until [ -e log ]; do sleep 0.01; done; sleep 2.2']\n\
         [rosters.one]\ncheck = '1h'\nservices = ['a']\n\
         [rosters.two]\ncheck = '1h'\nservices = ['b']\n",
    );
    let rosters = home.start();
    home.until_said(1);
    rosters.until("b", "done");
    rosters.kill();
    assert_eq!(home.run(&["status", "a", "--output"]).stdout, b"hello\n");
    home.write("paceline.toml", "[store]\npath = 'p.db'\n[services.a]\nrun = ['true']\n");
    assert_eq!(home.run(&["run", "a"]).status.code(), Some(0), "and what was left of it is ended");
}

#[test]
fn s3_services_that_go_wrong_in_any_way_stop_neither_their_roster_nor_another() {
    let home = Home::new(
        "[services.fails]\nrun = ['sh', '-c', 'echo no luck; exit 3']\n\
         [services.killed]\nrun = ['sh', '-c', 'kill -9 $$']\n\
         [services.strange]\nrun = ['sh', '-c', 'printf \"\\\\377\\\\376 \u{1f996}\"; exit 4']\n\
         [services.missing]\nrun = ['./not-there']\n\
         [services.hangs]\nrun = ['sleep', '1000']\ntimeout = '300ms'\n\
         [services.works]\nrun = ['./say', 'works']\n\
         [services.other]\nrun = ['./say', 'other']\n\
         [rosters.all]\ncheck = '1h'\n\
         services = ['fails', 'killed', 'strange', 'missing', 'hangs', 'works']\n\
         [rosters.elsewhere]\ncheck = '1h'\nservices = ['other']\n",
    );
    let rosters = home.start();
    rosters.until("works", "done");
    drop(rosters);
    let status = home.status();
    let services = status["services"].as_array().expect("services");
    let why = |name: &str| {
        let service = services.iter().find(|service| service["name"] == name).expect("it is there");
        service["why"].as_str().unwrap_or_default().to_string()
    };
    assert_eq!(why("fails"), "exit code 3: no luck");
    assert_eq!(why("killed"), "ended by signal 9");
    assert_eq!(why("strange"), "exit code 4: \u{fffd}\u{fffd} \u{1f996}");
    assert_eq!(why("missing"), "no program `./not-there` in . that is executable");
    assert_eq!(why("hangs"), "still running after 300ms");
    assert_eq!((why("works"), why("other")), (String::new(), String::new()));
    let said = home.run(&["status", "strange", "--output"]);
    assert_eq!(said.stdout, b"\xff\xfe \xf0\x9f\xa6\x96");
}

#[test]
fn s3_nothing_due_still_arms_the_next_check() {
    let home = Home::new(
        "[services.a]\nrun = ['./say', 'a']\nevery = '1s'\n\
         [rosters.all]\ncheck = '300ms'\nservices = ['a']\n",
    );
    let rosters = home.start();
    // Two of three checks find no due service.
    rosters.until("a", "done");
    rosters.until("a", "done");
    rosters.until("a", "done");
}

#[test]
fn s3_two_rosters_that_share_a_service_run_it_once() {
    let home = Home::new(
        "[services.shared]\nrun = ['sh', '-c', './say shared; sleep 0.3']\nevery = '1h'\n\
         [services.a]\nrun = ['./say', 'a']\nevery = '1h'\n\
         [services.b]\nrun = ['./say', 'b']\nevery = '1h'\n\
         [rosters.one]\ncheck = '1h'\nservices = ['shared', 'a']\n\
         [rosters.two]\ncheck = '1h'\nservices = ['shared', 'b']\n",
    );
    let rosters = home.start();
    while home.log().len() < 3 {
        assert!(rosters.told.recv_timeout(FOREVER).is_ok(), "{:?}", home.log());
    }
    drop(rosters);
    let mut log = home.log();
    assert_eq!(log.remove(0), "shared");
    log.sort();
    assert_eq!(log, ["a", "b"]);
}

#[test]
fn s3_after_three_days_away_each_due_service_runs_once() {
    // Due once an hour, but not while the test runs.
    let minute = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).minute();
    let minute = (minute + 30) % 60;
    let home = Home::new(&format!(
        "[services.hourly]\nrun = ['./say', 'hourly']\nevery = '1h'\n\
         [services.cron]\nrun = ['./say', 'cron']\ncron = '{minute} * * * *'\ntz = 'UTC'\n\
         [services.last]\nrun = ['./say', 'last']\nevery = '1s'\n\
         [rosters.all]\ncheck = '500ms'\nservices = ['hourly', 'cron', 'last']\n",
    ));
    let rosters = home.start();
    rosters.until("last", "done");
    drop(rosters);
    let before = home.log();
    three_days_pass(&home.path().join("p.db"));
    let rosters = home.start();
    for _ in 0..3 {
        rosters.until("last", "done");
    }
    drop(rosters);
    let after = &home.log()[before.len()..];
    let count = |name: &str| after.iter().filter(|line| *line == name).count();
    assert_eq!((count("hourly"), count("cron")), (1, 1), "{after:?}");
}

/// Makes all records of services in the store three days older.
fn three_days_pass(path: &Path) {
    let mut store = Sqlite::open(path).expect("the store");
    let mut writes = Vec::new();
    let earlier = |at: Now| Now { time: at.time - Span::days(3), wall: at.wall - Span::days(3) };
    let stamp = store.load(&mut |record| match record {
        Record::Service(mut service) => {
            service.since = earlier(service.since);
            service.succeeded_at = service.succeeded_at.map(earlier);
            writes.push(Write::Service(service));
        }
        Record::Roster(mut roster) => {
            roster.over_at = roster.over_at.map(earlier);
            writes.push(Write::Roster(roster));
        }
        _ => {}
    });
    let stamp: Stamp = stamp.expect("a load").expect("it was used");
    store.commit(&stamp, &writes).expect("a commit");
}

#[test]
fn a_run_by_hand_needs_not_be_due_and_its_result_is_the_exit_code() {
    let home = Home::new(
        "[services.a]\nrun = ['./say', 'a']\nevery = '24h'\n\
         [services.fails]\nrun = ['sh', '-c', './say f; exit 9']\nretries = 1\n",
    );
    for _ in 0..2 {
        let output = home.run(&["run", "a"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).ends_with("  a  done\n"));
    }
    assert_eq!(home.run(&["run", "fails"]).status.code(), Some(1));
    assert_eq!(home.log(), ["a", "a", "f", "f"], "a failed run is tried again");
    let unknown = home.run(&["run", "b"]);
    assert_eq!(unknown.status.code(), Some(1));
    let words = "error: no service named `b`: the services are `a`, `fails`\n";
    assert_eq!(String::from_utf8_lossy(&unknown.stderr), words);
    let reset = home.run(&["reset", "a"]);
    assert_eq!(reset.status.code(), Some(0));
    assert_eq!(home.status()["services"][0]["last_at"], Value::Null);
}

#[test]
fn rosters_in_the_foreground_answer_commands_of_their_owner() {
    let home = Home::new(
        "[services.a]\nrun = ['sh', '-c', './say a; sleep 1000']\n\
         [services.b]\nrun = ['sh', '-c', './say b; echo hello']\nevery = '1h'\n\
         [rosters.all]\ncheck = '1h'\nservices = ['a']\n",
    );
    let rosters = home.start();
    rosters.until("a", "running");
    let at = home.path().join("p.db.daemon");
    until(|| at.exists());
    let table = String::from_utf8_lossy(&home.run(&["status"]).stdout).into_owned();
    assert!(table.contains("a        running"), "{table}");
    let output = home.run(&["run", "b"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(home.run(&["status", "b", "--output"]).stdout, b"hello\n");
    assert_eq!(home.run(&["reset", "b"]).status.code(), Some(0));
    assert_eq!(home.status()["services"][1]["last_at"], Value::Null);
    assert_eq!(home.run(&["run"]).status.code(), Some(75), "they are run already");
    assert_eq!(home.log(), ["a", "b"], "nothing was run twice");
    // A client without the token of the file gets no access.
    let told: Value = serde_json::from_slice(&fs::read(&at).expect("a file")).expect("JSON");
    let address = told["address"].as_str().expect("an address");
    let mut stranger = std::net::TcpStream::connect(address).expect("it listens");
    let request = format!("GET /api/v1/services HTTP/1.1\r\nhost: {address}\r\n\r\n");
    std::io::Write::write_all(&mut stranger, request.as_bytes()).expect("sent");
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut stranger, &mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 401");
    drop(rosters);
    assert!(!at.exists(), "the file goes with the door");
}

#[test]
fn a_command_that_waits_for_a_run_gets_its_end_though_the_rosters_stop() {
    let home = Home::new(
        "[services.a]\nrun = ['./say', 'a']\nevery = '1h'\n\
         [services.b]\nrun = ['sh', '-c', './say b; while [ ! -e go ]; do sleep 0.05; done']\n\
         [rosters.all]\ncheck = '1h'\nservices = ['a']\n",
    );
    let mut rosters = home.start();
    rosters.until("a", "done");
    let waits = home.command(&["run", "b"]).spawn().expect("it runs");
    rosters.until("b", "running");
    rosters.signal(rustix::process::Signal::INT);
    until(|| !home.path().join("p.db.daemon").exists());
    home.write("go", "");
    let output = waits.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("  b  done\n"), "{words}");
    assert_eq!(rosters.child.wait().expect("it ends").code(), Some(130));
    assert_eq!(home.log(), ["a", "b"]);
}

#[test]
fn s3_a_store_that_is_in_use_defers_a_run_by_hand() {
    let home = Home::new("[services.a]\nrun = ['./say', 'a']\n");
    let _other = Sqlite::open(&home.path().join("p.db")).expect("a store");
    let output = home.run(&["run", "a"]);
    assert_eq!(output.status.code(), Some(75));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains(&format!("is in use by process {}", std::process::id())), "{words}");
    assert_eq!(home.log(), [""; 0], "it was not run");
}

#[test]
fn the_end_of_a_services_output_is_kept() {
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i + 1)); done";
    let home = Home::new(&format!("[services.a]\nrun = ['sh', '-c', '{script}']\n"));
    assert_eq!(home.run(&["run", "a"]).status.code(), Some(0));
    let said = home.run(&["status", "a", "--output"]).stdout;
    assert_eq!(said.len(), 64 << 10);
    assert!(said.ends_with(b"line 19998\nline 19999\n"));
}

#[test]
fn two_signals_end_a_program_with_all_of_its_group() {
    let mark = format!("paceline-test-group-{}", std::process::id());
    let script =
        format!("trap \"\" INT TERM; (: {mark}; sleep 1000) & : {mark}; ./say up; sleep 1000");
    let home = Home::new(&format!(
        "[services.a]\nrun = ['sh', '-c', '{script}']\n\
         [rosters.all]\ncheck = '1h'\nservices = ['a']\n",
    ));
    let mut rosters = home.start();
    rosters.until("a", "running");
    home.until_said(1);
    assert!(runs(&mark));
    rosters.signal(rustix::process::Signal::INT);
    let mut words = String::new();
    let mut stderr = std::io::BufReader::new(rosters.child.stderr.take().expect("piped"));
    while !words.contains("a second signal") {
        let read = std::io::BufRead::read_line(&mut stderr, &mut words).expect("text");
        assert!(read > 0, "{words}");
    }
    rosters.signal(rustix::process::Signal::TERM);
    assert_eq!(rosters.child.wait().expect("it ends").code(), Some(130));
    assert!(!runs(&mark), "the whole group is gone");
}

#[test]
fn a_service_may_be_a_request_at_the_pace_of_its_lane() {
    let mock = tokio::runtime::Runtime::new().expect("a runtime");
    let service = mock.block_on(paceline_mock::Mock::start(paceline_mock::Behaviour::default()));
    let service = service.expect("a port");
    let address = service.addr();
    let home = Home::new(&format!(
        "[lanes.shop]\nurl = 'http://{address}'\nevery = '1h'\n\
         [services.own]\nget = 'http://{address}/own'\n\
         [services.shared]\npost = '/shared'\nlane = 'shop'\n\
         [services.gone]\nget = 'http://127.0.0.1:9/'\n\
         [rosters.all]\ncheck = '30s'\nservices = ['own', 'shared', 'gone']\n",
    ));
    let rosters = home.start();
    rosters.until("gone", "failed");
    drop(rosters);
    let status = home.status();
    let results = status["rosters"][0]["results"].as_array().expect("results").clone();
    let results: Vec<&str> = results.iter().filter_map(|it| it["result"].as_str()).collect();
    assert_eq!(results, ["done", "done", "failed"], "{status}");
    assert_eq!(service.summary().calls, 2);
}

#[test]
fn s2_a_clean_stop_in_the_middle_of_a_cycle_goes_on_at_the_next_start() {
    let home = Home::new(
        "[services.a]\nrun = ['sh', '-c', './say a; sleep 0.5']\nevery = '1h'\n\
         [services.b]\nrun = ['./say', 'b']\nevery = '1h'\n\
         [rosters.all]\ncheck = '1h'\nservices = ['a', 'b']\n",
    );
    let mut rosters = home.start();
    rosters.until("a", "running");
    rosters.signal(rustix::process::Signal::INT);
    assert_eq!(rosters.child.wait().expect("it ends").code(), Some(130));
    drop(rosters);
    let rosters = home.start();
    rosters.until("b", "done");
    drop(rosters);
    assert_eq!(home.log(), ["a", "b"], "what ran was let finish, and is not repeated");
}

#[test]
fn a_daemon_runs_a_service_on_request() {
    let home = Home::new(
        "[services.a]\nrun = ['sh', '-c', './say a; echo hello']\n\
         [services.'b/c d']\nrun = ['sh', '-c', 'echo no luck; exit 3']\n\
         [services.listed]\nrun = ['true']\nevery = '1h'\n\
         [rosters.all]\ncheck = '1h'\nservices = ['listed']\n",
    );
    let mut serve = Command::new(env!("CARGO_BIN_EXE_paceline"));
    serve.current_dir(home.path()).args(["serve", "--listen", "127.0.0.1:0", "--log", "quiet"]);
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = serve.spawn().expect("it runs");
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let _daemon = Rosters { child, told: channel().1 };
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).expect("text");
    assert!(line.starts_with("listening on"), "{line}");

    let all = home.run(&["run"]);
    assert_eq!(all.status.code(), Some(75));
    let words = String::from_utf8_lossy(&all.stderr).into_owned();
    assert!(words.starts_with("error: another process runs the rosters"), "{words}");
    let good = home.run(&["run", "a"]);
    assert_eq!(good.status.code(), Some(0), "{}", String::from_utf8_lossy(&good.stderr));
    assert!(String::from_utf8_lossy(&good.stdout).ends_with("  a  done\n"));
    assert_eq!(home.log(), ["a"]);
    let bad = home.run(&["run", "b/c d", "--format", "jsonl"]);
    assert_eq!(bad.status.code(), Some(1));
    let bad: Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    assert_eq!((&bad["state"], &bad["why"]), (&"failed".into(), &"exit code 3: no luck".into()));
    assert_eq!(home.run(&["run", "nope"]).status.code(), Some(1));

    assert_eq!(home.run(&["status", "b/c d", "--output"]).stdout, b"no luck\n");
    assert_eq!(home.run(&["status", "nope"]).status.code(), Some(1));
    let table = String::from_utf8_lossy(&home.run(&["status"]).stdout).into_owned();
    assert!(table.contains("failed: exit code 3: no luck"), "{table}");
    assert!(table.contains("\n\nROSTER  NEXT CHECK"), "{table}");
    let lines = home.run(&["status", "--format", "jsonl"]).stdout;
    assert_eq!(String::from_utf8_lossy(&lines).lines().count(), 4);
    assert_ne!(home.status()["services"][0]["last_at"], Value::Null);
    assert_eq!(home.run(&["reset", "a"]).status.code(), Some(0));
    assert_eq!(home.status()["services"][0]["last_at"], Value::Null);
}
