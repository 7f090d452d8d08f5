//! The end of a turn: no open lane is left unused, no job misses a step, and the engine wakes in
//! time for the next one.

use std::collections::BTreeMap;
use std::sync::Arc;

use paceline_core::{CallId, JobId, Priority, Span, Time, Until};

use super::Checker;
use super::jobs::{State, comes_at};
use super::lanes::LaneModel;
use super::order::Waiting;
use super::pool::Need;

/// A moment by which a turn is needed, the job that needs it, and the reason.
type Must = (Time, JobId, &'static str);

impl Checker {
    /// Checks everything that must be true when a turn is over.
    pub(super) fn check_end_of_turn(&mut self, wake_at: Option<Time>) {
        self.check_jobs();
        let waiting = self.waiting();
        self.turns.observe(waiting.values().flatten());
        self.check_budgets(&waiting);
        self.check_sharers();
        let mut must: Vec<Must> = self.moments();
        let (mut passed, mut lacking) = (Vec::new(), Vec::new());
        let (costly, shared) = (self.costly(), self.shared_calls());
        for (name, calls) in &waiting {
            let Some(lane) = self.lanes.get(name) else { continue };
            if !self.is_plain_beside(name, &costly) || !self.lane_has_room(lane) {
                continue;
            }
            let group = self.group_opening(lane.limits(), 1);
            let open = |call: &&Waiting| lane.opening(call.priority, call.rank).max(group);
            let is_open = |call: &&Waiting| open(call) <= self.now.time;
            let free = |id: CallId| self.worker_is_free(self.need(lane, id), lane);
            // Calls behind one that lacks a worker wait with it. The place of a shared call is not
            // modelled.
            let lacks = |(lane, id): &(&Arc<str>, CallId)| *lane == name && !free(*id);
            let held_up = !calls.iter().all(|call| free(call.id)) || shared.iter().any(lacks);
            // Calls behind the first one that may go wait for it.
            if let Some(call) = calls.iter().filter(is_open).min_by_key(|call| call.key()) {
                let need = self.need(lane, call.id);
                let found = (name.clone(), call.clone(), need);
                if !held_up {
                    passed.push(found);
                } else if !free(call.id) && !self.has_its_share(need, lane) {
                    lacking.push(found);
                }
            }
            let share = lane.limits().gap_share;
            let rises = share.iter().any(|part| *part != share[0]);
            for call in calls.iter().filter(|call| !held_up && !is_open(call)) {
                let mut at = open(&call);
                if rises {
                    at = at.min(self.opening_when_risen(lane, call, group));
                }
                must.push((at, call.id.job, "its lane opens"));
            }
        }
        if let Some((name, call, need)) = passed.first() {
            let rule = if *need == Need::Slot { "L4" } else { "P5" };
            let words = format!("{name} is open, job {} waits and workers are free", call.id.job);
            self.broken(rule, words);
        }
        self.check_across_lanes(&lacking);
        let first = must.into_iter().min();
        self.must_wake = first.map(|(at, _, _)| at);
        self.check_wake(first, wake_at);
        let now = self.now.time;
        self.lanes.values_mut().for_each(|lane| lane.trim(Span::hours(3), now));
    }

    fn check_wake(&mut self, must: Option<Must>, wake_at: Option<Time>) {
        if let (Some((must, job, why)), Some(wake)) = (must, wake_at)
            && wake > must + super::PROMPT
        {
            let late = wake.since(must);
            self.broken("W5", format!("job {job}: {why}, and the engine wakes {late} too late"));
            self.must_wake = None;
        }
    }

    /// The earliest opening of a call that rises: a risen call needs a smaller gap.
    fn opening_when_risen(&self, lane: &LaneModel, call: &Waiting, group: Time) -> Time {
        let age_after = self.setup.settings.age_after;
        let steps = self.now.time.since(call.joined_at).0 / age_after.0;
        let rise = |n: u64| {
            let at = call.joined_at + age_after.times(n);
            at.max(lane.opening(call.priority, call.priority.risen(n))).max(group)
        };
        (steps + 1..=steps + 3).map(rise).min().unwrap_or(Time::NEVER)
    }

    /// The moments at which a turn is needed, whatever the lanes do.
    fn moments(&self) -> Vec<Must> {
        let mut moments = Vec::new();
        for (&id, job) in self.jobs.iter().filter(|(_, job)| !job.parked) {
            let first = job.callers.iter().min().filter(|at| **at != Time::NEVER);
            moments.extend(first.map(|at| (*at, id, "a deadline comes")));
            if job.delayed {
                let due = job.due.map(|due| comes_at(due, self.now));
                let lead = self.setup.settings.lead;
                moments.extend(due.map(|at| (at - lead, id, "it comes due")));
            }
            for (place, call) in job.calls.iter().enumerate() {
                if let State::Backoff(until) = call.state {
                    moments.push((until, id, "its retry comes"));
                }
                if call.state == State::Waiting {
                    let until = self.pause_budget_ends_at(id, place);
                    moments.extend(until.map(|at| (at, id, "its wait for a resume ends")));
                }
                if call.state == State::Waiting && call.attempts == 0 {
                    let latest = job.spec.start_within.map(|within| call.joined_at + within);
                    moments.extend(latest.map(|at| (at, id, "its start_within ends")));
                }
            }
        }
        moments
    }

    fn check_jobs(&mut self) {
        let now = self.now.time;
        let mut broken: Vec<(&'static str, String)> = Vec::new();
        for (id, job) in &self.jobs {
            if job.spec.until == Until::Conclusive && job.conclusive() {
                broken.push(("J2", format!("job {id} has a conclusive outcome and no report")));
            }
            if !job.calls.is_empty() && job.calls.iter().all(|call| call.state == State::Settled) {
                broken
                    .push(("J1", format!("every call of job {id} has settled, without a report")));
            }
            let (mut open, mut staged) = (u16::MAX, u16::MAX);
            for (index, call) in job.calls.iter().enumerate() {
                match call.state {
                    State::Settled => {}
                    State::Staged => staged = staged.min(call.stage),
                    _ => open = open.min(call.stage),
                }
                let told = |attempt| {
                    let lane = self.lanes.get(&call.lane);
                    lane.and_then(|lane| lane.find(attempt)).is_some_and(|found| found.told)
                };
                if matches!(call.state, State::Running(attempt) if told(attempt)) {
                    broken.push((
                        "J1",
                        format!("a call of job {id} has its verdict and did not settle"),
                    ));
                }
                if call.through && call.state != State::Settled && !job.parked {
                    broken.push((
                        "R1",
                        format!("a call of job {id} has no attempts left and goes on"),
                    ));
                }
                let waits = call.state == State::Waiting;
                let until = waits.then(|| self.pause_budget_ends_at(*id, index)).flatten();
                if until.is_some_and(|until| until <= now) && !job.parked {
                    broken.push((
                        "W1",
                        format!("job {id} waits for a paused lane beyond its max_wait"),
                    ));
                }
                // `not_applicable` is not evaluated again for a job whose due moment was replaced
                // while parked.
                let asked = !job.parked && !self.was_parked.contains(id);
                if waits && asked && job.spec.not_applicable.contains(&(index as u16)) {
                    broken.push(("J6", format!("a call of job {id} waits, and does not apply")));
                }
                let within = job.spec.start_within.filter(|_| waits && call.attempts == 0);
                if within.is_some_and(|within| call.joined_at + within <= now) && !job.parked {
                    broken.push(("W1", format!("job {id} waits longer than its start_within")));
                }
            }
            if staged <= open && staged < u16::MAX && !job.parked {
                broken.push(("J3", format!("job {id} does not begin its stage {staged}")));
            }
        }
        for job in &self.cancelled {
            // The job goes on for its other callers.
            if self.jobs.contains_key(job) && !self.has_other_callers(*job) {
                broken.push(("W4", format!("job {job} was cancelled and goes on")));
            }
        }
        self.check_rss(&mut broken);
        for (rule, words) in broken {
            self.broken(rule, words);
        }
    }

    /// D3: one unfinished rss call per lane and kind.
    fn check_rss(&self, broken: &mut Vec<(&'static str, String)>) {
        let mut seen: BTreeMap<(Arc<str>, Arc<str>), JobId> = BTreeMap::new();
        for (&id, job) in &self.jobs {
            // A job that a caller joined at a higher priority is no longer rss.
            let rss = [job.submitted_as, job.priority] == [Priority::Rss; 2];
            // A job that was parked for lack of a lane may find a newer one in its place.
            if !rss || job.parked || self.was_parked.contains(&id) {
                continue;
            }
            for call in &job.calls {
                if matches!(call.state, State::Waiting | State::Running(_) | State::Backoff(_)) {
                    let key = (call.lane.clone(), job.spec.kind.clone());
                    if let Some(other) = seen.insert(key, id) {
                        let words = format!(
                            "jobs {other} and {id} are both unfinished rss calls on {}",
                            call.lane
                        );
                        broken.push(("D3", words));
                    }
                }
            }
        }
    }

    /// W1: no call waits for a lane that opens later than its budget allows.
    fn check_budgets(&mut self, waiting: &BTreeMap<Arc<str>, Vec<Waiting>>) {
        let mut broken = Vec::new();
        for (name, calls) in waiting {
            let Some(lane) = self.lanes.get(name).filter(|lane| lane.plain(self.now.time)) else {
                continue;
            };
            for call in calls {
                let model = &self.jobs[&call.id.job].calls[usize::from(call.id.index)];
                if model.max_wait.is_none() {
                    continue;
                }
                let opens = lane.opening_for(call.priority, call.priority, call.cost);
                let opens = opens.max(self.group_opening(lane.limits(), call.cost));
                let wait = opens.since(self.now.time);
                if model.max_wait.is_some_and(|budget| wait > budget) {
                    broken.push(format!("{name}: job {} would have to wait {wait}", call.id.job));
                }
            }
        }
        for words in broken {
            self.broken("W1", words);
        }
    }

    fn has_other_callers(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.detached_at == self.now.time)
    }
}
