//! Random worlds: lanes, work and faults from one seed, then healing, then an end.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use paceline::turn::LaneAct;
use paceline_core::{
    AcrossLanes, Due, GAP_SHARE, GapFrom, GroupLimits, JobSpec, KindTerms, Limits, OnCrash,
    OnDuplicate, Portion, Priority, Rate, RosterTerms, SERVICE_KIND, ServiceTerms, Settings, Setup,
    Span, Submission, Time, Until, When, Window,
};
use paceline_store::Store;

use crate::agenda::Act;
use crate::check::Violation;
use crate::clock::DAWN;
use crate::counts::Counts;
use crate::disk::{Disk, Fault};
use crate::rng::Rng;
use crate::service::Temper;
use crate::trace::Keep;
use crate::world::World;

/// After the faults stop, everything ends within this.
const PEACE: Span = Span::days(3);
/// Limits that lanes share.
const GROUPS: [&str; 2] = ["shared", "other"];
/// Lanes that some configurations do not have.
const PASSING: [&str; 2] = ["arxiv", "tracker"];

/// What a world has more of than others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Plain,
    /// Lanes go in and out of one narrow group, and of the configuration.
    Crowded,
    /// Calls that outlive their process, on lanes whose gaps run from the finish.
    Relay,
}

/// What the work of a world is like: one job in so many has each of these.
#[derive(Clone, Copy)]
struct Habits {
    tenant: u64,
    cache_key: u64,
    cost: u64,
    max_wait: u64,
    permit: u64,
}

impl Habits {
    fn random(rng: &mut Rng, flavour: Flavour) -> Habits {
        let relay = flavour == Flavour::Relay;
        Habits {
            tenant: *rng.pick(&[1, 6, 12]),
            cache_key: *rng.pick(&[2, 6, 6]),
            cost: *rng.pick(&[3, 50, 50]),
            max_wait: *rng.pick(&[2, 6, 12]),
            permit: if relay { 2 } else { *rng.pick(&[3, 8, 8]) },
        }
    }
}

/// What one world came to.
#[derive(Debug)]
pub struct Ran {
    /// Rules that were broken.
    pub violations: Vec<Violation>,
    /// The same for the same seed.
    pub fingerprint: u64,
    /// What happened, if it was kept.
    pub trace: String,
    pub(crate) counts: Counts,
    pub(crate) lasted: Span,
}

/// Sums over many worlds.
#[derive(Debug, Default)]
pub struct Summary {
    worlds: u64,
    lasted: Span,
    counts: Counts,
}

impl Summary {
    /// Adds one world.
    pub fn add(&mut self, ran: &Ran) {
        self.worlds += 1;
        self.lasted += ran.lasted;
        self.counts.add(&ran.counts);
    }

    /// Calls that have settled.
    pub fn calls(&self) -> u64 {
        self.counts.calls
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { jobs, calls, reports, requests, answered, .. } = self.counts;
        let Counts { unused, timeouts, crashes, forgotten, turns, .. } = self.counts;
        let hours = self.lasted.0 / Span::hours(1).0;
        writeln!(f, "{} worlds, {hours} simulated hours, {turns} turns", self.worlds)?;
        writeln!(f, "{jobs} jobs, {calls} calls, {reports} reports, {requests} requests")?;
        writeln!(f, "{answered} requests answered before they were settled")?;
        writeln!(f, "{crashes} crashes, {unused} reservations unused, {timeouts} timeouts")?;
        writeln!(f, "{forgotten} reservations forgotten in power cuts")?;
        for (kind, n) in &self.counts.kinds {
            writeln!(f, "{n:>9} {kind}")?;
        }
        Ok(())
    }
}

/// Runs the world of this seed to its end. A panic is a violation like any other.
pub fn run(seed: u64, lines: bool) -> Ran {
    catch_unwind(AssertUnwindSafe(|| live(seed, lines))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = format!("panic: {}", words.unwrap_or("without words"));
        Ran {
            violations: vec![Violation { rule: "J5", at: DAWN, words }],
            fingerprint: 0,
            trace: String::new(),
            counts: Counts::default(),
            lasted: Span::ZERO,
        }
    })
}

fn live(seed: u64, lines: bool) -> Ran {
    let mut rng = Rng::new(seed);
    let on_disk = seed % 25 == 24;
    let flavours = [Flavour::Plain, Flavour::Plain, Flavour::Crowded, Flavour::Relay];
    let flavour = *rng.pick(&flavours);
    let mut setup = setup(&mut rng);
    flavoured(&mut setup, &mut rng, flavour);
    let disk = on_disk.then(Disk::sqlite);
    let mut world = World::with(setup, disk, rng.next());
    world.trace.keep = if lines { Keep::Lines } else { Keep::Fingerprint };
    let end = DAWN + Span::secs(rng.range(60, 5_400));
    world.manners.stalls = *rng.pick(&[0, 2, 10]);
    world.manners.keeps_events = *rng.pick(&[0, 0, 10, 1_000]);
    for (name, _) in world.setup.lanes.clone() {
        let temper = if rng.one_in(3) { Temper::healthy() } else { Temper::random(&mut rng) };
        world.tempers.insert(name, temper);
    }
    let made = ["host:a", "host:b", "host:c", "host:d"];
    let made = made.into_iter().chain(["service:a", "service:b", "service:c", "service:d"]);
    for host in made {
        world.tempers.insert(host.into(), Temper::random(&mut rng));
    }
    let lanes = world.setup.lanes.clone();
    world.open();
    let habits = Habits::random(&mut rng, flavour);
    let bursts = work(&mut world, &mut rng, end, if on_disk { 60 } else { 260 }, habits);
    faults(&mut world, &mut rng, end, &bursts);
    match flavour {
        Flavour::Plain => {}
        Flavour::Crowded => regroup(&mut world, &mut rng, &bursts),
        Flavour::Relay => crash_often(&mut world, &mut rng, &bursts),
    }
    world.run_until(end);
    bring_back(&mut world, &lanes);
    in_peace(&mut world);
    let lasted = world.now().since(DAWN);
    Ran {
        violations: std::mem::take(&mut world.book.violations),
        fingerprint: world.trace.fingerprint(),
        trace: world.trace.lines().to_string(),
        counts: world.counts,
        lasted,
    }
}

/// Work that waits for a lane can come to an end only where there is one.
fn bring_back(world: &mut World, lanes: &[(Arc<str>, Limits)]) {
    // Until every restart that is planned has come.
    world.run_until(world.now() + Span::mins(1));
    let there = world.setup.lanes.clone();
    let missing = |(name, _): &&(Arc<str>, Limits)| there.iter().all(|(lane, _)| lane != name);
    let missing: Vec<_> = lanes.iter().filter(missing).cloned().collect();
    if !missing.is_empty() {
        let mut setup = world.setup.clone();
        setup.lanes.extend(missing);
        world.act_at(world.now(), Act::Restart(Box::new(setup)));
    }
}

/// Faults stop, and everything comes to an end; then the store is looked at.
fn in_peace(world: &mut World) {
    world.act_at(world.now(), Act::Heal);
    let end = world.now() + PEACE;
    let mut pause = Span::secs(10);
    while world.now() < end && world.book.violations.is_empty() {
        world.run_until(world.now() + pause);
        if world.is_idle() {
            break;
        }
        pause = Span(pause.0 * 2).min(Span::hours(1));
    }
    let at = world.now();
    if world.is_up() && !world.is_idle() && world.book.violations.is_empty() {
        let now = world.clock.reading().now;
        let core = world.machine().map(paceline::turn::Machine::core);
        let stuck = world.book.some_unfinished(0);
        let why = core.zip(stuck).and_then(|(core, job)| core.why_job(job, now));
        let words = format!("not everything ended after the faults stopped: {stuck:?} {why:?}");
        world.book.violation("B3", at, words);
    }
    if world.book.violations.is_empty() {
        world.book.world_ends(at);
    }
    let unfinished = world.machine().map_or(0, |machine| machine.core().unfinished());
    if unfinished > 0 && world.book.violations.is_empty() {
        world.book.violation("J1", at, format!("{unfinished} jobs are left in memory"));
    }
    if world.book.violations.is_empty() {
        look_into_store(world, at);
    }
}

/// Every job that was answered is in the store, with its one report (B1).
fn look_into_store(world: &mut World, at: Time) {
    let jobs: Vec<_> = world.book.finished_jobs().chain(world.book.answered_jobs()).collect();
    let (keys, newest) = world.book.finished_keys();
    let Some(mut store) = world.close() else { return };
    let found = store.finished(&keys).expect("the simulated disk can be read");
    for (stored, job) in found.iter().zip(newest) {
        let found = stored.as_ref().map(|stored| stored.record.id);
        if found != Some(job) {
            let words = format!("the newest job with its key is {job}, found was {found:?}");
            world.book.violation("D1", at, words);
        }
    }
    for job in jobs {
        let stored = store.job(job).expect("the simulated disk can be read");
        if stored.is_none_or(|stored| stored.report.is_none()) {
            world.book.violation("B1", at, format!("job {job} is lost: the store has no report"));
        }
    }
}

fn n(number: u64) -> NonZeroU32 {
    NonZeroU32::new(number as u32).expect("above zero")
}

fn setup(rng: &mut Rng) -> Setup {
    let mut settings = Settings::default();
    let base = rng.range(2, 8);
    settings.pool.base = n(base);
    settings.pool.max = n(base + rng.range(0, 6));
    settings.pool.interactive_reserve = rng.range(0, 1) as u32;
    settings.pool.max_lanes = n(*rng.pick(&[2, 3, 1_000, 1_000]));
    settings.pool.max_running = n(*rng.pick(&[2, 5, 1_000, 1_000, 1_000]));
    settings.pool.lane_share = Portion::thousandths(*rng.pick(&[500, 1_000, 300]));
    settings.pool.step = *rng.pick(&[Span::ZERO, Span::secs(1)]);
    settings.max_waiting = n(*rng.pick(&[4, 20, 100, 1_000]));
    settings.lane_waiting = n(*rng.pick(&[2, 10, 30, 1_000]));
    settings.max_answered = *rng.pick(&[0, 1, 3, 1_024, 1_024, 1_024]);
    settings.max_lanes = n(*rng.pick(&[9, 1_000]));
    settings.age_after = *rng.pick(&[Span::secs(20), Span::secs(60), Span::mins(5)]);
    settings.lead = *rng.pick(&[Span::ZERO, Span::millis(10), Span::millis(10)]);
    settings.found_for = Span::mins(10);
    settings.empty_for = Span::mins(3);
    if rng.one_in(5) {
        settings.across_lanes = AcrossLanes::Turns;
    }
    let count = rng.range(1, 5) as usize;
    let names = ["nyaa", "arxiv", "dblp", "crossref", "tracker"];
    let mut lanes: Vec<(Arc<str>, Limits)> =
        names[..count].iter().map(|name| (Arc::from(*name), limits(rng))).collect();
    lanes.push(("host:*".into(), limits(rng)));
    let kind = |name: &str, on_crash| KindTerms::new(name, on_crash);
    let mut kinds = vec![
        kind("fetch", OnCrash::Repeat),
        kind("pay", OnCrash::Fail),
        KindTerms { keeps_worker: false, ..kind("visit", OnCrash::End) },
        KindTerms { keeps_worker: rng.one_in(2), ..kind("permit", OnCrash::TakeUp) },
    ];
    let (mut services, mut rosters) = (Vec::new(), Vec::new());
    if rng.one_in(3) {
        kinds.push(kind(SERVICE_KIND, OnCrash::Repeat));
        services = ["a", "b", "c", "d"].map(|name| service(name, &lanes, rng)).to_vec();
        for service in &services {
            let limits = Limits { fail_after: n(1_000), ..Limits::default() };
            if lanes.iter().all(|(name, _)| *name != service.lane) {
                lanes.push((service.lane.clone(), limits));
            }
        }
        settings.max_lanes = n(u64::from(settings.max_lanes.get()) + 4);
        for name in ["hourly", "nightly"].into_iter().take(rng.range(1, 2) as usize) {
            rosters.push(roster(name, rng));
        }
    }
    let groups = GROUPS.map(|name| (name.into(), group(rng))).to_vec();
    Setup { settings, lanes, groups, kinds, services, rosters }
}

/// Gives lanes and groups what a world has more of.
fn flavoured(setup: &mut Setup, rng: &mut Rng, flavour: Flavour) {
    let lanes = setup.lanes.iter_mut().map(|(_, limits)| limits);
    match flavour {
        Flavour::Plain => {}
        Flavour::Crowded => {
            setup.groups[0].1.windows = vec![Window::new(rate(rng))];
            lanes.for_each(|lane| lane.group = rng.one_in(2).then(|| GROUPS[0].into()));
        }
        Flavour::Relay => lanes.for_each(|lane| {
            (lane.gap_from, lane.in_flight) = (GapFrom::Finish, n(rng.range(2, 4)));
            lane.every = Some(Span::secs(*rng.pick(&[1, 3, 20])));
        }),
    }
}

/// The process dies while requests are on the wire.
fn crash_often(world: &mut World, rng: &mut Rng, bursts: &[Time]) {
    for &at in bursts {
        let down = Span(rng.range(1_000, 500_000));
        if rng.one_in(2) {
            world.act_at(at + Span(rng.range(0, 500_000)), Act::Crash(down));
        }
    }
}

/// Lanes go in and out of the narrow group while their requests are on the way, and some are gone
/// for a while.
fn regroup(world: &mut World, rng: &mut Rng, bursts: &[Time]) {
    for &at in bursts {
        for (lane, limits) in world.setup.lanes.clone() {
            let group = rng.one_in(2).then(|| GROUPS[0].into());
            let change = LaneAct::Change(Box::new(Limits { group, ..limits }));
            if rng.one_in(3) {
                world.act_at(at + Span(rng.range(0, 50_000)), Act::Lane(lane, change));
            }
        }
        if rng.one_in(3) {
            let mut without = world.setup.clone();
            without.lanes.retain(|(name, _)| !PASSING.contains(&&**name));
            world.act_at(at + Span(rng.range(0, 3_000_000)), Act::Restart(Box::new(without)));
            let back = at + Span::secs(rng.range(5, 60));
            world.act_at(back, Act::Restart(Box::new(world.setup.clone())));
        }
    }
}

fn service(name: &str, lanes: &[(Arc<str>, Limits)], rng: &mut Rng) -> ServiceTerms {
    let when = match rng.range(0, 2) {
        0 => When::EveryCheck,
        _ => When::Every(Span::secs(*rng.pick(&[20, 60, 300, 1_200]))),
    };
    let shared = lanes[0].0.clone();
    let lane = if rng.one_in(4) { shared } else { format!("service:{name}").into() };
    let attempts = std::num::NonZeroU16::MIN.saturating_add(rng.range(0, 2) as u16);
    ServiceTerms { name: name.into(), when, lane, attempts, payload: name.as_bytes().into() }
}

fn roster(name: &str, rng: &mut Rng) -> RosterTerms {
    let mut services: Vec<Arc<str>> = Vec::new();
    for service in ["a", "b", "c", "d"] {
        if !rng.one_in(3) {
            services.push(service.into());
        }
    }
    RosterTerms { name: name.into(), check: Span::secs(*rng.pick(&[5, 30, 120])), services }
}

fn group(rng: &mut Rng) -> GroupLimits {
    let window = Window::new(rate(rng));
    GroupLimits {
        every: rng.one_in(2).then(|| Span::millis(rng.range(10, 3_000))),
        windows: if rng.one_in(2) { vec![window] } else { Vec::new() },
        in_flight: rng.one_in(2).then(|| n(rng.range(1, 3))),
    }
}

fn rate(rng: &mut Rng) -> Rate {
    let per = *rng.pick(&[1, 5, 10, 60, 600]);
    format!("{}/{per}s", rng.range(2, 12)).parse().expect("a rate")
}

fn limits(rng: &mut Rng) -> Limits {
    let mut limits = Limits::default();
    if rng.one_in(2) {
        limits.every =
            Some(*rng.pick(&[Span::millis(100), Span::secs(1), Span::secs(3), Span::secs(20)]));
    }
    if rng.one_in(2) {
        limits.gap_share = GAP_SHARE;
    }
    let windows = rng.range(0, 2);
    for _ in 0..windows {
        let mut window = Window::new(rate(rng));
        if rng.one_in(3) {
            window.keep[0] = Portion::thousandths(300);
        }
        window.spread = rng.one_in(6);
        if limits.windows.iter().all(|other| other.rate.per != window.rate.per) {
            limits.windows.push(window);
        }
    }
    limits.in_flight = n(*rng.pick(&[1, 2, 2, 4]));
    limits.timeout = rng.one_in(2).then(|| Span::millis(*rng.pick(&[500, 3_000, 15_000])));
    limits.fail_after = n(rng.range(2, 5));
    limits.max_waiting = rng.one_in(4).then(|| n(rng.range(1, 12)));
    limits.slack =
        *rng.pick(&[None, Some(Span::ZERO), Some(Span::millis(30)), Some(Span::secs(1))]);
    // A way that takes longer than the whole call may lets nothing ever succeed.
    let most = limits.timeout.map_or(Span::secs(1), |timeout| Span(timeout.0 / 5));
    limits.slack = limits.slack.map(|slack| slack.min(most));
    if rng.one_in(4) {
        limits.gap_from = GapFrom::Finish;
    }
    if rng.one_in(3) {
        limits.group = Some((*rng.pick(&GROUPS)).into());
    }
    limits
}

fn some_lane(world: &World, rng: &mut Rng) -> Arc<str> {
    let lanes = world.setup.lanes.iter().filter(|(name, _)| !name.ends_with('*'));
    let mut names: Vec<Arc<str>> = lanes.map(|(name, _)| name.clone()).collect();
    names.extend(["host:a", "host:b", "host:c", "host:d"].map(Arc::from).into_iter().take(2));
    if rng.one_in(8) {
        return (*rng.pick(&["host:c", "host:d"])).into();
    }
    rng.pick(&names).clone()
}

/// Plans what is submitted, and says when.
fn work(world: &mut World, rng: &mut Rng, end: Time, most: u64, habits: Habits) -> Vec<Time> {
    let mut moments = Vec::new();
    let span = end.since(DAWN).0;
    let bursts = rng.range(3, 40);
    let mut left = rng.range(10, most);
    for _ in 0..bursts {
        let at = DAWN + Span(rng.range(0, span));
        let size = rng.range(1, 12).min(left);
        left -= size;
        if size == 0 {
            break;
        }
        moments.push(at);
        let spread = *rng.pick(&[0, 0, 1_000_000, 5_000_000]);
        if rng.one_in(2) {
            let jobs = (0..size).map(|_| submission(world, rng, at, habits)).collect();
            world.act_at(at, Act::Submit(jobs));
        } else {
            for _ in 0..size {
                let jobs = vec![submission(world, rng, at, habits)];
                world.act_at(at + Span(rng.range(0, spread)), Act::Submit(jobs));
            }
        }
    }
    moments
}

/// Random work.
fn submission(world: &World, rng: &mut Rng, at: Time, habits: Habits) -> Submission {
    let kind = *rng.pick(&["fetch", "fetch", "fetch", "fetch", "pay", "visit"]);
    let kind = if rng.one_in(habits.permit) { "permit" } else { kind };
    let mut stages = Vec::new();
    for _ in 0..*rng.pick(&[1, 1, 1, 2, 3]) {
        let mut stage: Vec<Arc<str>> = Vec::new();
        for _ in 0..*rng.pick(&[1, 1, 1, 2, 3]) {
            let lane = some_lane(world, rng);
            // What outlives its process needs its lane to be taken up.
            let wanted = kind != "permit" || !PASSING.contains(&&*lane);
            if wanted && !stage.contains(&lane) {
                stage.push(lane);
            }
        }
        if rng.one_in(40) {
            stage.clear();
        }
        stages.push(stage);
    }
    let calls = stages.iter().map(Vec::len).sum::<usize>();
    let mut spec = JobSpec::new(kind, &[]);
    spec.stages = stages;
    if rng.one_in(15) && calls > 0 {
        spec.not_applicable = vec![rng.range(0, calls as u64 - 1) as u16];
    }
    if rng.one_in(habits.tenant) {
        spec.tenant = Some((*rng.pick(&["ann", "bob", "cem"])).into());
    }
    let key = |rng: &mut Rng| Some(vec![rng.range(0, 3) as u8].into());
    if rng.one_in(4) {
        spec.key = key(rng);
    }
    if rng.one_in(6) {
        spec.schedule_key = key(rng);
    }
    if rng.one_in(habits.cache_key) {
        spec.cache_key = key(rng);
    }
    spec.on_duplicate = *rng.pick(&[OnDuplicate::Join, OnDuplicate::Refuse, OnDuplicate::Replace]);
    spec.max_wait = rng.one_in(habits.max_wait).then(|| Span::millis(rng.range(0, 30_000)));
    spec.start_within = rng.one_in(8).then(|| Span::millis(rng.range(0, 120_000)));
    spec.until = if rng.one_in(2) { Until::Conclusive } else { Until::All };
    spec.cost = if rng.one_in(habits.cost) { cost(world, &spec, rng) } else { n(1) };
    if let Some(attempts) = std::num::NonZeroU16::new(rng.range(1, 4) as u16) {
        spec.retry.attempts = attempts;
    }
    if kind == "permit" {
        // One who makes its own call makes it once and shares it with nobody.
        spec.retry.attempts = std::num::NonZeroU16::MIN;
        spec.cache_key = None;
    }
    let mut job = Submission::new(spec, rng.next().to_le_bytes().as_slice().into());
    job.priority = (!rng.one_in(4)).then(|| *rng.pick(&Priority::ALL));
    job.in_time = job.spec.start_within.is_some() && rng.one_in(2);
    job.deadline = rng.one_in(8).then(|| Span::millis(rng.range(0, 300_000)));
    job.due = match rng.range(0, 9) {
        0 => Due::In(Span::millis(rng.range(0, 120_000))),
        1 => Due::At(Time(at.0 + rng.range(0, 600_000_000))),
        _ => Due::Now,
    };
    job
}

/// More than 1, up to what its lanes could ever take at once.
fn cost(world: &World, spec: &JobSpec, rng: &mut Rng) -> NonZeroU32 {
    let lanes = world.setup.lanes.iter();
    let lanes = lanes.filter(|(name, _)| spec.stages.iter().flatten().any(|lane| lane == name));
    let most = lanes.flat_map(|(_, limits)| &limits.windows).map(|w| w.rate.max.get()).min();
    n(rng.range(2, u64::from(most.unwrap_or(4).max(2))))
}

/// Plans what goes wrong: at any time, or while there is something to go wrong.
fn faults(world: &mut World, rng: &mut Rng, end: Time, bursts: &[Time]) {
    let span = end.since(DAWN).0;
    // The rarer ones last.
    let kinds = rng.range(0, 1 << 11) | if rng.one_in(6) { 1 << 11 } else { 0 };
    let kinds = kinds | if rng.one_in(6) { 1 << 12 } else { 0 };
    for kind in 0..13u64 {
        if kinds & (1 << kind) == 0 {
            continue;
        }
        for _ in 0..rng.range(1, 8) {
            let at = if rng.one_in(2) {
                DAWN + Span(rng.range(0, span))
            } else {
                let soon = *rng.pick(&[50_000, 2_000_000]);
                (*rng.pick(bursts) + Span(rng.range(0, soon))).min(end)
            };
            let down = Span(rng.range(1_000, 20_000_000));
            let lane = some_lane(world, rng);
            let act = match kind {
                0 if rng.one_in(2) => Act::Stop(Span(rng.range(0, 5_000_000))),
                0 => Act::Crash(down),
                1 if rng.one_in(2) => Act::RebootAtPromise(down),
                1 => Act::Reboot(down),
                2 => Act::Restart(Box::new(other_limits(&world.setup, rng))),
                3 => Act::StepWall(rng.range(0, 7_200_000_000).cast_signed() - 3_600_000_000),
                4 => Act::FailCommit(if rng.one_in(2) { Fault::Lost } else { Fault::Written }),
                5 => {
                    let slow = Span::millis(*rng.pick(&[1, 20, 200]));
                    world.act_at(at + Span::secs(rng.range(1, 60)), Act::CommitTime(Span::ZERO));
                    Act::CommitTime(slow)
                }
                6 if !world.setup.services.is_empty() && rng.one_in(2) => {
                    Act::RunService(rng.pick(&world.setup.services).name.clone())
                }
                6 | 7 => Act::CancelSome,
                8 => Act::Temper(lane, Temper::random(rng)),
                9 => {
                    let down = down.times(*rng.pick(&[1, 10]));
                    world.act_at(at + down, Act::Lane(lane.clone(), LaneAct::Resume));
                    Act::Lane(lane, if rng.one_in(2) { LaneAct::Pause } else { LaneAct::Reset })
                }
                10 => {
                    let (lane, old) = rng.pick(&world.setup.lanes).clone();
                    Act::Lane(lane, LaneAct::Change(Box::new(changed(&old, rng))))
                }
                11 => {
                    hang_some(world, rng, at, end);
                    continue;
                }
                _ => Act::Temper(lane, Temper::stubborn()),
            };
            world.act_at(at, act);
        }
    }
}

/// Several upstreams answer nothing any more; under some of them the process dies again and again.
fn hang_some(world: &mut World, rng: &mut Rng, at: Time, end: Time) {
    for _ in 0..rng.range(2, 4) {
        let lane = some_lane(world, rng);
        world.act_at(at, Act::Temper(lane.clone(), Temper::hung()));
        let later = at + Span::secs(rng.range(10, 600));
        world.act_at(later.min(end), Act::Temper(lane, Temper::random(rng)));
    }
    if rng.one_in(4) {
        let every = Span::millis(rng.range(100, 3_000));
        for n in 1..=rng.range(5, 40) {
            world.act_at((at + every.times(n)).min(end), Act::Crash(Span::millis(1)));
        }
    }
}

/// Other limits, as often as not in another group.
fn changed(old: &Limits, rng: &mut Rng) -> Limits {
    let new = limits(rng);
    if rng.one_in(2) { Limits { group: old.group.clone(), ..new } } else { new }
}

/// The same lanes, some with other limits and in other groups, and some not at all.
fn other_limits(setup: &Setup, rng: &mut Rng) -> Setup {
    let mut setup = setup.clone();
    setup.lanes.retain(|(name, _)| !PASSING.contains(&&**name) || !rng.one_in(3));
    for (_, old) in &mut setup.lanes {
        if rng.one_in(2) {
            *old = changed(old, rng);
        }
    }
    setup
}
