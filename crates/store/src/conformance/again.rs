//! Work that comes again and what is kept under a name.

use paceline_core::{
    JobId, JobState, Now, Record, RosterRecord, ServiceRecord, ServiceResult, ServiceRun, Time,
    Write,
};

use super::Place;

fn both(at: u64) -> Now {
    Now { time: Time(at), wall: Time(at + 7) }
}

fn service(name: &str) -> ServiceRecord {
    ServiceRecord { name: name.into(), since: both(1), ..ServiceRecord::default() }
}

fn roster(name: &str) -> RosterRecord {
    RosterRecord { name: name.into(), ..RosterRecord::default() }
}

pub(super) fn services_and_rosters_are_kept_by_name(place: &mut Place) {
    let result = ServiceResult { state: JobState::Failed, why: Some("exit code 3".into()) };
    let run = ServiceRun { job: JobId(9), ended_at: Time(8), result: result.clone() };
    let full = ServiceRecord { succeeded_at: Some(both(5)), last: Some(run), ..service("b") };
    let under_way = RosterRecord {
        begun_at: Some(Time(4)),
        over_at: Some(both(3)),
        current: Some(("b".into(), JobId(9))),
        remaining: vec!["c".into(), "d".into()],
        results: vec![("a".into(), result)],
        ..roster("nightly")
    };
    place.commit(&[
        Write::Service(service("b")),
        Write::Roster(roster("weekly")),
        Write::Roster(roster("nightly")),
        Write::Service(service("a")),
    ]);
    place.commit(&[Write::Service(full.clone()), Write::Roster(under_way.clone())]);
    let expected = [
        Record::Service(service("a")),
        Record::Service(full),
        Record::Roster(under_way),
        Record::Roster(roster("weekly")),
    ];
    assert_eq!(place.records(), expected);
}

pub(super) fn a_note_is_kept_until_it_is_replaced_or_dropped(place: &mut Place) {
    let mut note = |writes: &[Write]| {
        place.commit(writes);
        place.reopen().note("child/a").expect("a read")
    };
    let keep = |text: &str| Write::Note("child/a".into(), Some(text.as_bytes().into()));
    assert_eq!(note(&[Write::Note("child/b".into(), Some(b"b".as_slice().into()))]), None);
    assert_eq!(note(&[keep("1"), keep("2")]).as_deref(), Some(b"2".as_slice()));
    assert_eq!(note(&[keep("")]).as_deref(), Some(b"".as_slice()));
    assert_eq!(note(&[Write::Note("child/a".into(), None)]), None);
}
