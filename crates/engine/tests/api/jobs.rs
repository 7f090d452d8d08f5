//! Jobs from submission to report: followed, listed, retried, told about.

use paceline::jobs::RetryError;
use paceline::report::{Answer, CallOutcome, JobState};
use paceline::{Admission, Builder, Event, Failed, Failure, Job, Lane, Outcome, Paceline};

use crate::desk::{ask, desk, small, soon, start};

#[tokio::test]
async fn a_job_is_followed_outcome_by_outcome_and_then_reports() {
    let (worker, mut desk) = desk();
    let lanes = ["a", "b"].map(Lane::new);
    let builder = lanes.into_iter().fold(Paceline::in_memory(), Builder::lane);
    let pace = start(builder.worker("ask", worker));
    let mut job = pace.submit(Job::new("ask", "x").on(["a", "b"])).await.expect("accepted");
    assert_eq!(job.admission(), Admission::Accepted(job.id()));
    let (first, second) = (desk.next().await, desk.next().await);
    let (a, b) = if first.lane == "a" { (first, second) } else { (second, first) };
    b.answer(Outcome::empty());
    assert_eq!(soon(job.next()).await.expect("an outcome").to_string(), "b: empty");
    a.done();
    assert_eq!(soon(job.next()).await.expect("an outcome").to_string(), r#"a: done "x!""#);
    assert_eq!(soon(job.next()).await, None);
    assert_eq!(soon(job.next()).await, None, "and nothing ever after");
    let report = soon(job.report()).await.expect("a report");
    assert_eq!((report.state, report.answer), (JobState::Done, Answer::Conclusive));
    let lanes: Vec<&str> = report.calls.iter().map(|call| &*call.lane).collect();
    assert_eq!(lanes, ["a", "b"], "in the order of the job, not of the answers");
}

#[tokio::test]
async fn a_followed_job_is_a_stream_of_outcomes() {
    let (worker, mut desk) = desk();
    let lanes = ["a", "b"].map(Lane::new);
    let builder = lanes.into_iter().fold(Paceline::in_memory(), Builder::lane);
    let pace = start(builder.worker("ask", worker));
    let job = pace.submit(Job::new("ask", "x").on(["a", "b"])).await.expect("accepted");
    assert_eq!(job.admission().to_string(), "accepted as job 1");
    let outcomes = futures_util::StreamExt::map(job, |call| call.value::<String>());
    let outcomes = futures_util::StreamExt::collect::<Vec<_>>(outcomes);
    let (outcomes, ()) = tokio::join!(soon(outcomes), async {
        desk.next().await.done();
        desk.next().await.answer(Outcome::empty());
    });
    assert_eq!(outcomes.len(), 2);
    assert_eq!(outcomes[0].as_ref().expect("a text"), "x!");
    let none = outcomes[1].as_ref().expect_err("nothing was found").to_string();
    assert!(none.starts_with("there is no value: ") && none.ends_with(": empty"), "{none}");
}

#[tokio::test]
async fn a_span_that_is_none_is_an_error_and_changes_nothing() {
    let (pace, mut desk) = small();
    let job = pace.submit(ask("x")).await.expect("accepted");
    let words = "`soon` is not a span of time: write it like `250ms`, `90s` or `1h30m`";
    assert_eq!(soon(pace.stop("soon")).await.expect_err("no span").to_string(), words);
    let followed = soon(pace.follow_within(job.id(), "soon")).await;
    assert_eq!(followed.expect_err("no span").to_string(), words);
    desk.next().await.done();
    soon(job.report()).await.expect("it goes on");
    soon(pace.stop("0s")).await.expect("stopped");
}

#[tokio::test]
async fn a_batch_is_answered_job_by_job() {
    let (pace, mut desk) = small();
    let jobs =
        [ask("1"), Job::new("ask", "2").on(["nowhere"]), ask("3").max_wait("soon"), ask("4")];
    let answers = pace.submit_all(jobs).await;
    let texts: Vec<String> = answers
        .iter()
        .map(|answer| answer.as_ref().map_or_else(ToString::to_string, |job| job.id().to_string()))
        .collect();
    assert_eq!(
        texts,
        [
            "1",
            "no lane named `nowhere`: configure it, or a template such as `host:*` that covers it",
            "`soon` is not a span of time: write it like `250ms`, `90s` or `1h30m`",
            "2",
        ]
    );
    for (answer, payload) in answers.into_iter().flatten().zip(["1!", "4!"]) {
        desk.next().await.done();
        let report = soon(answer.report()).await.expect("a report");
        assert_eq!(report.calls[0].to_string(), format!("a: done \"{payload}\""));
    }
    assert!(pace.submit_all([]).await.is_empty());
}

#[tokio::test]
async fn a_job_is_followed_later_too_and_after_its_end() {
    let (pace, mut desk) = small();
    let id = pace.submit(ask("x")).await.expect("accepted").id();
    let job = soon(pace.follow(id)).await.expect("running").expect("it is known");
    desk.next().await.done();
    let report = soon(job.report()).await.expect("a report");
    let mut again = soon(pace.follow(id)).await.expect("running").expect("it is known");
    assert_eq!(again.next().await, None);
    assert_eq!(again.report().await.expect("a report").calls, report.calls);
    assert!(soon(pace.follow(paceline::JobId(99))).await.expect("running").is_none());
}

#[tokio::test]
async fn a_list_has_pages_and_states() {
    let (pace, mut desk) = small();
    let jobs = pace.submit_all((0..250).map(|n| ask(&n.to_string()))).await;
    let ids: Vec<_> = jobs.into_iter().map(|job| job.expect("accepted").id()).collect();
    for _ in 0..100 {
        desk.next().await.done();
    }
    let running = desk.next().await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (views, next) = soon(pace.list(after, 30, None)).await.expect("running");
        assert!(views.len() <= 30);
        seen.extend(views.into_iter().map(|job| (job.stored.record.id, job.state)));
        after = next;
        if after.is_none() {
            break;
        }
    }
    let state = |n| match n {
        0..100 => JobState::Done,
        100 => JobState::Running,
        _ => JobState::Waiting,
    };
    let expected: Vec<_> = ids.iter().enumerate().map(|(n, id)| (*id, state(n))).collect();
    assert_eq!(seen, expected);

    let (done, next) = soon(pace.list(None, 99, Some(JobState::Done))).await.expect("running");
    assert_eq!((done.len(), next), (99, Some(ids[98])));
    let (rest, next) = soon(pace.list(next, 99, Some(JobState::Done))).await.expect("running");
    assert_eq!((rest.len(), next), (1, None));
    let (runs, _) = soon(pace.list(None, 9, Some(JobState::Running))).await.expect("running");
    assert_eq!(runs[0].stored.record.id, ids[100]);
    let one = soon(pace.job(ids[0])).await.expect("running").expect("it is known");
    assert_eq!(one.stored.report.expect("finished").calls[0].attempts, 1);
    drop(running);
}

#[tokio::test]
async fn a_retry_asks_only_lanes_that_gave_no_answer() {
    let (worker, mut desk) = desk();
    let lanes = ["a", "b", "c"].map(Lane::new);
    let builder = lanes.into_iter().fold(Paceline::in_memory(), Builder::lane);
    let pace = start(builder.worker("ask", worker));
    let job = pace.submit(Job::new("ask", "x").on(["a", "b", "c"])).await.expect("accepted");
    let id = job.id();
    let early = soon(pace.retry(id)).await;
    assert!(matches!(early, Err(RetryError::Unfinished(job)) if job == id));
    for _ in 0..3 {
        let visit = desk.next().await;
        match &*visit.lane {
            "a" => visit.done(),
            "b" => visit.answer(Outcome::empty()),
            _ => visit.fail(Failed::of(Failure::permanent("status_404"))),
        }
    }
    soon(job.report()).await.expect("a report");

    let retried = soon(pace.retry(id)).await.expect("something to retry");
    let next = retried.job().expect("accepted");
    let visit = desk.next().await;
    assert_eq!((visit.job, &*visit.lane, &*visit.payload), (next.0, "c", "\"x\""));
    visit.done();
    let job = soon(pace.follow(next)).await.expect("running").expect("it is known");
    assert_eq!(soon(job.report()).await.expect("a report").calls.len(), 1);

    let again = soon(pace.retry(next)).await.expect_err("nothing is left");
    assert_eq!(again.to_string(), "job 2 has an answer from every lane: there is nothing to retry");
    let unknown = soon(pace.retry(paceline::JobId(77))).await;
    let unknown = unknown.expect_err("there is none").to_string();
    assert_eq!(unknown, "no job 77: it never existed, or was forgotten after `keep_finished`");
}

#[tokio::test]
async fn an_answer_from_where_a_call_moved_to_is_not_asked_for_again() {
    let (worker, mut desk) = desk();
    let builder = Paceline::in_memory().lane(Lane::new("a")).lane(Lane::new("b"));
    let pace = start(builder.worker("ask", worker));
    let job = pace.submit(ask("x")).await.expect("accepted");
    let id = job.id();
    desk.next().await.answer(Outcome::moved("b", None));
    desk.next().await.done();
    soon(job.report()).await.expect("a report");
    let retried = soon(pace.retry(id)).await;
    assert!(matches!(retried, Err(RetryError::Complete(job)) if job == id));
}

#[tokio::test]
async fn events_come_in_the_order_of_things() {
    let (pace, mut desk) = small();
    let mut events = pace.events();
    let job = pace.submit(ask("x")).await.expect("accepted");
    desk.next().await.done();
    let report = soon(job.report()).await.expect("a report");
    let mut told = Vec::new();
    loop {
        let event = soon(events.recv()).await.expect("none was missed");
        told.push(match &event {
            Event::Accepted(job) => format!("accepted {job}"),
            Event::Started(call, lane) => format!("started {} on {lane}", call.job),
            Event::Settled(_, call) => format!("settled {call}"),
            Event::Finished(of) => {
                assert_eq!(*of, report);
                break;
            }
            Event::Closed(..) => unreachable!("nothing was throttled"),
        });
    }
    assert_eq!(told, ["accepted 1", "started 1 on a", r#"settled a: done "x!""#]);
}

#[tokio::test]
async fn b3_idle_waits_for_what_runs_waits_and_is_due() {
    let (pace, mut desk) = small();
    soon(pace.idle()).await.expect("running");
    let jobs = [ask("1"), ask("2").delay("30ms"), ask("3")];
    pace.submit_all(jobs).await;
    let idle = tokio::task::unconstrained(pace.idle());
    tokio::pin!(idle);
    for _ in 0..3 {
        tokio::select! {
            biased;
            _ = &mut idle => panic!("something is left to do"),
            visit = desk.next() => visit.done(),
        }
    }
    soon(idle).await.expect("running");
    let (jobs, _) = soon(pace.list(None, 10, Some(JobState::Done))).await.expect("running");
    assert_eq!(jobs.len(), 3);
}

#[tokio::test]
async fn p4_tenants_take_turns() {
    let (pace, mut desk) = small();
    let first = pace.submit(ask("first")).await.expect("accepted");
    let busy = desk.next().await;
    let many = (0..4).map(|n| ask(&format!("many {n}")).tenant("many"));
    pace.submit_all(many.chain([ask("few 0").tenant("few"), ask("few 1").tenant("few")])).await;
    busy.done();
    soon(first.report()).await.expect("a report");
    let mut order = Vec::new();
    for _ in 0..6 {
        let visit = desk.next().await;
        order.push(visit.payload.trim_matches('"').to_string());
        visit.done();
    }
    let mut heads: Vec<&str> = order[..4].iter().map(|name| &name[..name.len() - 2]).collect();
    assert_ne!(heads[0], heads[1], "{order:?}");
    heads.sort_unstable();
    assert_eq!(heads, ["few", "few", "many", "many"]);
    assert_eq!(order[4..], ["many 2", "many 3"]);
}

#[tokio::test]
async fn j4_no_answer_never_looks_like_nothing_found() {
    let (pace, mut desk) = small();
    for (work, answer) in [
        (Outcome::empty(), Answer::Empty),
        (Outcome::failed(Failure::permanent("status_500")), Answer::Inconclusive),
        (Outcome::inconclusive("maybe"), Answer::All),
    ] {
        let job = pace.submit(ask("x")).await.expect("accepted");
        desk.next().await.answer(work);
        let report = soon(job.report()).await.expect("a report");
        assert_eq!(report.answer, answer, "{}", report.calls[0]);
        assert!(!matches!(report.calls[0].outcome, CallOutcome::Skipped(_)));
    }
}

#[tokio::test]
async fn jobs_are_found_by_key_and_listed_by_kind_lane_and_tenant() {
    let (pace, mut desk) = small();
    let first = pace.submit(ask("x").key("k")).await.expect("accepted");
    desk.next().await.done();
    let first = soon(first.report()).await.expect("a report").job;
    let second = pace.submit(ask("y").key("k").tenant("t")).await.expect("accepted").id();
    let ids = |jobs: Vec<paceline::jobs::JobView>| -> Vec<u64> {
        jobs.iter().map(|job| job.stored.record.id.0).collect()
    };
    assert_eq!(ids(pace.keyed("k").await.expect("it runs")), [first.0, second.0]);
    assert_eq!(ids(pace.keyed("other").await.expect("it runs")), [0; 0]);
    let of = |filter: paceline::jobs::Filter| async {
        ids(pace.list(None, 10, filter).await.expect("it runs").0)
    };
    let all = paceline::jobs::Filter::default();
    let tenant = paceline::jobs::Filter { tenant: Some("t".into()), ..all.clone() };
    assert_eq!(of(tenant).await, [second.0]);
    let kind = paceline::jobs::Filter { kind: Some("other".into()), ..all.clone() };
    assert_eq!(of(kind).await, [0; 0]);
    let lane = paceline::jobs::Filter { lane: Some("a".into()), ..all };
    assert_eq!(of(lane).await, [first.0, second.0]);
}
