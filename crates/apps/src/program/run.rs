//! One run of a program on behalf of a call: from the gate to how it ended.

use std::process::ExitStatus;
use std::time::Duration;

use paceline::{Call, Failed, Failure};

use super::Program;
use super::child::{Running, verdict};
use super::group::Group;
use super::tail::Tail;

/// Output is stored at most this often while the program runs.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// How long what a dead process left behind may take to end by itself.
const LEFT_OVER_GRACE: Duration = Duration::from_secs(1);
/// Beyond a program's own time: to end it, to store what it said.
pub(crate) const BEYOND: Duration = Duration::from_secs(90);

/// What a run is called, and what it is told.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The note that holds its process group until that is gone.
    pub(crate) child_note: String,
    /// The note that holds the end of what it says, for those who ask later.
    pub(crate) output_note: Option<String>,
    /// Variables beside those of this process.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// How long it may take.
    pub(crate) timeout: Duration,
}

/// A run that is over, by itself and in time.
#[derive(Debug)]
pub(crate) struct Over {
    status: ExitStatus,
    heard: Tail,
}

impl Over {
    /// Its exit code, if no signal ended it.
    pub(crate) fn code(&self) -> Option<u8> {
        self.status.code().and_then(|code| code.try_into().ok())
    }

    /// Why it did not succeed, if so.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        verdict(self.status, &self.heard)
    }

    /// The end of what it said, as text.
    pub(crate) fn output(&mut self) -> String {
        String::from_utf8_lossy(self.heard.bytes()).into_owned()
    }
}

impl Run {
    /// Runs a program, after the end of what an earlier run left behind.
    pub(crate) async fn of(&self, program: &Program, call: &Call) -> Result<Over, Failed> {
        self.end_leftover(call).await?;
        let mut running = program.start(&self.environment, call.hold()).map_err(Failed::of)?;
        // Here, and not after the commit below: a slow disk must not make a run late for ever (L4).
        call.sending()?;
        let group = serde_json::to_vec(&running.group).expect("numbers are JSON");
        // The promise before the call: whoever comes after a crash knows what to end.
        call.keep(&self.child_note, Some(&group)).await?;
        let mut heard = Tail::default();
        running.go().await?;
        let attended = self.attend(call, &mut running, &mut heard);
        let attended = tokio::time::timeout(self.timeout, attended).await;
        running.end().await;
        self.save(call, &mut heard).await?;
        call.keep(&self.child_note, None).await?;
        let Ok(status) = attended else {
            let message = format!("not over in {}", paceline::Span::from(self.timeout));
            return Err(Failed::of(Failure::transient("timeout").because(&message)));
        };
        Ok(Over { status: status?, heard })
    }

    /// What an earlier run left behind, be it one of a process that has died, is ended first (S3).
    async fn end_leftover(&self, call: &Call) -> Result<(), Failed> {
        let Some(note) = call.note(&self.child_note).await? else { return Ok(()) };
        let Ok(group) = serde_json::from_slice::<Group>(&note) else { return Ok(()) };
        if group.is_alive() {
            // The slot goes on being held by this very call.
            group.end_beside(LEFT_OVER_GRACE, call.hold()).gone().await;
        }
        Ok(())
    }

    /// Waits for the end of a program; what it says is stored now and then.
    async fn attend(
        &self,
        call: &Call,
        running: &mut Running,
        heard: &mut Tail,
    ) -> Result<ExitStatus, Failed> {
        let mut saved_at = call.wall();
        loop {
            if let Some(status) = running.next(heard).await? {
                return Ok(status);
            }
            let now = call.wall();
            // A clock that was stepped back saves at once.
            if now.duration_since(saved_at).is_ok_and(|since| since < SAVE_EVERY) {
                continue;
            }
            saved_at = now;
            self.save(call, heard).await?;
        }
    }

    async fn save(&self, call: &Call, heard: &mut Tail) -> Result<(), Failed> {
        if let Some(note) = &self.output_note {
            call.keep(note, Some(heard.bytes())).await?;
        }
        Ok(())
    }
}
