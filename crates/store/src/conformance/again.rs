//! Promises about services, rosters, notes and events.

use paceline_core::{
    Happened, JobId, JobState, Now, Numbered, Record, RosterRecord, ServiceRecord, ServiceResult,
    ServiceRun, Time, Write,
};

use super::Fixture;

fn both(at: u64) -> Now {
    Now { time: Time(at), wall: Time(at + 7) }
}

fn service(name: &str) -> ServiceRecord {
    ServiceRecord { name: name.into(), since: both(1), ..ServiceRecord::default() }
}

fn roster(name: &str) -> RosterRecord {
    RosterRecord { name: name.into(), ..RosterRecord::default() }
}

pub(super) fn services_and_rosters_are_kept_by_name(fixture: &mut Fixture) {
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
    fixture.commit(&[
        Write::Service(service("b")),
        Write::Roster(roster("weekly")),
        Write::Roster(roster("nightly")),
        Write::Service(service("a")),
    ]);
    fixture.commit(&[Write::Service(full.clone()), Write::Roster(under_way.clone())]);
    let expected = [
        Record::Service(service("a")),
        Record::Service(full),
        Record::Roster(under_way),
        Record::Roster(roster("weekly")),
    ];
    assert_eq!(fixture.records(), expected);
}

pub(super) fn a_note_is_kept_until_it_is_replaced_or_dropped(fixture: &mut Fixture) {
    let mut note = |writes: &[Write]| {
        fixture.commit(writes);
        fixture.reopen().note("child/a").expect("a read")
    };
    let keep = |text: &str| Write::Note("child/a".into(), Some(text.as_bytes().into()));
    assert_eq!(note(&[Write::Note("child/b".into(), Some(b"b".as_slice().into()))]), None);
    assert_eq!(note(&[keep("1"), keep("2")]).as_deref(), Some(b"2".as_slice()));
    assert_eq!(note(&[keep("")]).as_deref(), Some(b"".as_slice()));
    assert_eq!(note(&[Write::Note("child/a".into(), None)]), None);
    let names = ["a", "child", "child/", "child/ä", "chile"];
    fixture.commit(&names.map(|name| Write::Note(name.into(), Some(b"x".as_slice().into()))));
    let mut found = |beginning| fixture.reopen().notes(beginning).expect("a read").join(" ");
    assert_eq!(found("child/"), "child/ child/b child/ä");
    assert_eq!(found("chile"), "chile");
    assert_eq!(found("x"), "");
    assert_eq!(found(""), "a child child/ child/b child/ä chile");
}

pub(super) fn events_are_told_again_in_their_order_until_forgotten(fixture: &mut Fixture) {
    let event = |id: u64| {
        let what = match id % 3 {
            0 => Happened::Accepted { job: JobId(id) },
            1 => Happened::Closed { lane: "a".into(), until: Time(id) },
            _ => Happened::Started { job: JobId(id), call: 3, lane: "a".into() },
        };
        Numbered { id, at: Time(id + 100), what }
    };
    let turn = |ids: std::ops::Range<u64>| Write::Events(ids.map(event).collect());
    fixture.commit(&[turn(1..4)]);
    fixture.commit(&[turn(4..5), turn(5..9)]);
    let mut told = |after: u64, most: usize| {
        let warm = fixture.store().events(after, most).expect("events");
        assert_eq!(fixture.reopen().events(after, most).expect("events"), warm);
        warm
    };
    assert_eq!(told(0, 100), (1..9).map(event).collect::<Vec<_>>());
    assert_eq!(told(2, 3), (3..6).map(event).collect::<Vec<_>>());
    assert_eq!(told(8, 9), []);
    assert_eq!(told(u64::MAX, 9), []);
    fixture.store().forget_events(6).expect("forgotten");
    let left = fixture.reopen().events(0, 100).expect("events");
    let first = left.first().expect("some are left").id;
    assert!((2..=6).contains(&first), "few that need not stay: {first}");
    assert_eq!(left, (first..9).map(event).collect::<Vec<_>>());
}
