//! The answer that a job's outcomes amount to (J4).

use crate::core::Job;
use crate::job::Until;
use crate::mutant::Mutant;
use crate::outcome::{Answer, CallReport, JobState, Outcome, Report, Skip};
use crate::time::Time;

/// The report of a job whose calls have all settled.
pub(crate) fn report(job: &Job, calls: Vec<CallReport>, now: Time) -> Report {
    let state = if job.cancelled { JobState::Cancelled } else { state(&calls) };
    let answer = answer(job.until, &calls);
    Report { job: job.id, state, answer, finished_at: now, calls, partial: false }
}

fn state(calls: &[CallReport]) -> JobState {
    let any = |is: fn(&Outcome) -> bool| calls.iter().any(|call| is(&call.outcome));
    if calls.is_empty() || any(Outcome::is_answer) {
        JobState::Done
    } else if any(|outcome| matches!(outcome, Outcome::Failed(_))) {
        JobState::Failed
    } else {
        JobState::Skipped
    }
}

/// A lane without an answer never looks like one that found nothing: a caller would take a dead
/// upstream for an empty one.
fn answer(until: Until, calls: &[CallReport]) -> Answer {
    // The call that a move added answers for the one that moved.
    let outcomes = || {
        let outcomes = calls.iter().map(|call| &call.outcome);
        outcomes.filter(|outcome| !matches!(outcome, Outcome::Moved { .. }))
    };
    let done = |outcome: &Outcome| matches!(outcome, Outcome::Done { .. });
    let not_applicable =
        |outcome: &Outcome| matches!(outcome, Outcome::Skipped(Skip::NotApplicable));
    let all_done = outcomes().all(done) && outcomes().next().is_some();
    let all_answered = outcomes().all(|outcome| outcome.is_answer() || not_applicable(outcome));
    if until == Until::All && all_done {
        Answer::All
    } else if outcomes().any(Outcome::is_conclusive) {
        Answer::Conclusive
    } else if all_answered && outcomes().any(done) {
        Answer::All
    } else if all_answered || Mutant::CoverageLies.on() {
        Answer::Empty
    } else {
        Answer::Inconclusive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use crate::time::Span;

    fn done(conclusive: bool) -> Outcome {
        Outcome::Done { conclusive, value: b"1".as_slice().into() }
    }

    #[track_caller]
    fn check(until: Until, outcomes: &[Outcome], expected: (JobState, Answer)) {
        let call = |outcome: &Outcome| CallReport {
            lane: "a".into(),
            outcome: outcome.clone(),
            attempts: 1,
            waited: Span::ZERO,
            ran: Span::ZERO,
            cached: false,
        };
        let calls: Vec<CallReport> = outcomes.iter().map(call).collect();
        assert_eq!((state(&calls), answer(until, &calls)), expected, "{outcomes:?}");
    }

    #[test]
    fn j4_no_answer_never_looks_like_an_empty_answer() {
        use Answer::{All, Conclusive, Empty, Inconclusive};
        use Until::Conclusive as First;
        let failed = || Outcome::Failed(Failure::transient("timeout"));
        let skipped = || Outcome::Skipped(Skip::Deadline);
        let not_applicable = || Outcome::Skipped(Skip::NotApplicable);
        let moved = || Outcome::Moved { to: "b".into() };
        check(First, &[Outcome::Empty, Outcome::Empty], (JobState::Done, Empty));
        check(First, &[Outcome::Empty, failed()], (JobState::Done, Inconclusive));
        check(First, &[Outcome::Empty, skipped()], (JobState::Done, Inconclusive));
        check(First, &[Outcome::Empty, not_applicable()], (JobState::Done, Empty));
        check(First, &[failed(), skipped()], (JobState::Failed, Inconclusive));
        check(First, &[skipped()], (JobState::Skipped, Inconclusive));
        check(First, &[done(true), failed()], (JobState::Done, Conclusive));
        check(First, &[done(false), Outcome::Empty], (JobState::Done, All));
        check(First, &[done(false), failed()], (JobState::Done, Inconclusive));
        check(Until::All, &[done(true), done(true)], (JobState::Done, All));
        check(Until::All, &[done(true), failed()], (JobState::Done, Conclusive));
        check(Until::All, &[moved(), done(true)], (JobState::Done, All));
        check(Until::All, &[], (JobState::Done, Empty));
        let duplicate = Outcome::Duplicate { of: crate::job::JobId(1) };
        check(Until::All, &[duplicate], (JobState::Skipped, Inconclusive));
    }
}
