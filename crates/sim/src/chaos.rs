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
    let setup = setup(&mut rng);
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
    world.open();
    work(&mut world, &mut rng, end, if on_disk { 60 } else { 260 });
    faults(&mut world, &mut rng, end);
    world.run_until(end);
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
    world.book.world_ends(at);
    let unfinished = world.machine().map_or(0, |machine| machine.core().unfinished());
    if unfinished > 0 && world.book.violations.is_empty() {
        world.book.violation("J1", at, format!("{unfinished} jobs are left in memory"));
    }
    look_into_store(world, at);
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
    let window = Window::new(rate(rng));
    let group = GroupLimits {
        every: rng.one_in(2).then(|| Span::millis(rng.range(10, 3_000))),
        windows: if rng.one_in(2) { vec![window] } else { Vec::new() },
        in_flight: rng.one_in(2).then(|| n(rng.range(1, 3))),
    };
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
    let groups = vec![("shared".into(), group)];
    Setup { settings, lanes, groups, kinds, services, rosters }
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
    limits.in_flight = n(*rng.pick(&[1, 1, 2, 4]));
    limits.timeout = rng.one_in(2).then(|| Span::millis(*rng.pick(&[500, 3_000, 15_000])));
    limits.fail_after = n(rng.range(2, 5));
    limits.max_waiting = rng.one_in(4).then(|| n(rng.range(1, 12)));
    limits.slack =
        *rng.pick(&[None, Some(Span::ZERO), Some(Span::millis(30)), Some(Span::secs(1))]);
    // A way that takes longer than the whole call may lets nothing ever succeed.
    let most = limits.timeout.map_or(Span::secs(1), |timeout| Span(timeout.0 / 5));
    limits.slack = limits.slack.map(|slack| slack.min(most));
    if rng.one_in(5) {
        limits.gap_from = GapFrom::Finish;
    }
    if rng.one_in(4) {
        limits.group = Some("shared".into());
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

fn work(world: &mut World, rng: &mut Rng, end: Time, most: u64) {
    let span = end.since(DAWN).0;
    let bursts = rng.range(3, 40);
    let mut left = rng.range(10, most);
    let tenants = *rng.pick(&[1, 6, 12]);
    for _ in 0..bursts {
        let at = DAWN + Span(rng.range(0, span));
        let size = rng.range(1, 12).min(left);
        left -= size;
        if size == 0 {
            break;
        }
        let spread = *rng.pick(&[0, 0, 1_000_000]);
        if rng.one_in(2) {
            let jobs = (0..size).map(|_| submission(world, rng, at, tenants)).collect();
            world.act_at(at, Act::Submit(jobs));
        } else {
            for _ in 0..size {
                let jobs = vec![submission(world, rng, at, tenants)];
                world.act_at(at + Span(rng.range(0, spread)), Act::Submit(jobs));
            }
        }
    }
}

/// Random work; one job in so many has a tenant.
fn submission(world: &World, rng: &mut Rng, at: Time, tenants: u64) -> Submission {
    let kind = *rng.pick(&["fetch", "fetch", "fetch", "fetch", "pay", "visit", "permit"]);
    let mut stages = Vec::new();
    for _ in 0..*rng.pick(&[1, 1, 1, 2, 3]) {
        let mut stage: Vec<Arc<str>> = Vec::new();
        for _ in 0..*rng.pick(&[1, 1, 1, 2, 3]) {
            let lane = some_lane(world, rng);
            if !stage.contains(&lane) {
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
    if rng.one_in(tenants) {
        spec.tenant = Some((*rng.pick(&["ann", "bob", "cem"])).into());
    }
    let key = |rng: &mut Rng| Some(vec![rng.range(0, 3) as u8].into());
    if rng.one_in(4) {
        spec.key = key(rng);
    }
    if rng.one_in(6) {
        spec.schedule_key = key(rng);
    }
    if rng.one_in(5) {
        spec.cache_key = key(rng);
    }
    spec.on_duplicate = *rng.pick(&[OnDuplicate::Join, OnDuplicate::Refuse, OnDuplicate::Replace]);
    spec.max_wait = rng.one_in(6).then(|| Span::millis(rng.range(0, 30_000)));
    spec.start_within = rng.one_in(8).then(|| Span::millis(rng.range(0, 120_000)));
    spec.until = if rng.one_in(2) { Until::Conclusive } else { Until::All };
    spec.cost = n(*rng.pick(&[1, 1, 1, 1, 1, 2]));
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

fn faults(world: &mut World, rng: &mut Rng, end: Time) {
    let span = end.since(DAWN).0;
    let kinds = rng.range(0, 1 << 11);
    for kind in 0..11u64 {
        if kinds & (1 << kind) == 0 {
            continue;
        }
        for _ in 0..rng.range(1, 8) {
            let at = DAWN + Span(rng.range(0, span));
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
                    world.act_at(at + down, Act::Lane(lane.clone(), LaneAct::Resume));
                    Act::Lane(lane, if rng.one_in(2) { LaneAct::Pause } else { LaneAct::Reset })
                }
                _ => {
                    let (lane, old) = rng.pick(&world.setup.lanes).clone();
                    let group = old.group;
                    let change = Limits { group, ..limits(rng) };
                    Act::Lane(lane, LaneAct::Change(Box::new(change)))
                }
            };
            world.act_at(at, act);
        }
    }
}

/// The same lanes with other limits, in the same groups.
fn other_limits(setup: &Setup, rng: &mut Rng) -> Setup {
    let mut setup = setup.clone();
    for (_, old) in &mut setup.lanes {
        if rng.one_in(2) {
            *old = Limits { group: old.group.clone(), ..limits(rng) };
        }
    }
    setup
}
