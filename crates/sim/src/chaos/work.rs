//! Random work.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use paceline_core::{Due, JobSpec, OnDuplicate, Priority, Span, Submission, Time, Until};

use super::setup::n;
use super::{Flavour, PASSING, some_lane};
use crate::agenda::Act;
use crate::clock::WORLD_START;
use crate::rng::Rng;
use crate::world::World;

/// How common each property is among the jobs of a world: one job in this many has it.
#[derive(Clone, Copy)]
pub(super) struct Habits {
    tenant: u64,
    cache_key: u64,
    cost: u64,
    max_wait: u64,
    permit: u64,
}

impl Habits {
    pub(super) fn random(rng: &mut Rng, flavour: Flavour) -> Habits {
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

/// Schedules submissions and returns their moments.
pub(super) fn work(
    world: &mut World,
    rng: &mut Rng,
    end: Time,
    most: u64,
    habits: Habits,
) -> Vec<Time> {
    let mut moments = Vec::new();
    let span = end.since(WORLD_START).0;
    let bursts = rng.range(3, 40);
    let mut left = rng.range(10, most);
    for _ in 0..bursts {
        let at = WORLD_START + Span(rng.range(0, span));
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

/// A random job.
fn submission(world: &World, rng: &mut Rng, at: Time, habits: Habits) -> Submission {
    let kind = *rng.pick(&["fetch", "fetch", "fetch", "fetch", "pay", "visit"]);
    let kind = if rng.one_in(habits.permit) { "permit" } else { kind };
    let mut stages = Vec::new();
    for _ in 0..*rng.pick(&[1, 1, 1, 2, 3]) {
        let mut stage: Vec<Arc<str>> = Vec::new();
        for _ in 0..*rng.pick(&[1, 1, 1, 2, 3]) {
            let lane = some_lane(world, rng);
            // A call that outlives its process needs its lane to be taken up again.
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
    if let Some(attempts) = NonZeroU16::new(rng.range(1, 4) as u16) {
        spec.retry.attempts = attempts;
    }
    if kind == "permit" {
        // The holder of a permit makes its own request, once.
        spec.retry.attempts = NonZeroU16::MIN;
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

/// A cost above 1, at most the smallest window of its lanes.
fn cost(world: &World, spec: &JobSpec, rng: &mut Rng) -> NonZeroU32 {
    let lanes = world.setup.lanes.iter();
    let lanes = lanes.filter(|(name, _)| spec.stages.iter().flatten().any(|lane| lane == name));
    let most = lanes.flat_map(|(_, limits)| &limits.windows).map(|w| w.rate.max.get()).min();
    n(rng.range(2, u64::from(most.unwrap_or(4).max(2))))
}
