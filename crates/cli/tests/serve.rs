//! `paceline serve`: kills, stops, reloads, the watchdog, and wrong requests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_mock::{Behaviour, Mock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// No step takes this long; a test that waits for it has failed.
const FOREVER: Duration = Duration::from_mins(1);

/// A mock upstream, and a directory with a configuration for it.
struct Home {
    directory: tempfile::TempDir,
    mock: Mock,
    _runtime: tokio::runtime::Runtime,
}

impl Home {
    fn new(behaviour: Behaviour, rules: &str) -> Home {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mock = runtime.block_on(Mock::start(behaviour)).expect("a port");
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home { directory, mock, _runtime: runtime };
        home.configure(rules);
        home
    }

    /// The lane `shop` with these rules, and any text after them.
    fn configure(&self, rules: &str) {
        let url = self.mock.url("");
        let config = format!("[store]\npath = 'p.db'\n[lanes.shop]\nurl = '{url}'\n{rules}\n");
        fs::write(self.directory.path().join("paceline.toml"), config).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.current_dir(self.directory.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn serve(&self) -> Daemon {
        self.serve_as(&["--log", "quiet"], |_| {})
    }

    /// A daemon on a free port, ready for requests.
    fn serve_as(&self, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Daemon {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        change(command.args(arguments));
        Daemon::of(command)
    }
}

impl Daemon {
    fn of(mut command: Command) -> Daemon {
        let mut child = command.spawn().expect("it runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        // In a message, or in the log.
        let told = |said: &str| {
            let words = said.split_once("listening on http://").map(|(_, rest)| (rest, ';'));
            let (rest, end) =
                words.or(said.split_once("\"address\":\"").map(|(_, rest)| (rest, '"')))?;
            rest.split_once(end)?.0.parse().ok()
        };
        let address = loop {
            assert!(stderr.read_line(&mut said).expect("text") > 0, "it ended: {said}");
            if let Some(address) = told(&said) {
                break address;
            }
        };
        Daemon { child, stderr, said, address }
    }
}

/// A running daemon. It is killed when this is dropped.
struct Daemon {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
    address: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Its exit code, and all of its output.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut said = std::mem::take(&mut self.said);
        self.stderr.read_to_string(&mut said).expect("text");
        (self.child.wait().expect("it ends").code(), said)
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let (address, length) = (self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        (status.expect("a status"), body.to_string())
    }

    fn get(&self, path: &str) -> Value {
        let (_, body) = self.ask("GET", path, "", "");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    fn submit(&self, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", "/api/v1/jobs", "", &body.to_string());
        assert_eq!(status, 202, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Waits until the summary shows this.
    #[track_caller]
    fn until(&self, shown: impl Fn(&Value) -> bool) {
        let since = now();
        while !shown(&self.get("/api/v1/summary")) {
            assert!(since.elapsed() < FOREVER, "{}", self.get("/api/v1/summary"));
            pause(Duration::from_millis(20));
        }
    }
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a test of real processes takes real time")]
    Instant::now()
}

fn pause(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a test of real processes takes real time")]
    std::thread::sleep(span);
}

fn item(n: usize) -> Value {
    json!({"kind": "http", "lanes": ["shop"], "payload": {"path": format!("/item/{n}")}, "key": format!("item-{n}")})
}

/// An upstream that allows fifty calls a second, five at once.
fn strict() -> Behaviour {
    Behaviour {
        limits: vec!["50/s".parse().expect("a rate")],
        in_flight: std::num::NonZeroU32::new(5),
        latency: paceline::Span::millis(20),
        tolerance: paceline::Span::millis(5),
        ..Behaviour::default()
    }
}

#[test]
fn b1_five_kills_lose_nothing_report_nothing_twice_and_break_no_limit() {
    const JOBS: usize = 400;
    // The upstream sees a call when its own task gets the processor, beside all the other tests.
    let home = Home::new(strict(), "limits = ['50/s']\nin_flight = 5\nslack = '20ms'");
    let mut daemon = home.serve();
    let answer = daemon.submit(&(0..JOBS).map(item).collect());
    let jobs = answer["jobs"].as_array().expect("a list").iter();
    assert_eq!(jobs.filter(|job| job["admission"] == "accepted").count(), JOBS);
    for _ in 0..5 {
        pause(Duration::from_millis(900));
        daemon.signal(Signal::KILL);
        assert_eq!(daemon.ended().0, None, "it was killed");
        daemon = home.serve();
    }
    daemon.until(|summary| summary["jobs"] == 0);
    let mut states = BTreeMap::<String, usize>::new();
    let page = daemon.get("/api/v1/jobs?limit=1000");
    for job in page["jobs"].as_array().expect("a list") {
        *states.entry(job["state"].to_string()).or_default() += 1;
    }
    assert_eq!(states, BTreeMap::from([("\"done\"".to_string(), JOBS)]));
    assert_eq!(finished(&daemon), (1..=JOBS as u64).collect::<Vec<_>>());
    let summary = home.mock.summary();
    assert_eq!((summary.violations(), summary.bans), (0, 0), "{summary:?}");
    assert!(summary.most_in_flight <= 5, "{summary:?}");
}

#[test]
fn l5_a_permit_outlives_the_daemon_that_granted_it() {
    let home = Home::new(Behaviour::default(), "in_flight = 1");
    let mut daemon = home.serve();
    let ask = |daemon: &Daemon, form: &str| {
        let (status, body) = daemon.ask("POST", "/api/v1/lanes/shop/permits", "", form);
        (status, serde_json::from_str::<Value>(&body).expect("JSON"))
    };
    let settle = |daemon: &Daemon, permit: &Value, form: &str| {
        daemon.ask("POST", &format!("/api/v1/permits/{permit}/settle"), "", form).0
    };
    let (status, held) = ask(&daemon, "{}");
    assert_eq!(status, 201, "{held}");
    // By SIGKILL, by SIGKILL followed by a command that only reads, and by SIGTERM, which waits for no
    // holder of a permit.
    for signal in [Signal::KILL, Signal::KILL, Signal::TERM] {
        let since = now();
        daemon.signal(signal);
        let (code, said) = daemon.ended();
        assert_eq!(code, (signal == Signal::TERM).then_some(0), "{said}");
        assert!(since.elapsed() < Duration::from_secs(20), "{said}");
        let looked = home.command(&["lane", "ls"]).output().expect("it runs");
        assert!(looked.status.success(), "{looked:?}");
        daemon = home.serve();
        assert_eq!(daemon.get("/api/v1/lanes/shop")["in_flight"], 1, "its slot is held");
        assert_eq!(ask(&daemon, r#"{"max_wait": "300ms"}"#).0, 429);
    }
    let form = r#"{"status": 429, "retry_after": "60"}"#;
    assert_eq!(settle(&daemon, &held["permit"], form), 200);
    let lane = daemon.get("/api/v1/lanes/shop");
    assert_eq!((&lane["in_flight"], &lane["why_closed"]), (&json!(0), &json!("cooldown")));
    assert_eq!(settle(&daemon, &held["permit"], form), 409, "once");
}

#[test]
fn a_permit_that_expires_while_no_daemon_runs_is_unknown_at_the_next_start() {
    let home = Home::new(Behaviour::default(), "in_flight = 1");
    let daemon = home.serve();
    let (_, held) = daemon.ask("POST", "/api/v1/lanes/shop/permits", "", r#"{"ttl": "300ms"}"#);
    let held: Value = serde_json::from_str(&held).expect("JSON");
    daemon.signal(Signal::KILL);
    daemon.ended();
    pause(Duration::from_millis(400));
    let daemon = home.serve();
    daemon.until(|summary| summary["jobs"] == 0);
    let job = daemon.get(&format!("/api/v1/jobs/{}", held["permit"]));
    assert_eq!(job["calls"][0]["class"], "unknown", "{job}");
}

/// The jobs of all `finished` events, in the order of their ids.
fn finished(daemon: &Daemon) -> Vec<u64> {
    let mut stream = TcpStream::connect(daemon.address).expect("it listens");
    let last = daemon.get("/api/v1/summary")["events"].as_u64().expect("a number");
    let request =
        format!("GET /api/v1/events?after=0 HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address);
    stream.write_all(request.as_bytes()).expect("sent");
    let (mut jobs, mut is_finished) = (Vec::new(), false);
    let mut at = 0;
    for line in BufReader::new(stream).lines() {
        let line = line.expect("text");
        assert_ne!(line, "event: resync");
        if let Some(id) = line.strip_prefix("id: ") {
            let id: u64 = id.parse().expect("a number");
            assert_eq!(id, at + 1, "no number is missing or told twice");
            at = id;
        }
        is_finished =
            if line.starts_with("event: ") { line == "event: finished" } else { is_finished };
        if let Some(data) = line.strip_prefix("data: ").filter(|_| is_finished) {
            let data: Value = serde_json::from_str(data).expect("JSON");
            jobs.push(data["job"].as_u64().expect("a number"));
        }
        if line.is_empty() && at == last {
            break;
        }
    }
    jobs.sort_unstable();
    jobs
}

#[test]
fn b3_sigterm_lets_what_runs_finish_and_leaves_the_rest_for_the_next_start() {
    let slow = Behaviour { latency: paceline::Span::millis(500), ..Behaviour::default() };
    let home = Home::new(slow, "");
    let daemon = home.serve();
    daemon.submit(&json!([item(1), item(2), item(3)]));
    daemon.until(|summary| summary["running"] == 1);
    daemon.signal(Signal::TERM);
    let (code, said) = daemon.ended();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(home.mock.summary().calls, 1, "nothing new was started");
    assert!(!home.directory.path().join("p.db.daemon").exists());
    let daemon = home.serve();
    daemon.until(|summary| summary["jobs"] == 0);
    assert_eq!(home.mock.summary().calls, 3, "and nothing was done twice");
    daemon.signal(Signal::INT);
    assert_eq!(daemon.ended().0, Some(130));
}

#[test]
fn sighup_changes_lanes_and_services_under_work_that_goes_on() {
    let home = Home::new(Behaviour::default(), "every = '1h'");
    let daemon = home.serve_as(&["--log", "json"], |_| {});
    daemon.submit(&json!([item(1), item(2), item(3)]));
    daemon.until(|summary| summary["waiting"] == 2);
    let more =
        "limits = ['100/s']\n[lanes.other]\nin_flight = 7\n[services.hello]\nrun = ['true']\n";
    home.configure(more);
    daemon.signal(Signal::HUP);
    daemon.until(|summary| summary["jobs"] == 0);
    assert_eq!(daemon.get("/api/v1/lanes/other")["rules"]["in_flight"], 7);
    assert_eq!(daemon.get("/api/v1/services")["services"][0]["name"], "hello");
    // One with mistakes changes nothing.
    home.configure("limits = ['100/x']");
    daemon.signal(Signal::HUP);
    daemon.submit(&item(4));
    daemon.until(|summary| summary["jobs"] == 0);
    daemon.signal(Signal::TERM);
    let (code, said) = daemon.ended();
    assert_eq!(code, Some(0));
    assert!(said.contains("the configuration was read again"), "{said}");
    assert!(said.contains("the earlier one holds") && said.contains("100/x"), "{said}");
}

#[test]
fn an_address_that_other_machines_can_reach_needs_tokens() {
    let home = Home::new(Behaviour::default(), "");
    let open = home.command(&["serve", "--listen", "0.0.0.0:0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&open.stderr).into_owned();
    assert_eq!(open.status.code(), Some(2), "{said}");
    assert!(said.contains("`paceline config token NAME`"), "{said}");
    let made =
        home.command(&["config", "token", "ci", "--role", "read"]).output().expect("it runs");
    let token = String::from_utf8_lossy(&made.stderr).lines().last().expect("a token").to_string();
    let hash = String::from_utf8(made.stdout).expect("text");
    assert!(!hash.contains(&token), "only the hash is for the configuration");
    home.configure(&hash);
    let daemon = home.serve();
    let (status, _) = daemon.ask("GET", "/api/v1/lanes", "", "");
    assert_eq!(status, 401);
    let mine = format!("authorization: Bearer {token}\r\n");
    assert_eq!(daemon.ask("GET", "/api/v1/lanes", &mine, "").0, 200);
    assert_eq!(daemon.ask("POST", "/api/v1/jobs", &mine, &item(1).to_string()).0, 403);
    // The owner of the store needs no token: the file beside the store, for the owner alone, has one.
    let posted = fs::metadata(home.directory.path().join("p.db.daemon")).expect("there");
    assert_eq!(posted.permissions().mode() & 0o777, 0o600);
    let paused = home.command(&["lane", "pause", "shop"]).output().expect("it runs");
    assert_eq!(paused.status.code(), Some(0), "{}", String::from_utf8_lossy(&paused.stderr));
}

#[test]
fn sighup_drops_no_work_of_lanes_and_commands_that_are_configured_no_more() {
    let home = Home::new(Behaviour::default(), "");
    let url = home.mock.url("");
    let old = format!(
        "[lanes.old]\nurl = '{url}'\nevery = '1s'\n[commands.hello]\nrun = ['echo', 'hello']\n"
    );
    home.configure(&old);
    let daemon = home.serve_as(&["--log", "json"], |_| {});
    let ask = json!({"kind": "http", "lanes": ["old"], "payload": {"path": "/"}});
    let run = json!({"kind": "command", "lanes": ["old"], "payload": {"command": "hello"}});
    daemon.submit(&json!([ask, ask, run]));
    daemon.until(|summary| summary["jobs"] == 2);
    home.configure("");
    daemon.signal(Signal::HUP);
    daemon.until(|summary| summary["jobs"] == 0);
    for id in 1..=3 {
        let job = daemon.get(&format!("/api/v1/jobs/{id}"));
        assert_eq!(job["state"], "done", "{job}");
    }
    daemon.signal(Signal::TERM);
    let (_, said) = daemon.ended();
    assert_eq!(
        said.matches("no longer configured: it is gone at the next start").count(),
        2,
        "{said}"
    );
}

#[test]
fn a_signal_ends_a_daemon_that_waits_for_its_store() {
    let home = Home::new(Behaviour::default(), "");
    let daemon = home.serve();
    let mut second = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut second = second.spawn().expect("it runs");
    let mut stderr = BufReader::new(second.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains("is in use by process") {
        assert!(stderr.read_line(&mut said).expect("text") > 0, "it ended: {said}");
    }
    let since = now();
    kill_process(Pid::from_child(&second), Signal::INT).expect("it is there");
    assert_eq!(second.wait().expect("it ends").code(), Some(130));
    assert!(since.elapsed() < Duration::from_secs(5), "{said}");
    drop(daemon);
}

#[test]
fn sighup_changes_tokens_and_the_owner_keeps_access() {
    let home = Home::new(Behaviour::default(), "");
    let daemon = home.serve();
    let token = |name: &str| {
        let made = home.command(&["config", "token", name]).output().expect("it runs");
        let token = String::from_utf8_lossy(&made.stderr).lines().last().map(str::to_string);
        (token.expect("a token"), String::from_utf8(made.stdout).expect("text"))
    };
    let ask = |token: &str| {
        let mine = format!("authorization: Bearer {token}\r\n");
        daemon.ask("GET", "/api/v1/lanes", &mine, "").0
    };
    let until = |what: &dyn Fn() -> bool| {
        let since = now();
        while !what() {
            assert!(since.elapsed() < FOREVER);
            pause(Duration::from_millis(20));
        }
    };
    let ((first, first_hash), (second, second_hash)) = (token("first"), token("second"));
    assert_eq!(daemon.ask("GET", "/api/v1/lanes", "", "").0, 200);
    home.configure(&first_hash);
    daemon.signal(Signal::HUP);
    until(&|| daemon.ask("GET", "/api/v1/lanes", "", "").0 == 401);
    assert_eq!((ask(&first), ask(&second)), (200, 401));
    home.configure(&second_hash);
    daemon.signal(Signal::HUP);
    until(&|| ask(&first) == 401);
    assert_eq!(ask(&second), 200);
    let looked = home.command(&["lane", "ls"]).output().expect("it runs");
    assert_eq!(looked.status.code(), Some(0), "{}", String::from_utf8_lossy(&looked.stderr));
}

#[test]
fn systemd_is_notified_of_start_watchdog_and_stop() {
    let home = Home::new(Behaviour::default(), "");
    let path = home.directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(FOREVER)).expect("set");
    // Like systemd, which passes the id of the process it means.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"WATCHDOG_PID=$$ exec "$0" "$@""#, env!("CARGO_BIN_EXE_paceline")]);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "quiet"]);
    command.current_dir(home.directory.path()).stderr(Stdio::piped());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let daemon = Daemon::of(command);
    let hear = |wanted: &str| {
        let mut heard = [0; 256];
        loop {
            let length = socket.recv(&mut heard).expect("it talks");
            if String::from_utf8_lossy(&heard[..length]).contains(wanted) {
                return;
            }
        }
    };
    hear("READY=1");
    for _ in 0..3 {
        hear("WATCHDOG=1");
    }
    daemon.signal(Signal::HUP);
    hear("RELOADING=1\nMONOTONIC_USEC=");
    hear("READY=1");
    daemon.signal(Signal::TERM);
    hear("STOPPING=1");
    assert_eq!(daemon.ended().0, Some(0));
}

#[test]
fn the_log_has_one_line_per_change_of_state_and_no_secret() {
    let home = Home::new(
        Behaviour::default(),
        "headers = { authorization = { env = 'SHOP', prefix = 'Bearer ' } }",
    );
    let missing = home.command(&["serve"]).env_remove("SHOP").output().expect("it runs");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("needs the environment variable `SHOP`"), "{said}");
    let daemon = home.serve_as(&["--log", "json"], |command| {
        command.env("SHOP", "hunter2");
    });
    daemon.submit(&item(1));
    daemon.until(|summary| summary["jobs"] == 0);
    daemon.signal(Signal::TERM);
    let (_, said) = daemon.ended();
    // There is no line except the log's.
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_job = lines.iter().filter(|line| line["job"] == 1);
    let words: Vec<&str> = of_job.filter_map(|line| line["message"].as_str()).collect();
    assert_eq!(words, ["accepted", "started", "settled", "finished"], "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn programs_do_not_inherit_the_secrets_of_lanes_and_the_store_is_its_owners() {
    let rules = "headers = { authorization = { env = 'SHOP' } }\n[commands.env]\nrun = ['env']";
    let home = Home::new(Behaviour::default(), rules);
    let daemon = home.serve_as(&["--log", "quiet"], |command| {
        command.env("SHOP", "hunter2").env("OTHER", "shown");
    });
    let job = json!({"kind": "command", "lanes": ["shop"], "payload": {"command": "env"}});
    let headers = "prefer: wait=20\r\n";
    let (status, answer) = daemon.ask("POST", "/api/v1/jobs", headers, &job.to_string());
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("OTHER=shown") && !answer.contains("hunter2"), "{answer}");
    let store = fs::metadata(home.directory.path().join("p.db")).expect("there");
    assert_eq!(store.permissions().mode() & 0o777, 0o600);
}

#[test]
fn s3_what_is_left_of_a_command_whose_job_is_over_is_ended() {
    let mark = format!("paceline-test-command-{}", std::process::id());
    let run = format!("[commands.long]\nrun = ['sh', '-c', 'touch up; : {mark}; sleep 1000']");
    let home = Home::new(Behaviour::default(), &run);
    let daemon = home.serve();
    daemon.submit(&json!({"kind": "command", "lanes": ["shop"], "payload": {"command": "long"}}));
    let until = |what: &dyn Fn() -> bool| {
        let since = now();
        while !what() {
            assert!(since.elapsed() < FOREVER);
            pause(Duration::from_millis(20));
        }
    };
    until(&|| home.directory.path().join("up").exists());
    let runs = || {
        let entries = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
        let mut lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| String::from_utf8_lossy(&line).contains(&mark))
    };
    daemon.signal(Signal::KILL);
    daemon.ended();
    let cancelled = home.command(&["job", "cancel", "1"]).output().expect("it runs");
    assert_eq!(cancelled.status.code(), Some(0), "{cancelled:?}");
    assert!(runs(), "it still runs");
    let daemon = home.serve();
    assert!(!runs(), "{}", daemon.said);
    assert!(
        daemon.said.contains("ended processes that an earlier run of `command/1.0` left behind"),
        "{}",
        daemon.said
    );
}

#[test]
fn l5_nothing_takes_the_place_of_what_a_killed_daemon_left_running() {
    let long = "echo $$ > pid; touch up; while [ ! -e go ]; do sleep 0.05; done";
    // A zombie does not count.
    let other = "if grep -qs ^State:.[^Z] /proc/$(cat pid)/status; then echo both; fi; touch go";
    let home = Home::new(
        Behaviour::default(),
        &format!(
            "in_flight = 1\n[commands.long]\nrun = ['sh', '-c', '{long}']\n\
             [commands.other]\nrun = ['sh', '-c', '{other}']"
        ),
    );
    let job = |command: &str, priority: &str| {
        json!({"kind": "command", "lanes": ["shop"], "priority": priority,
               "payload": {"command": command}})
    };
    let daemon = home.serve();
    daemon.submit(&job("long", "background"));
    let since = now();
    while !home.directory.path().join("up").exists() {
        assert!(since.elapsed() < FOREVER);
        pause(Duration::from_millis(20));
    }
    daemon.submit(&job("other", "interactive"));
    daemon.signal(Signal::KILL);
    daemon.ended();
    let daemon = home.serve();
    daemon.until(|summary| summary["jobs"] == 0);
    let told = daemon.get("/api/v1/jobs/2")["calls"][0]["value"].clone();
    assert_eq!(told, json!({"exit": 0, "output": ""}), "it went first, and was alone");
}

#[test]
fn it_runs_the_rosters_too() {
    let services = "[services.hello]\nrun = ['echo', 'hello']\n[rosters.all]\ncheck = '1h'\nservices = ['hello']";
    let home = Home::new(Behaviour::default(), services);
    let daemon = home.serve();
    let since = now();
    while daemon.get("/api/v1/services/hello")["result"] != "done" {
        assert!(since.elapsed() < FOREVER);
        pause(Duration::from_millis(20));
    }
    assert_eq!(
        daemon.ask("GET", "/api/v1/services/hello/output", "", ""),
        (200, "hello\n".to_string())
    );
    let roster = daemon.get("/api/v1/rosters/all");
    assert_eq!((&roster["completed"], &roster["current"]), (&json!(1), &Value::Null));
    let (status, body) = daemon.ask("POST", "/api/v1/services/hello/run", "", "");
    assert_eq!(status, 202, "{body}");
}

#[test]
fn a_port_or_a_store_that_is_in_use_is_an_error() {
    let home = Home::new(Behaviour::default(), "");
    let daemon = home.serve();
    let second = home.command(&["serve", "--listen", &daemon.address.to_string()]).output();
    let said = String::from_utf8_lossy(&second.expect("it runs").stderr).into_owned();
    assert!(said.contains("cannot listen on") && said.contains("--listen"), "{said}");
    let third = home.command(&["serve", "--listen", "127.0.0.1:0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert_eq!(third.status.code(), Some(75), "{said}");
    assert!(said.contains("is in use by process"), "{said}");
}

/// Requests generated from the OpenAPI document alone. Needs `schemathesis`.
#[test]
#[ignore = "needs schemathesis: ./test installs it"]
fn schemathesis_finds_no_server_error_and_no_undocumented_answer() {
    let program = std::env::var("PACELINE_SCHEMATHESIS").expect("where schemathesis is");
    let more = "in_flight = 1000\n[services.hello]\nrun = ['echo', 'hello']\n[rosters.all]\n\
                services = ['hello']\n[commands.echo]\nrun = ['echo']";
    let home = Home::new(Behaviour::default(), more);
    let daemon = home.serve();
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_headers_conformance,response_schema_conformance,unsupported_method";
    let url = format!("http://{}/api/v1/openapi.json", daemon.address);
    // The stream of events never ends, and is tested elsewhere.
    let output = Command::new(program)
        .current_dir(home.directory.path())
        .args(["run", &url, "--checks", checks, "--exclude-path", "/api/v1/events"])
        .args(["--request-timeout", "60", "--max-examples", "30", "--no-color"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Tested: 25"), "{said}");
    daemon.until(|summary| summary["running"].is_u64());
}
