//! The parent's record of the jobs, which shows if any job was lost or reported twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use paceline::Report;
use paceline::report::{CallOutcome, JobState, Skip};

use super::score::Score;
use super::upstreams::PROFILES;
use super::wanted::{Part, Wanted};

/// The parent's record. It is in the parent process, so killing a worker process does not affect it.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) accepted: BTreeSet<u32>,
    pub(super) finished: BTreeSet<u32>,
    /// Jobs whose report arrived as an event; other reports were found in the store.
    reported: BTreeSet<u32>,
    /// Second reports of a job.
    pub(super) twice: usize,
    pub(super) kill: Option<Kill>,
    /// By part, the number of calls that an urgent job overtook, and the time until its answer.
    pub(super) overtook: BTreeMap<Part, (usize, Duration)>,
    /// The reports in the store at the end.
    pub(super) kept: BTreeMap<u32, Report>,
}

/// What the next process found in the store after a kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    pub(super) unfinished: usize,
    pub(super) finished: usize,
    /// Jobs that had been accepted, or had a report, and were not found in that state.
    pub(super) missing: usize,
}

impl Books {
    /// The number of accepted jobs without a report.
    pub(super) fn unfinished(&self) -> usize {
        self.accepted.difference(&self.finished).count()
    }

    pub(super) fn finished(&mut self, number: u32) {
        self.twice += usize::from(!self.reported.insert(number));
        self.finished.insert(number);
    }

    /// A process opened the store after a kill. It may find reports that never reached the parent.
    pub(super) fn found(&mut self, unfinished: &[u32], finished: &[u32]) -> &Kill {
        let there = |number: &&u32| unfinished.contains(number) || finished.contains(number);
        let lost = self.accepted.iter().filter(|number| !there(number)).count();
        let unreported = self.finished.iter().filter(|number| !finished.contains(number)).count();
        let (unfinished, known) = (unfinished.len(), finished.len());
        self.finished.extend(finished);
        self.kill.insert(Kill { unfinished, finished: known, missing: lost + unreported })
    }

    /// Records a report that the store has at the end.
    pub(super) fn kept(&mut self, number: u32, report: Report) {
        self.twice += usize::from(self.kept.insert(number, report).is_some());
    }

    /// The number of jobs without a report.
    pub(super) fn lost(&self, wanted: &[Wanted]) -> usize {
        let missing = self.kill.as_ref().map_or(0, |kill| kill.missing);
        wanted.iter().filter(|wanted| !self.kept.contains_key(&wanted.number)).count() + missing
    }

    /// The result in sentences; `seen` is what each upstream saw of Paceline.
    pub(super) fn sentences(&self, wanted: &[Wanted], seen: &[Score]) -> String {
        let (lost, twice, jobs) = (self.lost(wanted), self.twice, wanted.len());
        let unanswered = [JobState::Failed, JobState::Skipped].map(|state| self.count(state));
        let mut lines = vec![format!(
            "Paceline: {} jobs done, {} failed, {} skipped; {lost} of {jobs} lost, {twice} reported twice.",
            self.count(JobState::Done),
            unanswered[0],
            unanswered[1],
        )];
        if let Some(Kill { unfinished, finished, .. }) = self.kill {
            let again: usize = seen.iter().map(|score| score.repeated).sum();
            lines.push(format!(
                "The worker process was killed half-way by SIGKILL. The next one found {unfinished}\n\
                 unfinished and {finished} finished jobs in the store. Calls answered twice: {again}."
            ));
        }
        if let Some((calls, took)) = self.overtook.get(&Part::Urgent) {
            let took = took.as_secs_f64();
            lines.push(format!(
                "An interactive job overtook {calls} calls and was answered after {took:.2}s."
            ));
        }
        if let Some((calls, took)) = self.overtook.get(&Part::Bound) {
            let took = took.as_secs_f64();
            lines.push(format!(
                "Another waited {took:.1}s for a full window, as priorities never exceed limits, ahead of {calls}."
            ));
        }
        let spared = self.spared(wanted, seen);
        lines.push(format!("{spared} calls were never made: another upstream had answered first."));
        lines.join("\n") + "\n"
    }

    fn count(&self, state: JobState) -> usize {
        self.kept.values().filter(|report| report.state == state).count()
    }

    /// The number of calls that were no longer needed and never sent. A call that was in flight when
    /// another one was answered does not count.
    pub(super) fn spared(&self, wanted: &[Wanted], seen: &[Score]) -> usize {
        let asked = |lane: &str, number| {
            let mut upstreams = PROFILES.iter().zip(seen);
            upstreams.any(|(profile, score)| profile.name == lane && score.asked.contains(&number))
        };
        let calls =
            wanted.iter().filter_map(|wanted| Some((wanted, self.kept.get(&wanted.number)?)));
        let calls = calls
            .flat_map(|(wanted, report)| report.calls.iter().map(|call| (wanted.number, call)));
        calls
            .filter(|(number, call)| {
                let early =
                    matches!(call.outcome, CallOutcome::Skipped(Skip::EarlyExit | Skip::Stage));
                early && !asked(&call.lane, *number)
            })
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::wanted::wanted;
    use paceline::report::{Answer, CallReport};
    use paceline::{JobId, Span, Time};

    fn report(calls: &[(&str, CallOutcome)]) -> Report {
        let call = |(lane, outcome): &(&str, CallOutcome)| CallReport {
            lane: (*lane).into(),
            outcome: outcome.clone(),
            attempts: 0,
            waited: Span::ZERO,
            ran: Span::ZERO,
            cached: false,
        };
        Report {
            job: JobId(1),
            state: JobState::Done,
            answer: Answer::Conclusive,
            finished_at: Time(1),
            calls: calls.iter().map(call).collect(),
            partial: false,
        }
    }

    #[test]
    fn a_report_that_is_only_in_the_store_is_not_lost_and_a_missing_one_is() {
        let accepted: BTreeSet<u32> = (1..=5).collect();
        let mut books = Books { accepted, ..Books::default() };
        books.finished(1);
        assert_eq!(books.unfinished(), 4);
        // The report of 2 was durable when the process was killed.
        let found = books.found(&[3, 4, 5], &[1, 2]);
        assert_eq!(*found, Kill { unfinished: 3, finished: 2, missing: 0 });
        assert_eq!(books.unfinished(), 3);
        // 5 is missing, and 1 would run again.
        assert_eq!(books.found(&[1, 3, 4], &[2]).missing, 2);
    }

    #[test]
    fn a_second_report_is_counted() {
        let mut books = Books::default();
        books.finished(1);
        books.finished(1);
        // The process that opens the store may find a report before the event arrives.
        books.found(&[], &[1, 2]);
        books.finished(2);
        books.kept(7, report(&[]));
        books.kept(7, report(&[]));
        assert_eq!(books.twice, 2);
        assert_eq!(books.lost(&wanted()), wanted().len() - 1);
    }

    #[test]
    fn a_call_is_spared_if_its_service_never_saw_it() {
        let done = CallOutcome::Done { conclusive: true, value: b"1".as_slice().into() };
        let skipped = CallOutcome::Skipped(Skip::EarlyExit);
        let search = wanted().into_iter().find(|wanted| wanted.part == Part::Searches);
        let search = search.expect("there are searches");
        let mut books = Books::default();
        let calls = [("steady", done), ("windowed", skipped.clone()), ("grumpy", skipped)];
        books.kept(search.number, report(&calls));
        let mut seen = vec![Score::default(); PROFILES.len()];
        assert_eq!(books.spared(std::slice::from_ref(&search), &seen), 2);
        seen[2].asked.insert(search.number);
        assert_eq!(books.spared(&[search], &seen), 1);
    }
}
