//! The end of a job: its last stage, its early exit, its deadline, its cancellation, its one report
//! (J1 to J4, W2, W4).

use std::sync::Arc;

use crate::call::State;
use crate::core::Core;
use crate::job::{AttemptId, JobId};
use crate::mutant::Mutant;
use crate::outcome::{CallReport, Outcome, Report, Skip};
use crate::plan::{Event, Plan};
use crate::record::Write;
use crate::time::Now;

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The job is cancelled.
    Job,
    /// One caller has left the job, and others still wait for it.
    Detached,
    /// The job had finished already. The engine finds that in the store: the core knows only
    /// unfinished jobs.
    Finished,
    /// No job has this number.
    Unknown,
}

impl Core {
    /// Starts the next stage, or finishes the job, after every call of a stage has settled (J3).
    pub(crate) fn stage_over(&mut self, job: u32, last: Option<u32>, now: Now, plan: &mut Plan) {
        let conclusive = |call: &u32| {
            self.calls[*call].outcome.as_ref().is_some_and(|outcome| outcome.is_conclusive())
        };
        let answered = self.jobs[job].calls.iter().any(conclusive);
        let answered = answered && !Mutant::StageAfterAnswer.on();
        if answered || self.jobs[job].left == 0 {
            self.withdraw(job, Skip::Stage, now, plan);
            self.finish(job, now, plan);
            return;
        }
        if let Some(last) = last {
            self.write_call(last, plan);
        }
        if Mutant::StageForgotten.on() {
            return;
        }
        self.jobs[job].stage += 1;
        self.begin_stage(job, now, plan);
    }

    /// Skips every call that has not settled. At an early exit those on the wire may go on; their
    /// results are for the cache and the lane (J2).
    pub(crate) fn withdraw(&mut self, job: u32, skip: Skip, now: Now, plan: &mut Plan) {
        self.settle_rest(job, &Outcome::Skipped(skip), now, plan);
    }

    pub(crate) fn settle_rest(&mut self, job: u32, outcome: &Outcome, now: Now, plan: &mut Plan) {
        self.jobs[job].closing = true;
        for at in 0..self.jobs[job].calls.len() {
            let call = self.jobs[job].calls[at];
            if !self.calls[call].is_settled() {
                self.settle_quietly(call, outcome.clone(), now, plan);
            }
        }
    }

    /// Settles every call that has not settled, and aborts the attempts that no other job shares
    /// (W4).
    fn abort_rest(&mut self, job: u32, outcome: &Outcome, now: Now, plan: &mut Plan) {
        let calls = self.jobs[job].calls.iter().map(|&call| &self.calls[call]);
        let running: Vec<AttemptId> =
            calls.filter(|call| call.state == State::Running).map(|call| call.attempt).collect();
        self.settle_rest(job, outcome, now, plan);
        // An attempt that another job took over stays.
        let unwanted = running
            .into_iter()
            .filter(|attempt| self.attempts.get(attempt).is_some_and(|known| known.call.is_none()));
        plan.aborts.extend(unwanted);
    }

    /// Lets callers whose deadline has passed leave, each with a snapshot of the job. With the last
    /// one the job is over (D1, W2).
    pub(crate) fn deadline_passes(&mut self, job: u32, now: Now, plan: &mut Plan) {
        if self.jobs[job].callers.pass(now.time) {
            self.watch_deadline(job);
            self.write_terms(job, plan);
            plan.partials.push(Arc::new(self.snapshot(job, now)));
        } else {
            self.abort_rest(job, &Outcome::Skipped(Skip::Deadline), now, plan);
            self.finish(job, now, plan);
        }
    }

    /// A snapshot of an unfinished job, for a caller whose deadline has passed. It is no report:
    /// the job goes on, and the snapshot is not stored.
    pub fn partial(&self, id: JobId, now: Now) -> Option<Report> {
        self.job_ids.get(&id).map(|&job| self.snapshot(job, now))
    }

    fn snapshot(&self, job: u32, now: Now) -> Report {
        let calls = self.jobs[job].calls.iter().map(|&call| self.call_so_far(call, now)).collect();
        let state = self.job_state(self.jobs[job].id);
        let report = crate::coverage::report(&self.jobs[job], calls, now.time);
        Report { state, partial: true, ..report }
    }

    fn call_so_far(&self, number: u32, now: Now) -> CallReport {
        let call = &self.calls[number];
        if call.is_settled() {
            return self.call_report(number);
        }
        let mut call = call.clone();
        if let Some(started_at) = self.on_the_wire(number) {
            call.was_out(Some(started_at), now.time);
            call.tried();
        }
        CallReport {
            lane: self.lanes[call.lane].name.clone(),
            outcome: Outcome::Skipped(Skip::Deadline),
            attempts: call.requests(),
            waited: call.waited,
            ran: call.ran,
            cached: false,
        }
    }

    /// Withdraws the caller that would wait longest, and with the last one the job.
    pub fn cancel(&mut self, id: JobId, now: Now, plan: &mut Plan) -> Cancelled {
        let Some(&job) = self.job_ids.get(&id) else { return Cancelled::Unknown };
        self.unwatch_deadline(job);
        if self.jobs[job].callers.leave() {
            self.watch_deadline(job);
            self.write_terms(job, plan);
            return Cancelled::Detached;
        }
        if Mutant::CancelLate.on() {
            return Cancelled::Job;
        }
        self.jobs[job].cancelled = true;
        self.abort_rest(job, &Outcome::Cancelled, now, plan);
        self.finish(job, now, plan);
        Cancelled::Job
    }

    pub(crate) fn call_report(&self, number: u32) -> CallReport {
        let call = &self.calls[number];
        let outcome = call.outcome.as_ref().expect("reported calls are settled");
        CallReport {
            lane: self.lanes[call.lane].name.clone(),
            outcome: (**outcome).clone(),
            attempts: call.requests(),
            waited: call.waited,
            ran: call.ran,
            cached: call.cached,
        }
    }

    /// Writes the one report of a job, frees its key and forgets it (J1).
    pub(crate) fn finish(&mut self, number: u32, now: Now, plan: &mut Plan) {
        let calls = self.jobs[number].calls.iter();
        let calls: Vec<CallReport> = calls.map(|&call| self.call_report(call)).collect();
        let report = crate::coverage::report(&self.jobs[number], calls, now.time);
        self.leave_due(number);
        self.unwatch_deadline(number);
        let job = self.jobs.remove(number);
        if let Some(key) = &job.key {
            self.keys.remove(0, key, number);
        }
        self.job_ids.remove(&job.id);
        self.release_tenant(job.tenant);
        for call in job.calls.iter().copied() {
            let lane = self.calls.remove(call).lane;
            self.added.remove(&call);
            self.release_lane(lane, now.time);
        }
        let report = Arc::new(report);
        plan.writes.push(Write::Finish(report.clone()));
        if let Some(key) = &job.key
            && self.is_run(&job)
        {
            self.run_over(key, &report, now, plan);
        }
        if let Some(key) = job.key.filter(|_| !Mutant::FinishedKeyLost.on()) {
            plan.writes.push(Write::FinishedKey(job.id, key));
        }
        plan.events.push(Event::Finished(report));
    }
}
