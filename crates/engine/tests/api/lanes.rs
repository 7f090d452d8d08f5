//! Lanes by hand: paused, reset, changed while running; templates and groups (L9 to L11).

use std::time::Duration;

use paceline::lanes::{ChangeError, Reason};
use paceline::report::JobState;
use paceline::{Event, Group, Job, Lane, Outcome, Paceline, Span};

use crate::desk::{ask, between, desk, moments, small, soon, start, when};

#[tokio::test]
async fn a_paused_lane_starts_nothing_until_it_is_resumed() {
    let (pace, mut desk) = small();
    let running = pace.submit(ask("runs")).await.expect("accepted");
    let visit = desk.next().await;
    soon(pace.pause("a")).await.expect("a lane");
    let waiting = pace.submit(ask("waits").interactive()).await.expect("accepted");
    visit.done();
    soon(running.report()).await.expect("what runs goes on");
    let why = soon(pace.why(waiting.id())).await.expect("running");
    assert_eq!((why[0].1.reason, why[0].1.until), (Reason::Paused, None));
    let lanes = soon(pace.lanes()).await.expect("running");
    assert!(lanes[0].paused && lanes[0].waiting == 1 && desk.is_quiet());
    soon(pace.resume("a")).await.expect("a lane");
    desk.next().await.done();
    soon(waiting.report()).await.expect("a report");
    let unknown = soon(pace.pause("b")).await.expect_err("there is none");
    assert_eq!(unknown.to_string(), "no lane named `b`");
}

#[tokio::test]
async fn l6_a_reset_lifts_the_cooldown() {
    let (pace, mut desk) = small();
    let mut events = pace.events();
    let job = pace.submit(ask("x")).await.expect("accepted");
    desk.next().await.answer(Outcome::throttled(Some(Duration::from_hours(1))));
    while !matches!(soon(events.recv()).await.expect("none was missed"), Event::Closed(..)) {}
    let other = pace.submit(ask("y")).await.expect("accepted");
    let lane = &soon(pace.lanes()).await.expect("running")[0];
    assert_eq!(lane.cooldown_until, Some(lane.open_at));
    soon(pace.reset("a")).await.expect("a lane");
    for _ in 0..2 {
        desk.next().await.done();
    }
    for job in [job, other] {
        assert_eq!(soon(job.report()).await.expect("a report").state, JobState::Done);
    }
}

#[tokio::test]
async fn l11_limits_change_while_running() {
    let (worker, mut desk) = desk();
    // With slack, a new window would also count what may still be on its way.
    let lane = Lane::new("a").every("1h").slack("0ms");
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", worker));
    let jobs = pace.submit_all((0..5).map(|n| ask(&n.to_string()))).await;
    let first = desk.next().await;
    let last = jobs.last().expect("five").as_ref().expect("accepted").id();
    let why = soon(pace.why(last)).await.expect("running");
    assert_eq!((why[0].1.reason, why[0].1.ahead), (Reason::Gap, 3));
    assert!(why[0].1.also.contains(&Reason::Busy) && why[0].1.also.contains(&Reason::Priority));
    soon(pace.change(Lane::new("a").in_flight(9))).await.expect("sound");
    let rest = [desk.next().await, desk.next().await, desk.next().await, desk.next().await];
    rest.into_iter().chain([first]).for_each(crate::desk::Visit::done);
    for job in jobs {
        soon(job.expect("accepted").report()).await.expect("a report");
    }
    // And narrower again: a new window counts from its introduction on.
    soon(pace.change(Lane::new("a").limit("1/h"))).await.expect("sound");
    let jobs = pace.submit_all([ask("fits"), ask("does not")]).await;
    desk.next().await.done();
    let mut ids = jobs.into_iter().map(|job| job.expect("accepted"));
    soon(ids.next().expect("two").report()).await.expect("a report");
    let why = soon(pace.why(ids.next().expect("two").id())).await.expect("running");
    assert_eq!(why[0].1.reason, Reason::Window);
}

#[tokio::test]
async fn limits_that_cannot_be_meant_are_not_changed() {
    let (pace, _desk) = small();
    for (lane, sentence) in [
        (Lane::new("b"), "no lane named `b`"),
        (Lane::new("a").in_flight(0), "lane or group `a`: `in_flight` is zero: nothing could run"),
        (
            Lane::new("a").group("missing"),
            "lane `a` is in the group `missing`, which does not exist: add it, or leave it out",
        ),
    ] {
        let error: ChangeError = soon(pace.change(lane)).await.expect_err(sentence);
        assert_eq!(error.to_string(), sentence);
    }
}

#[tokio::test]
async fn l9_lanes_of_a_group_share_its_gap() {
    let builder = ["a", "b", "c"]
        .into_iter()
        .fold(Paceline::in_memory(), |all, name| all.lane(Lane::new(name).group("host")));
    let pace = start(builder.group(Group::new("host").every("30ms")).worker("ask", when));
    // The group's gap is not bent by priority.
    let job = Job::new("ask", "x").on(["a", "b", "c"]).interactive();
    let report = soon(pace.submit(job).await.expect("accepted").report()).await.expect("a report");
    let mut starts = moments(&report);
    starts.sort_unstable();
    for pair in starts.windows(2) {
        assert!(between(pair[0], pair[1]) >= Span::millis(30), "{starts:?}");
    }
}

#[tokio::test]
async fn l3_no_window_however_placed_holds_more_than_its_limit() {
    let lane = Lane::new("a").limit("3/100ms").in_flight(5);
    let pace = start(Paceline::in_memory().lane(lane).worker("ask", when));
    let jobs = pace.submit_all((0..10).map(|n| ask(&n.to_string()))).await;
    let mut starts = Vec::new();
    for job in jobs {
        starts.extend(moments(&soon(job.expect("accepted").report()).await.expect("a report")));
    }
    starts.sort_unstable();
    for (first, fourth) in starts.iter().zip(&starts[3..]) {
        assert!(between(*first, *fourth) >= Span::millis(100), "{starts:?}");
    }
    assert!(between(starts[0], starts[9]) < Span::secs(10), "and no slower than it must be");
}

#[tokio::test]
async fn l10_a_template_makes_lanes_as_they_are_named() {
    let (worker, mut desk) = desk();
    let pace = start(Paceline::in_memory().lane(Lane::new("host:*")).worker("ask", worker));
    let job = Job::new("ask", "x").on(["host:a", "host:b"]);
    let job = pace.submit(job).await.expect("accepted");
    let both = [desk.next().await, desk.next().await];
    both.into_iter().for_each(crate::desk::Visit::done);
    soon(job.report()).await.expect("a report");
    let lanes = soon(pace.lanes()).await.expect("running");
    let names: Vec<&str> = lanes.iter().map(|lane| &*lane.name).collect();
    assert_eq!(names, ["host:a", "host:b"]);
}
