//! The promises of a store as one suite: every backend runs all of it.

mod again;
mod finding;
mod pruning;

use std::num::NonZeroU32;
use std::sync::Arc;

use paceline_core::{
    AddedCall, Announced, Answer, AttemptId, CachedAnswer, CachedValue, CallId, CallRecord,
    CallReport, Callers, Counters, DueAt, Failure, JobId, JobRecord, JobSpec, JobState, LaneId,
    LaneRecord, Lookup, Membership, OnDuplicate, Outcome, Priority, Rate, Record, Report,
    Reservation, SettledCall, Skip, SlowRecord, Span, Stamp, Terms, Time, Until, Write,
};

use crate::{Cursor, JobFilter, Store, StoredJob};

/// Opens the same store again. The suite drops the store that it has before each call.
pub type Open = Box<dyn FnMut() -> Box<dyn Store>>;

/// Runs the whole suite. Each call of `fresh` gives the opener of a new and empty store.
pub fn all(fresh: &mut dyn FnMut() -> Open) {
    let promises = [
        a_new_store_is_empty,
        the_stamp_is_that_of_the_last_commit,
        writes_without_a_sync_are_there_too,
        records_are_read_back_in_order,
        a_write_replaces_the_record_that_it_names,
        a_later_write_of_a_batch_sees_the_earlier_ones,
        an_attempt_leaves_its_trace_until_forgotten,
        forgetting_keeps_open_reservations_and_other_lanes,
        a_dropped_lane_leaves_nothing,
        a_finished_job_keeps_its_report_and_loses_its_calls,
        every_outcome_is_kept_exactly,
        jobs_are_listed_in_pages,
        finding::unfinished_jobs_are_listed_alone,
        finding::jobs_are_listed_from_either_end,
        finding::the_newest_finished_job_is_found_by_its_key,
        finding::a_forgotten_job_is_not_found_by_its_key,
        a_payload_outlives_its_job,
        answers_come_in_the_order_asked_and_expire,
        pruning::steps_are_small_and_take_only_old_jobs_and_answers,
        pruning::old_jobs_are_found_whatever_stands_before_them,
        pruning::jobs_of_many_commits_are_old_after_a_restart_too,
        the_largest_numbers_survive,
        again::services_and_rosters_are_kept_by_name,
        again::a_note_is_kept_until_it_is_replaced_or_dropped,
        again::events_are_told_again_in_their_order_until_forgotten,
    ];
    for promise in promises {
        promise(&mut Fixture::new(fresh()));
    }
}

/// The store under test, opened anew before each look at it.
struct Fixture {
    open: Open,
    store: Option<Box<dyn Store>>,
}

impl Fixture {
    fn new(open: Open) -> Fixture {
        Fixture { open, store: None }
    }

    fn reopen(&mut self) -> &mut dyn Store {
        self.store = None;
        &mut **self.store.insert((self.open)())
    }

    fn store(&mut self) -> &mut dyn Store {
        match self.store {
            Some(ref mut store) => &mut **store,
            None => self.reopen(),
        }
    }

    #[track_caller]
    fn commit(&mut self, writes: &[Write]) {
        self.store().commit(&Stamp::default(), writes).expect("a commit");
    }

    /// The records of a load, which must be the same before and after opening anew.
    #[track_caller]
    fn records(&mut self) -> Vec<Record> {
        let before = records(self.store());
        let after = records(self.reopen());
        assert_eq!(before, after, "opening anew changes nothing");
        after
    }

    #[track_caller]
    fn job(&mut self, id: u64) -> Option<StoredJob> {
        let before = self.store().job(JobId(id)).expect("a look");
        let after = self.reopen().job(JobId(id)).expect("a look");
        assert_eq!(before, after, "opening anew changes nothing");
        after
    }

    #[track_caller]
    fn answers(&mut self, keys: &[&str], now: u64) -> Vec<Option<CachedAnswer>> {
        let lookups: Vec<Lookup> = keys.iter().map(|key| lookup(key)).collect();
        let warm = self.store().answers(&lookups, Time(now)).expect("answers");
        let cold = self.reopen().answers(&lookups, Time(now)).expect("answers");
        assert_eq!(warm, cold, "the cache changes nothing");
        cold
    }

    #[track_caller]
    fn listed(&mut self, after: u64, most: usize) -> Vec<u64> {
        let listed =
            self.store().list(Cursor::After(JobId(after)), most, JobFilter::All).expect("a list");
        for stored in &listed {
            let job = self.store().job(stored.record.id).expect("a look");
            assert_eq!(job.as_ref(), Some(stored));
        }
        listed.iter().map(|stored| stored.record.id.0).collect()
    }
}

fn records(store: &mut dyn Store) -> Vec<Record> {
    let mut records = Vec::new();
    store.load(&mut |record| records.push(record)).expect("a load");
    records
}

fn a_new_store_is_empty(fixture: &mut Fixture) {
    assert_eq!(fixture.store().load(&mut |_| panic!("nothing there")).expect("a load"), None);
    assert_eq!(fixture.reopen().load(&mut |_| panic!("nothing there")).expect("a load"), None);
    assert_eq!(fixture.store().list(Cursor::NEWEST, 10, JobFilter::All).expect("a list"), []);
    assert_eq!(fixture.store().payload(JobId(1)).expect("a look"), None);
    assert_eq!(fixture.store().prune(Time::NEVER, Time::NEVER).expect("a step"), 0);
    assert_eq!(fixture.answers(&["a"], 0), [None]);
}

fn the_stamp_is_that_of_the_last_commit(fixture: &mut Fixture) {
    let next = Counters { job: 7, attempt: 8, lane: 9, event: 10 };
    let first = Stamp { time: Time(1), wall: Time(2), boot: u64::MAX, since_boot: 4, next };
    let second = Stamp { time: Time(11), wall: Time(1), boot: 3, ..first };
    for stamp in [first, second] {
        fixture.store().commit(&stamp, &[]).expect("a commit");
        assert_eq!(fixture.store().load(&mut |_| ()).expect("a load"), Some(stamp));
        assert_eq!(fixture.reopen().load(&mut |_| ()).expect("a load"), Some(stamp));
    }
}

fn writes_without_a_sync_are_there_too(fixture: &mut Fixture) {
    let stamp = |time| Stamp { time: Time(time), ..Stamp::default() };
    let reserve = |id| [Write::Reserve(attempt(1, id))];
    fixture.commit(&[Write::Lane(lane(1))]);
    fixture.store().commit_soon(&stamp(1), &reserve(1)).expect("a commit");
    fixture.store().commit_soon(&stamp(2), &reserve(2)).expect("a commit");
    let promised = |ids: &[u64]| {
        let attempts = ids.iter().map(|&id| Record::Reservation(attempt(1, id)));
        [Record::Lane(lane(1))].into_iter().chain(attempts).collect::<Vec<_>>()
    };
    assert_eq!(fixture.records(), promised(&[1, 2]));
    fixture.commit(&reserve(3));
    fixture.store().commit_soon(&stamp(4), &reserve(4)).expect("a commit");
    assert_eq!(fixture.records(), promised(&[1, 2, 3, 4]));
    assert_eq!(fixture.store().load(&mut |_| ()).expect("a load"), Some(stamp(4)));
}

fn records_are_read_back_in_order(fixture: &mut Fixture) {
    let jobs = [job(1), job_with_everything(2), job(300)];
    let calls = [call(1, 0), call_with_everything(2, 1), call(2, 2)];
    let lanes = [lane(1), lane_with_everything(2)];
    let attempts = [attempt(1, 5), attempt(2, 6), attempt(1, 7)];
    let mut writes = Vec::new();
    // Backwards: the order of a load is its own.
    writes.extend(attempts.iter().rev().cloned().map(Write::Reserve));
    writes.extend(jobs.iter().rev().map(|job| Write::Job(job.clone(), b"x".as_slice().into())));
    writes.extend(calls.iter().rev().cloned().map(Write::Call));
    writes.extend(lanes.iter().rev().cloned().map(Write::Lane));
    fixture.commit(&writes);
    let mut expected: Vec<Record> = lanes.into_iter().map(Record::Lane).collect();
    expected.extend(jobs.into_iter().map(Record::Job));
    expected.extend(calls.into_iter().map(Record::Call));
    expected.extend(attempts.into_iter().map(Record::Reservation));
    assert_eq!(fixture.records(), expected);
}

fn a_write_replaces_the_record_that_it_names(fixture: &mut Fixture) {
    fixture.commit(&[
        Write::Lane(lane(1)),
        Write::Job(job(1), b"before".as_slice().into()),
        Write::Job(job(2), b"kept".as_slice().into()),
        Write::Call(call(1, 0)),
    ]);
    let mut callers = Callers::alike(Time(5), 3);
    callers.join(Time(4));
    callers.join(Time::NEVER);
    let terms = Terms { priority: None, due: Some(DueAt::Engine(Time(4))), callers };
    let later = CallRecord { attempts: 9, ..call(1, 0) };
    let slower = LaneRecord { failures: 2, ..lane(1) };
    fixture.commit(&[
        Write::Terms(JobId(1), terms.clone()),
        Write::Payload(JobId(1), b"after".as_slice().into()),
        Write::Call(later.clone()),
        Write::Lane(slower.clone()),
    ]);
    let changed = JobRecord { terms, ..job(1) };
    let expected =
        [Record::Lane(slower), Record::Job(changed), Record::Job(job(2)), Record::Call(later)];
    assert_eq!(fixture.records(), expected);
    assert_eq!(fixture.store().payload(JobId(1)).expect("a look").as_deref(), Some(&b"after"[..]));
    assert_eq!(fixture.store().payload(JobId(2)).expect("a look").as_deref(), Some(&b"kept"[..]));
}

fn a_later_write_of_a_batch_sees_the_earlier_ones(fixture: &mut Fixture) {
    let done = report(1, 5, vec![]);
    let terms = Terms { callers: Callers::alike(Time::NEVER, 2), ..job(1).terms };
    fixture.commit(&[
        Write::Job(job(1), b"x".as_slice().into()),
        Write::Terms(JobId(1), terms.clone()),
        Write::Call(call(1, 0)),
        Write::Reserve(attempt(1, 1)),
        Write::Started(LaneId(1), AttemptId(1), Time(3)),
        Write::Ended(LaneId(1), AttemptId(1), Time(4)),
        Write::Forget(LaneId(1), AttemptId(2)),
        Write::Finish(done.clone().into()),
    ]);
    assert_eq!(fixture.records(), []);
    let record = JobRecord { terms, ..job(1) };
    assert_eq!(fixture.job(1), Some(StoredJob { record, report: Some(done) }));
}

fn an_attempt_leaves_its_trace_until_forgotten(fixture: &mut Fixture) {
    let heir = CallId { job: JobId(77), index: 3 };
    fixture.commit(&[1, 2, 3].map(|id| Write::Reserve(attempt(1, id))));
    fixture.commit(&[
        Write::Started(LaneId(1), AttemptId(1), Time(70)),
        Write::Ended(LaneId(1), AttemptId(1), Time(80)),
        Write::Started(LaneId(1), AttemptId(2), Time(75)),
        Write::HandOver(LaneId(1), AttemptId(2), heir),
        Write::Release(LaneId(1), AttemptId(3)),
    ]);
    let first = Reservation { at: Time(70), ended_at: Some(Time(80)), ..attempt(1, 1) };
    let second = Reservation { at: Time(75), call: heir, ..attempt(1, 2) };
    assert_eq!(fixture.records(), [first, second].map(Record::Reservation));
    // The history of one attempt can go alone, too.
    fixture.commit(&[Write::Release(LaneId(1), AttemptId(1))]);
    assert_eq!(fixture.records().len(), 1);
}

fn forgetting_keeps_open_reservations_and_other_lanes(fixture: &mut Fixture) {
    let reserve = |&(lane, id)| Write::Reserve(attempt(lane, id));
    fixture
        .commit(&[(1, 1), (1, 2), (2, 3), (1, 4), (1, 5)].iter().map(reserve).collect::<Vec<_>>());
    let end = |&(lane, id)| Write::Ended(LaneId(lane), AttemptId(id), Time(9));
    fixture.commit(&[(1, 1), (2, 3), (1, 4), (1, 5)].iter().map(end).collect::<Vec<_>>());
    // A store that was opened anew must know which attempts have ended.
    fixture.reopen().load(&mut |_| ()).expect("a load");
    fixture.commit(&[Write::Forget(LaneId(1), AttemptId(5))]);
    assert_eq!(attempts(fixture), [2, 3, 5]);
    // So must one that commits before it is loaded.
    fixture.reopen();
    fixture.commit(&[
        Write::Forget(LaneId(1), AttemptId(100)),
        Write::Forget(LaneId(7), AttemptId(9)),
    ]);
    assert_eq!(attempts(fixture), [2, 3]);
}

fn a_dropped_lane_leaves_nothing(fixture: &mut Fixture) {
    fixture.commit(&[
        Write::Lane(lane(1)),
        Write::Lane(lane(2)),
        Write::Reserve(attempt(1, 1)),
        Write::Reserve(attempt(2, 2)),
    ]);
    fixture.commit(&[
        Write::Ended(LaneId(1), AttemptId(1), Time(9)),
        Write::Ended(LaneId(2), AttemptId(2), Time(9)),
        Write::DropLane(LaneId(1)),
    ]);
    let left = Reservation { ended_at: Some(Time(9)), ..attempt(2, 2) };
    assert_eq!(fixture.records(), [Record::Lane(lane(2)), Record::Reservation(left)]);
}

fn a_finished_job_keeps_its_report_and_loses_its_calls(fixture: &mut Fixture) {
    let submit = |id| Write::Job(job_with_everything(id), b"x".as_slice().into());
    fixture.commit(&[submit(1), submit(2), Write::Call(call(1, 0)), Write::Call(call(1, 3))]);
    fixture.commit(&[Write::Call(call(2, 0))]);
    fixture.reopen();
    let done = report(1, 5, vec![call_report("a", Outcome::Empty)]);
    fixture.commit(&[Write::Finish(done.clone().into())]);
    let left = [Record::Job(job_with_everything(2)), Record::Call(call(2, 0))];
    assert_eq!(fixture.records(), left);
    let finished = StoredJob { record: job_with_everything(1), report: Some(done) };
    assert_eq!(fixture.job(1), Some(finished));
    let unfinished = StoredJob { record: job_with_everything(2), report: None };
    assert_eq!(fixture.job(2), Some(unfinished));
    assert_eq!(fixture.job(3), None);
}

fn every_outcome_is_kept_exactly(fixture: &mut Fixture) {
    let wait = Span::micros(1_500_001);
    let outcomes = [
        Outcome::Done { conclusive: true, value: b"{\"a\":[1]}".as_slice().into() },
        Outcome::Done { conclusive: false, value: b"not JSON".as_slice().into() },
        Outcome::Empty,
        Outcome::Skipped(Skip::MaxWait { wait, max_wait: wait, priority: Priority::Rss }),
        Outcome::Skipped(Skip::StartWithin { start_within: wait }),
        Outcome::Skipped(Skip::Deadline),
        Outcome::Skipped(Skip::EarlyExit),
        Outcome::Skipped(Skip::NotApplicable),
        Outcome::Skipped(Skip::Stage),
        Outcome::Failed(Failure::transient("timeout").because("after 30 s")),
        Outcome::Failed(Failure::permanent("status_404")),
        Outcome::Cancelled,
        Outcome::Duplicate { of: JobId(4) },
        Outcome::Moved { to: "host:b".into() },
    ];
    let states = [JobState::Done, JobState::Failed, JobState::Skipped, JobState::Cancelled];
    let answers = [Answer::Conclusive, Answer::All, Answer::Empty, Answer::Inconclusive];
    for (id, (state, answer)) in (1..).zip(states.into_iter().zip(answers)) {
        let calls = outcomes.iter().map(|outcome| call_report("a", outcome.clone())).collect();
        let done = Report { state, answer, ..report(id, 5, calls) };
        let settle = |(index, outcome): (u16, &Outcome)| {
            let outcome = outcome.clone();
            let settled = Some(SettledCall { outcome, waited: 1, ran: 2, cached: true });
            CallRecord { settled, ..call(id, index) }
        };
        let settled: Vec<CallRecord> = (0..).zip(&outcomes).map(settle).collect();
        let mut writes = vec![Write::Job(job(id), b"".as_slice().into())];
        writes.extend(settled.iter().cloned().map(Write::Call));
        fixture.commit(&writes);
        let mut expected = vec![Record::Job(job(id))];
        expected.extend(settled.into_iter().map(Record::Call));
        assert_eq!(fixture.records(), expected);
        fixture.commit(&[Write::Finish(done.clone().into())]);
        assert_eq!(fixture.job(id).and_then(|stored| stored.report), Some(done));
    }
}

fn jobs_are_listed_in_pages(fixture: &mut Fixture) {
    fixture
        .commit(&(1..=9).map(|id| Write::Job(job(id), b"x".as_slice().into())).collect::<Vec<_>>());
    fixture.commit(&[2, 3, 7].map(|id| Write::Finish(report(id, 5, vec![]).into())));
    assert_eq!(fixture.listed(0, 4), [1, 2, 3, 4]);
    assert_eq!(fixture.listed(4, 4), [5, 6, 7, 8]);
    assert_eq!(fixture.listed(8, 4), [9]);
    assert_eq!(fixture.listed(9, 4), [0; 0]);
    assert_eq!(fixture.listed(0, 0), [0; 0]);
    assert_eq!(fixture.listed(6, usize::MAX), [7, 8, 9]);
    assert_eq!(fixture.listed(u64::MAX, 4), [0; 0]);
    assert_eq!(fixture.job(u64::MAX), None);
}

fn a_payload_outlives_its_job(fixture: &mut Fixture) {
    let large: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    let payloads = [b"".to_vec(), b"x".to_vec(), large, vec![0, 255]];
    let submit = |(id, payload): (u64, &Vec<u8>)| Write::Job(job(id), payload.as_slice().into());
    fixture.commit(&(1..).zip(&payloads).map(submit).collect::<Vec<_>>());
    // A payload can become empty.
    fixture.commit(&[Write::Payload(JobId(4), b"".as_slice().into())]);
    for _ in 0..2 {
        for (id, payload) in (1..).zip(&payloads[..3]) {
            let found = fixture.store().payload(JobId(id)).expect("a look");
            assert_eq!(found.as_deref(), Some(payload.as_slice()));
        }
        assert_eq!(fixture.store().payload(JobId(4)).expect("a look").as_deref(), Some(&b""[..]));
        assert_eq!(fixture.store().payload(JobId(5)).expect("a look"), None);
        if !fixture.records().is_empty() {
            fixture.commit(&[1, 2, 3, 4].map(|id| Write::Finish(report(id, 5, vec![]).into())));
        }
    }
}

fn answers_come_in_the_order_asked_and_expire(fixture: &mut Fixture) {
    fixture
        .commit(&[found("a", "1", 10), found("b", "2", 20), nothing("c", 20)].map(Write::Answer));
    assert_eq!(
        fixture.answers(&["b", "x", "a", "c", "b"], 9),
        [
            Some(found("b", "2", 20)),
            None,
            Some(found("a", "1", 10)),
            Some(nothing("c", 20)),
            Some(found("b", "2", 20)),
        ]
    );
    assert_eq!(fixture.answers(&["a", "c"], 10), [None, Some(nothing("c", 20))]);
    // The same key on another lane has another answer.
    let elsewhere = Lookup { lane: "other".into(), ..lookup("b") };
    assert_eq!(fixture.store().answers(&[elsewhere], Time(9)).expect("answers"), [None]);
    // An answer that was just read is in the cache when it is replaced.
    assert_eq!(fixture.answers(&["a", "b"], 9).iter().flatten().count(), 2);
    // A new answer counts, also an empty one, and also one for a shorter time.
    fixture.commit(&[Write::Answer(found("a", "3", 30)), Write::Answer(nothing("b", 12))]);
    assert_eq!(
        fixture.answers(&["a", "b"], 11),
        [Some(found("a", "3", 30)), Some(nothing("b", 12))]
    );
    assert_eq!(fixture.answers(&["a", "b"], 15), [Some(found("a", "3", 30)), None]);
}

fn the_largest_numbers_survive(fixture: &mut Fixture) {
    let reservation = Reservation {
        cost: u32::MAX,
        call: CallId { job: JobId(1), index: u16::MAX },
        at: Time::NEVER,
        ended_at: Some(Time::NEVER),
        ..attempt(u64::MAX, 1)
    };
    let forever = CachedAnswer { expires_at: Time::NEVER, ..found("a", "1", 0) };
    fixture.commit(&[Write::Reserve(reservation.clone()), Write::Answer(forever.clone())]);
    assert_eq!(fixture.records(), [Record::Reservation(reservation)]);
    assert_eq!(fixture.answers(&["a"], u64::MAX - 1), [Some(forever)]);
    assert_eq!(fixture.store().prune(Time(0), Time(1 << 62)).expect("a step"), 0);
}

fn attempts(fixture: &mut Fixture) -> Vec<u64> {
    let number = |record| match record {
        Record::Reservation(reservation) => reservation.attempt.0,
        other => panic!("nothing but attempts was written: {other:?}"),
    };
    fixture.records().into_iter().map(number).collect()
}

/// Finished jobs with this payload.
#[cfg(test)]
pub(crate) fn finished_with(jobs: u64, at: Time, payload: &[u8]) -> Vec<Write> {
    let job = |id| {
        let finish = Write::Finish(report(id, at.0, vec![]).into());
        [Write::Job(job(id), payload.into()), finish]
    };
    (1..=jobs).flat_map(job).collect()
}

fn job(id: u64) -> JobRecord {
    let terms = Terms::default();
    let spec = Arc::new(JobSpec::new("fetch", &["host:a"]));
    JobRecord { id: JobId(id), submitted_at: Time(id * 10), terms, spec }
}

fn job_with_everything(id: u64) -> JobRecord {
    let terms = Terms {
        priority: Some(Priority::Interactive),
        due: Some(DueAt::Wall(Time(1 << 60))),
        callers: Callers::alike(Time(1 << 61), u32::MAX),
    };
    let spec = JobSpec {
        stages: vec![vec!["a".into(), "b".into()], vec![], vec!["ü".into()]],
        not_applicable: vec![0, 2],
        tenant: Some("team".into()),
        key: Some(id.to_le_bytes().as_slice().into()),
        schedule_key: Some(b"".as_slice().into()),
        on_duplicate: OnDuplicate::Replace,
        max_wait: Some(Span::secs(3)),
        start_within: Some(Span(u64::MAX)),
        until: Until::Conclusive,
        cost: NonZeroU32::MAX,
        cache_key: Some(b"\xff\x00".as_slice().into()),
        ..JobSpec::new("search", &[])
    };
    JobRecord { id: JobId(id), submitted_at: Time(7), terms, spec: Arc::new(spec) }
}

fn call(job: u64, index: u16) -> CallRecord {
    CallRecord {
        job: JobId(job),
        index,
        added: None,
        joined_at: Some(Time(3)),
        attempts: 1,
        throttles: 0,
        crashes: 0,
        unprocessed: 0,
        retry_at: None,
        settled: None,
    }
}

fn call_with_everything(job: u64, index: u16) -> CallRecord {
    let payload = Some(b"\x00moved".to_vec());
    CallRecord {
        added: Some(AddedCall { stage: 1, lane: "host:b".into(), hops: 2, payload }),
        throttles: 20,
        crashes: 2,
        retry_at: Some(Time(99)),
        ..call(job, index)
    }
}

fn lane(id: u64) -> LaneRecord {
    LaneRecord { id: LaneId(id), name: format!("lane{id}").into(), ..LaneRecord::default() }
}

fn lane_with_everything(id: u64) -> LaneRecord {
    let rate = |text: &str| text.parse::<Rate>().expect("a rate");
    let announced = Announced {
        every: Some(Span::millis(20)),
        window: Some(rate("3/5s")),
        left: Some((4, Span::secs(60))),
        in_flight: Some(2),
    };
    LaneRecord {
        windows: vec![(rate("50/s"), Time(1)), (rate("1000/h"), Time(2))],
        cooldown_until: Time(77),
        failures: 4,
        rung: 2,
        judged: AttemptId(12),
        slow: SlowRecord {
            gap: Span::secs(4),
            ground: Span::millis(10),
            refused: Some((Span::secs(2), Time(6))),
        },
        narrowed: Some(1),
        announced: Some((announced, Time(5))),
        paused_at: Some(Time(9)),
        groups: Some(vec![Membership::from("shared", AttemptId(3))]),
        ..lane(id)
    }
}

fn attempt(lane: u64, id: u64) -> Reservation {
    Reservation {
        lane: LaneId(lane),
        attempt: AttemptId(id),
        call: CallId { job: JobId(id), index: 1 },
        priority: Priority::ALL[id as usize % 4],
        cost: 2,
        at: Time(50),
        ended_at: None,
    }
}

fn report(job: u64, finished_at: u64, calls: Vec<CallReport>) -> Report {
    Report {
        job: JobId(job),
        state: JobState::Done,
        answer: Answer::All,
        finished_at: Time(finished_at),
        calls,
        partial: false,
    }
}

fn call_report(lane: &str, outcome: Outcome) -> CallReport {
    CallReport {
        lane: lane.into(),
        outcome,
        attempts: 3,
        waited: Span::micros(1_234_567),
        ran: Span::micros(89),
        cached: true,
    }
}

fn found(key: &str, value: &str, expires_at: u64) -> CachedAnswer {
    let value =
        CachedValue { conclusive: expires_at.is_multiple_of(20), value: value.as_bytes().into() };
    CachedAnswer { value: Some(value), ..nothing(key, expires_at) }
}

fn nothing(key: &str, expires_at: u64) -> CachedAnswer {
    let Lookup { lane, key } = lookup(key);
    CachedAnswer { lane, key, value: None, expires_at: Time(expires_at) }
}

fn lookup(key: &str) -> Lookup {
    Lookup { lane: "arxiv".into(), key: key.as_bytes().into() }
}
