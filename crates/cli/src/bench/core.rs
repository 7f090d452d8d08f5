//! The rules alone, in memory: the cost of one call while many wait.

use std::num::NonZeroU32;
use std::sync::Arc;

use paceline_core::{
    AttemptId, AttemptResult, Core, GAP_SHARE, JobSpec, KindTerms, Limits, Now, OnCrash, Plan,
    Priority, Settings, Setup, Span, Submission, Time, Verdict, Window,
};

use super::stopwatch::Stopwatch;
use super::{Figure, Target};

/// The number of waiting calls, and of the lanes they wait on.
const SIZES: [(usize, usize); 3] = [(1_000, 100), (100_000, 10_000), (1_000_000, 10_000)];

/// The time between two turns: about ten calls.
const TURN: Span = Span::millis(50);

/// Kinds of work.
const KINDS: usize = 128;

pub(crate) fn measure(scale: usize) -> Vec<Figure> {
    let cycles = 1_000_000 / scale;
    let mut figures = Vec::new();
    let mut costs = Vec::new();
    for (waiting, lanes) in SIZES {
        let mut bench = Bench::new(lanes);
        bench.fill(waiting);
        bench.cycle(cycles / 10);
        let watch = Stopwatch::start();
        bench.cycle(cycles);
        let seconds = watch.lap().cpu.as_secs_f64();
        let left = bench.core.waiting() + bench.running.len();
        assert_eq!(left, waiting, "as many wait or run afterwards as before");
        let rate = cycles as f64 / seconds;
        costs.push(1.0 / rate);
        let target = if waiting == 1_000_000 { Target::AtLeast(500_000.0) } else { Target::None };
        let metric = format!("calls_per_s@{waiting}");
        figures.push(Figure::new("core", metric, rate, "1/s", target));
    }
    let ratio = costs[2] / costs[0];
    figures.push(Figure::new("core", "cost_ratio", ratio, "", Target::AtMost(3.0)));
    figures
}

/// Calls that pass through the rules on a virtual clock.
struct Bench {
    core: Core,
    now: Now,
    submitted: u64,
    lanes: Vec<Arc<str>>,
    /// Rss calls per lane so far.
    rss: Vec<usize>,
    kinds: Vec<Arc<str>>,
    /// The payload and the value of all calls.
    value: paceline_core::Blob,
    roll: u64,
    running: Vec<AttemptId>,
    done: usize,
}

impl Bench {
    fn new(lanes: usize) -> Bench {
        let names: Vec<Arc<str>> = (0..lanes).map(|lane| format!("lane-{lane}").into()).collect();
        let all = NonZeroU32::new(u32::MAX).expect("above zero");
        let mut settings =
            Settings { max_waiting: all, lane_waiting: all, max_lanes: all, ..Settings::default() };
        let pool = NonZeroU32::new(1_000).expect("above zero");
        (settings.pool.base, settings.pool.max) = (pool, pool);
        // About one lane opens every 10 ms, whatever the number of lanes. Each has a gap and windows.
        let gap = Span::millis(10).times(lanes as u64);
        let window = |max: u32, gaps: u64| {
            let max = NonZeroU32::new(max).expect("above zero");
            Window::new(paceline_core::Rate { max, per: gap.times(gaps) })
        };
        let limits = Limits {
            every: Some(gap),
            gap_share: GAP_SHARE,
            windows: vec![window(8, 4), window(100, 60)],
            in_flight: NonZeroU32::new(4).expect("above zero"),
            ..Limits::default()
        };
        let kinds: Vec<Arc<str>> = (0..KINDS).map(|kind| format!("kind-{kind}").into()).collect();
        let terms = |name: &Arc<str>| KindTerms::new(name.clone(), OnCrash::Repeat);
        let setup = Setup {
            settings,
            lanes: names.iter().map(|name| (name.clone(), limits.clone())).collect(),
            groups: Vec::new(),
            kinds: kinds.iter().map(terms).collect(),
            ..Setup::default()
        };
        let start = Time(1_000_000_000_000);
        Bench {
            core: Core::new(setup),
            now: Now { time: start, wall: start },
            submitted: 0,
            rss: vec![0; lanes],
            lanes: names,
            kinds,
            value: Arc::default(),
            roll: 1,
            running: Vec::new(),
            done: 0,
        }
    }

    /// Submits `waiting` calls. The lanes begin one after another over the span of a gap, as in a
    /// program that has run for a while; otherwise all of them would always open at once.
    fn fill(&mut self, waiting: usize) {
        let mut plan = Plan::default();
        let lanes = self.lanes.len();
        for lane in 0..lanes {
            for _ in lane * waiting / lanes..(lane + 1) * waiting / lanes {
                self.submit(lane, &mut plan);
            }
            let time = self.now.time + Span::millis(10);
            self.now = Now { time, wall: time };
            self.turn(&mut plan);
        }
    }

    /// One call: half have a key, a third a `max_wait`, all four priorities.
    fn submit(&mut self, lane: usize, plan: &mut Plan) {
        self.submitted += 1;
        let n = self.submitted;
        let priority = Priority::ALL[n as usize % 4];
        // A lane takes one unfinished rss call per kind, so those come in many kinds.
        let kind = if priority == Priority::Rss { self.rss[lane] % KINDS } else { 0 };
        self.rss[lane] += usize::from(priority == Priority::Rss);
        let mut spec = JobSpec::new("", &[]);
        spec.kind = self.kinds[kind].clone();
        spec.stages[0].push(self.lanes[lane].clone());
        if (n / 4).is_multiple_of(2) {
            spec.key = Some(n.to_le_bytes().as_slice().into());
        }
        if priority == Priority::Rss || n.is_multiple_of(9) {
            spec.max_wait = Some(Span::days(3_650));
        }
        // Background is the default: naming it would bring a `max_wait` of its own.
        let priority = Some(priority).filter(|priority| *priority != Priority::Background);
        let payload = self.value.clone();
        let submission = Submission { priority, ..Submission::new(spec, payload) };
        self.core.submit(submission, self.now, plan).expect("a valid job");
    }

    /// Lets `calls` calls start and settle, and puts a new one in for each.
    fn cycle(&mut self, calls: usize) {
        let mut plan = Plan::default();
        let goal = self.done + calls;
        while self.done < goal {
            let wake = self.core.wake_at(self.now).unwrap_or(self.now.time);
            let wake = wake.max(self.now.time + TURN);
            self.now = Now { time: wake, wall: wake };
            self.turn(&mut plan);
        }
    }

    /// One turn: first the attempts that ended, then new calls, then the decision.
    fn turn(&mut self, plan: &mut Plan) {
        plan.clear();
        let ended = std::mem::take(&mut self.running);
        for &attempt in &ended {
            self.core.started(attempt, self.now.time);
        }
        for &attempt in &ended {
            let verdict = Verdict::Done { conclusive: true, value: self.value.clone() };
            let result = AttemptResult { verdict, announced: None };
            self.core.report(attempt, result, self.now, 0, plan);
        }
        for &attempt in &ended {
            self.core.ended(attempt, self.now, plan);
        }
        for _ in &ended {
            self.roll = self.roll.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let lane = (self.roll >> 33) as usize % self.lanes.len();
            self.submit(lane, plan);
        }
        self.done += ended.len();
        self.core.decide(self.now, plan);
        self.running.extend(plan.starts.iter().map(|start| start.attempt));
    }
}
