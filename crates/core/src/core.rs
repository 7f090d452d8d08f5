//! The state that the rules work on, and its indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::arena::Arena;
use crate::call::{Call, LeastBudget, State};
use crate::callers::Callers;
use crate::calls::Calls;
use crate::due::{DueAt, DueJobs};
use crate::group::Group;
use crate::job::{AttemptId, Blob, CallId, JobId, LaneId, Retry, Until};
use crate::keys::Table;
use crate::lane::{Contenders, Lane};
use crate::limits::{GroupLimits, Limits};
use crate::outcome::JobState;
use crate::plan::Plan;
use crate::pool::Pool;
use crate::priority::Priority;
use crate::record::{AddedCall, Counters};
use crate::room::{Fills, Room};
use crate::rosters::Rosters;
use crate::service::{RosterTerms, SERVICE_KIND, ServiceTerms};
use crate::settings::Settings;
use crate::time::{Now, Span, Time};
use crate::timetable::Timetable;

/// The fate of a call during which the process died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCrash {
    /// Make the call again.
    #[default]
    Repeat,
    /// Fail the call.
    Fail,
    /// End its job, and jobs of the kind that only wait as well: their callers were in the process
    /// that died.
    End,
    /// Take up the attempt, slot and all: the request goes on outside of this process. Jobs of the
    /// kind of which nothing runs end. A process without a worker for the kind leaves the attempt
    /// as it is, and does not hold its slot.
    TakeUp,
}

/// A kind of work, as the core knows it.
#[derive(Clone, Debug)]
pub struct KindTerms {
    /// Its stable name.
    pub name: Arc<str>,
    /// The fate of its calls after a crash.
    pub on_crash: OnCrash,
    /// Whether its calls occupy a slot of the pool while they run. Others hold only their lane's
    /// slot.
    pub keeps_worker: bool,
}

/// Counts over all jobs and lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Unfinished jobs.
    pub jobs: usize,
    /// Calls in the queues of lanes.
    pub waiting: usize,
    /// Attempts under way.
    pub running: usize,
    /// Jobs that are due later.
    pub due: usize,
    /// Calls whose kind has no worker here, or whose lane is not configured.
    pub parked: usize,
    /// Lanes.
    pub lanes: usize,
    /// Lanes in cooldown.
    pub cooling: usize,
    /// Lanes that an operator paused.
    pub paused: usize,
    /// Jobs that were ever accepted.
    pub accepted: u64,
    /// The number of the last event.
    pub events: u64,
}

impl KindTerms {
    /// A kind whose calls occupy slots of the pool.
    pub fn new(name: impl Into<Arc<str>>, on_crash: OnCrash) -> KindTerms {
        KindTerms { name: name.into(), on_crash, keeps_worker: true }
    }
}

/// The configuration of a [`Core`].
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The settings.
    pub settings: Settings,
    /// Lanes by name, and templates, whose names end in `*`.
    pub lanes: Vec<(Arc<str>, Limits)>,
    /// Groups by name.
    pub groups: Vec<(String, GroupLimits)>,
    /// Kinds that have a worker in this process.
    pub kinds: Vec<KindTerms>,
    /// Services.
    pub services: Vec<ServiceTerms>,
    /// Rosters.
    pub rosters: Vec<RosterTerms>,
}

/// A job in memory. Its payload, and the parts of its spec that no rule needs, stay in the store.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) kind: u32,
    pub(crate) tenant: u32,
    pub(crate) priority: Priority,
    /// Whether the caller named the priority (W1).
    pub(crate) named: bool,
    pub(crate) until: Until,
    pub(crate) callers: Callers,
    pub(crate) cost: NonZeroU32,
    pub(crate) key: Option<Blob>,
    pub(crate) submitted_at: Time,
    pub(crate) max_wait: Option<Span>,
    /// The options that most jobs leave at their defaults.
    pub(crate) rare: Option<Box<RareOptions>>,
    pub(crate) stage: u16,
    /// Calls that have not settled, in this stage and in all.
    pub(crate) stage_left: u16,
    pub(crate) left: u16,
    pub(crate) cancelled: bool,
    /// Every call is being settled, and then the job is finished: outcomes have no consequences.
    pub(crate) closing: bool,
    pub(crate) calls: Calls,
}

/// The options of a job that are seldom used: a million waiting jobs do not pay for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RareOptions {
    pub(crate) schedule_key: Option<Blob>,
    pub(crate) cache_key: Option<Blob>,
    /// `None`: at once.
    pub(crate) due: Option<DueAt>,
    pub(crate) start_within: Span,
    pub(crate) retry: Retry,
    pub(crate) not_applicable: Box<[u16]>,
}

impl Default for RareOptions {
    fn default() -> RareOptions {
        RareOptions {
            schedule_key: None,
            cache_key: None,
            due: None,
            start_within: crate::call::ANY_WAIT,
            retry: Retry::default(),
            not_applicable: Box::default(),
        }
    }
}

impl Job {
    pub(crate) fn cache_key(&self) -> Option<&Blob> {
        self.rare.as_ref().and_then(|rare| rare.cache_key.as_ref())
    }

    pub(crate) fn schedule_key(&self) -> Option<&Blob> {
        self.rare.as_ref().and_then(|rare| rare.schedule_key.as_ref())
    }

    /// `None`: at once.
    pub(crate) fn due(&self) -> Option<DueAt> {
        self.rare.as_ref().and_then(|rare| rare.due)
    }

    pub(crate) fn set_due(&mut self, due: Option<DueAt>) {
        if due != self.due() {
            self.rare.get_or_insert_default().due = due;
        }
    }

    pub(crate) fn start_within(&self) -> Span {
        self.rare.as_ref().map_or(crate::call::ANY_WAIT, |rare| rare.start_within)
    }

    pub(crate) fn retry(&self) -> Retry {
        self.rare.as_ref().map_or_else(Retry::default, |rare| rare.retry)
    }

    pub(crate) fn applies(&self, index: u16) -> bool {
        self.rare.as_ref().is_none_or(|rare| !rare.not_applicable.contains(&index))
    }
}

/// An attempt that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The call that it was reserved for.
    pub(crate) made_for: CallId,
    /// The call that waits for it now, which may have taken it over; `None` if none does.
    pub(crate) call: Option<u32>,
    pub(crate) lane: u32,
    pub(crate) priority: Priority,
    pub(crate) cost: u32,
    /// The latest moment at which it may start.
    pub(crate) send_by: Time,
    /// How often its time until then was doubled (L4).
    pub(crate) late: u8,
    /// How long after its start it may still reach the upstream, and so counts.
    pub(crate) slack: Span,
    pub(crate) started_at: Option<Time>,
    /// When its upstream had answered in full, if its worker said so: from then on it holds no
    /// slot.
    pub(crate) answered_at: Option<Time>,
    pub(crate) used: bool,
    /// Whether it keeps a worker of the pool.
    pub(crate) keeps_worker: bool,
    pub(crate) reported: bool,
    pub(crate) cache_key: Option<Blob>,
}

impl Attempt {
    /// The moment at which it counts while its start is not known: the latest at which it could
    /// arrive (L4).
    pub(crate) fn charged_at(&self) -> Time {
        self.send_by + self.slack
    }

    /// When it started, if that is known and it has no result yet.
    pub(crate) fn on_the_wire(&self) -> Option<Time> {
        self.started_at.filter(|_| self.used && !self.reported)
    }

    /// The moment at which it counts once it has started.
    pub(crate) fn counts_at(&self, started_at: Time) -> Time {
        started_at.min(self.send_by) + self.slack
    }
}

/// A moment that matters to one call or job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    Retry(u32),
    Deadline(u32),
    StartWithin(u32),
}

impl Moment {
    /// The last of the moments at the same time.
    pub(crate) const LAST: Moment = Moment::StartWithin(u32::MAX);
}

/// The rules and the state that they work on.
///
/// Every method that can decide something takes the time as an argument and adds to a [`Plan`]. The
/// caller commits the plan's writes before it acts on the rest. The same calls in the same order
/// give the same plans.
#[derive(Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) kinds: Vec<KindTerms>,
    pub(crate) kind_names: HashMap<Arc<str>, u32, FixedState>,
    pub(crate) next: Counters,

    pub(crate) lanes: Arena<Lane>,
    pub(crate) lane_names: HashMap<Arc<str>, u32, FixedState>,
    /// Templates by the part of the name before the `*`.
    pub(crate) templates: Vec<(Box<str>, Arc<Limits>)>,
    /// The limits configured last.
    pub(crate) last_limits: Option<Arc<Limits>>,
    pub(crate) groups: Arena<Group>,
    /// Lanes that are in the store and not in this configuration.
    pub(crate) unconfigured: BTreeMap<Arc<str>, LaneId>,
    /// Stand-ins for lanes that waiting jobs name and that are not configured any more.
    pub(crate) stand_ins: BTreeMap<Arc<str>, u32>,
    /// Template lanes that may be as good as new, the oldest first (L10).
    pub(crate) idle_lanes: BTreeSet<(Time, u32)>,

    pub(crate) jobs: Arena<Job>,
    pub(crate) job_ids: HashMap<JobId, u32, FixedState>,
    pub(crate) calls: Arena<Call>,
    pub(crate) added: BTreeMap<u32, AddedCall>,
    pub(crate) attempts: BTreeMap<AttemptId, Attempt>,
    pub(crate) tenants: BTreeMap<Arc<str>, (u32, u32)>,
    pub(crate) tenant_names: Arena<Arc<str>>,

    /// Unfinished jobs by key (D1), jobs not yet due by schedule key (D2), calls by cache key (C2).
    pub(crate) keys: Table,
    pub(crate) schedule_keys: Table,
    pub(crate) same_calls: Table,
    /// The calls that share the request of each leader.
    pub(crate) followers: BTreeMap<u32, Vec<u32>>,
    /// The smallest budgets among a queued call and its followers, where a follower has a smaller
    /// one.
    pub(crate) shared_budgets: BTreeMap<u32, LeastBudget>,

    /// Lanes and groups by the moment they next open or change rank.
    pub(crate) openings: Timetable,
    pub(crate) group_openings: Timetable,
    pub(crate) moments: BTreeSet<(Time, Moment)>,
    pub(crate) due: DueJobs,
    /// The calls that may go now, in the order of going.
    pub(crate) ready: Contenders,
    pub(crate) ready_interactive: Contenders,
    /// Lanes or groups whose moment has come, while they are gathered.
    pub(crate) passing: Vec<u32>,
    pub(crate) dirty_lanes: Vec<u32>,
    pub(crate) dirty_groups: Vec<u32>,

    pub(crate) rosters: Rosters,
    pub(crate) service_kind: Option<u32>,
    /// Whether calls of every kind keep their workers: then no call has to be looked at.
    pub(crate) all_keep_workers: bool,
    pub(crate) pool: Pool,
    /// Attempts that were answered and are not over, at most `max_answered`.
    pub(crate) answered: u32,
    pub(crate) halted: bool,
    /// Calls in lanes' queues.
    pub(crate) waiting: usize,
    /// The bound on all waiting calls, and how full lanes are (Q1, Q3).
    pub(crate) room: Room,
    pub(crate) fills: Fills,
    /// The moment of the last search for room, and the moment that it found.
    pub(crate) found_room: Option<(Time, Option<Time>)>,
    /// Calls without an outcome.
    pub(crate) unsettled: usize,
    /// Calls without an outcome that this process cannot run.
    pub(crate) parked: usize,
}

impl Core {
    /// A core without jobs. The caller has checked settings and limits
    /// ([`Settings::check`], [`Limits::check`]).
    pub fn new(setup: Setup) -> Core {
        let seed = setup.settings.hash_seed;
        let state = || FixedState::with_seed(seed);
        let mut kind_names = HashMap::with_hasher(state());
        kind_names.extend(setup.kinds.iter().zip(0..).map(|(kind, n)| (kind.name.clone(), n)));
        let all_keep_workers = setup.kinds.iter().all(|kind| kind.keeps_worker);
        let service_kind = kind_names.get(SERVICE_KIND).copied();
        let room = Room::new(setup.settings.max_waiting.get(), &setup.settings.pool);
        let mut core = Core {
            pool: Pool::new(setup.settings.pool.clone()),
            settings: setup.settings,
            kinds: setup.kinds,
            kind_names,
            next: Counters::default(),
            lanes: Arena::default(),
            lane_names: HashMap::with_hasher(state()),
            templates: Vec::new(),
            last_limits: None,
            groups: Arena::default(),
            unconfigured: BTreeMap::new(),
            stand_ins: BTreeMap::new(),
            idle_lanes: BTreeSet::new(),
            jobs: Arena::default(),
            job_ids: HashMap::with_hasher(state()),
            calls: Arena::default(),
            added: BTreeMap::new(),
            attempts: BTreeMap::new(),
            tenants: BTreeMap::new(),
            tenant_names: Arena::default(),
            keys: Table::new(state()),
            schedule_keys: Table::new(state()),
            same_calls: Table::new(state()),
            followers: BTreeMap::new(),
            shared_budgets: BTreeMap::new(),
            openings: Timetable::default(),
            group_openings: Timetable::default(),
            moments: BTreeSet::new(),
            due: DueJobs::default(),
            ready: Contenders::default(),
            ready_interactive: Contenders::default(),
            passing: Vec::new(),
            dirty_lanes: Vec::new(),
            dirty_groups: Vec::new(),
            rosters: Rosters::default(),
            service_kind,
            all_keep_workers,
            answered: 0,
            halted: false,
            waiting: 0,
            room,
            fills: Fills::default(),
            found_room: None,
            unsettled: 0,
            parked: 0,
        };
        for (name, limits) in setup.groups {
            core.groups.insert(Group::new(name, limits));
        }
        for (name, limits) in setup.lanes {
            core.configure(name, limits, Time::ZERO);
        }
        core.rosters.configure(&setup.services, &setup.rosters);
        core
    }

    /// The next numbers of jobs, attempts, lanes and events.
    pub fn counters(&self) -> Counters {
        self.next
    }

    /// Gives out the numbers of `count` events. Returns the first.
    pub fn number_events(&mut self, count: usize) -> u64 {
        let first = self.next.event;
        self.next.event += count as u64;
        first
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The moment at which the next turn is needed even if nothing happens.
    pub fn wake_at(&self, now: Now) -> Option<Time> {
        let opening = self.opens_at();
        let moment = self.moments.first().map(|(at, _)| *at);
        let due = self.due.next_at(now).map(|at| at - self.settings.lead);
        // A halted core starts nothing: it needs no slot and looks at no roster.
        let grows = self.pool.grows_at().filter(|_| !self.halted && self.lacks_workers());
        let check = self.rosters.wake_at(now).filter(|_| !self.halted);
        let wake = [opening, moment, due, grows, check].into_iter().flatten().min();
        let late = if crate::mutant::Mutant::WakesLate.on() { Span::millis(5) } else { Span::ZERO };
        wake.map(|at| at + late)
    }

    /// The moment at which the next lane or group has to be looked at.
    pub(crate) fn opens_at(&self) -> Option<Time> {
        let first = [self.openings.first(), self.group_openings.first()];
        first.into_iter().flatten().map(|(at, _)| at).min()
    }

    /// Returns `true` if work is due by the wall clock. A step of that clock wakes no timer, so the
    /// engine has to read it now and then.
    pub fn waits_for_wall_clock(&self) -> bool {
        self.due.by_wall() || self.rosters.wait()
    }

    /// Starts nothing any more. Running attempts may still end.
    pub fn halt(&mut self) {
        self.halted = true;
    }

    /// Returns `true` if nothing is waiting, running, due or to be retried. Parked calls do not
    /// count.
    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty() && self.unsettled == self.parked
    }

    /// Calls that wait on their lanes.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The state of an unfinished job.
    pub fn job_state(&self, id: JobId) -> JobState {
        let job = self.job_ids.get(&id).map(|&job| &self.jobs[job]);
        let mut calls =
            job.into_iter().flat_map(|job| job.calls.iter()).map(|&call| &self.calls[call]);
        let runs = calls.any(|call| call.state == State::Running);
        if runs { JobState::Running } else { JobState::Waiting }
    }

    /// The unfinished job with this key.
    pub fn job_with_key(&self, key: &Blob) -> Option<JobId> {
        let job = self.keys.find(0, key, |job| self.jobs[job].key.as_ref() == Some(key))?;
        Some(self.jobs[job].id)
    }

    /// Counts over all jobs and lanes.
    pub fn summary(&self, now: Now) -> Summary {
        // Stand-ins for lanes that are not configured are not counted.
        let lanes = || self.lane_names.values().map(|&lane| &self.lanes[lane]);
        let cooling = lanes().filter(|lane| lane.health.cooldown_until > now.time);
        Summary {
            jobs: self.jobs.len(),
            waiting: self.waiting,
            running: self.attempts.len(),
            due: self.due.len(),
            parked: self.parked,
            lanes: self.lane_names.len(),
            cooling: cooling.count(),
            paused: lanes().filter(|lane| lane.paused).count(),
            accepted: self.next.job.saturating_sub(1),
            events: self.next.event.saturating_sub(1),
        }
    }

    /// Unfinished jobs.
    pub fn unfinished(&self) -> usize {
        self.jobs.len()
    }

    /// The size of the pool, and the running calls that keep a worker. The first of each lane takes
    /// no slot, so these may be more.
    pub fn workers(&self) -> (u32, u32) {
        (self.pool.size(), self.pool.running())
    }

    /// The moment from which on calls of this job may start: now, or its due moment, which is at
    /// most `lead` later (W5).
    pub(crate) fn may_start_at(&self, job: u32, now: Now) -> Time {
        match self.jobs[job].due() {
            Some(due) if !due.within(Span::ZERO, now) => {
                // The clock may have been stepped back since the job was begun.
                due.engine(now).clamp(now.time, now.time + self.settings.lead)
            }
            _ => now.time,
        }
    }

    pub(crate) fn call_id(&self, call: u32) -> CallId {
        let call = &self.calls[call];
        CallId { job: self.jobs[call.job].id, index: call.index }
    }

    pub(crate) fn touch_lane(&mut self, lane: u32) {
        if !std::mem::replace(&mut self.lanes[lane].dirty, true) {
            self.dirty_lanes.push(lane);
        }
    }

    pub(crate) fn touch_group(&mut self, group: u32) {
        if !std::mem::replace(&mut self.groups[group].dirty, true) {
            self.dirty_groups.push(group);
        }
    }

    pub(crate) fn write_lane(&mut self, lane: u32, plan: &mut Plan) {
        let record = &mut self.lanes[lane];
        record.stored = true;
        if record.id == LaneId(0) {
            record.id = LaneId(self.next.lane);
            self.next.lane += 1;
        }
        plan.writes.push(crate::record::Write::Lane(self.lanes[lane].record()));
    }
}
