//! Meters: what happened, counted, and how lanes stand when somebody looks.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;
use paceline::{Ended, Happened, Paceline};

use crate::server::word;

/// Bounds of what calls take, in seconds.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// How long a meter that nobody touches is shown.
const FORGOTTEN: Duration = Duration::from_hours(24);

static META: Metadata<'static> = Metadata::new("paceline", Level::INFO, None);

/// All meters of one daemon.
pub(crate) struct Meters {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    accepted: Counter,
    attempts: Counter,
    waited: Histogram,
    ran: Histogram,
}

const HELP: [(&str, &str); 5] = [
    ("paceline_jobs_accepted_total", "Jobs that were accepted since the start"),
    ("paceline_jobs_finished_total", "Jobs that were finished since the start, by state"),
    ("paceline_attempts_total", "Real requests since the start"),
    ("paceline_calls_settled_total", "Calls with an outcome since the start, by lane"),
    ("paceline_http_requests_total", "Answers of this daemon, by status"),
];

impl Meters {
    pub(crate) fn new() -> Meters {
        // Lanes that templates make come and go: what was not touched for a day is forgotten.
        let builder = PrometheusBuilder::new().set_buckets(&SECONDS).expect("the bounds are there");
        let by_lane = MetricKindMask::COUNTER | MetricKindMask::GAUGE;
        let recorder = builder.idle_timeout(by_lane, Some(FORGOTTEN)).build_recorder();
        for (name, help) in HELP {
            recorder.describe_counter(KeyName::from(name), None, help.into());
        }
        let counter = |name: &'static str| recorder.register_counter(&Key::from_name(name), &META);
        let span = |name: &'static str| recorder.register_histogram(&Key::from_name(name), &META);
        Meters {
            handle: recorder.handle(),
            accepted: counter("paceline_jobs_accepted_total"),
            attempts: counter("paceline_attempts_total"),
            waited: span("paceline_call_wait_seconds"),
            ran: span("paceline_call_run_seconds"),
            recorder,
        }
    }

    fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &META)
    }

    fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &META)
    }

    /// Counts what happened.
    pub(crate) fn count(&self, what: &Happened) {
        match what {
            Happened::Accepted { .. } => self.accepted.increment(1),
            Happened::Started { .. } => self.attempts.increment(1),
            Happened::Settled { lane, outcome, waited, ran, attempts, .. } => {
                let labels = vec![
                    Label::new("lane", lane.to_string()),
                    Label::new("outcome", outcome.name()),
                ];
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

    /// Counts an answer of ours.
    pub(crate) fn answered(&self, status: u16) {
        let labels = vec![Label::new("status", status.to_string())];
        self.counter("paceline_http_requests_total", labels).increment(1);
    }

    /// Looks at what is only worth a look when somebody asks.
    pub(crate) async fn look(&self, pace: &Paceline) -> Result<(), Ended> {
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
        self.gauge("paceline_commits", Vec::new()).set(pace.commits() as f64);
        for lane in pace.lanes().await? {
            let label = || vec![Label::new("lane", lane.name.to_string())];
            self.gauge("paceline_lane_waiting", label()).set(lane.waiting as f64);
            self.gauge("paceline_lane_in_flight", label()).set(f64::from(lane.in_flight));
            let opens = pace.until(lane.open_at).as_secs_f64();
            self.gauge("paceline_lane_opens_in_seconds", label()).set(opens);
            self.gauge("paceline_lane_paused", label()).set(f64::from(u8::from(lane.paused)));
        }
        Ok(())
    }

    pub(crate) fn render(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }
}
