//! Each call has one outcome and each job one report, and both are true (J1, J2, J4, R1, B2).

use paceline_core::{
    Answer, CallId, Failure, JobId, JobState, OnCrash, Outcome, Report, Skip, Until, Verdict,
};

use super::Checker;
use super::jobs::{CallModel, JobModel, State, Wanted, new_call};
use super::shared::MOST_AGAIN;
use crate::trace::words;

/// The stage of a call that was added and settled at once: no write names it.
const UNKNOWN_STAGE: u16 = u16::MAX;

/// The outcome of a call that settles with this verdict.
pub(super) fn brought(verdict: &Verdict) -> Option<Outcome> {
    Some(match verdict {
        Verdict::Done { conclusive, value } => {
            Outcome::Done { conclusive: *conclusive, value: value.clone() }
        }
        Verdict::Empty => Outcome::Empty,
        Verdict::Failed { failure, .. } | Verdict::Lost { failure } => {
            Outcome::Failed(failure.clone())
        }
        Verdict::Throttled { .. } => Outcome::Failed(Failure::transient("throttled")),
        Verdict::NotProcessed => Outcome::Failed(Failure::transient("not_processed")),
        Verdict::Moved { lane, .. } => Outcome::Moved { to: lane.clone() },
        Verdict::Unused => return None,
    })
}

/// Returns `true` if only a call whose stage has begun can have this outcome.
fn has_begun(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed(failure) => &*failure.class != "crash",
        Outcome::Cancelled => false,
        Outcome::Skipped(skip) => !matches!(skip, Skip::Stage | Skip::EarlyExit | Skip::Deadline),
        _ => true,
    }
}

fn told(outcome: &Outcome) -> String {
    format!("{} {}", outcome.name(), words(outcome)).trim_end().into()
}

impl Checker {
    /// A call settled.
    pub(super) fn settled(&mut self, id: JobId, place: usize, outcome: &Outcome, cached: bool) {
        let job = self.jobs.get_mut(&id).expect("the caller checked the job");
        let Some(call) = job.calls.get_mut(place) else {
            return self.broken("J1", format!("job {id} has no call {place}"));
        };
        if let Some(before) = &call.outcome {
            if before != outcome {
                let words = format!(
                    "call {place} of job {id} was {}, now {}",
                    before.name(),
                    outcome.name()
                );
                self.broken("J1", words);
            }
            return;
        }
        let before = call.clone();
        let now = self.now.time;
        let mut heard = call.told_at == now;
        if let State::Running(attempt) = call.state {
            let lane = self.lanes.get(&call.lane);
            let found = lane.and_then(|lane| lane.find(attempt)).filter(|it| it.start_known);
            call.made += u32::from(found.is_some_and(|found| !found.told));
            heard |= found.is_some_and(|found| found.start_told == now);
        }
        // A withdrawn call may have settled in this turn before its verdict was processed.
        call.unsure |= heard && matches!(outcome, Outcome::Skipped(_) | Outcome::Cancelled);
        call.outcome = Some(outcome.clone());
        (call.was, call.state) = (call.state, State::Settled);
        let key = job.spec.cache_key.clone();
        self.check_outcome(id, place, &before, outcome);
        self.check_failure(id, place, outcome);
        self.check_brought(id, &before, outcome, cached);
        if let Some(key) = key.clone().filter(|_| before.state == State::Shared) {
            self.sharer_settled(&before.lane, key, before.through);
        }
        if cached && !self.is_from_cache(&before.lane, key.unwrap_or_default(), outcome) {
            self.broken(
                "C2",
                format!(
                    "job {id} got a cached outcome of {} that the cache does not have",
                    before.lane
                ),
            );
        }
    }

    pub(super) fn job_finished(&mut self, report: &Report) {
        let id = report.job;
        if !self.jobs.contains_key(&id) {
            return self.broken("J1", format!("job {id} reported twice, or was never accepted"));
        }
        for (place, call) in report.calls.iter().enumerate() {
            // The successor of a moved call may settle before it was ever written.
            if place == self.jobs[&id].calls.len() {
                let job = self.jobs.get_mut(&id).expect("checked above");
                job.calls.push(new_call(&call.lane, UNKNOWN_STAGE));
            }
            self.settled(id, place, &call.outcome, call.cached);
            let model = &self.jobs[&id];
            let CallModel { made, was, unsure, .. } = model.calls[place];
            // The model does not count the attempts of shared requests and parked jobs exactly.
            let parked = was == State::Parked || self.was_parked.contains(&id);
            let known = model.spec.cache_key.is_none() && !parked;
            if known && call.attempts != made && !(unsure && call.attempts + 1 == made) {
                let words =
                    format!("job {id} reports {} attempts instead of {made}", call.attempts);
                self.broken("J1", words);
            }
        }
        let job = self.jobs.remove(&id).expect("checked above");
        if let Some(key) = &job.spec.key {
            self.keys.remove(key);
            self.finished_keys.insert(key.clone(), id);
        }
        self.finished.insert(id);
        if job.calls.len() != report.calls.len() {
            self.broken("J1", format!("the report of job {id} lacks calls"));
        }
        self.check_stages(&job, report);
        self.check_coverage(&job, report);
    }

    /// J3: a stage begins when all earlier calls have settled and none was conclusive.
    pub(super) fn check_stage_begins(&mut self, id: JobId, stage: u16) {
        let mut earlier = self.jobs[&id].calls.iter().filter(|call| call.stage < stage);
        let goes_on = |call: &CallModel| call.outcome.as_ref().is_none_or(Outcome::is_conclusive);
        if let Some(call) = earlier.find(|call| goes_on(call)) {
            let words = format!("job {id} begins stage {stage}, and {} is", call.lane);
            let answered = if call.outcome.is_some() { "conclusive" } else { "not settled" };
            self.broken("J3", format!("{words} {answered}"));
        }
    }

    /// J3: the calls of a stage were made or skipped as the outcomes of earlier stages demand.
    fn check_stages(&mut self, job: &JobModel, report: &Report) {
        let calls = || job.calls.iter().zip(&report.calls);
        let answers = calls().filter(|(_, told)| told.outcome.is_conclusive());
        let first = answers.clone().map(|(call, _)| call.stage).min();
        let unknown = answers.map(|(call, _)| call.stage).max() == Some(UNKNOWN_STAGE);
        for (call, told) in calls().filter(|(call, _)| call.stage != UNKNOWN_STAGE) {
            let after = first.is_some_and(|first| first < call.stage);
            let skipped = told.outcome == Outcome::Skipped(Skip::Stage);
            if after && has_begun(&told.outcome) || skipped && !after && !unknown {
                let words = format!("job {}: {} of stage {}", report.job, call.lane, call.stage);
                let words = format!("{words} is {}", told.outcome.name());
                return self.broken(
                    "J3",
                    format!("{words}, the first conclusive outcome is of stage {first:?}"),
                );
            }
        }
    }

    fn check_coverage(&mut self, job: &JobModel, report: &Report) {
        let outcomes = || {
            let outcomes = report.calls.iter().map(|call| &call.outcome);
            outcomes.filter(|outcome| !matches!(outcome, Outcome::Moved { .. }))
        };
        let answered =
            |o: &Outcome| o.is_answer() || matches!(o, Outcome::Skipped(Skip::NotApplicable));
        let (all, conclusive) = (outcomes().all(answered), outcomes().any(Outcome::is_conclusive));
        let honest = match report.answer {
            Answer::Conclusive => conclusive,
            Answer::All => all && outcomes().any(|o| matches!(o, Outcome::Done { .. })),
            Answer::Empty => all && !outcomes().any(|o| matches!(o, Outcome::Done { .. })),
            Answer::Inconclusive => !all && !conclusive,
        };
        if !honest {
            self.broken("J4", format!("job {} says {:?}", report.job, report.answer));
        }
        let early = outcomes().any(|o| *o == Outcome::Skipped(Skip::EarlyExit));
        if early && !(conclusive && job.spec.until == Until::Conclusive) {
            self.broken(
                "J2",
                format!("job {} ended early without a conclusive outcome", report.job),
            );
        }
        let cancelled = report.state == JobState::Cancelled;
        if cancelled && !self.cancelled.contains(&report.job) {
            self.broken(
                "W4",
                format!("job {} is cancelled, and no caller asked for it", report.job),
            );
        }
    }

    /// J1: an outcome equals the verdict of the upstream, unless the rules chose it.
    fn check_brought(&mut self, id: JobId, call: &CallModel, outcome: &Outcome, cached: bool) {
        let chosen = match outcome {
            Outcome::Skipped(_) | Outcome::Cancelled | Outcome::Duplicate { .. } => true,
            Outcome::Failed(failure) => matches!(&*failure.class, "cost" | "crash"),
            Outcome::Done { .. } | Outcome::Empty | Outcome::Moved { .. } => false,
        };
        // The model does not always know which attempt settles a shared call.
        let believed = call.brought.is_none() && call.state == State::Shared;
        if chosen || cached || believed || call.unsure {
            return;
        }
        let lost = |to: &Outcome| {
            // The lane may not exist or be full, or the chain of moves may be too long (J7).
            let moved = matches!(to, Outcome::Moved { .. });
            moved && matches!(outcome, Outcome::Failed(failure) if &*failure.class == "moved")
        };
        if call.brought.as_ref().is_none_or(|brought| brought != outcome && !lost(brought)) {
            let words =
                format!("job {id} reports {}, the verdict of its upstream was", told(outcome));
            self.broken("J1", format!("{words} {:?}", call.brought.as_ref().map(told)));
        }
    }

    /// Checks a failure that the rules chose themselves: a call with attempts left goes on.
    pub(super) fn check_failure(&mut self, id: JobId, place: usize, outcome: &Outcome) {
        let Outcome::Failed(failure) = outcome else { return };
        let job = &self.jobs[&id];
        let call = &job.calls[place];
        let kind = self.setup.kinds.iter().find(|kind| kind.name == job.spec.kind);
        let repeats = kind.is_some_and(|kind| kind.on_crash == paceline_core::OnCrash::Repeat);
        let words = match &*failure.class {
            "cost" | "moved" => None,
            "crash" => (repeats && call.crashes <= MOST_AGAIN && !call.unsure)
                .then(|| ("B2", format!("job {id} gave up after {} crashes", call.crashes))),
            class => {
                let goes_on = match call.was {
                    State::Waiting | State::Backoff(_) => true,
                    State::Shared => !call.through && !call.unsure,
                    _ => false,
                };
                let words = || format!("job {id} failed as {class} with attempts left");
                goes_on.then(|| ("R1", words()))
            }
        };
        if let Some((rule, words)) = words {
            self.broken(rule, words);
        }
    }

    /// The store now knows that the process died during an attempt of a call. That counts for the
    /// calls that shared the request too (B2).
    pub(super) fn call_crashed(&mut self, id: CallId) {
        self.process_died_under(id);
        let Some(job) = self.jobs.get(&id.job) else { return };
        let call = job.calls.get(usize::from(id.index));
        let lane = call.filter(|call| call.state != State::Settled).map(|call| call.lane.clone());
        let (Some(lane), Some(key)) = (lane, job.spec.cache_key.clone()) else { return };
        for (job, place) in self.sharers(&(lane, key)) {
            let sharer = CallId { job, index: place as u16 };
            let model = self.jobs.get_mut(&job).expect("it shares");
            let call = &mut model.calls[place];
            if sharer == id || call.joined_at >= self.opened_at {
                continue;
            }
            // No write says when it came due, and so whether it shared the request.
            call.unsure |= model.due.is_some() || model.wanted_due != Wanted::Nothing;
            self.process_died_under(sharer);
        }
    }

    fn process_died_under(&mut self, id: CallId) {
        let Some(job) = self.jobs.get_mut(&id.job).filter(|job| !job.parked) else { return };
        let kind = self.setup.kinds.iter().find(|kind| kind.name == job.spec.kind);
        let most = match kind.map(|kind| kind.on_crash) {
            Some(OnCrash::Repeat) => MOST_AGAIN,
            Some(OnCrash::Fail) => 0,
            Some(OnCrash::End | OnCrash::TakeUp) | None => u16::MAX,
        };
        let Some(call) = job.calls.get_mut(usize::from(id.index)) else { return };
        let goes_on = matches!(call.state, State::Settled | State::Running(_));
        if !goes_on && call.survived_at < self.opened_at {
            call.survived_at = self.opened_at;
            call.crashes += 1;
            call.made += 1;
            call.through |= call.crashes > most && !call.unsure;
        }
    }
}
