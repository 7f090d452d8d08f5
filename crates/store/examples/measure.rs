//! Measures a store on this machine: `cargo run --release --example measure [DIRECTORY]`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_core::{
    Answer, AttemptId, CallId, CallReport, JobId, JobRecord, JobSpec, JobState, LaneId, Outcome,
    Priority, Record, Report, Reservation, Span, Stamp, Terms, Time, Write,
};
use paceline_store::{Sqlite, Store};

const LANES: u64 = 1_000;
const BATCH: u64 = 256;
const PAYLOAD: usize = 200;

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = tempfile::tempdir_in(directory).expect("a directory to write in");
    alone(&directory.path().join("alone.db"));
    lives(&directory.path().join("released.db"), Trace::Released);
    lives(&directory.path().join("kept.db"), Trace::Kept);
    waiting(&directory.path().join("waiting.db"), 1_000_000);
}

/// The writes of one attempt.
#[derive(Clone, Copy, Debug)]
enum Trace {
    Released,
    Kept,
}

/// One job per commit: the latency that a single caller sees.
fn alone(path: &Path) {
    let mut store = Sqlite::open(path).expect("a new store");
    let specs = specs();
    let writes: Vec<Write> = (1..=10_000).map(|id| accepted(id, &specs)).collect();
    let begin = Clock::now();
    let commits = commits(&mut store, writes.chunks(1));
    println!("one at a time: {}", begin.spent());
    println!("  {commits}");
}

/// Full lives: in each commit one batch is accepted, one reserved and one finished.
fn lives(path: &Path, trace: Trace) {
    let mut store = Sqlite::open(path).expect("a new store");
    let specs = specs();
    let batches = 1_200;
    let turns: Vec<Vec<Write>> =
        (0..batches + 2).map(|n| turn(&specs, n, batches, trace)).collect();
    let begin = Clock::now();
    let commits = commits(&mut store, turns.iter().map(Vec::as_slice));
    let pace = (batches * BATCH) as f64 / begin.wall().as_secs_f64();
    println!("{trace:?}: {}, {pace:.0} jobs/s", begin.spent());
    println!("  {commits}");
}

fn commits<'w>(store: &mut Sqlite, turns: impl Iterator<Item = &'w [Write]>) -> String {
    let mut spans = Vec::new();
    for writes in turns {
        let one = instant();
        store.commit(&Stamp::default(), writes).expect("a commit");
        spans.push(one.elapsed());
    }
    spans.sort_unstable();
    let at = |permille: usize| spans[(spans.len() * permille / 1_000).min(spans.len() - 1)];
    let (p50, p99, p999, max) = (at(500), at(990), at(999), at(1_000));
    format!("a commit takes {p50:.2?} (p50), {p99:.2?} (p99), {p999:.2?} (p99.9), {max:.2?} (max)")
}

fn turn(specs: &[Arc<JobSpec>], n: u64, batches: u64, trace: Trace) -> Vec<Write> {
    let mut writes = Vec::new();
    if n < batches {
        writes.extend(batch(n).map(|id| accepted(id, specs)));
    }
    if (1..=batches).contains(&n) {
        writes.extend(batch(n - 1).map(reserved));
    }
    if n >= 2 {
        writes.extend(batch(n - 2).flat_map(|id| ended(id, specs, trace)));
        if n.is_multiple_of(64) {
            let below = AttemptId(batch(n - 2).start);
            writes.extend((1..=LANES).map(|lane| Write::Forget(LaneId(lane), below)));
        }
    }
    writes
}

fn waiting(path: &Path, jobs: u64) {
    let specs = specs();
    let mut store = Sqlite::open(path).expect("a new store");
    for first in (1..=jobs).step_by(10_000) {
        let writes: Vec<Write> = (first..first + 10_000).map(|id| accepted(id, &specs)).collect();
        store.commit(&Stamp::default(), &writes).expect("a commit");
    }
    drop(store);
    let begin = Clock::now();
    let mut store = Sqlite::open(path).expect("the same store");
    let mut seen = 0;
    store.load(&mut |record| seen += u64::from(matches!(record, Record::Job(_)))).expect("a load");
    println!("{seen} waiting jobs read back: {}", begin.spent());
    let size = std::fs::metadata(path).expect("a file").len();
    println!("  the file has {} bytes for each", size / jobs);
}

fn specs() -> Vec<Arc<JobSpec>> {
    (0..LANES)
        .map(|lane| Arc::new(JobSpec::new("fetch", &[&format!("host:{lane}.example")])))
        .collect()
}

fn batch(n: u64) -> std::ops::Range<u64> {
    1 + n * BATCH..1 + (n + 1) * BATCH
}

fn lane(id: u64) -> u64 {
    id.wrapping_mul(0x9E37_79B9_7F4A_7C15) % LANES
}

fn accepted(id: u64, specs: &[Arc<JobSpec>]) -> Write {
    let terms = Terms { priority: Some(Priority::Background), ..Terms::default() };
    let spec = specs[lane(id) as usize].clone();
    let record = JobRecord { id: JobId(id), submitted_at: moment(id), terms, spec };
    Write::Job(record, vec![b'x'; PAYLOAD].into())
}

fn reserved(id: u64) -> Write {
    Write::Reserve(Reservation {
        lane: LaneId(1 + lane(id)),
        attempt: AttemptId(id),
        call: CallId { job: JobId(id), index: 0 },
        priority: Priority::Background,
        cost: 1,
        at: moment(id),
        ended_at: None,
    })
}

fn ended(id: u64, specs: &[Arc<JobSpec>], trace: Trace) -> [Write; 2] {
    let attempt = match trace {
        Trace::Released => Write::Release(LaneId(1 + lane(id)), AttemptId(id)),
        Trace::Kept => Write::Ended(LaneId(1 + lane(id)), AttemptId(id), moment(id)),
    };
    let call = CallReport {
        lane: specs[lane(id) as usize].stages[0][0].clone(),
        outcome: Outcome::Done { conclusive: true, value: b"{\"bytes\":1024}".as_slice().into() },
        attempts: 1,
        waited: Span::millis(3),
        ran: Span::millis(20),
        cached: false,
    };
    let (job, finished_at) = (JobId(id), moment(id));
    let (state, answer) = (JobState::Done, Answer::Conclusive);
    [
        attempt,
        Write::Finish(
            Report { job, state, answer, finished_at, calls: vec![call], partial: false }.into(),
        ),
    ]
}

fn moment(id: u64) -> Time {
    Time(1_790_000_000_000_000 + id * 1_000)
}

/// Both clocks: time passed and time spent by this process.
struct Clock {
    began: Instant,
    cpu: Duration,
}

impl Clock {
    fn now() -> Clock {
        Clock { began: instant(), cpu: cpu() }
    }

    fn wall(&self) -> Duration {
        self.began.elapsed()
    }

    fn spent(&self) -> String {
        format!("{:.2?} wall, {:.2?} CPU", self.wall(), cpu().saturating_sub(self.cpu))
    }
}

#[expect(clippy::disallowed_methods, reason = "this program measures")]
fn instant() -> Instant {
    Instant::now()
}

/// Processor time of this process, in user and system mode, where the system tells.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
