//! A seeded story of batches that uses every kind of write, and all that a store holds.

use std::sync::Arc;

use paceline_core::{
    Answer, AttemptId, Blob, CachedAnswer, CachedValue, CallId, CallRecord, CallReport, Callers,
    Counters, JobId, JobRecord, JobSpec, JobState, LaneId, LaneRecord, Lookup, Outcome, Priority,
    Record, Report, Reservation, Span, Stamp, Terms, Time, Write,
};
use paceline_store::{JobFilter, Memory, Store, StoredJob};

const LANES: u64 = 5;
const QUESTIONS: u64 = 20;
const KEYS: u64 = 10;

/// Batches without end; the same seed tells the same story.
pub(crate) struct Story {
    random: u64,
    batches: u64,
    payload: usize,
    next: Counters,
    jobs: Vec<u64>,
    open: Vec<(u64, u64)>,
}

impl Story {
    /// With payloads of up to `payload` bytes.
    pub(crate) fn new(seed: u64, payload: usize) -> Story {
        let random = seed.wrapping_mul(2).wrapping_add(1);
        let next = Counters::default();
        Story { random, batches: 0, payload, next, jobs: Vec::new(), open: Vec::new() }
    }

    /// The next batch; its stamp counts the batches so far.
    pub(crate) fn batch(&mut self, writes: usize) -> (Stamp, Vec<Write>) {
        let writes = (0..writes).flat_map(|_| self.step()).collect();
        self.batches += 1;
        (Stamp { time: Time(self.batches), next: self.next, ..Stamp::default() }, writes)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }

    fn step(&mut self) -> Vec<Write> {
        match self.below(12) {
            0..3 => vec![self.submit()],
            3..5 => vec![self.reserve()],
            5..7 => self.end(),
            7 => self.finish(),
            8 => self.change(),
            9 => vec![self.lane()],
            10 => vec![self.answer()],
            _ => {
                let below = AttemptId(self.below(self.next.attempt) + 1);
                vec![Write::Forget(LaneId(self.below(LANES)), below)]
            }
        }
    }

    fn bytes(&mut self) -> Blob {
        let (byte, size) = (self.random as u8, self.below(self.payload as u64 + 1));
        vec![byte; size as usize].into()
    }

    fn submit(&mut self) -> Write {
        let id = self.next.job;
        self.next.job += 1;
        self.jobs.push(id);
        let terms = Terms::default();
        let mut spec = JobSpec::new("fetch", &[&format!("lane{}", self.below(LANES))]);
        spec.key = key_of(id);
        let spec = Arc::new(spec);
        Write::Job(JobRecord { id: JobId(id), submitted_at: Time(id), terms, spec }, self.bytes())
    }

    fn reserve(&mut self) -> Write {
        let (lane, id) = (self.below(LANES), self.next.attempt);
        self.next.attempt += 1;
        self.open.push((lane, id));
        Write::Reserve(Reservation {
            lane: LaneId(lane),
            attempt: AttemptId(id),
            call: CallId { job: JobId(id), index: 0 },
            priority: Priority::Rss,
            cost: 1,
            at: Time(id),
            ended_at: None,
        })
    }

    fn end(&mut self) -> Vec<Write> {
        let Some(place) = self.any(self.open.len()) else { return Vec::new() };
        let (lane, id) = self.open.swap_remove(place);
        let (lane, id) = (LaneId(lane), AttemptId(id));
        if self.below(3) == 0 {
            return vec![Write::Release(lane, id)];
        }
        vec![Write::Started(lane, id, Time(self.random)), Write::Ended(lane, id, Time(id.0 + 9))]
    }

    fn finish(&mut self) -> Vec<Write> {
        let Some(place) = self.any(self.jobs.len()) else { return Vec::new() };
        let job = JobId(self.jobs.swap_remove(place));
        let call = CallReport {
            lane: "lane".into(),
            outcome: Outcome::Done { conclusive: true, value: self.bytes() },
            attempts: 1,
            waited: Span(self.random >> 20),
            ran: Span(1),
            cached: false,
        };
        let (state, answer, finished_at) = (JobState::Done, Answer::All, Time(self.batches));
        let report = Report { job, state, answer, finished_at, calls: vec![call], partial: false };
        let key = key_of(job.0).map(|key| Write::FinishedKey(job, key));
        [Write::Finish(report.into())].into_iter().chain(key).collect()
    }

    fn change(&mut self) -> Vec<Write> {
        let Some(place) = self.any(self.jobs.len()) else { return Vec::new() };
        let job = JobId(self.jobs[place]);
        let callers = self.random as u32;
        let call = CallRecord {
            job,
            index: self.below(3) as u16,
            added: None,
            joined_at: Some(Time(self.random)),
            attempts: 1,
            throttles: 0,
            crashes: 0,
            unprocessed: 0,
            retry_at: None,
            settled: None,
        };
        vec![match self.below(4) {
            0 => Write::Terms(
                job,
                Terms { callers: Callers::alike(Time::NEVER, callers), ..Terms::default() },
            ),
            1 => Write::Payload(job, self.bytes()),
            _ => Write::Call(call),
        }]
    }

    fn lane(&mut self) -> Write {
        let id = LaneId(self.below(LANES));
        if self.below(8) == 0 {
            return Write::DropLane(id);
        }
        let cooldown_until = Time(self.random);
        Write::Lane(LaneRecord { id, name: "lane".into(), cooldown_until, ..LaneRecord::default() })
    }

    fn answer(&mut self) -> Write {
        let Lookup { lane, key } = question(self.below(QUESTIONS));
        let value = CachedValue { conclusive: true, value: self.bytes() };
        let value = (self.below(4) > 0).then_some(value);
        Write::Answer(CachedAnswer { lane, key, value, expires_at: Time(1 + self.batches) })
    }

    fn any(&mut self, of: usize) -> Option<usize> {
        (of > 0).then(|| self.below(of as u64) as usize)
    }
}

/// Every third job has a key, and few keys are different.
fn key_of(job: u64) -> Option<Blob> {
    job.is_multiple_of(3).then(|| key(job % KEYS))
}

fn key(n: u64) -> Blob {
    n.to_be_bytes().as_slice().into()
}

fn question(n: u64) -> Lookup {
    Lookup { lane: "arxiv".into(), key: n.to_le_bytes().as_slice().into() }
}

/// The whole contents of a store.
#[derive(Debug, PartialEq)]
pub(crate) struct Contents {
    pub(crate) stamp: Option<Stamp>,
    records: Vec<Record>,
    jobs: Vec<StoredJob>,
    unfinished: Vec<StoredJob>,
    finished: Vec<Option<StoredJob>>,
    payloads: Vec<Option<Blob>>,
    answers: Vec<Option<CachedAnswer>>,
}

impl Contents {
    pub(crate) fn of(store: &mut dyn Store) -> Contents {
        let mut records = Vec::new();
        let stamp = store.load(&mut |record| records.push(record)).expect("a load");
        let jobs = store.list(None.into(), usize::MAX, JobFilter::All).expect("a list");
        let unfinished =
            store.list(None.into(), usize::MAX, JobFilter::Unfinished).expect("a list");
        let keys: Vec<Blob> = (0..KEYS).map(key).collect();
        let finished = store.finished(&keys).expect("a look");
        let payload = |job: &StoredJob| store.payload(job.record.id).expect("a payload");
        let payloads = jobs.iter().map(payload).collect();
        let questions: Vec<Lookup> = (0..QUESTIONS).map(question).collect();
        let answers = store.answers(&questions, Time(0)).expect("answers");
        Contents { stamp, records, jobs, unfinished, finished, payloads, answers }
    }

    /// The number of batches that made it.
    pub(crate) fn batches(&self) -> usize {
        self.stamp.map_or(0, |stamp| stamp.time.0 as usize)
    }

    /// The contents of a store without failures, after none, one, two ... of `batches`.
    pub(crate) fn after_each(batches: &[(Stamp, Vec<Write>)]) -> Vec<Contents> {
        let mut memory = Memory::default();
        let mut after = vec![Contents::of(&mut memory)];
        for (stamp, writes) in batches {
            memory.commit(stamp, writes).expect("memory never fails");
            after.push(Contents::of(&mut memory));
        }
        after
    }
}
