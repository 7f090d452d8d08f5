//! A real program on a real file, killed at any moment, and what the upstream saw of it (B1, B2).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline::lanes::Limits;
use paceline::report::JobState;
use paceline::{
    Builder, Call, Event, Failed, Failure, Group, Job, Lane, Outcome, Paceline, Span, Time, Work,
    Worker,
};
use paceline_mock::{Arrival, Behaviour, Limit, LogEntry, Mock, Ratio, violations};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const KILLS: u32 = 60;
/// Jobs that one run submits at most, so that each has old and new work.
const JOBS_PER_RUN: usize = 12;
/// The wire delays one call more than the next. A call that a busy machine kept for longer than
/// this between the stamp and the upstream says nothing about its sender; there must be few.
const TOLERANCE: Span = Span::millis(10);

/// Each lane, what it allows, and the same as the upstream's rules.
fn lanes() -> Vec<(Lane, &'static str, Vec<Limit>)> {
    let patient = || Limits { fail_after: NonZeroU32::MAX, ..Limits::default() };
    let lane = |name| Lane::with_limits(name, patient());
    let gap = |ms| Limit::Gap(Span::millis(ms));
    let window = |rate: &str| Limit::Window(rate.parse().expect("a rate"));
    let one = Limit::InFlight(NonZeroU32::MIN);
    vec![
        (lane("gap").every("20ms"), "gap", vec![gap(20), one]),
        (lane("window").limit("6/150ms").in_flight(4), "window", vec![window("6/150ms")]),
        (
            lane("both").every("8ms").limit("5/100ms").limit("12/400ms"),
            "both",
            vec![gap(8), window("5/100ms"), window("12/400ms"), one],
        ),
        (lane("left").group("pair").in_flight(2), "left", vec![]),
        (lane("right").group("pair").in_flight(2), "right", vec![]),
    ]
}

/// What `left` and `right` share.
const PAIR_GAP: Span = Span::millis(15);

fn described(path: &Path) -> Builder {
    let group = Group::new("pair").every(PAIR_GAP);
    let builder = Paceline::open(path).group(group);
    lanes().into_iter().fold(builder, |builder, (lane, _, _)| builder.lane(lane))
}

/// One request per attempt: `/lane/key/moment it was sent`.
struct Ask(SocketAddr);

impl Worker for Ask {
    async fn run(&self, call: Call) -> Work {
        let key: String = call.payload()?;
        let mut socket = TcpStream::connect(self.0).await?;
        socket.set_nodelay(true)?;
        let lane = call.lane();
        let sent_at = call.sending()?.0;
        let head = format!("GET /{lane}/{key}/{sent_at} HTTP/1.0\r\nhost: x\r\n\r\n");
        socket.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        match answer.split(' ').nth(1) {
            Some("200") => Outcome::inconclusive(key),
            status => Err(Failed::of(Failure::transient(status.unwrap_or("cut_off")))),
        }
    }

    fn sends_itself(&self) -> bool {
        true
    }
}

/// Two stages over all lanes; a few wait to be due.
fn job(key: &str, number: usize) -> Job {
    let stages: [&[&str]; 3] = [&["gap", "left"], &["window", "right"], &["both"]];
    let (first, second) = (stages[number % 3], stages[(number + 1) % 3]);
    let job = Job::new("ask", key).on(first).on(second).key(key);
    let job = job.attempts(1_000).backoff("20ms");
    if number.is_multiple_of(5) { job.delay("100ms") } else { job }
}

const CHILD: &str = "PACELINE_TEST_CRASH";

/// The program that is killed. What it says on its output is durable when it says it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_child_works_until_it_is_killed() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let [path, upstream, jobs] = told.split('\n').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let upstream = upstream.parse().expect("an address");
    let jobs: usize = jobs.parse().expect("a number");
    let pace = described(Path::new(path)).worker("ask", Ask(upstream)).start().expect("a store");
    let mut events = pace.events();
    say("open");
    let known = stored(&pace).await;
    let mut new = (0..).map(|n| (format!("k{n}"), n)).filter(|(key, _)| !known.contains_key(key));
    let speak = async {
        loop {
            match events.recv().await.expect("it keeps up") {
                Event::Settled(call, report) => {
                    say(&format!("settled {} {}", call.job, report.lane));
                }
                Event::Finished(report) => say(&format!("finished {}", report.job)),
                _ => {}
            }
        }
    };
    let work = async {
        for _ in 0..jobs {
            let (key, number) = new.next().expect("numbers do not end");
            let following = pace.submit(job(&key, number)).await.expect("accepted");
            say(&format!("accepted {} {key}", following.id()));
        }
        pace.idle().await.expect("running");
        pace.stop(Duration::from_secs(1)).await.expect("stopped");
    };
    tokio::select! {
        () = speak => {}
        () = work => say("idle"),
    }
}

fn say(line: &str) {
    // In one write, so that a kill cannot cut a line in two.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("\n> {line}\n").as_bytes());
    let _ = out.flush();
}

/// All jobs of a store by key: how often each is there, and whether it is finished.
async fn stored(pace: &Paceline) -> BTreeMap<String, Vec<(u64, JobState)>> {
    let (mut jobs, mut after) = (BTreeMap::<_, Vec<_>>::new(), None);
    loop {
        let (views, next) = pace.list(after, 1_000, None).await.expect("running");
        for view in views {
            let record = &view.stored.record;
            let key = record.spec.key.as_deref().map(String::from_utf8_lossy).expect("a key");
            jobs.entry(key.into_owned()).or_default().push((record.id.0, view.state));
        }
        after = next;
        if after.is_none() {
            return jobs;
        }
    }
}

/// A child and what it says.
struct Run {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Run {
    fn start(path: &Path, upstream: SocketAddr, jobs: usize) -> Run {
        let told = format!("{}\n{upstream}\n{jobs}", path.display());
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_child_works_until_it_is_killed", "--nocapture", "-q"])
            .env(CHILD, told)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix("> ") {
                    let _ = tell.send(said.to_string());
                }
            }
        });
        Run { child, lines }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A test that fails leaves no child behind; of one that is gone nothing is asked.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the children said, in the parent's own books.
#[derive(Default)]
struct Books {
    accepted: BTreeMap<String, u64>,
    keys: BTreeMap<u64, String>,
    /// By `lane/key`: how many calls the upstream had seen when it was known to be settled.
    settled: BTreeMap<String, u64>,
    finished: BTreeSet<u64>,
    idle: bool,
}

impl Books {
    fn heard(&mut self, said: &str, calls: &AtomicU64) {
        match said.split(' ').collect::<Vec<_>>()[..] {
            ["accepted", job, key] => {
                let job = job.parse().expect("a number");
                self.accepted.insert(key.to_string(), job);
                self.keys.insert(job, key.to_string());
            }
            ["settled", job, lane] => {
                let job: u64 = job.parse().expect("a number");
                let seen = calls.load(Ordering::SeqCst);
                let before = self.settled.insert(format!("{lane}/{job}"), seen);
                assert_eq!(before, None, "{lane} of job {job} has two outcomes");
            }
            ["finished", job] => {
                let first = self.finished.insert(job.parse().expect("a number"));
                assert!(first, "job {job} has two reports");
            }
            ["idle"] => self.idle = true,
            ["open"] => {}
            _ => panic!("{said}"),
        }
    }
}

/// `SplitMix64`: moments to die at, the same in every run of the test.
struct Rolls(u64);

impl Rolls {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_killed_at_any_moment_nothing_is_lost_repeated_or_too_fast() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let behaviour =
        Behaviour { latency: Span::millis(4), fail: Ratio::one_in(9), ..Behaviour::default() };
    let watcher = move |entry: &LogEntry| counted.store(entry.call, Ordering::SeqCst);
    let upstream = Mock::start_at(([127, 0, 0, 1], 0).into(), behaviour, watcher).await;
    let upstream = upstream.expect("a free port");

    let (mut books, mut rolls) = (Books::default(), Rolls(7));
    for _ in 0..KILLS {
        let mut run = Run::start(&path, upstream.addr(), JOBS_PER_RUN);
        // A few die before they are open, most so many words and a moment later.
        let words = rolls.below(40);
        if rolls.below(8) > 0 {
            for _ in 0..=words {
                let Some(line) = run.lines.recv().await else { break };
                books.heard(&line, &calls);
            }
        }
        let rest = async {
            while let Some(line) = run.lines.recv().await {
                books.heard(&line, &calls);
            }
        };
        let moment = Duration::from_micros(rolls.below(60_000));
        let _ = tokio::time::timeout(moment, rest).await;
        run.child.kill().expect("it is ours");
        run.child.wait().expect("it is ours");
        while let Some(line) = run.lines.recv().await {
            books.heard(&line, &calls);
        }
    }
    let mut run = Run::start(&path, upstream.addr(), 0);
    while let Some(line) = run.lines.recv().await {
        books.heard(&line, &calls);
    }
    assert!(run.child.wait().expect("it is ours").success() && books.idle);

    let pace = described(&path).start().expect("the store");
    let jobs = stored(&pace).await;
    for (key, id) in &books.accepted {
        assert!(jobs.contains_key(key), "{key}, accepted as job {id}, is lost");
    }
    let mut keys = BTreeMap::new();
    for (key, found) in &jobs {
        let [(id, state)] = found[..] else { panic!("{key} is there twice: {found:?}") };
        assert_eq!(state, JobState::Done, "{key}");
        keys.insert(id, key.as_str());
    }
    let log = upstream.log();
    let (repeated, most) = check_calls(&log, &books, &keys);
    let prompt = prompt(&log);
    let shortfall = check_limits(&log, &prompt);
    println!(
        "{KILLS} kills: {} jobs, {} calls seen, {repeated} cut off and made again, at most {most} \
         times; {} were kept on the wire, the largest shortfall of the others was {shortfall}",
        jobs.len(),
        log.len(),
        log.len() - prompt.len(),
    );
    assert!(jobs.len() > 100 && repeated > 0, "too little happened to mean anything");
}

/// `lane`, `key` and the moment it was sent.
fn parts(entry: &LogEntry) -> (&str, &str, Time) {
    let [lane, key, sent_at] = entry.path[1..].split('/').collect::<Vec<_>>()[..] else {
        panic!("{entry:?}")
    };
    (lane, key, Time(sent_at.parse().expect("a number")))
}

/// Nothing that was settled was asked for again. Returns how many calls that had been answered
/// were made again all the same, because their answer was not yet durable, and how often at most.
fn check_calls(log: &[LogEntry], books: &Books, keys: &BTreeMap<u64, &str>) -> (usize, usize) {
    let mut answered = BTreeMap::<_, usize>::new();
    let settled: BTreeMap<String, u64> = books
        .settled
        .iter()
        .map(|(call, &seen)| {
            let (lane, job) = call.split_once('/').expect("two parts");
            let job: u64 = job.parse().expect("a number");
            (format!("{lane}/{}", keys[&job]), seen)
        })
        .collect();
    for entry in log {
        let (lane, key, _) = parts(entry);
        let call = format!("{lane}/{key}");
        let again = settled.get(&call).is_some_and(|&seen| entry.call > seen);
        assert!(!again, "{call} was settled and asked for again: {entry:?}");
        *answered.entry(call).or_default() += usize::from(entry.status == Some(200));
    }
    let again = answered.values().filter(|&&times| times > 1);
    (again.count(), answered.values().copied().max().unwrap_or(0).saturating_sub(1))
}

/// The calls that reached the upstream as fast as the wire is. Both clocks run on through every
/// restart, so a store that came back at the wrong time would show here as a delay.
fn prompt(log: &[LogEntry]) -> Vec<&LogEntry> {
    let transit = |entry: &LogEntry| entry.at_us.cast_signed() - parts(entry).2.0.cast_signed();
    let fastest = log.iter().map(transit).min().expect("calls");
    let tolerance = TOLERANCE.0.cast_signed();
    let prompt: Vec<_> = log.iter().filter(|e| transit(e) - fastest <= tolerance).collect();
    let kept = log.len() - prompt.len();
    assert!(kept * 20 < log.len(), "{kept} of {} calls came long after their stamp", log.len());
    prompt
}

/// No limit was passed: to the microsecond as the calls were sent, and nearly so as they arrived.
fn check_limits(log: &[LogEntry], prompt: &[&LogEntry]) -> Span {
    let mut shortfall = Span::ZERO;
    let shared: [(&[&str], Vec<Limit>); 1] = [(&["left", "right"], vec![Limit::Gap(PAIR_GAP)])];
    let names: Vec<_> = lanes().into_iter().map(|(_, name, limits)| ([name], limits)).collect();
    let single = names.iter().map(|(name, limits)| (&name[..], limits.clone()));
    for (names, limits) in single.chain(shared) {
        let here = |entry: &&LogEntry| names.contains(&parts(entry).0);
        let mut sent: Vec<Time> = log.iter().filter(here).map(|entry| parts(entry).2).collect();
        assert!(sent.len() > 100, "{names:?}: only {} calls", sent.len());
        sent.sort();
        let sent: Vec<Arrival> =
            sent.into_iter().map(|at| Arrival { at, ended_at: Some(at) }).collect();
        let arrived = prompt.iter().copied().filter(here).map(LogEntry::arrival);
        let arrived: Vec<Arrival> = arrived.collect();
        for limit in limits {
            assert_eq!(violations(&sent, limit, Span::ZERO), [], "{names:?} sent past {limit}");
            assert_eq!(violations(&arrived, limit, TOLERANCE), [], "{names:?} past {limit}");
            let kept = |ms: &u64| violations(&arrived, limit, Span::millis(*ms)).is_empty();
            let needed = (0..=TOLERANCE.as_millis()).find(kept).expect("checked above");
            shortfall = shortfall.max(Span::millis(needed));
        }
    }
    shortfall
}
