//! Random configurations.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use paceline_core::{
    AcrossLanes, GAP_SHARE, GapFrom, GroupLimits, KindTerms, Limits, OnCrash, Portion, Rate,
    RosterTerms, SERVICE_KIND, ServiceTerms, Settings, Setup, Span, When, Window,
};

use super::{Flavour, GROUPS, PASSING};
use crate::rng::Rng;

pub(super) fn setup(rng: &mut Rng) -> Setup {
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
    settings.age_after = *rng.pick(&[Span::secs(20), Span::secs(60), Span::mins(5)]);
    settings.lead = *rng.pick(&[Span::ZERO, Span::millis(10), Span::millis(10)]);
    settings.found_for = Span::mins(10);
    settings.empty_for = Span::mins(3);
    if rng.one_in(5) {
        settings.across_lanes = AcrossLanes::Turns;
    }
    let count = rng.range(1, 5) as usize;
    // Templates may create any number of lanes beside these, or only one or two.
    settings.max_lanes = n(count as u64 + *rng.pick(&[1, 2, 1_000, 1_000, 1_000, 1_000]));
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

/// Changes lanes and groups by the emphasis of the world.
pub(super) fn flavoured(setup: &mut Setup, rng: &mut Rng, flavour: Flavour) {
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

fn service(name: &str, lanes: &[(Arc<str>, Limits)], rng: &mut Rng) -> ServiceTerms {
    let when = match rng.range(0, 2) {
        0 => When::EveryCheck,
        _ => When::Every(Span::secs(*rng.pick(&[20, 60, 300, 1_200]))),
    };
    let shared = lanes[0].0.clone();
    let lane = if rng.one_in(4) { shared } else { format!("service:{name}").into() };
    let attempts = NonZeroU16::MIN.saturating_add(rng.range(0, 2) as u16);
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
    if rng.one_in(8) {
        limits.gap_share = odd_shares(rng);
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
    if rng.one_in(4) {
        limits.gap_from = GapFrom::Finish;
    }
    if rng.one_in(3) {
        limits.group = Some((*rng.pick(&GROUPS)).into());
    }
    limits
}

/// Shares of the gap that are not ordered by priority, or are zero.
fn odd_shares(rng: &mut Rng) -> [Portion; 4] {
    let (all, half, none) = (Portion::ONE, Portion::thousandths(500), Portion::ZERO);
    *rng.pick(&[[all, all, all, half], [all, all, half, none], [half, none, all, half]])
}

/// Other limits, half of the time in another group.
pub(super) fn changed(old: &Limits, rng: &mut Rng) -> Limits {
    let new = limits(rng);
    if rng.one_in(2) { Limits { group: old.group.clone(), ..new } } else { new }
}

/// The configuration with some lanes changed, moved to other groups, or removed.
pub(super) fn other_limits(setup: &Setup, rng: &mut Rng) -> Setup {
    let mut setup = setup.clone();
    setup.lanes.retain(|(name, _)| !PASSING.contains(&&**name) || !rng.one_in(3));
    for (_, old) in &mut setup.lanes {
        if rng.one_in(2) {
            *old = changed(old, rng);
        }
    }
    setup
}

pub(super) fn n(number: u64) -> NonZeroU32 {
    NonZeroU32::new(number as u32).expect("above zero")
}
