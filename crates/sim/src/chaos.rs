//! Random worlds: lanes, work and faults from one seed. Then the faults stop, and all work must
//! end.

mod setup;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use paceline::turn::LaneAct;
use paceline_core::{Limits, Span, Time};
use paceline_store::Store;

use crate::agenda::Act;
use crate::check::Violation;
use crate::clock::WORLD_START;
use crate::counts::Counts;
use crate::disk::{Disk, Fault};
use crate::rng::Rng;
use crate::trace::Keep;
use crate::upstream::Behaviour;
use crate::world::World;
use setup::{changed, flavoured, other_limits, setup};
use work::{Habits, work};

/// After the faults stop, all work ends within this time.
const MOST_TIME_TO_IDLE: Span = Span::days(3);
/// The names of the groups.
const GROUPS: [&str; 2] = ["shared", "other"];
/// Lanes that are missing in some configurations.
const PASSING: [&str; 2] = ["arxiv", "tracker"];

/// The emphasis of a world.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Plain,
    /// Lanes join and leave one narrow group, and the configuration.
    Crowded,
    /// Calls that outlive their process, on lanes whose gaps run from the finish.
    Relay,
}

/// The result of one world.
#[derive(Debug)]
pub struct RunResult {
    /// The broken rules.
    pub violations: Vec<Violation>,
    /// A hash of the trace: equal for equal seeds.
    pub fingerprint: u64,
    /// The trace, if it was kept.
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
    pub fn add(&mut self, ran: &RunResult) {
        self.worlds += 1;
        self.lasted += ran.lasted;
        self.counts.add(&ran.counts);
    }

    /// The number of settled calls.
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
        writeln!(f, "{forgotten} reservations lost in power cuts")?;
        for (kind, n) in &self.counts.kinds {
            writeln!(f, "{n:>9} {kind}")?;
        }
        Ok(())
    }
}

/// Runs the world of this seed to its end. A panic is reported as a violation.
pub fn run(seed: u64, lines: bool) -> RunResult {
    catch_unwind(AssertUnwindSafe(|| live(seed, lines))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = format!("panic: {}", words.unwrap_or("without a message"));
        RunResult {
            violations: vec![Violation { rule: "J5", at: WORLD_START, words }],
            fingerprint: 0,
            trace: String::new(),
            counts: Counts::default(),
            lasted: Span::ZERO,
        }
    })
}

fn live(seed: u64, lines: bool) -> RunResult {
    let mut rng = Rng::new(seed);
    let on_disk = seed % 25 == 24;
    let flavours = [Flavour::Plain, Flavour::Plain, Flavour::Crowded, Flavour::Relay];
    let flavour = *rng.pick(&flavours);
    let mut setup = setup(&mut rng);
    flavoured(&mut setup, &mut rng, flavour);
    let disk = on_disk.then(Disk::sqlite);
    let mut world = World::with(setup, disk, rng.next());
    world.trace.keep = if lines { Keep::Lines } else { Keep::Fingerprint };
    let end = WORLD_START + Span::secs(rng.range(60, 5_400));
    world.conditions.stalls = *rng.pick(&[0, 2, 10]);
    world.conditions.keeps_events = *rng.pick(&[0, 0, 10, 1_000]);
    for (name, _) in world.setup.lanes.clone() {
        let behaviour =
            if rng.one_in(3) { Behaviour::healthy() } else { Behaviour::random(&mut rng) };
        world.behaviours.insert(name, behaviour);
    }
    let made = ["host:a", "host:b", "host:c", "host:d"];
    let made = made.into_iter().chain(["service:a", "service:b", "service:c", "service:d"]);
    for host in made {
        world.behaviours.insert(host.into(), Behaviour::random(&mut rng));
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
    run_to_idle(&mut world);
    let lasted = world.now().since(WORLD_START);
    RunResult {
        violations: std::mem::take(&mut world.checker.violations),
        fingerprint: world.trace.fingerprint(),
        trace: world.trace.lines().to_string(),
        counts: world.counts,
        lasted,
    }
}

/// Configures missing lanes again: work that waits for a lane can end only if the lane exists.
fn bring_back(world: &mut World, lanes: &[(Arc<str>, Limits)]) {
    // Until every scheduled restart is over.
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

/// Stops the faults, runs until the engine is idle, and then checks the store.
fn run_to_idle(world: &mut World) {
    world.act_at(world.now(), Act::Heal);
    let end = world.now() + MOST_TIME_TO_IDLE;
    let mut pause = Span::secs(10);
    while world.now() < end && world.checker.violations.is_empty() {
        world.run_until(world.now() + pause);
        if world.is_idle() {
            break;
        }
        pause = Span(pause.0 * 2).min(Span::hours(1));
    }
    let at = world.now();
    if world.is_up() && !world.is_idle() && world.checker.violations.is_empty() {
        let now = world.clock.reading().now;
        let core = world.machine().map(paceline::turn::Machine::core);
        let stuck = world.checker.some_unfinished(0);
        let why = core.zip(stuck).and_then(|(core, job)| core.why_job(job, now));
        let words = format!("not everything ended after the faults stopped: {stuck:?} {why:?}");
        world.checker.violation("B3", at, words);
    }
    if world.checker.violations.is_empty() {
        world.checker.world_ends(at);
    }
    let unfinished = world.machine().map_or(0, |machine| machine.core().unfinished());
    if unfinished > 0 && world.checker.violations.is_empty() {
        world.checker.violation("J1", at, format!("{unfinished} jobs are left in memory"));
    }
    if world.checker.violations.is_empty() {
        check_store(world, at);
    }
}

/// Checks that every job of which a caller was told is in the store, with its one report (B1).
fn check_store(world: &mut World, at: Time) {
    let jobs: Vec<_> = world.checker.finished_jobs().chain(world.checker.answered_jobs()).collect();
    let (keys, newest) = world.checker.finished_keys();
    let Some(mut store) = world.close() else { return };
    let found = store.finished(&keys).expect("the simulated disk can be read");
    for (stored, job) in found.iter().zip(newest) {
        let found = stored.as_ref().map(|stored| stored.record.id);
        if found != Some(job) {
            let words = format!("the newest job with its key is {job}, found was {found:?}");
            world.checker.violation("D1", at, words);
        }
    }
    for job in jobs {
        let stored = store.job(job).expect("the simulated disk can be read");
        if stored.is_none_or(|stored| stored.report.is_none()) {
            world.checker.violation(
                "B1",
                at,
                format!("job {job} is lost: the store has no report"),
            );
        }
    }
}

/// Crashes the process while requests are on the wire.
fn crash_often(world: &mut World, rng: &mut Rng, bursts: &[Time]) {
    for &at in bursts {
        let down = Span(rng.range(1_000, 500_000));
        if rng.one_in(2) {
            world.act_at(at + Span(rng.range(0, 500_000)), Act::Crash(down));
        }
    }
}

/// Lanes join and leave the narrow group while their requests are in transit, and some leave the
/// configuration for a while.
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

fn some_lane(world: &World, rng: &mut Rng) -> Arc<str> {
    let lanes = world.setup.lanes.iter().filter(|(name, _)| !name.ends_with('*'));
    let mut names: Vec<Arc<str>> = lanes.map(|(name, _)| name.clone()).collect();
    names.extend(["host:a", "host:b", "host:c", "host:d"].map(Arc::from).into_iter().take(2));
    // If only few lanes may exist, templates create and drop them often.
    let few = world.setup.settings.max_lanes.get() < 100;
    if rng.one_in(if few { 3 } else { 8 }) {
        return (*rng.pick(&["host:c", "host:d"])).into();
    }
    rng.pick(&names).clone()
}

/// Schedules faults: at random moments, or while work is under way.
fn faults(world: &mut World, rng: &mut Rng, end: Time, bursts: &[Time]) {
    let span = end.since(WORLD_START).0;
    // The rarer kinds last.
    let kinds = rng.range(0, 1 << 11) | if rng.one_in(6) { 1 << 11 } else { 0 };
    let kinds = kinds | if rng.one_in(6) { 1 << 12 } else { 0 };
    for kind in 0..13u64 {
        if kinds & (1 << kind) == 0 {
            continue;
        }
        for _ in 0..rng.range(1, 8) {
            let at = if rng.one_in(2) {
                WORLD_START + Span(rng.range(0, span))
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
                8 => Act::Behaviour(lane, Behaviour::random(rng)),
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
                _ if rng.one_in(2) => Act::Behaviour(lane, Behaviour::refusing()),
                _ => Act::Behaviour(lane, Behaviour::stubborn()),
            };
            world.act_at(at, act);
        }
    }
}

/// Several upstreams stop responding. In some worlds the process then dies again and again.
fn hang_some(world: &mut World, rng: &mut Rng, at: Time, end: Time) {
    for _ in 0..rng.range(2, 4) {
        let lane = some_lane(world, rng);
        world.act_at(at, Act::Behaviour(lane.clone(), Behaviour::hung()));
        let later = at + Span::secs(rng.range(10, 600));
        world.act_at(later.min(end), Act::Behaviour(lane, Behaviour::random(rng)));
    }
    if rng.one_in(4) {
        let every = Span::millis(rng.range(100, 3_000));
        for n in 1..=rng.range(5, 40) {
            world.act_at((at + every.times(n)).min(end), Act::Crash(Span::millis(1)));
        }
    }
}
