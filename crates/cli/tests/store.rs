//! `paceline store`, and stores that were copied by hand.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A directory with a configuration and its store, and later with a copy of both.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().expect("a directory"));
        for name in ["original", "copy"] {
            let config =
                format!("[store]\npath = '{name}.db'\n[lanes.shop]\nurl = 'http://127.0.0.1:9'\n");
            fs::write(home.file(&format!("{name}.toml")), config).expect("written");
        }
        home
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, config: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.current_dir(self.0.path()).args(["--config", config]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The exit code, stdout and stderr of a command.
    fn run(&self, config: &str, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(config, arguments).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let code = output.status.code().expect("it was not killed");
        (code, text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn good(&self, config: &str, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(config, arguments);
        assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
        stdout
    }

    #[track_caller]
    fn add(&self) {
        self.good(
            "original.toml",
            &["job", "add", "--lane", "shop", "--path", "/a", "--delay", "1h"],
        );
    }

    #[track_caller]
    fn jobs(&self, config: &str) -> usize {
        let jobs = self.good(config, &["job", "ls", "--format", "json"]);
        let jobs: Value = serde_json::from_str(&jobs).expect("JSON");
        jobs["jobs"].as_array().expect("a list").len()
    }

    /// A daemon on the original.
    fn serve(&self) -> Daemon {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--log", "quiet"];
        let mut child = self.command("original.toml", &arguments).spawn().expect("it runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("text") > 0, "it never listened");
        }
        Daemon(child)
    }
}

/// It is stopped when this is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn b1_a_store_is_copied_while_its_daemon_runs() {
    let home = Home::new();
    let daemon = home.serve();
    home.add();
    home.add();
    let (code, table, said) = home.run("original.toml", &["store", "backup", "copy.db"]);
    assert_eq!(code, 0, "{said}");
    assert!(table.starts_with("copy        copy.db\nbytes       "), "{table}");
    assert!(table.ends_with("jobs        2\nunfinished  2\n"), "{table}");
    assert!(said.contains("never run the copy while its original is in use"), "{said}");
    assert_eq!(home.jobs("copy.toml"), 2);

    home.add();
    let json = ["store", "backup", "second.db", "--format", "json"];
    let told: Value = serde_json::from_str(&home.good("original.toml", &json)).expect("JSON");
    assert_eq!((&told["path"], &told["jobs"]), (&"second.db".into(), &3.into()), "{told}");
    assert_eq!(told["bytes"], home.file("second.db").metadata().expect("the copy").len());
    assert_eq!(home.jobs("original.toml"), 3, "the daemon goes on");
    drop(daemon);
    home.good("original.toml", &["store", "backup", "third.db"]);
    home.good("copy.toml", &["store", "backup", "fourth.db", "--from", "third.db"]);
}

#[test]
fn a_copy_that_is_impossible_is_an_error_and_leaves_no_file() {
    let home = Home::new();
    let (code, _, said) = home.run("original.toml", &["store", "backup", "copy.db"]);
    assert!(code == 1 && said.contains("no store at `"), "{said}");
    assert!(!home.file("original.db").exists() && !home.file("copy.db").exists());
    home.add();
    let (code, _, said) = home.run("original.toml", &["store", "backup", "original.toml"]);
    assert!(code == 1 && said.contains("`original.toml` exists: name a file that"), "{said}");
    let (code, _, said) = home.run("original.toml", &["store", "backup", "no/copy.db"]);
    assert!(code == 1 && said.contains("no directory for `no/copy.db`: create it"), "{said}");
    assert_eq!(home.run("original.toml", &["store", "backup"]).0, 2);
}

#[test]
fn b1_a_file_copied_from_under_a_daemon_is_refused_unless_an_older_state_is_accepted() {
    let home = Home::new();
    let _daemon = home.serve();
    home.add();
    home.add();
    fs::copy(home.file("original.db"), home.file("copy.db")).expect("a copy");
    for command in [["job", "ls"], ["services", "status"], ["lane", "ls"], ["serve", "--log=text"]]
    {
        let (code, _, said) = home.run("copy.toml", &command);
        assert_eq!(code, 1, "{command:?}: {said}");
        assert!(said.contains("copy.db-wal` with its newest commits is missing"), "{said}");
        assert!(said.contains("`paceline store backup`"), "{said}");
        assert!(said.contains("`--accept-older`"), "{said}");
    }
    assert!(home.good("copy.toml", &["--help"]).contains("--accept-older"));
    home.good("copy.toml", &["job", "ls", "--accept-older"]);
    assert!(home.jobs("copy.toml") < 2, "it is older, and needs no word from now on");
}
