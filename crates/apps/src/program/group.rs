//! Process groups: their members, their identity, and how to end them (S3, L5).

use std::fs;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use paceline::{Failed, Failure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// The grace of a group before it is killed, while a caller waits for its end.
const HURRIED_GRACE: Duration = Duration::from_millis(500);
/// The first and the longest pause between two checks of a group that is ending. A check may read
/// all of /proc.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The time limits for the end of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The grace before it is killed.
    pub(super) grace: Duration,
    /// The wait after it is killed. A process that survives this hangs in the kernel, and is left.
    pub(super) force: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { grace: Duration::from_secs(5), force: Duration::from_mins(1) }
    }
}

/// A group that does not exit, although it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alive;

impl From<Alive> for Failed {
    fn from(_: Alive) -> Failed {
        Failed::of(Failure::transient("alive").because("its process group does not exit"))
    }
}

/// A process group by its leader, told apart from later ones with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    /// The number of the leader and of the group.
    leader: i32,
    /// When the leader was started, in ticks since the machine was.
    started: u64,
    /// The boot of the machine.
    boot: u128,
}

/// The state of a process, from /proc.
struct Process {
    state: u8,
    group: i32,
    started: u64,
}

impl Group {
    /// The group of a process that was started as the leader of one.
    pub(super) fn of(leader: u32) -> Option<Group> {
        let leader = i32::try_from(leader).ok()?;
        Some(Group { leader, started: process(leader)?.started, boot: boot() })
    }

    /// Returns `true` if any process of the group runs.
    pub(super) fn is_alive(self) -> bool {
        if self.boot != boot() {
            return false;
        }
        // The system does not reuse the number of a group that has members. So a process with this
        // number that started at another time shows that the group is gone.
        match process(self.leader) {
            Some(leader) if leader.started != self.started => false,
            Some(leader) if leader.state != b'Z' => true,
            _ => members(self.leader) > 0,
        }
    }

    fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.leader) {
            // A group that is gone needs no signal.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Ends the group on a thread of its own, and calls `over` there first.
    pub(super) fn end_beside(
        self,
        patience: Patience,
        over: impl FnOnce(Result<(), Alive>) + Send + 'static,
    ) -> Ending {
        let (tell, told) = oneshot::channel();
        let (hurry, hurries) = channel();
        let end = move || {
            let ended = self.end(patience, &hurries);
            over(ended);
            // The waiting task may have been dropped.
            let _ = tell.send(ended);
        };
        let thread = std::thread::Builder::new().name("paceline-end".to_string());
        if thread.spawn(end).is_err() {
            // Without a thread there is no grace: kill it now.
            self.signal(Signal::KILL);
        }
        Ending { told, _hurry: hurry }
    }

    /// Sends SIGTERM, then SIGKILL after the grace or as soon as no task waits any more, and
    /// returns when the group is gone.
    fn end(self, patience: Patience, hurries: &Receiver<()>) -> Result<(), Alive> {
        if !self.is_alive() {
            return Ok(());
        }
        // No message is ever sent: the channel only closes.
        let (_bell, silence): (Sender<()>, Receiver<()>) = channel();
        let Patience { mut grace, force } = patience;
        let (mut waited, mut look) = (Duration::ZERO, FIRST_LOOK);
        self.signal(Signal::TERM);
        // A stopped process must continue to receive the signal.
        self.signal(Signal::CONT);
        while self.is_alive() {
            if waited >= grace + force {
                return Err(Alive);
            }
            if waited >= grace {
                self.signal(Signal::KILL);
            }
            let _ = silence.recv_timeout(look);
            waited += look;
            look = (2 * look).min(LOOK_EVERY);
            if hurries.try_recv() == Err(TryRecvError::Disconnected) {
                grace = grace.min(HURRIED_GRACE);
            }
        }
        Ok(())
    }
}

/// A group that is ending. Dropping this cuts the grace short.
pub(super) struct Ending {
    told: oneshot::Receiver<Result<(), Alive>>,
    _hurry: Sender<()>,
}

impl Ending {
    /// Resolves when the group is gone, or given up.
    pub(super) async fn over(mut self) -> Result<(), Alive> {
        // Without a thread, the end of the group was not checked.
        (&mut self.told).await.unwrap_or(Err(Alive))
    }
}

/// Running processes of a group. Zombies do not count.
fn members(group: i32) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(process).filter(|it| it.group == group && it.state != b'Z').count()
}

fn process(number: i32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{number}/stat")).ok()?;
    // The second field is the name, in parentheses, and may contain any character.
    let after = stat.iter().rposition(|&byte| byte == b')')? + 2;
    let fields: Vec<&str> = std::str::from_utf8(stat.get(after..)?).ok()?.split(' ').collect();
    let state = *fields.first()?.as_bytes().first()?;
    Some(Process {
        state,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

fn boot() -> u128 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&id.trim().replace('-', ""), 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    fn leader(script: &str) -> (Child, Group) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let mut ready = [0; 1];
        let stdout = child.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(stdout, &mut ready).expect("it says when it is ready");
        let group = Group::of(child.id()).expect("it runs");
        (child, group)
    }

    #[track_caller]
    fn end(group: Group, grace: Duration) {
        let (_patient, hurries) = channel();
        assert_eq!(group.end(Patience { grace, ..Patience::default() }, &hurries), Ok(()));
    }

    #[test]
    fn s3_a_group_that_ignores_signals_is_killed_soon_when_no_task_waits_any_more() {
        let (mut child, group) = leader("trap '' TERM; echo; while :; do sleep 1; done");
        let (patient, hurries) = channel();
        drop(patient);
        let patience = Patience { grace: Duration::from_mins(9), ..Patience::default() };
        assert_eq!(group.end(patience, &hurries), Ok(()));
        assert!(!group.is_alive());
        child.wait().expect("ended");
    }

    #[test]
    fn s3_a_group_is_ended_with_all_its_children_also_those_that_do_not_listen() {
        let (mut child, group) = leader(
            "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo; while :; do sleep 1; done",
        );
        assert!(group.is_alive());
        end(group, Duration::from_millis(50));
        assert!(!group.is_alive());
        child.wait().expect("ended");
        assert!(!group.is_alive());
    }

    #[test]
    fn s3_a_group_that_does_not_end_in_time_is_told_of() {
        let (mut child, group) = leader("trap '' TERM; echo; while :; do sleep 1; done");
        let (_patient, hurries) = channel();
        let patience = Patience { grace: Duration::from_millis(20), force: Duration::ZERO };
        assert_eq!(group.end(patience, &hurries), Err(Alive));
        assert!(group.is_alive());
        end(group, Duration::ZERO);
        child.wait().expect("ended");
    }

    #[test]
    fn s3_what_a_dead_leader_left_is_still_its_group() {
        let (mut child, group) = leader("sleep 100 & echo");
        child.wait().expect("the leader has left");
        assert!(group.is_alive());
        end(group, Duration::from_secs(5));
        assert!(!group.is_alive());
    }

    #[test]
    fn s3_another_process_with_the_same_number_is_not_the_group() {
        let (mut child, group) = leader("echo; sleep 100");
        let other = Group { started: group.started + 1, ..group };
        let before_the_reboot = Group { boot: group.boot ^ 1, ..group };
        for stranger in [other, before_the_reboot] {
            assert!(!stranger.is_alive());
            end(stranger, Duration::ZERO);
        }
        assert!(group.is_alive(), "it was left alone");
        end(group, Duration::ZERO);
        child.wait().expect("ended");
    }
}
