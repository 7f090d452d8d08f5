//! `paceline fetch`: the real program against real servers that misbehave.

mod archive;
mod changes;
mod getting;
mod hostile;
mod lists;
mod pace;
mod stops;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use paceline_mock::files::{Files, content};

/// How much longer a busy machine may delay one request than the next before the server records it.
/// Without a limit, requests come within a few milliseconds.
const HELD_UP: paceline::Span = paceline::Span::millis(40);

/// The time that a user would measure.
#[expect(clippy::disallowed_methods, reason = "the program is measured from outside")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// A directory to fetch into.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join("files").join(name)
    }

    /// A list beside the files, not among them.
    fn list(&self, lines: impl IntoIterator<Item = impl AsRef<str>>) -> String {
        let file = self.path().join("list.txt");
        let text: String = lines.into_iter().map(|line| line.as_ref().to_string() + "\n").collect();
        std::fs::write(&file, text).expect("written");
        file.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.current_dir(self.path()).env_clear().env("HOME", self.path());
        command.args(["fetch", "-d", "files", "--format", "jsonl"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the command to its end.
    fn fetch(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }

    fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.command(arguments).spawn().expect("it runs"))
    }

    /// Makes the tool's own files look as if they were written long ago.
    fn make_old(&self, own: &[&str]) {
        let before = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(1);
        for name in own {
            let file = std::fs::File::options().write(true).open(self.file(".paceline").join(name));
            // The log may have been removed by a checkpoint.
            let _ = file.map(|file| file.set_modified(before));
        }
    }

    /// The names of all files, without the tool's own.
    fn names(&self) -> Vec<String> {
        names_below(&self.path().join("files"))
    }
}

fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == ".paceline" {
            continue;
        }
        if entry.file_type().expect("a type").is_dir() {
            names.extend(names_below(&entry.path()).iter().map(|below| format!("{name}/{below}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    names
}

/// A running command. Its output is read at once, because a full pipe would block it.
struct Running {
    child: Child,
    printed: [JoinHandle<String>; 2],
}

impl Running {
    fn of(mut child: Child) -> Running {
        fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
            std::thread::spawn(move || {
                let mut text = String::new();
                pipe.read_to_string(&mut text).expect("text");
                text
            })
        }
        let stdout = read(child.stdout.take().expect("a pipe"));
        let stderr = read(child.stderr.take().expect("a pipe"));
        Running { child, printed: [stdout, stderr] }
    }

    fn end(mut self) -> Ended {
        let status = self.child.wait().expect("it ends");
        let [events, stderr] = self.printed.map(|printed| printed.join().expect("text"));
        let events = events.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        Ended { code: status.code(), events, stderr }
    }

    fn kill(mut self) {
        self.child.kill().expect("it was there");
        self.child.wait().expect("it ends");
    }

    fn interrupt(&self) {
        interrupt(&self.child);
    }
}

/// Sends SIGINT, as Ctrl-C does.
fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
}

/// The result of a run.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    events: Vec<serde_json::Value>,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn exits(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    fn of(&self, event: &str) -> Vec<&serde_json::Value> {
        self.events.iter().filter(|value| value["event"] == event).collect()
    }

    fn summary(&self, count: &str) -> u64 {
        self.of("summary")[0][count].as_u64().expect("a count")
    }

    /// The class of the one failure.
    #[track_caller]
    fn class(&self) -> &str {
        let failed = self.of("failed");
        assert_eq!(failed.len(), 1, "{self:#?}");
        failed[0]["class"].as_str().expect("a class")
    }
}

/// Addresses of generated files.
fn generated(server: &Files, folder: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| server.url(&format!("/{folder}/{n}"))).collect()
}

/// Checks every byte of generated files.
#[track_caller]
fn check_generated(place: &Place, folder: &str, count: usize, size: usize) {
    for n in 0..count {
        let found = std::fs::read(place.file(&n.to_string())).expect("it is there");
        assert!(found == content(&format!("/{folder}/{n}"), size), "file {n} is another one");
    }
}
