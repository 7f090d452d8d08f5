//! A child process in a process group of its own: started behind a gate, ended as a group.

use std::io::{self, PipeReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};

use futures_util::FutureExt as _;
use paceline::workers::Hold;
use paceline::{Call, Failure};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::Program;
use super::group::{Alive, Group, Patience};
use super::run::Run;
use super::tail::Tail;

/// Waits for a line on its input before it becomes the program. If the parent dies before the
/// process group is noted in the store, the input ends and the program never runs.
const GATE: &str = r#"read -r go && exec "$0" "$@" </dev/null"#;

/// Buffers of output that are taken at once: four times what a pipe holds.
const MOST_DRAINED: usize = 32;

/// A child at the gate, or behind it. Dropped, its whole group is ended.
pub(super) struct Running {
    child: Child,
    output: pipe::Receiver,
    /// Whether the output is still open.
    talks: bool,
    pub(super) group: Group,
    patience: Patience,
    /// Keeps the lane's slot until the group is gone (L5).
    hold: Option<Hold>,
    /// The note to remove when the group is gone.
    forgets: Option<(Call, String)>,
}

impl Program {
    /// Starts the child, up to the gate.
    pub(super) fn start(&self, run: &Run, hold: Hold) -> Result<Running, Failure> {
        self.find()?;
        let failed = |error: io::Error| {
            Failure::transient("start").because(&format!("`{}`: {error}", self.run[0]))
        };
        let (output, said) = io::pipe().map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(GATE).args(&self.run);
        command.current_dir(&self.directory);
        for variable in &self.without {
            command.env_remove(variable);
        }
        command.envs(run.environment.iter().map(|(name, value)| (name, value)));
        command.process_group(0).stdin(Stdio::piped());
        command.stdout(said.try_clone().map_err(failed)?).stderr(said);
        let child = command.spawn().map_err(failed)?;
        // The command holds the writing ends, and the output ends when the last one is closed.
        drop(command);
        let group = child.id().and_then(Group::of);
        let group = group.ok_or_else(|| failed(io::Error::other("it is gone already")))?;
        let output = receiver(output).map_err(failed)?;
        let (patience, hold) = (run.patience, Some(hold));
        Ok(Running { child, output, talks: true, group, patience, hold, forgets: None })
    }

    /// Checks that the program exists, for a clearer error than that of the shell at the gate.
    fn find(&self) -> Result<(), Failure> {
        let name = &self.run[0];
        let runs = |path: &Path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
        let found = if name.contains('/') {
            let path = self.directory.join(name);
            runs(&path) && !path.is_dir()
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| runs(&folder.join(name)))
        };
        if found {
            return Ok(());
        }
        let place = if name.starts_with('/') {
            String::new()
        } else if name.contains('/') {
            format!(" in {}", self.directory.display())
        } else {
            " in PATH".to_string()
        };
        let message = format!("no program `{name}`{place} that is executable");
        Err(Failure::permanent("program").because(&message))
    }
}

fn receiver(output: PipeReader) -> io::Result<pipe::Receiver> {
    let output = std::os::fd::OwnedFd::from(output);
    rustix::io::ioctl_fionbio(&output, true)?;
    pipe::Receiver::from_owned_fd(output)
}

impl Running {
    /// Opens the gate.
    pub(super) async fn go(&mut self) -> io::Result<()> {
        let mut stdin = self.child.stdin.take().expect("the gate is opened once");
        stdin.write_all(b"go\n").await
    }

    /// Waits for output, or for the end of the child and its result.
    pub(super) async fn next(&mut self, heard: &mut Tail) -> io::Result<Option<ExitStatus>> {
        tokio::select! {
            said = self.output.readable(), if self.talks => {
                said?;
                self.talks = drain(&self.output, heard);
                Ok(None)
            }
            status = self.child.wait() => {
                drain(&self.output, heard);
                status.map(Some)
            }
        }
    }

    /// Ends the group, once, and releases the slot when it is gone.
    fn let_go(&mut self) -> Option<impl FnOnce(Result<(), Alive>) + Send + use<>> {
        let hold = self.hold.take()?;
        let forgets = self.forgets.take();
        Some(|ended: Result<(), Alive>| {
            if let (Ok(()), Some((call, note))) = (ended, forgets) {
                // Not awaited: the engine handles this before the release of the hold.
                let _ = call.keep(&note, None).now_or_never();
            }
            drop(hold);
        })
    }

    /// Removes this note when the group is gone.
    pub(super) fn forgets(&mut self, call: &Call, note: &str) {
        self.forgets = Some((call.clone(), note.to_string()));
    }

    /// Ends the rest of the group, and returns when it is gone.
    pub(super) async fn end(mut self) -> Result<(), Alive> {
        let over = self.let_go().expect("it is ended once");
        let mut over = pin!(self.group.end_beside(self.patience, over).over());
        tokio::select! {
            ended = &mut over => ended,
            // Reaps a leader that has exited in the meantime.
            _ = self.child.wait() => over.await,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(over) = self.let_go() {
            drop(self.group.end_beside(self.patience, over));
        }
    }
}

/// Reads the available output. Returns `true` if there may be more.
fn drain(output: &pipe::Receiver, heard: &mut Tail) -> bool {
    let mut buffer = [0; 8 << 10];
    // Bounded, so that a program with endless output starves neither timers nor other tasks.
    for _ in 0..MOST_DRAINED {
        match output.try_read(&mut buffer) {
            Ok(0) => return false,
            Ok(read) => heard.push(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    true
}

/// The failure of a program that has exited without success, in a few words.
pub(super) fn verdict(status: ExitStatus, heard: &Tail) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let (class, mut message) = match (status.code(), status.signal()) {
        (Some(code), _) => ("exit", format!("exit code {code}")),
        (None, Some(signal)) => ("signal", format!("ended by signal {signal}")),
        (None, None) => ("exit", "no exit code".to_string()),
    };
    if let Some(line) = heard.last_line() {
        message = format!("{message}: {line}");
    }
    Err(Failure::transient(class).because(&message))
}
