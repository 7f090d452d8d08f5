//! The bytes of a row: a form number, then postcard.

use std::collections::HashMap;
use std::sync::Arc;

use paceline_core::{
    AddedCall, Announced, Answer, AttemptId, CallRecord, CallReport, Callers, DueAt, Happened,
    JobId, JobSpec, JobState, LaneId, LaneRecord, Numbered, Outcome, Priority, Rate, Report,
    SettledCall, SlowRecord, Span, Terms, Time,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first byte of every blob. Rows are read for ever: a type that changes gets the next number
/// and a copy of what it was under this one.
const FORM: u8 = 1;
/// The form of lanes, calls and terms, which have changed once.
const SECOND_FORM: u8 = 2;

/// Encodes one value at a time without allocating for each.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    pub(super) fn bytes_of<T: Serialize + ?Sized>(&mut self, value: &T) -> &[u8] {
        self.bytes_in(FORM, value)
    }

    pub(super) fn bytes_of_lane(&mut self, lane: &LaneRecord) -> &[u8] {
        self.bytes_in(SECOND_FORM, lane)
    }

    pub(super) fn bytes_of_call(&mut self, call: &CallRecord) -> &[u8] {
        self.bytes_in(SECOND_FORM, call)
    }

    fn bytes_in<T: Serialize + ?Sized>(&mut self, form: u8, value: &T) -> &[u8] {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.clear();
        bytes.push(form);
        self.0 = postcard::to_extend(value, bytes).expect("memory takes any value");
        &self.0
    }

    pub(super) fn bytes_of_terms(&mut self, terms: &Terms) -> &[u8] {
        self.bytes_in(SECOND_FORM, terms)
    }

    /// The terms and the spec of a job, each with its own form number.
    pub(super) fn bytes_of_job(&mut self, terms: &Terms, spec: &JobSpec) -> (&[u8], &[u8]) {
        let middle = self.bytes_of_terms(terms).len();
        let mut bytes = std::mem::take(&mut self.0);
        bytes.push(FORM);
        self.0 = postcard::to_extend(spec, bytes).expect("memory takes any value");
        self.0.split_at(middle)
    }

    /// Events that follow one another, without their numbers.
    pub(super) fn bytes_of_events(&mut self, events: &[Numbered]) -> &[u8] {
        let events: Vec<_> = events.iter().map(|event| (event.at, &event.what)).collect();
        self.bytes_of(&events)
    }

    pub(super) fn bytes_of_report(&mut self, report: &Report) -> &[u8] {
        let calls: Vec<_> = report.calls.iter().map(CallForm::of).collect();
        self.bytes_of(&(report.state, report.answer, calls))
    }
}

/// Bytes that no version of this program has written.
#[derive(Debug, thiserror::Error)]
#[error("a {what} cannot be read")]
pub(super) struct Unreadable {
    what: &'static str,
}

/// Reads what [`Buffer::bytes_of`] wrote; `what` names it in the error.
pub(super) fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Unreadable> {
    let Some((&FORM, body)) = bytes.split_first() else { return Err(Unreadable { what }) };
    read_body(what, body)
}

/// Reads a lane in the form of this version, or of the one before.
pub(super) fn read_lane(bytes: &[u8]) -> Result<LaneRecord, Unreadable> {
    match bytes.split_first() {
        Some((&SECOND_FORM, body)) => read_body("lane", body),
        _ => read::<FirstLane>("lane", bytes).map(LaneRecord::from),
    }
}

/// Reads a call in the form of this version, or of the one before.
pub(super) fn read_call(bytes: &[u8]) -> Result<CallRecord, Unreadable> {
    match bytes.split_first() {
        Some((&SECOND_FORM, body)) => read_body("call", body),
        _ => read::<FirstCall>("call", bytes).map(CallRecord::from),
    }
}

/// Reads a job's terms in the form of this version, or of the one before.
pub(super) fn read_terms(bytes: &[u8]) -> Result<Terms, Unreadable> {
    match bytes.split_first() {
        Some((&SECOND_FORM, body)) => read_body("job's terms", body),
        _ => read::<FirstTerms>("job's terms", bytes).map(Terms::from),
    }
}

fn read_body<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, Unreadable> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(Unreadable { what }),
    }
}

/// Reads a report; its job and its moment are columns of their own.
pub(super) fn read_report(
    job: JobId,
    finished_at: Time,
    bytes: &[u8],
) -> Result<Report, Unreadable> {
    let (state, answer, calls): (JobState, Answer, Vec<CallForm<Arc<str>, Outcome>>) =
        read("report", bytes)?;
    let calls = calls.into_iter().map(CallReport::from).collect();
    Ok(Report { job, state, answer, finished_at, calls, partial: false })
}

/// Reads events; the number of the first is a column of its own.
pub(super) fn read_events(first: u64, bytes: &[u8]) -> Result<Vec<Numbered>, Unreadable> {
    let events: Vec<(Time, Happened)> = read("list of events", bytes)?;
    Ok((first..).zip(events).map(|(id, (at, what))| Numbered { id, at, what }).collect())
}

/// A lane as the first form had it.
#[derive(Serialize, Deserialize)]
struct FirstLane {
    id: LaneId,
    name: Arc<str>,
    windows: Vec<(Rate, Time)>,
    cooldown_until: Time,
    failures: u32,
    rung: u8,
    judged: AttemptId,
    /// How often the gap was doubled, from 1 s where the lane had none.
    slowed: u8,
    narrowed: Option<u32>,
    announced: Option<(Announced, Time)>,
    paused: bool,
}

impl From<FirstLane> for LaneRecord {
    fn from(lane: FirstLane) -> LaneRecord {
        // The gap before it was doubled stood in the configuration only: a second is assumed.
        let second = Span::secs(1);
        let gap = lane.slowed.checked_sub(1).map(|times| second.times(1 << times.min(4)));
        let slow = gap.map(|gap| SlowRecord { gap, ground: Span::millis(10), refused: None });
        LaneRecord {
            id: lane.id,
            name: lane.name,
            windows: lane.windows,
            cooldown_until: lane.cooldown_until,
            failures: lane.failures,
            rung: lane.rung,
            judged: lane.judged,
            slow: slow.unwrap_or_default(),
            narrowed: lane.narrowed,
            announced: lane.announced,
            paused_at: lane.paused.then_some(Time::ZERO),
            groups: None,
        }
    }
}

/// Terms as the first form had them: a delay was a date, and all callers had one deadline.
#[derive(Serialize, Deserialize)]
struct FirstTerms {
    priority: Option<Priority>,
    due: Option<Time>,
    deadline: Option<Time>,
    callers: u32,
}

impl From<FirstTerms> for Terms {
    fn from(terms: FirstTerms) -> Terms {
        let deadline = terms.deadline.unwrap_or(Time::NEVER);
        Terms {
            priority: terms.priority,
            due: terms.due.map(DueAt::Wall),
            callers: Callers::alike(deadline, terms.callers),
        }
    }
}

/// A call as the first form had it.
#[derive(Serialize, Deserialize)]
struct FirstCall {
    job: JobId,
    index: u16,
    added: Option<AddedCall>,
    joined_at: Option<Time>,
    attempts: u16,
    throttles: u16,
    crashes: u16,
    retry_at: Option<Time>,
    settled: Option<SettledCall>,
}

impl From<FirstCall> for CallRecord {
    fn from(call: FirstCall) -> CallRecord {
        CallRecord {
            job: call.job,
            index: call.index,
            added: call.added,
            joined_at: call.joined_at,
            attempts: call.attempts,
            throttles: call.throttles,
            crashes: call.crashes,
            unprocessed: 0,
            retry_at: call.retry_at,
            settled: call.settled,
        }
    }
}

/// A call's report to the microsecond: the JSON that programs read is rounded.
#[derive(Serialize, Deserialize)]
struct CallForm<L, O> {
    lane: L,
    outcome: O,
    attempts: u32,
    waited: Span,
    ran: Span,
    cached: bool,
}

impl<'a> CallForm<&'a str, &'a Outcome> {
    fn of(call: &'a CallReport) -> Self {
        CallForm {
            lane: &call.lane,
            outcome: &call.outcome,
            attempts: call.attempts,
            waited: call.waited,
            ran: call.ran,
            cached: call.cached,
        }
    }
}

impl From<CallForm<Arc<str>, Outcome>> for CallReport {
    fn from(form: CallForm<Arc<str>, Outcome>) -> CallReport {
        let CallForm { lane, outcome, attempts, waited, ran, cached } = form;
        CallReport { lane, outcome, attempts, waited, ran, cached }
    }
}

/// Specs read so far, so that jobs which differ only in their payload share one.
#[derive(Default)]
pub(super) struct Specs(HashMap<Box<[u8]>, Arc<JobSpec>>);

impl Specs {
    /// Beyond this number of different specs sharing is not worth its memory.
    const MOST: usize = 4_096;

    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Arc<JobSpec>, Unreadable> {
        if let Some(spec) = self.0.get(bytes) {
            return Ok(spec.clone());
        }
        let spec = Arc::new(read::<JobSpec>("job", bytes)?);
        // A spec with a key is hardly ever seen twice.
        let keyed = spec.key.is_some() || spec.schedule_key.is_some() || spec.cache_key.is_some();
        if !keyed && self.0.len() < Specs::MOST {
            self.0.insert(bytes.into(), spec.clone());
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_core::{
        Failure, Membership, Now, RosterRecord, ServiceRecord, ServiceResult, ServiceRun, Skip,
    };

    /// Pins the bytes: if this fails, files written before can no longer be read. Keep the old
    /// type under this form number and give the new one the next.
    #[track_caller]
    fn check(written: &[u8], expected: &str) {
        let hex: Vec<String> = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex.concat(), expected);
    }

    #[test]
    fn jobs_keep_their_form() {
        let mut spec = JobSpec::new("fetch", &["host:a"]);
        spec.tenant = Some("t".into());
        spec.key = Some([7, 200].as_slice().into());
        spec.max_wait = Some(Span::secs(1));
        let mut buffer = Buffer::default();
        let mut callers = Callers::alike(Time::NEVER, 2);
        callers.join(Time(7));
        let due = Some(DueAt::Engine(Time(300)));
        let terms = Terms { priority: Some(Priority::Rss), due, callers };
        let (terms_bytes, spec_bytes) = buffer.bytes_of_job(&terms, &spec);
        check(terms_bytes, "0201010101ac02000201010701");
        assert_eq!(read_terms(terms_bytes).expect("the same"), terms);
        check(
            spec_bytes,
            "01056665746368010106686f73743a6100010174010207c8000001c0843d000003c0843d80c6868f010100",
        );
        assert_eq!(read::<JobSpec>("job", spec_bytes).expect("the same"), spec);
    }

    #[test]
    fn terms_of_the_first_form_are_read() {
        let bytes = [0x01, 0x01, 0x01, 0x01, 0xac, 0x02, 0x01, 0x07, 0x02];
        let callers = Callers::alike(Time(7), 2);
        let due = Some(DueAt::Wall(Time(300)));
        let terms = Terms { priority: Some(Priority::Rss), due, callers };
        assert_eq!(read_terms(&bytes).expect("an earlier version wrote it"), terms);
    }

    #[test]
    fn lanes_keep_their_form() {
        let lane = LaneRecord {
            id: LaneId(3),
            name: "a".into(),
            windows: vec![("2/s".parse().expect("a rate"), Time(5))],
            cooldown_until: Time(6),
            failures: 1,
            rung: 2,
            judged: AttemptId(9),
            slow: SlowRecord {
                gap: Span::secs(8),
                ground: Span::millis(500),
                refused: Some((Span::secs(1), Time(7))),
            },
            narrowed: Some(1),
            announced: Some((paceline_core::Announced::default(), Time(8))),
            paused_at: Some(Time(4)),
            groups: Some(vec![Membership::from("g", AttemptId(2))]),
        };
        let mut buffer = Buffer::default();
        check(
            buffer.bytes_of_lane(&lane),
            "020301610102c0843d050601020980a4e803a0c21e01c0843d07010101000000000801040101016702ffffffffffffffffff01",
        );
        assert_eq!(read_lane(buffer.bytes_of_lane(&lane)).expect("the same"), lane);
    }

    #[test]
    fn lanes_of_the_first_form_are_read() {
        let bytes = [
            0x01, 0x03, 0x01, 0x61, 0x01, 0x02, 0xc0, 0x84, 0x3d, 0x05, 0x06, 0x01, 0x02, 0x09,
            0x04, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x08, 0x01,
        ];
        let lane = read_lane(&bytes).expect("an earlier version wrote it");
        assert_eq!((lane.id, &*lane.name, lane.rung), (LaneId(3), "a", 2));
        assert_eq!((lane.slow.gap, lane.narrowed), (Span::secs(8), Some(1)));
        assert_eq!((lane.paused_at, lane.groups), (Some(Time::ZERO), None));
    }

    #[test]
    fn services_and_rosters_keep_their_form() {
        let both = Now { time: Time(1), wall: Time(2) };
        let result = ServiceResult { state: JobState::Failed, why: Some("x".into()) };
        let run = ServiceRun { job: JobId(3), ended_at: Time(4), result: result.clone() };
        let service = ServiceRecord {
            name: "a".into(),
            since: both,
            succeeded_at: Some(both),
            last: Some(run),
        };
        check(Buffer::default().bytes_of(&service), "010161010201010201030403010178");
        let roster = RosterRecord {
            name: "n".into(),
            begun_at: Some(Time(5)),
            over_at: Some(both),
            current: Some(("a".into(), JobId(3))),
            remaining: vec!["b".into()],
            results: vec![("c".into(), result)],
        };
        check(Buffer::default().bytes_of(&roster), "01016e01050101020101610301016201016303010178");
    }

    #[test]
    fn events_keep_their_form() {
        let job = JobId(1);
        let lane: Arc<str> = "a".into();
        let outcome = Outcome::Skipped(Skip::Stage);
        let (waited, ran) = (Span(3), Span(4));
        let what = [
            Happened::Accepted { job },
            Happened::Started { job, call: 2, lane: lane.clone() },
            Happened::Settled {
                job,
                call: 2,
                lane: lane.clone(),
                outcome,
                attempts: 1,
                waited,
                ran,
            },
            Happened::Finished { job, state: JobState::Done, answer: Answer::All },
            Happened::Closed { lane, until: Time(5) },
        ];
        let events = (7..).zip(what).map(|(id, what)| Numbered { id, at: Time(id), what });
        let events: Vec<Numbered> = events.collect();
        let mut buffer = Buffer::default();
        let bytes = buffer.bytes_of_events(&events);
        check(bytes, "010507000108010102016109020102016102050103040a030102010b04016105");
        assert_eq!(read_events(7, bytes).expect("the same"), events);
    }

    #[test]
    fn calls_and_reports_keep_their_form() {
        let outcomes = [
            Outcome::Done { conclusive: true, value: b"1".as_slice().into() },
            Outcome::Skipped(Skip::Stage),
            Outcome::Failed(Failure::transient("x")),
            Outcome::Moved { to: "b".into() },
        ];
        let settled = |outcome: &Outcome| CallRecord {
            job: JobId(1),
            index: 2,
            added: None,
            joined_at: Some(Time(3)),
            attempts: 4,
            throttles: 5,
            crashes: 6,
            unprocessed: 9,
            retry_at: None,
            settled: Some(SettledCall {
                outcome: outcome.clone(),
                waited: 7,
                ran: 8,
                cached: false,
            }),
        };
        let mut buffer = Buffer::default();
        let record = settled(&outcomes[0]);
        check(buffer.bytes_of_call(&record), "02010200010304050609000100010131070800");
        assert_eq!(read_call(buffer.bytes_of_call(&record)).expect("the same"), record);
        let first = b"\x01\x01\x02\x00\x01\x03\x04\x05\x06\x00\x01\x00\x01\x01\x31\x07\x08\x00";
        let first = read_call(first).expect("an earlier version wrote it");
        assert_eq!(first, CallRecord { unprocessed: 0, ..record });
        let called = |outcome: &Outcome| CallReport {
            lane: "a".into(),
            outcome: outcome.clone(),
            attempts: 1,
            waited: Span(2),
            ran: Span(3),
            cached: true,
        };
        let report = Report {
            job: JobId(1),
            state: JobState::Done,
            answer: Answer::Inconclusive,
            finished_at: Time(4),
            calls: outcomes.iter().map(called).collect(),
            partial: false,
        };
        let mut buffer = Buffer::default();
        let bytes = buffer.bytes_of_report(&report);
        check(
            bytes,
            "010203040161000101310102030101610205010203010161030178010001020301016106016201020301",
        );
        assert_eq!(read_report(JobId(1), Time(4), bytes).expect("the same"), report);
    }
}
