//! One run of a program for a call: from the gate to its result.

use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use paceline::{Call, Ended, Failed, Failure};

use super::Program;
use super::child::{Running, verdict};
use super::group::{Group, Patience};
use super::tail::Tail;

/// The time between output of a running program and its storage; with the commit, less than 2 s.
const SAVE_AFTER: Duration = Duration::from_millis(1_500);
/// The grace of a group that an earlier run left behind.
pub(super) const LEFT_OVER_GRACE: Duration = Duration::from_secs(1);
/// Added to a program's own time limit: to end leftovers before and after it, and to store its
/// output.
pub(crate) const BEYOND: Duration = Duration::from_secs(150);

/// The notes, variables and limits of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The note that holds its process group until that is gone.
    pub(crate) group_note: String,
    /// Whether this call alone uses that note. Then it is removed with a cancelled run.
    pub(crate) own_note: bool,
    /// The note that holds the end of the output.
    pub(crate) output_note: Option<String>,
    /// Variables in addition to those of this process.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The time limit of the run.
    pub(crate) timeout: Duration,
    /// The time limits for ending its process group.
    pub(crate) patience: Patience,
}

/// A run whose program exited by itself, in time.
#[derive(Debug)]
pub(crate) struct Over {
    status: ExitStatus,
    heard: Tail,
}

impl Over {
    /// The exit code, unless a signal ended the program.
    pub(crate) fn code(&self) -> Option<u8> {
        self.status.code().and_then(|code| code.try_into().ok())
    }

    /// The failure, unless the program succeeded.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        verdict(self.status, &self.heard)
    }

    /// The end of its output, as text.
    pub(crate) fn output(&mut self) -> String {
        String::from_utf8_lossy(self.heard.bytes()).into_owned()
    }
}

impl Run {
    /// Runs a program, after it has ended any process that an earlier run left behind.
    pub(crate) async fn of(&self, program: &Program, call: &Call) -> Result<Over, Failed> {
        self.end_leftover(call).await?;
        let mut running = match program.start(self, call.hold()) {
            Ok(running) => running,
            Err(failure) => {
                self.forget_output(call).await?;
                return Err(Failed::of(failure));
            }
        };
        // Before the commit below, which may take longer than the reservation lasts (L4).
        call.sending()?;
        if self.own_note {
            // Set before the note is stored, since this future may be dropped at any await; and not
            // before the attempt is begun, since an attempt that came too late has a successor with
            // a note of its own.
            running.forgets(call, &self.group_note);
        }
        let group = serde_json::to_vec(&running.group).expect("numbers are JSON");
        // The note comes before the program: after a crash the next process knows what to end.
        let kept = call.keep(&self.group_note, Some(&group));
        let (kept, forgotten) = tokio::join!(kept, self.forget_output(call));
        kept.and(forgotten)?;
        let mut heard = Tail::default();
        running.go().await?;
        let attended = self.attend(call, &mut running, &mut heard);
        let attended = tokio::time::timeout(self.timeout, attended).await;
        let ended = running.end().await;
        self.save(call, &mut heard).await?;
        // The note stays while the group does: the next run must find it.
        ended?;
        if !self.own_note {
            call.keep(&self.group_note, None).await?;
        }
        let Ok(status) = attended else {
            let message = format!("still running after {}", paceline::Span::from(self.timeout));
            return Err(Failed::of(Failure::transient("timeout").because(&message)));
        };
        Ok(Over { status: status?, heard })
    }

    /// Ends the process group of an earlier run, including one of a process that has died (S3).
    pub(crate) async fn end_leftover(&self, call: &Call) -> Result<(), Failed> {
        let Some(note) = call.note(&self.group_note).await? else { return Ok(()) };
        if let Ok(group) = serde_json::from_slice::<Group>(&note)
            && group.is_alive()
        {
            let grace = self.patience.grace.min(LEFT_OVER_GRACE);
            let hold = call.hold();
            let ending = group.end_beside(Patience { grace, ..self.patience }, |_| drop(hold));
            ending.over().await?;
        }
        Ok(call.keep(&self.group_note, None).await?)
    }

    /// Waits for the end of a program, and stores its output while it runs.
    async fn attend(
        &self,
        call: &Call,
        running: &mut Running,
        heard: &mut Tail,
    ) -> Result<ExitStatus, Failed> {
        let mut unsaved = false;
        let mut save = pin!(tokio::time::sleep(SAVE_AFTER));
        loop {
            tokio::select! {
                next = running.next(heard) => match next? {
                    Some(status) => return Ok(status),
                    None if unsaved => {}
                    None => {
                        unsaved = true;
                        save.set(tokio::time::sleep(SAVE_AFTER));
                    }
                },
                () = &mut save, if unsaved => {
                    self.save(call, heard).await?;
                    unsaved = false;
                }
            }
        }
    }

    /// Removes the output of an earlier run.
    async fn forget_output(&self, call: &Call) -> Result<(), Ended> {
        match &self.output_note {
            Some(note) => call.keep(note, None).await,
            None => Ok(()),
        }
    }

    async fn save(&self, call: &Call, heard: &mut Tail) -> Result<(), Failed> {
        if let Some(note) = &self.output_note {
            call.keep(note, Some(heard.bytes())).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline::report::CallOutcome;
    use paceline::{Following, Job, Lane, Outcome, Paceline, Work};
    use std::path::Path;

    /// Time limits that give up before the group is killed.
    const NONE: Patience = Patience { grace: Duration::from_millis(20), force: Duration::ZERO };

    fn run(patience: Patience) -> Run {
        Run {
            group_note: "child".to_string(),
            own_note: true,
            output_note: Some("output".to_string()),
            environment: Vec::new(),
            timeout: Duration::from_secs(50),
            patience,
        }
    }

    /// Runs scripts in a directory.
    fn engine(directory: &Path, patience: Patience) -> Paceline {
        let directory = directory.to_path_buf();
        let worker = move |call: Call| {
            let directory = directory.clone();
            async move {
                let script: String = call.payload()?;
                let run_it = ["sh", "-c", &script].map(String::from).to_vec();
                let program = Program { run: run_it, directory, without: Vec::new() };
                run(patience).of(&program, &call).await?.verdict().map_err(Failed::of)?;
                Outcome::done(()) as Work
            }
        };
        let builder = Paceline::in_memory().lane(Lane::new("here"));
        builder.worker("run", worker).start().expect("it starts")
    }

    async fn submit(pace: &Paceline, script: &str) -> Following {
        let job = Job::new("run", script).on(["here"]).attempts(1);
        pace.submit(job).await.expect("accepted")
    }

    /// The result of a script: `done`, or its failure.
    async fn told(pace: &Paceline, script: &str) -> String {
        let report = submit(pace, script).await.report().await.expect("a report");
        match &report.calls[0].outcome {
            CallOutcome::Failed(failure) => {
                let message = failure.message.as_deref().unwrap_or_default();
                format!("{}: {message}", failure.class)
            }
            other => format!("{other:?}").split(' ').next().unwrap_or_default().to_lowercase(),
        }
    }

    async fn until_kept(pace: &Paceline, note: &str) -> Vec<u8> {
        let kept = async {
            loop {
                if let Some(note) = pace.note(note).await.expect("it runs") {
                    return note.to_vec();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), kept).await.expect("it is kept soon")
    }

    #[tokio::test]
    async fn s3_a_group_that_does_not_end_is_a_failure_of_its_run_and_of_those_that_follow() {
        const ALIVE: &str = "alive: its process group does not exit";
        let directory = tempfile::tempdir().expect("a directory");
        let pace = engine(directory.path(), NONE);
        let deaf = "trap '' TERM; (while :; do sleep 1; done) & echo left";
        assert_eq!(told(&pace, deaf).await, ALIVE, "though its program has succeeded");
        let note = until_kept(&pace, "child").await;
        let group: Group = serde_json::from_slice(&note).expect("it is kept");
        assert_eq!(told(&pace, "touch ran").await, ALIVE);
        assert!(group.is_alive() && !directory.path().join("ran").exists());
        let force = Patience { grace: Duration::ZERO, ..Patience::default() };
        group.end_beside(force, |_| {}).over().await.expect("it can be ended");
        assert_eq!(told(&pace, "touch ran").await, "done");
        assert!(directory.path().join("ran").exists());
        assert_eq!(pace.note("child").await.expect("it runs"), None);
    }

    #[tokio::test]
    async fn output_is_stored_while_the_program_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let pace = engine(directory.path(), Patience::default());
        let job = submit(&pace, "echo hello; while [ ! -e go ]; do sleep 0.05; done").await;
        assert_eq!(until_kept(&pace, "output").await, b"hello\n");
        std::fs::write(directory.path().join("go"), "").expect("written");
        job.report().await.expect("a report");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn w4_a_cancelled_run_leaves_neither_processes_nor_a_note() {
        let directory = tempfile::tempdir().expect("a directory");
        let pace = engine(directory.path(), Patience::default());
        // Some are cancelled at the gate and some behind it.
        for _ in 0..50 {
            let job = submit(&pace, "sleep 1000").await;
            let note = until_kept(&pace, "child").await;
            let group: Group = serde_json::from_slice(&note).expect("it is kept");
            pace.cancel(job.id()).await.expect("it runs");
            pace.idle().await.expect("it runs");
            assert!(!group.is_alive());
            assert_eq!(pace.note("child").await.expect("it runs"), None);
        }
    }
}
