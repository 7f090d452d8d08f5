//! Metrics: counters of events, and gauges of lanes that are measured on each scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;
use paceline::events::Happened;
use paceline::lanes::LaneStatus;
use paceline::{Ended, Paceline};
use paceline_apps::Sample;

use crate::kinds::Kinds;
use crate::server::word;

/// Bounds of the histograms, in seconds.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The time after which a series without updates is dropped.
const FORGOTTEN: Duration = Duration::from_hours(24);

static META: Metadata<'static> = Metadata::new("paceline", Level::INFO, None);

/// The metrics of one daemon.
pub(crate) struct Meters {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    accepted: Counter,
    attempts: Counter,
    waited: Histogram,
    ran: Histogram,
    committed: Histogram,
    /// The commits that were recorded, and their total time.
    seen: Mutex<(u64, Duration)>,
    /// Lanes with labels of their own.
    lanes: Mutex<BTreeSet<String>>,
}

/// Lanes with labels of their own.
const MOST_LANES: usize = 200;

/// Reasons why a lane is closed or its calls wait. All are exported, also those with a value of 0.
const REASONS: [&str; 9] =
    ["gap", "window", "keep", "group", "cooldown", "probe", "busy", "paused", "workers"];

/// How values of several lanes under one label are combined.
enum Several {
    Add,
    Most,
}

const COUNTERS: [(&str, &str); 5] = [
    ("paceline_jobs_accepted_total", "Accepted jobs since the start"),
    ("paceline_jobs_finished_total", "Finished jobs since the start, by state"),
    ("paceline_attempts_total", "Attempts (requests sent) since the start"),
    ("paceline_calls_settled_total", "Settled calls since the start, by lane and outcome"),
    ("paceline_http_requests_total", "HTTP responses of this daemon, by status"),
];

const GAUGES: [(&str, &str); 14] = [
    ("paceline_jobs_unfinished", "Jobs without a report"),
    ("paceline_calls_waiting", "Calls waiting in the queues of lanes"),
    ("paceline_calls_waiting_by_reason", "Waiting calls, by the reason why their lanes are closed"),
    ("paceline_oldest_waiting_seconds", "Age of the oldest waiting call"),
    ("paceline_attempts_running", "Attempts in flight"),
    ("paceline_jobs_due", "Jobs that are due later"),
    ("paceline_lanes", "Lanes, those made from templates included"),
    ("paceline_lanes_cooling", "Lanes in a cooldown, which their upstream or its failures caused"),
    ("paceline_lane_waiting", "Waiting calls, by lane; lanes beyond 200 are counted as `other`"),
    ("paceline_lane_in_flight", "Attempts in flight, by lane"),
    ("paceline_lane_paused", "1 if an operator paused the lane, else 0"),
    ("paceline_lane_opens_in_seconds", "Time until the lane opens"),
    ("paceline_lane_cooldown_seconds", "Time until the lane's cooldown ends"),
    ("paceline_lane_oldest_waiting_seconds", "Age of the oldest waiting call of the lane"),
];

impl Meters {
    pub(crate) fn new(kinds: &Kinds) -> Meters {
        // Lanes of templates come and go: a series without updates for a day is dropped.
        let builder = PrometheusBuilder::new().set_buckets(&SECONDS).expect("the bounds are there");
        let by_lane = MetricKindMask::COUNTER | MetricKindMask::GAUGE;
        let recorder = builder.idle_timeout(by_lane, Some(FORGOTTEN)).build_recorder();
        for (name, help) in COUNTERS {
            recorder.describe_counter(KeyName::from(name), None, help.into());
        }
        let of_tools = kinds.tools.iter().flat_map(|tool| tool.gauges());
        for (name, help) in GAUGES.iter().chain(of_tools) {
            recorder.describe_gauge(KeyName::from(*name), None, (*help).into());
        }
        let counter = |name: &'static str| recorder.register_counter(&Key::from_name(name), &META);
        let span = |name: &'static str| recorder.register_histogram(&Key::from_name(name), &META);
        Meters {
            handle: recorder.handle(),
            accepted: counter("paceline_jobs_accepted_total"),
            attempts: counter("paceline_attempts_total"),
            waited: span("paceline_call_wait_seconds"),
            ran: span("paceline_call_run_seconds"),
            committed: span("paceline_commit_seconds"),
            seen: Mutex::default(),
            lanes: Mutex::default(),
            recorder,
        }
    }

    fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &META)
    }

    fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &META)
    }

    /// Counts an event.
    pub(crate) fn count(&self, what: &Happened) {
        match what {
            Happened::Accepted { .. } => self.accepted.increment(1),
            Happened::Started { .. } => self.attempts.increment(1),
            Happened::Settled { lane, outcome, waited, ran, attempts, .. } => {
                let labels = vec![self.lane(lane), Label::new("outcome", outcome.name())];
                self.counter("paceline_calls_settled_total", labels).increment(1);
                if *attempts > 0 {
                    self.waited.record(Duration::from(*waited));
                    self.ran.record(Duration::from(*ran));
                }
            }
            Happened::Finished { state, .. } => {
                let labels = vec![Label::new("state", word(*state))];
                self.counter("paceline_jobs_finished_total", labels).increment(1);
            }
            Happened::Closed { .. } => {}
        }
    }

    /// Counts a response of the daemon.
    pub(crate) fn answered(&self, status: u16) {
        let labels = vec![Label::new("status", status.to_string())];
        self.counter("paceline_http_requests_total", labels).increment(1);
    }

    /// Gives labels to all configured lanes. Lanes of templates share the remaining labels, for as
    /// long as they exist.
    fn label_lanes(&self, lanes: &[LaneStatus]) {
        let mut known = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let there: BTreeSet<&str> = lanes.iter().map(|lane| &*lane.name).collect();
        known.retain(|name| there.contains(name.as_str()));
        known.extend(lanes.iter().filter(|lane| !lane.made).map(|lane| lane.name.to_string()));
    }

    /// The label of a lane. Templates may make any number of lanes: beyond the limit they share
    /// `other`.
    fn lane(&self, name: &str) -> Label {
        let mut known = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(name) || known.len() < MOST_LANES {
            known.insert(name.to_string());
            return Label::new("lane", name.to_string());
        }
        Label::new("lane", "other")
    }

    /// Measures the gauges, for one scrape.
    pub(crate) async fn look(&self, pace: &Paceline, kinds: &Kinds) -> Result<(), Ended> {
        let summary = pace.summary().await?;
        for (name, value) in [
            ("paceline_jobs_unfinished", summary.jobs),
            ("paceline_calls_waiting", summary.waiting),
            ("paceline_attempts_running", summary.running),
            ("paceline_jobs_due", summary.due),
            ("paceline_lanes", summary.lanes),
            ("paceline_lanes_cooling", summary.cooling),
        ] {
            self.gauge(name, Vec::new()).set(value as f64);
        }
        self.look_at_commits(pace);
        self.look_at_lanes(pace, &pace.lanes().await?);
        for tool in kinds.tools.iter() {
            for Sample { name, label, value } in tool.measure(pace).await? {
                let labels = label.map(|(name, value)| Label::new(name, value));
                self.gauge(name, labels.into_iter().collect()).set(value);
            }
        }
        Ok(())
    }

    /// Records the commits since the last scrape, each with their average time.
    fn look_at_commits(&self, pace: &Paceline) {
        let (commits, took) = (pace.commits(), pace.commit_time());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = commits.saturating_sub(seen.0);
        if let Ok(count) = u32::try_from(fresh)
            && count > 0
        {
            let mean = took.saturating_sub(seen.1) / count;
            self.committed.record_many(mean.as_secs_f64(), count as usize);
        }
        *seen = (commits, took);
    }

    fn look_at_lanes(&self, pace: &Paceline, lanes: &[LaneStatus]) {
        let waits = |lane: &LaneStatus| {
            lane.oldest_at.map_or(Duration::ZERO, |at| pace.passed(at)).as_secs_f64()
        };
        self.label_lanes(lanes);
        let oldest = lanes.iter().map(waits).fold(0.0, f64::max);
        self.gauge("paceline_oldest_waiting_seconds", Vec::new()).set(oldest);
        let mut reasons = BTreeMap::from(REASONS.map(|reason| (reason, 0)));
        let mut figures: BTreeMap<(&'static str, Label), f64> = BTreeMap::new();
        for lane in lanes {
            // A closed lane keeps its calls waiting; on an open one they wait for workers.
            let reason = lane.why_closed.map_or("workers", paceline::lanes::Reason::name);
            *reasons.entry(reason).or_default() += lane.waiting;
            let label = self.lane(&lane.name);
            let opens = pace.until(lane.open_at).as_secs_f64();
            let cools = lane.cooldown_until.map_or(Duration::ZERO, |at| pace.until(at));
            for (name, value, several) in [
                ("paceline_lane_waiting", lane.waiting as f64, Several::Add),
                ("paceline_lane_in_flight", f64::from(lane.in_flight), Several::Add),
                ("paceline_lane_paused", f64::from(u8::from(lane.paused)), Several::Add),
                ("paceline_lane_opens_in_seconds", opens, Several::Most),
                ("paceline_lane_cooldown_seconds", cools.as_secs_f64(), Several::Most),
                ("paceline_lane_oldest_waiting_seconds", waits(lane), Several::Most),
            ] {
                let figure = figures.entry((name, label.clone())).or_default();
                *figure = match several {
                    Several::Add => *figure + value,
                    Several::Most => figure.max(value),
                };
            }
        }
        for ((name, label), value) in figures {
            self.gauge(name, vec![label]).set(value);
        }
        for (reason, waiting) in reasons {
            let labels = vec![Label::new("reason", reason)];
            self.gauge("paceline_calls_waiting_by_reason", labels).set(waiting as f64);
        }
    }

    pub(crate) fn render(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }
}
